#include "librun/cpu/attention_dropout.h"

#include <algorithm>
#include <array>

#include "librun/cpu/fill.h"
#include "librun/work/draw.h"
#include "librun/work/run.h"

namespace sg::cpu {
namespace {

constexpr int64_t kRun = 256;  // weights drawn at a time

// The 16 bytes of the state as two numbers: in a key's memory, or in the tensors given (two 64-bit numbers, or one
// tensor of two).
using State = std::array<Tensor, 2>;

Tensor whole_at(std::byte* data) { return make_tensor(data, DType::i64, std::array<int64_t, 1>{1}); }

std::optional<State> state_in(const Tensor& a, const Tensor& b) {
  auto holds = [](const Tensor& t, int64_t count) {
    return !t.is_none() && dtype_bytes(t.dtype) == 8 && t.elements() == count;
  };
  if (a.rank == 1 && holds(a, 2)) return State{whole_at(a.data), whole_at(a.data + a.step(0) * 8)};
  if (holds(a, 1) && holds(b, 1)) return State{whole_at(a.data), whole_at(b.data)};
  return std::nullopt;
}

State state_of(const Tensor& key) { return {whole_at(key.data), whole_at(key.data + 8)}; }

Tensor key_memory(KernelCall& call) {
  static_assert(sizeof(work::Key) == 16);
  return workspace(call, DType::i64, std::array<int64_t, 1>{2});
}

}  // namespace

template <class T>
void AttentionDropout::apply(int64_t at, int64_t count, T* weights) const {
  const RandomKey drawn(*key);
  const T by = static_cast<T>(factor());
  std::array<uint32_t, kRun> words;
  for (int64_t begin = 0; begin < count; begin += kRun) {
    const int64_t n = std::min(kRun, count - begin);
    fill_words(drawn, static_cast<uint64_t>(first + at + begin), {words.data(), static_cast<size_t>(n)});
    for (int64_t i = 0; i < n; ++i)
      weights[begin + i] *= work::uniform_of_word(words[static_cast<size_t>(i)], 32) < kept() ? by : T(0);
  }
}

template void AttentionDropout::apply(int64_t, int64_t, float*) const;
template void AttentionDropout::apply(int64_t, int64_t, double*) const;

std::optional<AttentionDropout> drawn_dropout(KernelCall& call) {
  const double p = call.number("dropout_p");
  if (p == 0) return std::nullopt;
  const RandomStream& r = call.random;
  Backend* backend = backend_of(call.context());
  work::Stream stream{r.seed, static_cast<uint32_t>(r.stream), static_cast<uint32_t>(r.rank), &r.step};
  if (backend) stream.step = backend->step_counter();
  auto* key = key_memory(call).as<work::Key>();
  for_each(call, 1, 1, work::DrawKey{stream, key});
  return AttentionDropout{key, p, 0};
}

void keep_state(KernelCall& call, const std::optional<AttentionDropout>& dropout, const Tensor& a, const Tensor& b) {
  for (const Tensor* t : {&a, &b})
    if (!t->is_none()) fill(call, *t, Scalar::integer(0));
  const std::optional<State> to = state_in(a, b);
  if (!dropout || !to) return;
  std::byte* key = reinterpret_cast<std::byte*>(const_cast<work::Key*>(dropout->key));
  for (size_t k = 0; k < 2; ++k) copy(call, (*to)[k], whole_at(key + 8 * k));
}

Result<std::optional<AttentionDropout>> kept_dropout(KernelCall& call) {
  const double p = call.number("dropout_p");
  if (p == 0) return std::optional<AttentionDropout>();
  if (call.op().param_index("philox_seed") < 0)
    return call.fail("dropout inside attention: this op is not told what was dropped", "capture with dropout 0");
  const std::optional<State> from = state_in(call.tensor("philox_seed"), call.tensor("philox_offset"));
  if (!from) return call.fail("the random state of the forward op has another type or size");
  const Tensor key = key_memory(call);
  const State to = state_of(key);
  for (size_t k = 0; k < 2; ++k) copy(call, to[k], (*from)[k]);
  return std::optional(AttentionDropout{key.as<work::Key>(), p, 0});
}

}  // namespace sg::cpu
