#include <algorithm>
#include <array>
#include <catch2/catch.hpp>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "librun/cpu/move.h"

using namespace sg;

namespace {

// A tensor over its own memory, with gaps after its rows and a first element that may be misaligned.
struct Held {
  std::vector<std::byte> memory;
  Tensor t;
};

Held make_held(DType type, const std::vector<int64_t>& shape, const std::vector<size_t>& order, int64_t gap,
               int64_t offset) {
  Held out;
  out.t = make_tensor(nullptr, type, shape);
  int64_t step = 1;
  for (size_t i = order.size(); i-- > 0;) {  // the last of `order` is innermost
    out.t.stride[order[i]] = step;
    step *= shape[order[i]];
    if (i + 1 == order.size()) step += gap;
  }
  const int64_t bytes = dtype_bytes(type);
  out.memory.resize(static_cast<size_t>((offset + step + 1) * bytes) + 64);
  auto begin = reinterpret_cast<uintptr_t>(out.memory.data());
  out.t.data = out.memory.data() + (64 - begin % 64) % 64 + offset * bytes;
  return out;
}

// The element with this row-major number: the definition of a move.
std::byte* element(const Tensor& t, int64_t number) {
  int64_t at = 0;
  for (int axis = t.rank - 1; axis >= 0; --axis) at += number % t.dim(axis) * t.step(axis), number /= t.dim(axis);
  return t.data + at * dtype_bytes(t.dtype);
}

int64_t run(const Tensor& to, const Tensor& from) {
  const cpu::MovePlan plan = cpu::plan_move(to, from);
  cpu::with_move(plan, to, from, [&](const auto& work) {
    for (int64_t i = plan.words; i-- > 0;) work(i);
  });
  return plan.word_bytes;
}

}  // namespace

TEST_CASE("a move brings every element, and touches nothing else") {
  std::mt19937 random(5);
  auto draw = [&](int64_t low, int64_t high) { return std::uniform_int_distribution<int64_t>(low, high)(random); };
  constexpr std::array kTypes = {DType::u8, DType::bf16, DType::f32, DType::i64, DType::c128};
  std::array<int, 17> seen{};
  for (int round = 0; round < 3000; ++round) {
    const DType type = kTypes[static_cast<size_t>(draw(0, 4))];
    std::vector<int64_t> shape(static_cast<size_t>(draw(0, 4)));
    for (int64_t& n : shape) n = draw(0, 1) == 0 ? draw(1, 5) : 8 * draw(1, 2);
    std::vector<size_t> rows(shape.size());
    std::iota(rows.begin(), rows.end(), size_t{0});
    std::vector<size_t> turned = rows;
    if (draw(0, 1) == 0) std::shuffle(turned.begin(), turned.end(), random);
    Held from = make_held(type, shape, turned, 8 * draw(0, 1) + draw(0, 1), draw(0, 2)),
         to = make_held(type, shape, rows, 8 * draw(0, 2), draw(0, 1) * 8);
    for (std::byte& b : from.memory) b = static_cast<std::byte>(draw(0, 255));
    if (!shape.empty() && draw(0, 4) == 0) from.t.stride[static_cast<size_t>(draw(0, from.t.rank - 1))] = 0;
    std::vector<std::byte> expected = to.memory;
    const auto bytes = static_cast<size_t>(dtype_bytes(type));
    for (int64_t i = 0; i < to.t.elements(); ++i)
      std::memcpy(expected.data() + (element(to.t, i) - to.memory.data()), element(from.t, i), bytes);
    ++seen[static_cast<size_t>(run(to.t, from.t))];
    REQUIRE(to.memory == expected);
  }
  for (size_t word : {1, 2, 4, 8, 16}) CHECK(seen[word] > 50);  // all word sizes occurred
}

TEST_CASE("heads that change places with rows move in words of 16 bytes") {
  const std::vector<int64_t> shape = {2, 3, 5, 8};
  const Held from = make_held(DType::bf16, shape, {0, 2, 1, 3}, 0, 0),
             to = make_held(DType::bf16, shape, {0, 1, 2, 3}, 0, 0);
  CHECK(run(to.t, from.t) == 16);
  const Held askew = make_held(DType::bf16, shape, {0, 2, 1, 3}, 0, 2);
  CHECK(run(to.t, askew.t) == 4);
}

TEST_CASE("one division gives both of its parts") {
  for (int64_t i : {int64_t{0}, int64_t{41}, (int64_t{1} << 32) - 1, int64_t{1} << 32, (int64_t{1} << 62) + 12345})
    for (int64_t n : {int64_t{1}, int64_t{7}, (int64_t{1} << 32) - 1, int64_t{1} << 33}) {
      int64_t whole = i;
      CHECK(work::take_remainder(&whole, n) == i % n);
      CHECK(whole == i / n);
    }
}
