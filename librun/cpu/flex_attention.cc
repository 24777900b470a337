// FlexAttention: attention whose scores are modified by one nested graph (score_mod) and masked by another (mask_mod).
//
// Both graphs describe a single score; here they run over a block of scores (LaneGraph): its rows are queries, its
// columns keys.
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <vector>

#include "librun/cpu/flex_call.h"
#include "librun/cpu/gemm_pack.h"
#include "librun/cpu/kernels.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

// One thread's graphs, and their inputs for a block.
template <class T>
class Lanes {
 public:
  Lanes(const KernelCall& call, const FlexCall& flex)
      : flex_(flex),
        score_(*call.context().program, *flex.score, call.numerics()),
        mask_(*call.context().program, *flex.mask, call.numerics()) {
    if (flex.joint) joint_ = std::make_unique<LaneGraph>(*call.context().program, *flex.joint, call.numerics());
  }

  Status forward(const ScoreBlock<T>& block) {
    place(block);
    inputs_.score = gather(block, block.scores, &scores_);
    SG_ASSIGN(std::vector<LaneValue> score, run(score_, FlexGraph::score));
    scatter(block, score[0], block.scores);
    SG_ASSIGN(std::vector<LaneValue> seen, run(mask_, FlexGraph::mask));
    seen_ = seen[0];
    where_seen(block, block.scores, -std::numeric_limits<T>::infinity());
    return ok_status();
  }

  // After `forward` of the same block: turns `grads`, the gradients of its results, into those of its inputs (`raw`).
  Status backward(const ScoreBlock<T>& raw, T* grads) {
    inputs_.score = gather(raw, raw.scores, &scores_);
    inputs_.gradient = gather(raw, grads, &grads_);
    SG_ASSIGN(std::vector<LaneValue> out, run(*joint_, FlexGraph::joint));
    scatter(raw, out[0], grads);
    where_seen(raw, grads, T(0));
    return ok_status();
  }

 private:
  Result<std::vector<LaneValue>> run(LaneGraph& graph, FlexGraph which) {
    SG_ASSIGN(std::vector<LaneValue> inputs, flex_inputs(which, flex_, inputs_));
    SG_ASSIGN(std::vector<LaneValue> out, graph.run(lanes_, inputs));
    SG_TRY(check_flex_results(which, out));
    return out;
  }

  void place(const ScoreBlock<T>& block) {
    lanes_ = {1, block.rows, block.columns};
    auto set = [&](size_t i, int64_t begin, int64_t count, PerLaneAxis step) {
      for (int64_t k = 0; k < count; ++k) {
        places_[i][static_cast<size_t>(k)] = begin + k;
        narrow_places_[i][static_cast<size_t>(k)] = static_cast<int32_t>(begin + k);
      }
      inputs_.place[i] = number(places_[i].data(), DType::i64, step);
      inputs_.narrow_place[i] = number(narrow_places_[i].data(), DType::i32, step);
    };
    set(0, block.batch, 1, {});
    set(1, block.head, 1, {});
    set(2, block.q, block.rows, {0, 1, 0});
    set(3, block.k, block.columns, {0, 0, 1});
  }

  LaneValue gather(const ScoreBlock<T>& block, const T* from, std::vector<T>* to) {
    to->resize(static_cast<size_t>(block.rows * block.columns));
    for (int64_t i = 0; i < block.rows; ++i)
      std::copy_n(from + i * kPackedRow, block.columns, to->data() + i * block.columns);
    return number(to->data(), kTileType<T>, {0, block.columns, 1});
  }

  static LaneValue number(void* data, DType dtype, PerLaneAxis step) {
    return {make_tensor(static_cast<std::byte*>(data), dtype, {}), step};
  }

  static void scatter(const ScoreBlock<T>& block, const LaneValue& v, T* to) {
    visit_floating(v.tensor.dtype, [&]<class From>() {
      const From* from = v.tensor.as<From>();
      for (int64_t i = 0; i < block.rows; ++i)
        for (int64_t j = 0; j < block.columns; ++j)
          to[i * kPackedRow + j] = static_cast<T>(static_cast<Compute<From>>(from[i * v.step[1] + j * v.step[2]]));
    });
  }

  void where_seen(const ScoreBlock<T>& block, T* values, T otherwise) const {
    const bool* seen = seen_.tensor.as<bool>();
    for (int64_t i = 0; i < block.rows; ++i)
      for (int64_t j = 0; j < block.columns; ++j)
        if (!seen[i * seen_.step[1] + j * seen_.step[2]]) values[i * kPackedRow + j] = otherwise;
  }

  const FlexCall& flex_;
  LaneGraph score_, mask_;
  std::unique_ptr<LaneGraph> joint_;
  PerLaneAxis lanes_{};
  FlexLanes inputs_;
  std::array<std::array<int64_t, std::max(kQueryBlock, kKeyBlock)>, 4> places_;
  std::array<std::array<int32_t, std::max(kQueryBlock, kKeyBlock)>, 4> narrow_places_;
  std::vector<T> scores_, grads_;
  LaneValue seen_;  // of the current block
};

template <class T>
struct Flex {
  std::vector<std::unique_ptr<Lanes<T>>> lanes;  // by thread
  ScoreHooks<T> hooks;

  Flex(const KernelCall& call, const FlexCall& flex) {
    for (int i = 0; i < call.team().size(); ++i) lanes.push_back(std::make_unique<Lanes<T>>(call, flex));
    hooks.forward = [this](const ScoreBlock<T>& block) {
      return lanes[static_cast<size_t>(block.thread)]->forward(block);
    };
    if (flex.joint)
      hooks.backward = [this](const ScoreBlock<T>& raw, T* grads) {
        return lanes[static_cast<size_t>(raw.thread)]->backward(raw, grads);
      };
  }
};

template <class T>
Status run(KernelCall& call, const FlexCall& flex) {
  Flex<T> by_thread(call, flex);
  const Attention& a = flex.attention;
  if (flex.joint) return attention_backward<T>(call, a, flex.gradients(call), by_thread.hooks);
  return attention_forward<T>(call, a, {call.result(0), call.result(1), call.result(2), kLog2OfE}, by_thread.hooks);
}

Status flex_attention(KernelCall& call) {
  SG_ASSIGN(FlexCall flex, flex_call(call));
  return flex.attention.query.dtype == DType::f64 ? run<double>(call, flex) : run<float>(call, flex);
}

constexpr KernelRow kRows[] = {
    {"higher_order.flex_attention", flex_attention},
    {"higher_order.flex_attention_backward", flex_attention},
};

}  // namespace

std::span<const KernelRow> flex_attention_kernels() { return kRows; }

}  // namespace sg::cpu
