// A lower bound of the peak: memory that is not recomputed lives as long as before, and each node that stays in place
// needs its operands and results.
#include <algorithm>

#include "libpasses/remat/remat_model.h"

namespace sg {
namespace {

using WhyHeld = RematBound::Held::Why;

}  // namespace

class RematBoundFinder {
 public:
  RematBoundFinder(const RematModel& model, const std::vector<uint8_t>& allowed)
      : model_(model),
        allowed_(allowed),
        maker_(model.original_bytes_.size(), RematModel::kNone),
        last_(maker_.size(), 0),
        outputs_(maker_.size(), 0) {
    for (uint32_t at = 0; at < model.size(); ++at)
      for (uint32_t r = model.nodes_[at].results; r < model.nodes_[at].results_end; ++r)
        if (model.results_[r].is_made) maker_[model.results_[r].storage] = at;
    for (const auto& output : model.outputs_)
      if (output.storage != RematModel::kNone && maker_[output.storage] != RematModel::kNone &&
          (stays(maker_[output.storage]) || model.is_forward(output.def)))
        outputs_[output.storage] = 1;
    for (uint32_t at = 0; at < model.size(); ++at)
      if (stays(at)) for_memory(at, [&](uint32_t s) { last_[s] = at; });
    for (uint32_t s = 0; s < maker_.size(); ++s)
      if (is_output(s)) last_[s] = model.size();
  }

  RematBound find() {
    RematBound out;
    const std::vector<int64_t> pinned = pinned_bytes();
    for (uint32_t at = 0; at < model_.size(); ++at) {
      if (!stays(at)) continue;
      const int64_t bytes = pinned[at] + extra_at(at, nullptr);
      if (bytes > out.bytes) out.bytes = bytes, out.at = at;
    }
    if (out.bytes > 0) list(&out);
    return out;
  }

 private:
  bool stays(uint32_t at) const { return !allowed_[at] || model_.nodes_[at].bar != RematBar::none; }
  bool is_pinned(uint32_t s) const { return maker_[s] != RematModel::kNone && (stays(maker_[s]) || is_output(s)); }
  bool is_output(uint32_t s) const { return outputs_[s]; }
  bool spans(uint32_t s, uint32_t at) const { return is_pinned(s) && maker_[s] <= at && last_[s] >= at; }

  template <class Fn>
  void for_memory(uint32_t at, const Fn& fn) const {
    const RematModel::NodeFacts& facts = model_.nodes_[at];
    for (uint32_t o = facts.operands; o < facts.operands_end; ++o)
      if (model_.operands_[o].storage != RematModel::kNone) fn(model_.operands_[o].storage);
    for (uint32_t r = facts.results; r < facts.results_end; ++r) fn(model_.results_[r].storage);
  }

  std::vector<int64_t> pinned_bytes() const {
    std::vector<int64_t> change(model_.size() + 2, 0);
    for (uint32_t s = 0; s < maker_.size(); ++s) {
      if (!is_pinned(s)) continue;
      change[maker_[s]] += model_.original_bytes_[s];
      change[last_[s] + 1] -= model_.original_bytes_[s];
    }
    for (size_t i = 1; i < change.size(); ++i) change[i] += change[i - 1];
    return change;
  }

  // Bytes of the node's operands that are not pinned, minus those its results may reuse.
  int64_t extra_at(uint32_t at, std::vector<uint32_t>* taken) const {
    const RematModel::NodeFacts& facts = model_.nodes_[at];
    int64_t bytes = facts.call_bytes;
    std::vector<uint32_t> seen;
    for_memory(at, [&](uint32_t s) {
      if (maker_[s] == RematModel::kNone || spans(s, at) || std::ranges::count(seen, s) != 0) return;
      seen.push_back(s);
      bytes += model_.original_bytes_[s];
    });
    if (taken != nullptr) *taken = seen;
    uint32_t done = RematModel::kNone;
    for (uint32_t i = facts.reuses; i < facts.reuses_end; ++i) {
      const uint32_t dying = model_.operands_[facts.operands + model_.reuses_[i].operand].storage;
      if (model_.reuses_[i].result == done || is_output(dying) || (is_pinned(dying) && last_[dying] > at)) continue;
      done = model_.reuses_[i].result;
      bytes -= model_.original_bytes_[model_.results_[facts.results + done].storage];
    }
    return bytes;
  }

  void list(RematBound* out) const {
    std::vector<uint32_t> taken;
    extra_at(out->at, &taken);
    auto add = [&](uint32_t s) {
      if (model_.original_bytes_[s] > 0) out->held.push_back({maker_[s], model_.original_bytes_[s], why(s, out->at)});
    };
    for (uint32_t s = 0; s < maker_.size(); ++s)
      if (spans(s, out->at)) add(s);
    for (uint32_t s : taken) add(s);
    std::ranges::stable_sort(out->held, [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  }

  WhyHeld why(uint32_t s, uint32_t at) const {
    if (maker_[s] == at) return WhyHeld::made;
    bool is_taken = false;
    for_memory(at, [&](uint32_t other) { is_taken |= other == s; });
    if (is_taken) return WhyHeld::taken;
    if (is_output(s)) return WhyHeld::output;
    if (!model_.nodes_[maker_[s]].is_forward || last_[s] < first_behind()) return WhyHeld::later;
    return model_.nodes_[maker_[s]].bar != RematBar::none ? WhyHeld::barred : WhyHeld::kept;
  }

  uint32_t first_behind() const {
    for (uint32_t at = 0; at < model_.size(); ++at)
      if (!model_.nodes_[at].is_forward) return at;
    return model_.size();
  }

  const RematModel& model_;
  const std::vector<uint8_t>& allowed_;
  std::vector<uint32_t> maker_, last_;  // by storage; last: by nodes that stay where they are
  std::vector<uint8_t> outputs_;        // by storage
};

RematBound RematModel::bound(const std::vector<uint8_t>& allowed) const {
  return RematBoundFinder(*this, allowed).find();
}

}  // namespace sg
