// Pointwise ops over strided, offset, expanded and conjugated tensors, on every instruction set and number of threads:
// the same bits as the contiguous call.
#include <catch2/catch.hpp>

#include <cstring>

#include "librun/cpu/block/block.h"
#include "librun/element.h"
#include "tests/support/kernel_call.h"
#include "tests/support/pointwise_cases.h"
#include "tests/support/rng.h"

using namespace sg;

namespace {

using Bytes = std::vector<std::byte>;

// A tensor in some layout, with its memory.
struct Laid {
  Bytes memory;
  Tensor tensor;
};

void set(const Tensor& to, const Tensor& from) {  // both of one dtype and shape; element by element
  int64_t size = dtype_bytes(to.dtype);
  for (int64_t i = 0; i < to.elements(); ++i) {
    int64_t rest = i, a = 0, b = 0;
    for (int axis = to.rank - 1; axis >= 0; --axis) {
      a += rest % to.dim(axis) * to.step(axis);
      b += rest % to.dim(axis) * from.step(axis);
      rest /= to.dim(axis);
    }
    std::memcpy(to.data + a * size, from.data + b * size, static_cast<size_t>(size));
  }
}

// `from` in another layout: axes in a random order in memory, gaps between elements, an offset.
Laid lay_out(const Tensor& from, test::Rng& rng) {
  Laid out;
  out.tensor = from;
  std::vector<int> order;
  for (int axis = 0; axis < from.rank; ++axis)
    order.insert(order.begin() + static_cast<int64_t>(rng.below(order.size() + 1)), axis);
  int64_t stride = rng.below(3) == 0 ? 2 : 1;
  for (int axis : order) {
    out.tensor.stride[static_cast<size_t>(axis)] = stride;
    stride *= std::max<int64_t>(from.dim(axis), 1) + static_cast<int64_t>(rng.below(2));
  }
  int64_t offset = static_cast<int64_t>(rng.below(3)) * dtype_bytes(from.dtype);
  out.memory.resize(static_cast<size_t>(extent_bytes(out.tensor) + offset + 1));
  out.tensor.data = out.memory.data() + offset;
  set(out.tensor, from);
  return out;
}

Bytes contents(const Tensor& t) {
  Bytes out(static_cast<size_t>(t.bytes()));
  set(make_tensor(out.data(), t.dtype, t.sizes()), t);
  return out;
}

Tensor shaped(Tensor t, std::span<const int64_t> shape) { return make_tensor(t.data, t.dtype, shape); }

struct Outcome {
  bool ok = false;
  Bytes bytes;
};

// Runs a case with `shape`, in a random layout if there is an rng.
Outcome run_case(test::PointwiseCase& c, std::vector<int64_t> shape, test::Rng* rng, int threads = 1) {
  std::vector<Laid> held;
  held.reserve(c.arguments.size() + 1);
  std::vector<test::Argument> arguments;
  Laid result{Bytes(static_cast<size_t>(c.expected.tensor.bytes()) + 1), c.expected.tensor};
  result.tensor.data = result.memory.data();
  result.tensor = shaped(result.tensor, shape);
  if (rng) result = lay_out(result.tensor, *rng);
  std::string written = test::written_argument(c.op);
  for (auto& [name, value] : c.arguments) {
    ParamValue p = value;
    if (p.kind == ParamValue::Kind::tensor) {
      Tensor t = p.tensor.rank == 0 ? p.tensor : shaped(p.tensor, shape);
      if (!rng)
        held.push_back({Bytes(static_cast<size_t>(t.bytes()) + 1), t}),
            held.back().tensor.data = held.back().memory.data(), set(held.back().tensor, t);
      else held.push_back(lay_out(t, *rng));
      p.tensor = held.back().tensor;
      if (name == written) result.tensor = p.tensor;
    }
    arguments.emplace_back(name, p);
  }
  Outcome out;
  out.ok = test::call(c.op, arguments, {result.tensor}, threads).ok();
  out.bytes = contents(result.tensor);
  return out;
}

}  // namespace

TEST_CASE("pointwise ops see through layouts") {
  test::Rng rng(7);
  for (test::PointwiseCase& c : test::read_pointwise_cases()) {
    int64_t n = c.expected.tensor.elements();
    for (const std::vector<int64_t>& shape : {std::vector<int64_t>{n}, {2, n / 2}, {2, 1, 2, n / 4}, {n / 4, 2, 2}}) {
      Outcome plain = run_case(c, shape, nullptr), laid = run_case(c, shape, &rng);
      INFO(c.line.substr(0, 200));
      REQUIRE(plain.ok);
      REQUIRE(laid.ok);
      REQUIRE(plain.bytes == laid.bytes);
    }
  }
}

TEST_CASE("pointwise ops have the same bits on every instruction set") {
  std::vector<Bytes> first;
  for (cpu::BlockIsa isa : {cpu::BlockIsa::baseline, cpu::BlockIsa::v3, cpu::BlockIsa::v4}) {
    if (!cpu::use_block_table(isa)) continue;
    size_t i = 0;
    for (test::PointwiseCase& c : test::read_pointwise_cases()) {
      Outcome out = run_case(c, {c.expected.tensor.elements()}, nullptr);
      if (isa == cpu::BlockIsa::baseline) first.push_back(out.bytes);
      INFO(c.line.substr(0, 200));
      REQUIRE(out.bytes == first[i++]);
    }
  }
}

TEST_CASE("broadcast arguments are read where they are") {
  for (int threads : {1, 2, 4}) {
    test::Buffer<float> row({1, 700}), column({300, 1}), out({300, 700});
    for (int64_t i = 0; i < 700; ++i) row.at(i) = static_cast<float>(i);
    for (int64_t i = 0; i < 300; ++i) column.at(i) = static_cast<float>(1000 * i);
    REQUIRE(test::call("aten.add.Tensor", {{"self", row}, {"other", column}}, {out.tensor()}, threads).ok());
    for (int64_t i = 0; i < 300 * 700; ++i) REQUIRE(out.at(i) == static_cast<float>(i % 700 + 1000 * (i / 700)));
  }
}

TEST_CASE("tensors of rank 0 and without elements") {
  test::Buffer<float> a({}, {2.0f}), b({}, {3.0f}), out({});
  REQUIRE(test::call("aten.mul.Tensor", {{"self", a}, {"other", b}}, {out.tensor()}).ok());
  CHECK(out.at(0) == 6.0f);
  test::Buffer<float> none({0, 3}), more({3}, {1, 2, 3}), result({0, 3});
  CHECK(test::call("aten.add.Tensor", {{"self", none}, {"other", more}}, {result.tensor()}).ok());
}

TEST_CASE("conjugated tensors are read as their conjugate, and written so") {
  test::Buffer<C64> a({2}, {C64(1, 2), C64(3, -4)}), b({2}, {C64(0, 1), C64(1, 0)}), out({2});
  Tensor conjugated = a.tensor();
  conjugated.conjugate = true;
  REQUIRE(test::call("aten.mul.Tensor", {{"self", conjugated}, {"other", b}}, {out.tensor()}).ok());
  CHECK(out.values() == std::vector<C64>{C64(2, 1), C64(3, 4)});
  Tensor view = out.tensor();
  view.conjugate = true;
  REQUIRE(test::call("aten.copy_.default", {{"self", view}, {"src", a}}, {view}).ok());
  CHECK(out.values() == std::vector<C64>{C64(1, -2), C64(3, 4)});
}

TEST_CASE("an integer divided by zero is an error") {
  test::Buffer<int32_t> a({3}, {1, 2, 3}), b({3}, {1, 0, 2}), out({3});
  for (const char* op : {"aten.floor_divide.default", "aten.remainder.Tensor", "aten.fmod.Tensor"})
    CHECK_FALSE(test::call(op, {{"self", a}, {"other", b}}, {out.tensor()}).ok());
  test::Buffer<int64_t> lowest({1}, {INT64_MIN}), minus_one({1}, {-1}), quotient({1});
  CHECK(test::call("aten.floor_divide.default", {{"self", lowest}, {"other", minus_one}}, {quotient.tensor()}).ok());
  CHECK(quotient.at(0) == INT64_MIN);
}

TEST_CASE("an argument that overlaps the result in another layout is read first") {
  test::Buffer<float> m({3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  Tensor turned = swap_axes(m.tensor(), 0, 1);
  REQUIRE(test::call("aten.add_.Tensor", {{"self", m}, {"other", turned}}, {m.tensor()}).ok());
  CHECK(m.values() == std::vector<float>{2, 6, 10, 6, 10, 14, 10, 14, 18});
  // Columns that overlap without sharing an element: each call copies what is there at that time.
  Tensor to = make_tensor(m.tensor().data, DType::f32, std::vector<int64_t>{3, 1}), from = to;
  to.stride[0] = from.stride[0] = 3;
  from.data += 2 * sizeof(float);
  REQUIRE(test::call("aten.copy_.default", {{"self", to}, {"src", from}}, {to}).ok());
  CHECK(m.values() == std::vector<float>{10, 6, 10, 14, 10, 14, 18, 14, 18});
}

TEST_CASE("in double, floats of the graph are doubles") {
  test::Buffer<int64_t> a({2}, {1, 2});
  test::Buffer<double> out({2});
  REQUIRE(test::call("aten.div.Tensor", {{"self", a}, {"other", 3}}, {out.tensor()}, 1, Numerics::f64).ok());
  CHECK(out.values() == std::vector<double>{1.0 / 3, 2.0 / 3});
  test::Buffer<double> x({1}, {0.1});
  test::Buffer<bool> same({1});
  REQUIRE(test::call("aten.eq.Scalar", {{"self", x}, {"other", 0.1}}, {same.tensor()}, 1, Numerics::f64).ok());
  CHECK(same.at(0));
}

TEST_CASE("large results, written past the caches, are whole") {
  constexpr int64_t n = (int64_t{3} << 20) + 77;
  test::Buffer<float> a({n}), out({n}, {}, {}, 1);
  for (int64_t i = 0; i < n; ++i) a.tensor().as<float>()[i] = static_cast<float>(i % 1000);
  REQUIRE(test::call("aten.add.Scalar", {{"self", a}, {"other", 1}}, {out.tensor()}, 2).ok());
  int64_t wrong = 0;
  for (int64_t i = 0; i < n; ++i) wrong += out.tensor().as<float>()[i] != static_cast<float>(i % 1000 + 1);
  CHECK(wrong == 0);
}
