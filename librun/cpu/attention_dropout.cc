#include "librun/cpu/attention_dropout.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "librun/cpu/fill.h"

namespace sg::cpu {
namespace {

constexpr int64_t kRun = 256;  // weights drawn at a time

// The state's 16 bytes in the tensors there are: two numbers of 64 bits, or one tensor of two.
struct StatePlaces {
  std::byte *low = nullptr, *high = nullptr;
};
StatePlaces places_in(const Tensor& a, const Tensor& b) {
  auto holds = [](const Tensor& t, int64_t count) {
    return !t.is_none() && dtype_bytes(t.dtype) == 8 && t.elements() == count;
  };
  if (a.rank == 1 && holds(a, 2)) return {a.data, a.data + a.step(0) * 8};
  if (holds(a, 1) && holds(b, 1)) return {a.data, b.data};
  return {};
}

}  // namespace

template <class T>
void AttentionDropout::apply(int64_t at, int64_t count, T* weights) const {
  const double kept = 1 - p;
  const T factor = static_cast<T>(p == 1 ? 0 : 1 / kept);
  std::array<uint32_t, kRun> words;
  for (int64_t begin = 0; begin < count; begin += kRun) {
    const int64_t n = std::min(kRun, count - begin);
    fill_words(key, static_cast<uint64_t>(first + at + begin), {words.data(), static_cast<size_t>(n)});
    for (int64_t i = 0; i < n; ++i)
      weights[begin + i] *= work::uniform_of_word(words[static_cast<size_t>(i)], 32) < kept ? factor : T(0);
  }
}

template void AttentionDropout::apply(int64_t, int64_t, float*) const;
template void AttentionDropout::apply(int64_t, int64_t, double*) const;

std::optional<AttentionDropout> drawn_dropout(const KernelCall& call) {
  const double p = call.number("dropout_p");
  if (p == 0) return std::nullopt;
  const RandomStream& r = call.random;
  return AttentionDropout{RandomKey(r.seed, r.step, static_cast<uint32_t>(r.stream), static_cast<uint32_t>(r.rank)), p,
                          0};
}

void keep_state(KernelCall& call, const std::optional<AttentionDropout>& dropout, const Tensor& a, const Tensor& b) {
  for (const Tensor* t : {&a, &b})
    if (!t->is_none()) fill(call, *t, Scalar::integer(0));
  const StatePlaces to = places_in(a, b);
  if (!dropout || to.low == nullptr) return;
  std::memcpy(to.low, dropout->key.key, 8);
  std::memcpy(to.high, dropout->key.high, 8);
}

Result<std::optional<AttentionDropout>> kept_dropout(const KernelCall& call) {
  const double p = call.number("dropout_p");
  if (p == 0) return std::optional<AttentionDropout>();
  if (call.op().param_index("philox_seed") < 0)
    return call.fail("dropout inside attention: this op is not told what was dropped", "capture with dropout 0");
  const StatePlaces from = places_in(call.tensor("philox_seed"), call.tensor("philox_offset"));
  if (from.low == nullptr) return call.fail("the random state of the forward op has another type or size");
  work::Key key;
  std::memcpy(key.key, from.low, 8);
  std::memcpy(key.high, from.high, 8);
  return std::optional(AttentionDropout{RandomKey(key), p, 0});
}

}  // namespace sg::cpu
