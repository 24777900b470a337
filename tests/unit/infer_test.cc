// Inference rules: known answers of PyTorch as a table, errors instead of crashes, and any arguments for every op.
#include <catch2/catch.hpp>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "libgraph/infer/check_types.h"
#include "libgraph/infer/infer.h"
#include "libgraph/job.h"
#include "tests/support/integer_type.h"
#include "tests/support/random_job.h"
#include "tests/support/rng.h"

namespace sg {
namespace {

struct T {  // a tensor type in short; no strides = row-major
  DType dtype;
  std::vector<std::string> shape;
  std::vector<std::string> stride = {"row-major"};
  std::string offset = "0";
};

struct World {
  Job job;
  Pool& pool = *job.pool;
  Program& program = job.add_program();
  Graph& graph = program.graph;

  World() {
    add_symbol("u0", SymbolKind::data, std::nullopt);
    add_symbol("s0", SymbolKind::input, 6);
  }
  void add_symbol(const char* name, SymbolKind kind, std::optional<int64_t> hint) {
    Symbol s;
    s.name = pool.str(name), s.kind = kind, s.hint = hint, s.min = kind == SymbolKind::data ? 0 : 2;
    program.symbols.push_back(s);
  }
  std::vector<Expr> exprs(const std::vector<std::string>& list) {
    std::vector<Expr> out;
    for (const std::string& text : list) out.push_back(pool.exprs.parse(text).value());
    return out;
  }
  Type type(const T& t) {
    Type type = pool.types[pool.tensor(t.dtype, exprs(t.shape), pool.str("cpu"))];
    if (t.stride != std::vector<std::string>{"row-major"}) type.stride = exprs(t.stride);
    type.offset = pool.exprs.parse(t.offset).value();
    return type;
  }
  Arg tensor(const T& t) { return Arg::value(graph.add_input("x", pool.types.intern(type(t)), {})); }
  Arg sizes(const std::vector<std::string>& list) {
    ArgList items;
    for (Expr e : exprs(list)) items.push_back(Arg::expr(e));
    return Arg::list(std::move(items));
  }
  NodeId node(std::string_view op, std::vector<Arg> args, size_t results = 1) {
    NodeSpec spec;
    spec.op = pool.op(op);
    spec.args = std::move(args);
    spec.result_types.assign(results, Pool::kUnknownType);
    return graph.append(spec);
  }
  Result<std::vector<Type>> infer(std::string_view op, std::vector<Arg> args, size_t results = 1) {
    return infer_types(program, graph, node(op, std::move(args), results));
  }
  bool gives(std::string_view op, std::vector<Arg> args, const std::vector<T>& wanted) {
    auto types = infer(op, std::move(args), wanted.size());
    if (!types.ok()) FAIL_CHECK(types.error().message);
    if (!types.ok() || types->size() != wanted.size()) return false;
    for (size_t i = 0; i < wanted.size(); ++i)
      if (!((*types)[i] == type(wanted[i]))) return false;
    return true;
  }
};

constexpr DType f32 = DType::f32, bf16 = DType::bf16, i64 = DType::i64, i32 = DType::i32, b8 = DType::boolean;

TEST_CASE("infer: elementwise strides, broadcasting and promotion") {
  World w;
  CHECK(w.gives("aten.add.Tensor", {w.tensor({f32, {"2", "3"}}), w.tensor({f32, {"3"}})}, {{f32, {"2", "3"}}}));
  CHECK(w.gives("aten.add.Tensor", {w.tensor({f32, {"2", "3"}, {"1", "2"}}), w.tensor({f32, {"2", "3"}, {"1", "2"}})},
                {{f32, {"2", "3"}, {"1", "2"}}}));
  CHECK(w.gives("aten.mul.Tensor", {w.tensor({bf16, {"4", "1"}}), w.tensor({f32, {}})}, {{bf16, {"4", "1"}}}));
  CHECK(w.gives("aten.mul.Tensor", {w.tensor({i64, {"4"}}), Arg::floating(2.5)}, {{f32, {"4"}}}));
  CHECK(w.gives("aten.add.Tensor", {w.tensor({i32, {"4"}}), w.tensor({i64, {}})}, {{i32, {"4"}}}));
  CHECK(w.gives("aten.div.Tensor", {w.tensor({i64, {"4"}}), w.tensor({i64, {"4"}})}, {{f32, {"4"}}}));
  CHECK(w.gives("aten.lt.Scalar", {w.tensor({f32, {"0", "3"}}), Arg::integer(1)}, {{b8, {"0", "3"}}}));
  CHECK(w.gives("aten.exp.default", {w.tensor({f32, {"2", "3", "4"}, {"12", "1", "3"}})},
                {{f32, {"2", "3", "4"}, {"12", "1", "3"}}}));
  CHECK(w.gives("aten.neg.default", {w.tensor({f32, {"2", "3"}, {"8", "1"}})}, {{f32, {"2", "3"}}}));
  CHECK(w.gives("aten.add_.Tensor", {w.tensor({f32, {"2", "3"}, {"8", "1"}, "5"}), w.tensor({f32, {"3"}})},
                {{f32, {"2", "3"}, {"8", "1"}, "5"}}));
  CHECK_FALSE(w.infer("aten.add.Tensor", {w.tensor({f32, {"2"}}), w.tensor({f32, {"3"}})}).ok());
  CHECK_FALSE(w.infer("aten.add_.Tensor", {w.tensor({f32, {"1"}}), w.tensor({f32, {"3"}})}).ok());
}

TEST_CASE("infer: losses of a narrow type against targets of a wide one") {
  World w;
  for (const char* op : {"aten.mse_loss.default", "aten.smooth_l1_loss.default", "aten.huber_loss.default"}) {
    CHECK(w.gives(op, {w.tensor({bf16, {"4", "3"}}), w.tensor({f32, {"4", "3"}})}, {{f32, {}}}));
    CHECK(w.gives(op, {w.tensor({f32, {"4", "3"}}), w.tensor({bf16, {"3"}}), Arg::integer(0)}, {{f32, {"4", "3"}}}));
    CHECK(w.gives(op, {w.tensor({bf16, {"4"}}), w.tensor({f32, {}})}, {{bf16, {}}}));
  }
  CHECK(w.gives("aten.mse_loss_backward.default",
                {w.tensor({f32, {}}), w.tensor({bf16, {"4"}}), w.tensor({f32, {"4"}}), Arg::integer(1)},
                {{f32, {"4"}}}));
  const char* logits = "aten.binary_cross_entropy_with_logits.default";  // computes with 1 - target
  CHECK(w.gives(logits, {w.tensor({bf16, {"4"}}), w.tensor({f32, {"4"}})}, {{f32, {}}}));
  CHECK(w.gives(logits, {w.tensor({f32, {"4"}}), w.tensor({bf16, {"4"}})}, {{bf16, {}}}));
}

TEST_CASE("infer: sizes that only the data knows") {
  World w;
  CHECK(w.gives("aten.ones.default", {w.sizes({"u0", "u0"})}, {{f32, {"u0", "u0"}, {"Max(1,u0)", "1"}}}));
  CHECK(w.gives("aten.ones.default", {w.sizes({"2", "s0"})}, {{f32, {"2", "s0"}, {"s0", "1"}}}));
  CHECK(w.gives("aten.mul.Tensor", {w.tensor({f32, {"u0", "4"}}), w.tensor({f32, {"8", "1"}})}, {{f32, {"u0", "4"}}}));
  CHECK(w.gives("aten.view.default", {w.tensor({f32, {"u0", "4"}}), w.sizes({"u0", "2", "-1"})},
                {{f32, {"u0", "2", "2"}}}));
}

// The types that PyTorch 2.15 gives to fake tensors; the recorded symbol is u0.
TEST_CASE("infer: ops that give what they find take its number from the record") {
  World w;
  auto gives = [&](std::string_view op, std::vector<Arg> args, const std::vector<T>& wanted) {
    NodeId n = w.node(op, args, wanted.size());
    auto blind = infer_types(w.program, w.graph, n);
    if (!blind.ok() || (*blind)[0].kind != TypeKind::unknown) return false;
    for (uint32_t i = 0; i < wanted.size(); ++i)
      w.graph.set_type(w.graph.node(n).result(i), w.pool.types.intern(w.type(wanted[i])));
    auto types = infer_types(w.program, w.graph, n);
    for (size_t i = 0; i < wanted.size(); ++i)
      if (!types.ok() || !((*types)[i] == w.type(wanted[i]))) return false;
    Type other = w.type(wanted[0]);
    other.shape.push_back(w.pool.exprs.constant(2)), other.stride.push_back(w.pool.exprs.constant(1));
    w.graph.set_type(w.graph.node(n).result(0), w.pool.types.intern(other));
    return !infer_types(w.program, w.graph, n).ok();
  };
  T x{f32, {"6", "4"}, {"1", "6"}}, vector{i64, {"7"}};
  CHECK(gives("aten.nonzero.default", {w.tensor(x)}, {{i64, {"u0", "2"}, {"1", "u0"}}}));
  CHECK(gives("aten.nonzero.default", {w.tensor({f32, {}})}, {{i64, {"u0", "0"}, {"1", "u0"}}}));
  CHECK(gives("aten.repeat_interleave.Tensor", {w.tensor({i64, {"3"}})}, {{i64, {"u0"}}}));
  CHECK(gives("aten.masked_select.default", {w.tensor(x), w.tensor({b8, {"4"}})}, {{f32, {"u0"}}}));
  CHECK(gives("aten._unique2.default", {w.tensor(x)}, {{f32, {"u0"}}, {i64, {"0"}}, {i64, {"0"}}}));
  CHECK(gives("aten._unique2.default", {w.tensor(x), Arg::boolean(true), Arg::boolean(true), Arg::boolean(true)},
              {{f32, {"u0"}}, {i64, {"6", "4"}}, {i64, {"u0"}}}));
  CHECK(gives("aten.bincount.default", {w.tensor(vector)}, {{i64, {"u0"}}}));
  CHECK(gives("aten.bincount.default", {w.tensor(vector), w.tensor({f32, {"7"}})}, {{f32, {"u0"}}}));
  CHECK(gives("aten.bincount.default", {w.tensor(vector), w.tensor(vector)}, {{DType::f64, {"u0"}}}));
  CHECK_FALSE(w.infer("aten.masked_select.default", {w.tensor(x), w.tensor({b8, {"5"}})}).ok());
  CHECK_FALSE(w.infer("aten.masked_select.default", {w.tensor(x), w.tensor(x)}).ok());
  CHECK_FALSE(w.infer("aten.bincount.default", {w.tensor(x)}).ok());
  auto exchange = [&](int64_t gather, int64_t shard) {
    return std::vector<Arg>{w.tensor({bf16, {"6", "4"}}), Arg::integer(gather), Arg::integer(shard),
                            Arg::group(GroupId(0))};
  };
  CHECK(gives("_dtensor.shard_dim_alltoall.default", exchange(0, 1), {{bf16, {"12", "2"}}}));
  NodeId n = w.node("_dtensor.shard_dim_alltoall.default", exchange(0, 1));
  w.graph.set_type(w.graph.node(n).first_result, w.pool.types.intern(w.type({bf16, {"13", "2"}})));
  CHECK_FALSE(infer_types(w.program, w.graph, n).ok());
  auto program_with_search = infer_missing_types(w.program);
  CHECK(program_with_search == 0);  // unknown stays unknown, and is not counted
}

TEST_CASE("infer: the gradient of what a mask scattered") {
  World w;
  T x{f32, {"6", "4"}, {"1", "6"}};
  Arg sizes = w.sizes({"3", "9"});
  CHECK(w.gives("aten.masked_scatter_backward.default", {w.tensor(x), w.tensor({b8, {"4"}}), sizes},
                {{f32, {"3", "9"}}}));
  CHECK_FALSE(w.infer("aten.masked_scatter_backward.default", {w.tensor(x), w.tensor({b8, {"5"}}), sizes}).ok());
  CHECK_FALSE(w.infer("aten.masked_scatter_backward.default", {w.tensor(x), w.tensor({i64, {"4"}}), sizes}).ok());
}

TEST_CASE("infer: indices of a lower triangle") {
  World w;
  auto tril = [&](int64_t rows, int64_t columns, int64_t offset) {
    return std::vector<Arg>{Arg::integer(rows), Arg::integer(columns), Arg::integer(offset)};
  };
  for (int64_t rows = 0; rows < 5; ++rows)
    for (int64_t columns = 0; columns < 5; ++columns)
      for (int64_t offset = -6; offset < 7; ++offset) {
        int64_t count = 0;
        for (int64_t r = 0; r < rows; ++r) count += std::clamp<int64_t>(r + offset + 1, 0, columns);
        INFO(rows << " " << columns << " " << offset);
        std::string n = std::to_string(count);
        CHECK(w.gives("aten.tril_indices.default", tril(rows, columns, offset),
                      {{i64, {"2", n}, {count == 0 ? "1" : n, "1"}}}));
      }
  CHECK(w.infer("aten.tril_indices.default", tril(int64_t{1} << 30, int64_t{1} << 30, int64_t{1} << 30)).ok());
  CHECK_FALSE(w.infer("aten.tril_indices.default", tril(INT64_MAX, INT64_MAX, INT64_MAX)).ok());
  CHECK_FALSE(w.infer("aten.tril_indices.default", tril(-1, 2, 0)).ok());
}

TEST_CASE("infer: a view whose sizes multiply to a number by a guard") {
  World w;
  const T of_data{f32, {"12//u0", "12//(12//u0)", "16"}, {"16*max(1, 12//(12//u0))", "16", "1"}};
  const std::vector<Arg> args{w.tensor(of_data), w.sizes({"12", "16"})};
  CHECK(!w.infer("aten.view.default", args).ok());
  Guard guard;
  guard.left = w.exprs({"(12//u0)*(12//(12//u0))"})[0], guard.right = w.exprs({"12"})[0];
  w.program.guards.push_back(guard);
  CHECK(w.gives("aten.view.default", args, {{f32, {"12", "16"}}}));
  CHECK(!w.infer("aten.view.default", {args[0], w.sizes({"13", "16"})}).ok());
}

TEST_CASE("infer: views") {
  World w;
  T base{f32, {"2", "3", "4"}};
  CHECK(w.gives("aten.transpose.int", {w.tensor(base), Arg::integer(0), Arg::integer(-1)},
                {{f32, {"4", "3", "2"}, {"1", "4", "12"}}}));
  CHECK(w.gives("aten.select.int", {w.tensor(base), Arg::integer(1), Arg::integer(-1)},
                {{f32, {"2", "4"}, {"12", "1"}, "8"}}));
  CHECK(w.gives("aten.slice.Tensor",
                {w.tensor(base), Arg::integer(2), Arg::integer(1), Arg::integer(INT64_MAX), Arg::integer(2)},
                {{f32, {"2", "3", "2"}, {"12", "4", "2"}, "1"}}));
  CHECK(w.gives("aten.slice.Tensor", {w.tensor(base), Arg::integer(2), Arg::integer(3), Arg::integer(1)},
                {{f32, {"2", "3", "0"}, {"12", "4", "1"}, "3"}}));
  CHECK(w.gives("aten.slice.Tensor", {w.tensor({f32, {"u0"}}), Arg::integer(0), Arg::integer(0), Arg::integer(-1)},
                {{f32, {"max(0, u0 - 1)"}}}));
  CHECK(w.gives("aten.slice.Tensor", {w.tensor({f32, {"s0"}}), Arg::integer(0), Arg::integer(0), Arg::integer(-1)},
                {{f32, {"s0 - 1"}}}));
  w.program.symbols.back().max = 8;  // s0, of 2 to 8
  const Arg minus_s0 = Arg::expr(w.exprs({"-s0"})[0]), minus_two_s0 = Arg::expr(w.exprs({"-2*s0"})[0]);
  CHECK(w.gives("aten.slice.Tensor", {w.tensor({f32, {"s0"}}), Arg::integer(0), minus_s0}, {{f32, {"s0"}}}));
  CHECK(w.gives("aten.slice.Tensor", {w.tensor({f32, {"s0"}}), Arg::integer(0), minus_two_s0}, {{f32, {"s0"}}}));
  CHECK(w.gives("aten.slice.Tensor", {w.tensor({f32, {"s0"}}), Arg::integer(0), Arg::integer(-8)}, {{f32, {"s0"}}}));
  CHECK(w.gives("aten.slice.Tensor", {w.tensor({f32, {"s0"}}), Arg::integer(0), Arg::integer(-2)},
                {{f32, {"2"}, {"1"}, "s0 - 2"}}));
  CHECK(w.gives("aten.expand.default", {w.tensor({f32, {"3", "1"}}), w.sizes({"2", "-1", "4"})},
                {{f32, {"2", "3", "4"}, {"0", "1", "0"}}}));
  CHECK(w.gives("aten.reshape.default", {w.tensor({f32, {"3", "2"}, {"1", "3"}}), w.sizes({"6"})}, {{f32, {"6"}}}));
  CHECK(w.gives("aten.view.default", {w.tensor({f32, {"2", "6"}, {"8", "1"}, "3"}), w.sizes({"2", "3", "2"})},
                {{f32, {"2", "3", "2"}, {"8", "2", "1"}, "3"}}));
  CHECK(w.gives("aten.unbind.int", {w.tensor({f32, {"2", "3"}})}, {{f32, {"3"}}, {f32, {"3"}, {"1"}, "3"}}));
  CHECK(w.gives("aten.view_as_complex.default", {w.tensor({f32, {"4", "2"}, {"6", "1"}, "2"})},
                {{DType::c64, {"4"}, {"3"}, "1"}}));
  CHECK(w.gives("aten.view_as_complex.default", {w.tensor({f32, {"1", "6", "2"}, {"1", "2", "1"}})},
                {{DType::c64, {"1", "6"}, {"0", "1"}}}));
  CHECK(w.gives("aten.view.dtype", {w.tensor({DType::u8, {"8"}, {"1"}, "4"}), Arg::dtype(f32)},
                {{f32, {"2"}, {"1"}, "1"}}));
  CHECK(w.gives("aten.t.default", {w.tensor({f32, {}})}, {{f32, {}}}));
  CHECK_FALSE(w.infer("aten.view.default", {w.tensor({f32, {"3", "2"}, {"1", "3"}}), w.sizes({"6"})}).ok());
  CHECK_FALSE(w.infer("aten.view.default", {w.tensor(base), w.sizes({"5"})}).ok());
  CHECK_FALSE(w.infer("aten.transpose.int", {w.tensor(base), Arg::integer(0), Arg::integer(3)}).ok());
  CHECK_FALSE(w.infer("aten.select.int", {w.tensor(base), Arg::integer(0), Arg::integer(2)}).ok());
}

TEST_CASE("infer: reductions, products, indexing, collectives") {
  World w;
  T base{f32, {"2", "3", "4"}, {"1", "2", "6"}};
  CHECK(
      w.gives("aten.sum.dim_IntList", {w.tensor(base), w.sizes({"-1"}), Arg::boolean(true)}, {{f32, {"2", "3", "1"}}}));
  CHECK(w.gives("aten.sum.default", {w.tensor({i32, {"2"}})}, {{i64, {}}}));
  CHECK(w.gives("aten.mm.default", {w.tensor({bf16, {"2", "3"}, {"1", "2"}}), w.tensor({bf16, {"3", "5"}})},
                {{bf16, {"2", "5"}}}));
  CHECK(w.gives("aten._int_mm.default",
                {w.tensor({DType::i8, {"2", "3"}}), w.tensor({DType::i8, {"3", "5"}, {"1", "3"}})},
                {{i32, {"2", "5"}}}));
  CHECK_FALSE(w.infer("aten._int_mm.default", {w.tensor({i32, {"2", "3"}}), w.tensor({i32, {"3", "5"}})}).ok());
  CHECK(w.gives("aten.index.Tensor", {w.tensor({f32, {"7", "4"}}), Arg::list({w.tensor({i64, {"2", "3"}})})},
                {{f32, {"2", "3", "4"}}}));
  CHECK(w.gives("aten.index.Tensor",
                {w.tensor({f32, {"7", "4"}, {"1", "7"}}), Arg::list({Arg::none(), w.tensor({i64, {"2"}})})},
                {{f32, {"7", "2"}}}));
  CHECK(w.gives("aten.index.Tensor",
                {w.tensor({f32, {"7", "4", "5"}, {"1", "35", "7"}}), Arg::list({Arg::none(), w.tensor({i64, {"2"}})})},
                {{f32, {"7", "2", "5"}, {"1", "7", "14"}}}));
  CHECK(w.gives("aten.cat.default",
                {Arg::list({w.tensor({f32, {"0"}}), w.tensor({f32, {"u0", "2"}}), w.tensor({f32, {"3", "2"}})})},
                {{f32, {"u0 + 3", "2"}}}));
  auto parts = [&](int64_t n) { return Arg::integer(n).set_key(w.job.pool->str("parts")); };
  CHECK(w.gives("sg.pack", {Arg::list({w.tensor({f32, {"4", "3"}}), w.tensor({f32, {"2"}})}), parts(2)},
                {{f32, {"14"}}}));
  CHECK_FALSE(w.infer("sg.pack", {Arg::list({w.tensor({f32, {"4", "3"}}), w.tensor({f32, {"3"}})}), parts(2)}).ok());
  CHECK_FALSE(w.infer("sg.pack", {Arg::list({w.tensor({f32, {"4"}})}), parts(0)}).ok());
  CHECK(w.gives("aten._grouped_mm.default",
                {w.tensor({bf16, {"8", "4"}}), w.tensor({bf16, {"2", "4", "5"}}), w.tensor({i32, {"2"}})},
                {{bf16, {"8", "5"}, {"8", "1"}}}));
  CHECK(w.gives("_c10d_functional.all_gather_into_tensor.default",
                {w.tensor({f32, {"2", "3"}}), Arg::integer(4), Arg::group(GroupId(0))}, {{f32, {"8", "3"}}}));
  CHECK(w.gives("aten.max_pool2d_with_indices.default",
                {w.tensor({f32, {"1", "2", "9", "9"}}), w.sizes({"3", "3"}), w.sizes({"2", "2"}), w.sizes({"1", "1"})},
                {{f32, {"1", "2", "5", "5"}}, {i64, {"1", "2", "5", "5"}}}));
  CHECK_FALSE(w.infer("aten.mm.default", {w.tensor({f32, {"2", "3"}}), w.tensor({f32, {"2", "3"}})}).ok());
  CHECK_FALSE(
      w.infer("_c10d_functional.reduce_scatter_tensor.default", {w.tensor({f32, {"6"}}), Arg::none(), Arg::integer(4)})
          .ok());
}

// The strides that PyTorch 2.15 gives on the CPU.
TEST_CASE("infer: a convolution is channels-last when its input or its weight is") {
  World w;
  auto rest = [&](int64_t spatial) {
    std::vector<std::string> ones(static_cast<size_t>(spatial), "1"), zeros(static_cast<size_t>(spatial), "0");
    return std::vector<Arg>{w.sizes(ones),       w.sizes(zeros), w.sizes(ones),
                            Arg::boolean(false), w.sizes(zeros), Arg::integer(1)};
  };
  auto forward = [&](const T& input, const T& weight, const T& wanted) {
    std::vector<Arg> args{w.tensor(input), w.tensor(weight), Arg::none()};
    for (Arg& arg : rest(static_cast<int64_t>(input.shape.size()) - 2)) args.push_back(std::move(arg));
    return w.gives("aten.convolution.default", std::move(args), {wanted});
  };
  auto backward = [&](const T& grad, const T& input, const T& weight, const T& grad_input, const T& grad_weight) {
    std::vector<Arg> args{w.tensor(grad), w.tensor(input), w.tensor(weight), Arg::none()};
    for (Arg& arg : rest(static_cast<int64_t>(input.shape.size()) - 2)) args.push_back(std::move(arg));
    args.push_back(Arg::list({Arg::boolean(true), Arg::boolean(true), Arg::boolean(true)}));
    return w.gives("aten.convolution_backward.default", std::move(args), {grad_input, grad_weight, {f32, {"6"}}});
  };
  T image{f32, {"2", "8", "5", "5"}}, last{f32, {"2", "8", "5", "5"}, {"200", "1", "40", "8"}};
  T weight{f32, {"6", "8", "2", "2"}}, weight_last{f32, {"6", "8", "2", "2"}, {"32", "1", "16", "8"}};
  T out{f32, {"2", "6", "4", "4"}}, out_last{f32, {"2", "6", "4", "4"}, {"96", "1", "24", "6"}};
  CHECK(forward(image, weight, out));
  CHECK(forward(last, weight, out_last));
  CHECK(forward(image, weight_last, out_last));
  CHECK(forward({f32, {"2", "8", "5", "5"}, {"200", "25", "1", "5"}}, weight, out));  // last axes swapped
  CHECK(forward({f32, {"2", "1", "5", "5"}}, {f32, {"6", "1", "2", "2"}}, out));      // one channel: both would fit
  CHECK(forward({f32, {"2", "8", "9"}, {"72", "1", "8"}}, {f32, {"6", "8", "2"}}, {f32, {"2", "6", "8"}}));
  CHECK(forward({f32, {"s0", "8", "5", "5"}, {"200", "1", "40", "8"}}, weight,
                {f32, {"s0", "6", "4", "4"}, {"96", "1", "24", "6"}}));
  CHECK(backward(out, image, weight, image, weight));
  CHECK(backward(out_last, image, weight, image, weight));
  CHECK(backward(out, last, weight, last, weight_last));
  CHECK(backward(out, image, weight_last, last, weight_last));
  CHECK_FALSE(w.infer("aten.convolution_backward.default",
                      {w.tensor(out), w.tensor(last), w.tensor({f32, {"6"}}), Arg::none(), w.sizes({"1"}),
                       w.sizes({"0"}), w.sizes({"1"}), Arg::boolean(false), w.sizes({"0"}), Arg::integer(1),
                       Arg::list({Arg::boolean(true), Arg::boolean(true), Arg::boolean(true)})},
                      3)
                  .ok());
}

// PyTorch's library works on columns, so most results are column-major; batches broadcast.
TEST_CASE("infer: systems of equations and decompositions") {
  World w;
  constexpr DType c64 = DType::c64;
  const T a{f32, {"s0", "3", "3"}}, tall{c64, {"2", "5", "3"}, {"15", "1", "5"}};
  CHECK(w.gives("aten.linalg_cholesky_ex.default", {w.tensor(a)},
                {{f32, {"s0", "3", "3"}, {"9", "1", "3"}}, {i32, {"s0"}}}));
  CHECK(w.gives("aten._linalg_slogdet.default", {w.tensor({c64, {"3", "3"}})},
                {{c64, {}}, {f32, {}}, {c64, {"3", "3"}, {"1", "3"}}, {i32, {"3"}}}));
  CHECK(w.gives("aten._linalg_solve_ex.default",
                {w.tensor({f32, {"4", "1", "3", "3"}}), w.tensor({f32, {"2", "3", "5"}})},
                {{f32, {"4", "2", "3", "5"}, {"30", "15", "1", "3"}},
                 {f32, {"4", "1", "3", "3"}, {"9", "9", "1", "3"}},
                 {i32, {"4", "1", "3"}},
                 {i32, {"4", "1"}}}));
  CHECK(w.gives(
      "aten._linalg_solve_ex.default", {w.tensor({f32, {"2", "3", "3"}}), w.tensor({f32, {"2", "3"}})},
      {{f32, {"2", "3"}, {"1", "2"}}, {f32, {"2", "3", "3"}, {"9", "1", "3"}}, {i32, {"2", "3"}}, {i32, {"2"}}}));
  CHECK(w.gives("aten.linalg_qr.default", {w.tensor(tall)},
                {{c64, {"2", "5", "3"}, {"15", "1", "5"}}, {c64, {"2", "3", "3"}, {"9", "1", "3"}}}));
  CHECK(
      w.gives("aten._linalg_svd.default", {w.tensor(tall), Arg::boolean(true)},
              {{c64, {"2", "5", "5"}, {"25", "1", "5"}}, {f32, {"2", "3"}}, {c64, {"2", "3", "3"}, {"9", "1", "3"}}}));
  CHECK(w.gives("aten.linalg_lu.default", {w.tensor({f32, {"4", "s0"}})},
                {{f32, {"4", "4"}}, {f32, {"4", "min(s0, 4)"}}, {f32, {"min(s0, 4)", "s0"}}}));
  CHECK(w.gives("aten._linalg_eigh.default",
                {w.tensor(a), Arg::text(ArgKind::string, w.pool.str("U")), Arg::boolean(false)},
                {{f32, {"s0", "3"}}, {f32, {"0"}}}));
}

TEST_CASE("infer: bad calls are errors") {
  World w;
  CHECK_FALSE(w.infer("aten.mm.default", {}).ok());
  CHECK_FALSE(w.infer("aten.neg.default", {w.tensor({f32, {"2"}}), Arg::integer(1)}).ok());
  CHECK_FALSE(w.infer("aten.neg.default", {Arg::integer(1).set_key(w.pool.str("nobody"))}).ok());
  CHECK_FALSE(w.infer("aten.ones.default", {w.sizes({"9223372036854775807", "3"}), Arg::none()}, 2).ok());
  CHECK_FALSE(w.infer("unknown.op", {}).ok());
  const Arg out = w.tensor({f32, {"2"}}).set_key(w.pool.str("out"));
  CHECK_FALSE(w.infer("aten.atan2.out", {Arg::integer(1), Arg::integer(2), out}).ok());
}

// Every op with arguments of any kind gives an answer or an error, and never a negative size.
TEST_CASE("infer: any arguments, every op") {
  std::mt19937 random(12345);
  auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
  for (int round = 0; round < 12; ++round) {
    World w;
    const char* sizes[] = {"0", "1", "2", "3", "8", "4611686018427387904", "u0", "s0", "u0//2", "2*u0 + 1"};
    std::vector<Arg> values;
    for (int i = 0; i < 30; ++i) {
      T t{static_cast<DType>(1 + below(kDTypeCount - 1)), {}, {}, sizes[below(10)]};
      for (int64_t rank = below(6); rank > 0; --rank)
        t.shape.push_back(sizes[below(10)]), t.stride.push_back(sizes[below(10)]);
      if (below(2)) t.stride = {"row-major"};
      values.push_back(w.tensor(t));
    }
    Type odd;
    for (TypeKind kind : {TypeKind::integer, TypeKind::floating, TypeKind::boolean, TypeKind::none, TypeKind::opaque,
                          TypeKind::unknown, TypeKind::list}) {
      odd.kind = kind;
      values.push_back(Arg::value(w.graph.add_input("odd", w.pool.types.intern(odd), {})));
    }
    auto argument = [&](auto&& self, int depth) -> Arg {
      const int64_t numbers[] = {0, 1, -1, 2, 3, -2, 7, INT64_MAX, INT64_MIN};
      switch (below(depth > 0 ? 9 : 8)) {
        case 0: return Arg::integer(numbers[below(9)]);
        case 1: return Arg::expr(w.exprs({sizes[below(10)]})[0]);
        case 2: return Arg::boolean(below(2) != 0);
        case 3: return below(2) ? Arg::dtype(static_cast<DType>(below(kDTypeCount))) : Arg::floating(0.5);
        case 4: return below(2) ? Arg::none() : Arg::text(ArgKind::string, w.pool.str("sum"));
        case 8: {
          ArgList items;
          for (int64_t n = below(5); n > 0; --n) items.push_back(self(self, depth - 1));
          return Arg::list(std::move(items));
        }
        default: return values[static_cast<size_t>(below(static_cast<uint32_t>(values.size())))];
      }
    };
    for (const OpInfo& op : all_ops()) {
      std::vector<Arg> args;
      // Mostly arguments of the right kind, so that rules get past their first check.
      for (const Param& p : op.params) {
        bool fits = below(4) != 0;
        if (fits && p.kind == ParamKind::tensor) args.push_back(values[static_cast<size_t>(below(30))]);
        else if (fits && p.kind == ParamKind::tensor_list)
          args.push_back(Arg::list({values[static_cast<size_t>(below(30))], values[static_cast<size_t>(below(30))]}));
        else if (fits && p.kind == ParamKind::integer) args.push_back(Arg::integer(below(5) - 2));
        else if (fits && p.kind == ParamKind::integer_list)
          args.push_back(w.sizes({sizes[below(10)], sizes[below(10)]}));
        else args.push_back(argument(argument, 2));
      }
      auto types = w.infer(op.name, std::move(args), static_cast<size_t>(below(4)));
      if (!types.ok()) {
        CHECK_FALSE(types.error().message.empty());
        continue;
      }
      for (const Type& t : *types) CHECK(t.shape.size() == t.stride.size());
    }
  }
}

TEST_CASE("infer: missing types are filled in, and wrong ones found") {
  World w;
  Arg x = w.tensor({f32, {"2", "3"}});
  NodeId relu = w.node("aten.relu.default", {x});
  NodeId sum = w.node("aten.sum.default", {Arg::value(w.graph.node(relu).result(0))});
  w.node("foreign.op", {x});
  std::vector<NodeId> missing;
  CHECK(infer_missing_types(w.program, &missing) == 2);
  CHECK(missing.size() == 1);
  CHECK(check_types(w.program).empty());
  w.graph.set_type(w.graph.node(sum).result(0), w.pool.types.intern(w.type({f32, {"1"}})));
  auto found = check_types(w.program);
  REQUIRE(found.size() == 1);
  CHECK(found[0].node == sum);
  CHECK(found[0].exception == nullptr);
}

TEST_CASE("infer: a call is alike only to one of the same op, literals, keywords, types and record") {
  World w;
  Arg x = w.tensor({f32, {"2", "3"}}), same = w.tensor({f32, {"2", "3"}}), other = w.tensor({f32, {"3", "2"}});
  Arg number = Arg::value(w.graph.add_input("n", test::integer_type(&w.pool, w.pool.exprs.constant(1)), {}));
  auto keyed = [&](const char* key) { return Arg::integer(1).set_key(w.pool.str(key)); };
  auto list = [](int64_t n) { return Arg::list({Arg::integer(n)}); };
  AlikeCalls calls;
  auto is_known = [&](NodeId n) { return calls.contains_like(w.graph, n); };
  REQUIRE_FALSE(is_known(w.node("aten.sum.dim_IntList", {x, list(1), keyed("keepdim")})));
  calls.add_last();
  CHECK(is_known(w.node("aten.sum.dim_IntList", {same, list(1), keyed("keepdim")})));
  CHECK_FALSE(is_known(w.node("aten.sum.dim_IntList", {other, list(1), keyed("keepdim")})));
  CHECK_FALSE(is_known(w.node("aten.sum.dim_IntList", {x, list(0), keyed("keepdim")})));
  CHECK_FALSE(is_known(w.node("aten.sum.dim_IntList", {x, list(1), keyed("dtype")})));
  CHECK_FALSE(is_known(w.node("aten.sum.dim_IntList", {x, Arg::integer(1), keyed("keepdim")})));
  CHECK_FALSE(is_known(w.node("aten.mean.dim", {x, list(1), keyed("keepdim")})));
  NodeId recorded = w.node("aten.sum.dim_IntList", {x, list(1), keyed("keepdim")});
  w.graph.set_type(w.graph.node(recorded).result(0), w.pool.types.intern(w.type({f32, {"2", "1"}})));
  CHECK_FALSE(is_known(recorded));
  for (int i = 0; i < 2; ++i) {  // a number from a node is unknown
    CHECK_FALSE(is_known(w.node("aten.mul.Tensor", {x, number})));
    calls.add_last();
  }
}

// What the checker keeps of earlier calls changes no verdict: a new checker for each node agrees.
TEST_CASE("infer: types are checked alike with and without a memory") {
  size_t wrong = 0;
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Job job = test::random_job(seed);
    test::Rng rng(seed);
    for (auto& program : job.programs) {
      Graph& graph = program->graph;
      for (NodeId n : graph.nodes())  // one node in eight gets the type of another value
        if (const Node& node = graph.node(n); node.result_count > 0 && rng.below(8) == 0)
          graph.set_type(node.result(0),
                         graph.value(ValueId(static_cast<uint32_t>(rng.below(node.result(0).index + 1)))).type);
      TypeChecker checker(*program);
      for (NodeId n : graph.nodes()) {
        std::vector<TypeDisagreement> found, anew;
        checker.check(graph, n, &found);
        TypeChecker(*program).check(graph, n, &anew);
        REQUIRE(found.size() == anew.size());
        for (size_t i = 0; i < found.size(); ++i) {
          CHECK(found[i].reason == anew[i].reason);
          CHECK(found[i].inferred == anew[i].inferred);
        }
        wrong += found.size();
      }
    }
  }
  CHECK(wrong > 100);
}

}  // namespace
}  // namespace sg
