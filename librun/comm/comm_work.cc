#include "librun/comm/comm_work.h"

#include <algorithm>

#include "librun/comm/comm_match.h"
#include "librun/comm/reduce.h"

namespace sg {
namespace {

// Small enough to divide a collective of a megabyte evenly, large enough that taking a piece costs little in
// comparison.
constexpr int64_t kPieceBytes = 128 << 10;

}  // namespace

void CollectiveWork::prepare(std::span<const CollectiveCall> calls) {
  segments_.clear();
  inputs_.clear();
  outputs_.clear();
  pieces_ = bytes_ = 0;
  const CollectiveCall& first = calls[0];
  reduces_ = first.kind == CollectiveKind::all_reduce || first.kind == CollectiveKind::reduce_scatter;
  reduction_ = first.reduction;
  dtype_ = first.output.is_none() ? first.input.dtype : first.output.dtype;
  if (dtype_ == DType::none) return;  // a barrier has no work
  unit_ = dtype_bytes(dtype_);
  units_a_piece_ = kPieceBytes / unit_;
  prepare_segments(calls);
}

void CollectiveWork::prepare_segments(std::span<const CollectiveCall> calls) {
  size_t n = calls.size(), root = calls[0].root;
  switch (calls[0].kind) {
    case CollectiveKind::barrier: return;
    case CollectiveKind::all_gather:
      for (size_t r = 0; r < n; ++r) {
        int64_t count = calls[r].input.elements();
        begin_segment();
        add_input(calls[r].input.data);
        for (const CollectiveCall& c : calls) add_output(c.output.data + static_cast<int64_t>(r) * count * unit_);
        end_segment(count);
      }
      return;
    case CollectiveKind::reduce_scatter:
      for (size_t r = 0; r < n; ++r) {
        int64_t count = calls[r].output.elements();
        begin_segment();
        for (const CollectiveCall& c : calls) add_input(c.input.data + static_cast<int64_t>(r) * count * unit_);
        add_output(calls[r].output.data);
        end_segment(count);
      }
      return;
    case CollectiveKind::all_reduce:
      begin_segment();
      for (const CollectiveCall& c : calls) add_input(c.input.data), add_output(c.output.data);
      return end_segment(calls[0].input.elements());
    case CollectiveKind::broadcast:
      begin_segment();
      add_input(calls[root].input.data);
      for (const CollectiveCall& c : calls) add_output(c.output.data);
      return end_segment(calls[root].input.elements());
    case CollectiveKind::gather:
    case CollectiveKind::scatter: {
      bool gathers = calls[0].kind == CollectiveKind::gather;
      for (size_t r = 0; r < n; ++r) {
        int64_t count = (gathers ? calls[r].input : calls[r].output).elements(),
                offset = static_cast<int64_t>(r) * count * unit_;
        if (gathers) copy(calls[r].input.data, calls[root].output.data + offset, count);
        else copy(calls[root].input.data + offset, calls[r].output.data, count);
      }
      return;
    }
    case CollectiveKind::all_to_all:
      std::vector<int64_t> read(n, 0);  // elements of each member's input taken by earlier receivers
      for (size_t to = 0; to < n; ++to) {
        int64_t written = 0;
        for (size_t from = 0; from < n; ++from) {
          int64_t count = received_from(calls[to], from, n);
          copy(calls[from].input.data + read[from] * unit_, calls[to].output.data + written * unit_, count);
          read[from] += count;
          written += count;
        }
      }
  }
}

void CollectiveWork::copy(const std::byte* from, std::byte* to, int64_t count) {
  begin_segment();
  add_input(from);
  add_output(to);
  end_segment(count);
}

void CollectiveWork::end_segment(int64_t count) {
  if (count == 0) return;
  open_.count = count;
  segments_.push_back(open_);
  pieces_ += (count + units_a_piece_ - 1) / units_a_piece_;
  bytes_ += count * unit_ * static_cast<int64_t>(open_.inputs + open_.outputs);
}

void CollectiveWork::run(int64_t piece) const {
  auto after = std::upper_bound(segments_.begin(), segments_.end(), piece,
                                [](int64_t p, const Segment& s) { return p < s.first_piece; });
  const Segment& s = *(after - 1);
  int64_t begin = (piece - s.first_piece) * units_a_piece_, count = std::min(units_a_piece_, s.count - begin);
  constexpr size_t kFew = 16;
  const std::byte* few_inputs[kFew];
  std::byte* few_outputs[kFew];
  std::vector<const std::byte*> many_inputs(s.inputs > kFew ? s.inputs : 0);
  std::vector<std::byte*> many_outputs(s.outputs > kFew ? s.outputs : 0);
  std::span<const std::byte*> from = s.inputs > kFew ? std::span(many_inputs) : std::span(few_inputs, s.inputs);
  std::span<std::byte*> to = s.outputs > kFew ? std::span(many_outputs) : std::span(few_outputs, s.outputs);
  for (size_t i = 0; i < s.inputs; ++i) from[i] = inputs_[s.first_input + i] + begin * unit_;
  for (size_t i = 0; i < s.outputs; ++i) to[i] = outputs_[s.first_output + i] + begin * unit_;
  if (reduces_) reduce_elements(reduction_, dtype_, from, to, count);
  else copy_bytes(from[0], to, count * unit_);
}

}  // namespace sg
