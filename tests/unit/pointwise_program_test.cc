// Programs of several calls: the same bits as the calls run one by one.
#include <catch2/catch.hpp>

#include <algorithm>
#include <cstring>

#include "libgraph/infer/infer_call.h"
#include "librun/cpu/block/block.h"
#include "librun/cpu/pointwise.h"
#include "librun/defaults.h"
#include "tests/support/kernel_call.h"
#include "tests/support/rng.h"

using namespace sg;

namespace {

// A tensor in an arena that does not exist yet: `data` is an offset.
struct PlannedTensor {
  Tensor tensor;
  bool readable = true;  // its memory has not been reused
  bool stored = true;
};

struct CallStep {
  std::string op;
  std::vector<std::pair<std::string, int>> tensors;  // argument names and indices of PlannedTensor
  std::vector<test::Argument> others;
  int result = 0;
  bool fresh = false;  // in its own memory
};

// A random sequence of pointwise calls over one shape, on memory that is reused as a planner would.
class Chain {
 public:
  explicit Chain(uint64_t seed) : rng_(seed) {
    for (int rank = static_cast<int>(rng_.below(4)); rank > 0; --rank)
      shape_.push_back(rng_.percent(4) ? 0 : rng_.between(1, rng_.percent(30) ? 40 : 7));
    for (int i = 0; i < 4; ++i) inputs_.push_back(new_tensor(rng_.pick(kTypes), true));
    for (int64_t n = rng_.between(2, 14); n > 0; --n) add_node();
  }

  int64_t arena_bytes() const { return top_; }
  const std::vector<CallStep>& nodes() const { return nodes_; }
  std::vector<PlannedTensor>& planned() { return planned_; }
  Tensor at(int index, std::byte* arena) const {
    Tensor t = planned_[static_cast<size_t>(index)].tensor;
    t.data = arena + reinterpret_cast<intptr_t>(t.data);
    return t;
  }

 private:
  static constexpr DType kTypes[] = {DType::f32, DType::f32, DType::bf16,    DType::f16, DType::f64,
                                     DType::i64, DType::i32, DType::boolean, DType::c64};

  int new_tensor(DType dtype, bool input) {
    Tensor t = make_tensor(nullptr, dtype, shape_);
    for (int axis = 0; input && axis < t.rank; ++axis)  // inputs may be broadcast or transposed
      if (rng_.percent(20)) t.shape[static_cast<size_t>(axis)] = 1;
    t = make_tensor(nullptr, dtype, t.sizes());
    if (t.rank >= 2 && rng_.percent(25) && !input) {
      Tensor turned = make_tensor(nullptr, dtype, swap_axes(t, 0, 1).sizes());
      t = swap_axes(turned, 0, 1);
    }
    t.data += top_;
    top_ += (t.bytes() + 63) / 64 * 64;
    planned_.push_back({t});
    return static_cast<int>(planned_.size()) - 1;
  }

  // Fresh memory, or that of a tensor that is not read again.
  int result_of(DType dtype) {
    for (size_t i = inputs_.size(); i < planned_.size() && rng_.percent(40); ++i) {
      PlannedTensor& p = planned_[i];
      if (!p.readable || dtype_bytes(p.tensor.dtype) != dtype_bytes(dtype)) continue;
      Tensor t = p.tensor;
      t.dtype = dtype;
      p.readable = false;
      planned_.push_back({t});
      return static_cast<int>(planned_.size()) - 1;
    }
    nodes_.back().fresh = true;
    return new_tensor(dtype, false);
  }

  int pick() {
    for (int tries = 0; tries < 50; ++tries) {
      auto i = rng_.below(planned_.size());
      DType t = planned_[i].tensor.dtype;
      if (planned_[i].readable && is_floating(t)) return static_cast<int>(i);
    }
    return -1;
  }

  DType dtype(int i) const { return planned_[static_cast<size_t>(i)].tensor.dtype; }
  DType common(int a, int b) const { return promote(dtype(a), dtype(b)); }

  void add_node() {
    static const char* const unary[] = {"aten.neg.default",  "aten.exp.default",  "aten.sigmoid.default",
                                        "aten.relu.default", "aten.silu.default", "aten.sin.default"};
    static const char* const binary[] = {"aten.add.Tensor",           "aten.mul.Tensor",      "aten.sub.Tensor",
                                         "aten.div.Tensor",           "aten.maximum.default", "aten.lt.Tensor",
                                         "aten.silu_backward.default"};
    int a = pick(), b = pick();
    if (a < 0 || b < 0) return;
    nodes_.emplace_back();
    CallStep& n = nodes_.back();
    switch (rng_.below(6)) {
      case 0: {
        n.op = rng_.pick(unary), n.tensors = {{"self", a}};
        n.result = result_of(dtype(a));
        break;
      }
      case 1: {
        DType to = rng_.pick(kTypes);
        n.op = "aten._to_copy.default", n.tensors = {{"self", a}};
        n.result = result_of(to);
        break;
      }
      case 2: {
        n.op = "aten.mul.Scalar", n.tensors = {{"self", a}}, n.others.emplace_back("other", 0.37);
        n.result = result_of(dtype(a));
        break;
      }
      case 3: {  // in place, not of an input
        auto first = inputs_.size();
        if (planned_.size() == first) return nodes_.pop_back();
        int self = static_cast<int>(first + rng_.below(planned_.size() - first));
        if (!planned_[static_cast<size_t>(self)].readable || !is_floating(dtype(self))) return nodes_.pop_back();
        n.op = "aten.add_.Tensor", n.tensors = {{"self", self}, {"other", b}};
        n.result = self;
        break;
      }
      default: {
        n.op = rng_.pick(binary);
        bool gradient = n.op == "aten.silu_backward.default";
        if (gradient && dtype(a) != dtype(b)) n.op = "aten.mul.Tensor", gradient = false;
        n.tensors = {{gradient ? "grad_output" : "self", a}, {gradient ? "self" : "other", b}};
        n.result = result_of(n.op == "aten.lt.Tensor" ? DType::boolean : common(a, b));
      }
    }
  }

  test::Rng rng_;
  std::vector<int64_t> shape_;
  std::vector<PlannedTensor> planned_;
  std::vector<int> inputs_;
  std::vector<CallStep> nodes_;
  int64_t top_ = 0;
};

struct Bench {
  ThreadTeam team;
  Scratch scratch;
  KernelContext context{&team, &scratch, Numerics::fast};
  explicit Bench(int threads) : team(threads) {}
};

KernelCall call_of(const CallStep& n, const Chain& chain, std::byte* arena, KernelContext* context) {
  const OpInfo* info = find_op(n.op);
  KernelCall c(*info, context);
  for (size_t i = 0; i < info->params.size(); ++i) c.params()[i] = default_of(info->params[i]);
  for (auto& [name, index] : n.tensors) {
    ParamValue& p = c.params()[static_cast<size_t>(info->param_index(name))];
    p.kind = ParamValue::Kind::tensor, p.tensor = chain.at(index, arena);
  }
  for (const test::Argument& a : n.others) c.params()[static_cast<size_t>(info->param_index(a.name))] = a.value;
  c.results = {chain.at(n.result, arena)};
  return c;
}

std::vector<std::byte> filled_arena(const Chain& chain, uint64_t seed) {
  std::vector<std::byte> arena(static_cast<size_t>(chain.arena_bytes()) + 64);
  test::Rng rng(seed);
  for (int i = 0; i < 4; ++i) {
    Tensor t = chain.at(i, arena.data());
    visit_dtype(t.dtype, [&]<class T>() {
      for (int64_t k = 0; k < t.elements(); ++k) {
        float v = static_cast<float>(rng.between(-400, 400)) / 100;
        if constexpr (std::is_same_v<T, bool>) t.as<T>()[k] = v > 0;
        else t.as<T>()[k] = static_cast<T>(v);
      }
    });
  }
  return arena;
}

// Runs in as few programs as possible; returns their number.
int run_fused(Chain& chain, std::byte* arena, Bench& bench) {
  int programs = 1;
  cpu::PointwiseProgram program;
  for (const CallStep& n : chain.nodes()) {
    KernelCall c = call_of(n, chain, arena, &bench.context);
    bool stored = chain.planned()[static_cast<size_t>(n.result)].stored;
    auto fits = program.add(c, stored);
    REQUIRE(fits.ok());
    if (*fits) continue;
    REQUIRE(program.run(bench.team).ok());
    program = {};
    ++programs;
    fits = program.add(c, stored);
    REQUIRE(fits.ok());
    REQUIRE(*fits);
  }
  REQUIRE(program.run(bench.team).ok());
  return programs;
}

}  // namespace

TEST_CASE("programs have the bits of their calls one by one") {
  int whole = 0, tried = 0, left_out = 0;
  for (uint64_t seed = 1; seed <= 1500; ++seed) {
    Chain chain(seed);
    if (chain.nodes().empty()) continue;
    Bench bench(seed % 3 == 0 ? 4 : 1);
    auto before = filled_arena(chain, seed), one_by_one = before, fused = before, partly = before;
    for (const CallStep& n : chain.nodes()) {
      KernelCall c = call_of(n, chain, one_by_one.data(), &bench.context);
      REQUIRE(find_cpu_kernel(n.op)(c).ok());
    }
    INFO("seed " << seed);
    int programs = run_fused(chain, fused.data(), bench);
    bool same = fused == one_by_one;
    REQUIRE(same);
    ++tried;
    if (programs > 1) continue;
    ++whole;
    // Once more, with some results never written: those in memory that nothing else uses.
    test::Rng rng(seed);
    for (const CallStep& n : chain.nodes()) {
      PlannedTensor& p = chain.planned()[static_cast<size_t>(n.result)];
      bool shared = std::count_if(chain.planned().begin(), chain.planned().end(),
                                  [&](const PlannedTensor& o) { return o.tensor.data == p.tensor.data; }) > 1;
      if (n.fresh && !shared && &n != &chain.nodes().back() && rng.percent(60)) p.stored = false;
    }
    REQUIRE(run_fused(chain, partly.data(), bench) == 1);
    for (size_t i = 0; i < chain.planned().size(); ++i) {
      Tensor want = chain.at(static_cast<int>(i), one_by_one.data()),
             got = chain.at(static_cast<int>(i), partly.data());
      const PlannedTensor& p = chain.planned()[i];
      auto bytes = static_cast<size_t>(want.bytes());
      const std::byte* expected = p.stored ? want.data : before.data() + (got.data - partly.data());
      REQUIRE(std::memcmp(got.data, expected, bytes) == 0);
      left_out += !p.stored;
    }
  }
  CHECK(whole > tried / 3);
  CHECK(left_out > 500);
}

TEST_CASE("a program runs again on other memory") {
  test::Buffer<float> a({100}), b({100}), sum({100}), product({100});
  Bench bench(1);
  cpu::PointwiseProgram program;
  auto add = [&](const char* op, const Tensor& x, const Tensor& y, const Tensor& out, bool stored) {
    const OpInfo* info = find_op(op);
    KernelCall c(*info, &bench.context);
    for (size_t i = 0; i < info->params.size(); ++i) c.params()[i] = default_of(info->params[i]);
    c.params()[0].kind = c.params()[1].kind = ParamValue::Kind::tensor;
    c.params()[0].tensor = x, c.params()[1].tensor = y;
    c.results = {out};
    auto fits = program.add(c, stored);
    REQUIRE(fits.ok());
    REQUIRE(*fits);
  };
  add("aten.add.Tensor", a.tensor(), b.tensor(), sum.tensor(), false);
  add("aten.mul.Tensor", sum.tensor(), sum.tensor(), product.tensor(), true);
  REQUIRE(program.tensors().size() == 3);  // a, b, product, but not the sum
  test::Buffer<float> other({100});
  for (int64_t i = 0; i < 100; ++i) other.at(i) = 2, b.at(i) = 1;
  program.tensors()[0].data = other.tensor().data;
  REQUIRE(program.run(bench.team).ok());
  CHECK(product.at(99) == 9.0f);
  CHECK(sum.at(99) == 0.0f);
}

TEST_CASE("memory seen in two ways does not fit in one program") {
  test::Buffer<float> square({8, 8}), out({8, 8}), more({8, 8});
  Bench bench(1);
  cpu::PointwiseProgram program;
  auto neg = [&](const Tensor& in, const Tensor& result) {
    KernelCall c(*find_op("aten.neg.default"), &bench.context);
    c.params()[0].kind = ParamValue::Kind::tensor, c.params()[0].tensor = in;
    c.results = {result};
    return *program.add(c);
  };
  CHECK(neg(square.tensor(), out.tensor()));
  CHECK_FALSE(neg(swap_axes(out.tensor(), 0, 1), more.tensor()));    // reads what the program writes, transposed
  CHECK_FALSE(neg(out.tensor(), swap_axes(square.tensor(), 0, 1)));  // writes what it reads, transposed
  CHECK(neg(out.tensor(), square.tensor()));                         // in the memory of what was read: fine
  CHECK(program.calls() == 2);
  CHECK_FALSE(cpu::PointwiseProgram::knows("aten.sum.default"));
}

TEST_CASE("a program knows what it has made, under any shape") {
  test::Buffer<float> in({4, 6}), out({4, 6}), other({4, 6});
  Bench bench(1);
  cpu::PointwiseProgram program;
  auto neg = [&](const Tensor& from, const Tensor& result) {
    KernelCall c(*find_op("aten.neg.default"), &bench.context);
    c.params()[0].kind = ParamValue::Kind::tensor, c.params()[0].tensor = from;
    c.results = {result};
    return *program.add(c, false);
  };
  REQUIRE(neg(in.tensor(), out.tensor()));
  const int reg = program.made(out.tensor()).reg;
  CHECK(reg >= 0);
  CHECK(program.made(*view_as(out.tensor(), std::array<int64_t, 3>{2, 2, 6})).reg == reg);
  CHECK(program.made(in.tensor()).reg < 0);                    // it was read, not made
  CHECK(program.made(swap_axes(out.tensor(), 0, 1)).reg < 0);  // in another order
  CHECK(program.made(drop_axis(out.tensor(), 0)).reg < 0);     // a part of it
  REQUIRE(neg(out.tensor(), in.tensor()));
  CHECK(program.made(in.tensor()).reg > reg);
  CHECK(program.made(other.tensor()).reg < 0);
}

TEST_CASE("a program takes so many calls and no more") {
  test::Buffer<float> x({4}), y({4});
  Bench bench(1);
  cpu::PointwiseProgram program;
  auto neg = [&](const Tensor& in, const Tensor& result) {
    KernelCall c(*find_op("aten.neg.default"), &bench.context);
    c.params()[0].kind = ParamValue::Kind::tensor, c.params()[0].tensor = in;
    c.results = {result};
    return *program.add(c);
  };
  for (size_t i = 0; i < cpu::PointwiseProgram::kMaxCalls; ++i)
    CHECK(neg(i % 2 ? y.tensor() : x.tensor(), i % 2 ? x.tensor() : y.tensor()));
  CHECK_FALSE(neg(x.tensor(), y.tensor()));
  CHECK(program.calls() == cpu::PointwiseProgram::kMaxCalls);
}
