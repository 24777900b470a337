#include "libpasses/remat/remat_summary.h"

#include <algorithm>
#include <iterator>

#include "libgraph/base/human.h"
#include "libgraph/base/json.h"
#include "libpasses/planned_peak.h"
#include "libpasses/remat/remat_apply.h"
#include "libpasses/remat/remat_report.h"

namespace sg {
namespace {

std::string above_bound(int64_t peak, int64_t bound) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f", 100.0 * (double(peak) / double(bound) - 1));
  return ", " + std::string(text) + " % above the lower bound";
}

}  // namespace

RematSummary::RematSummary(const Job& job, const std::vector<SizeValues>& sizes, const std::vector<RematTags>& tags,
                           const std::vector<RematPart>& parts, const RematOptions& options, bool explains)
    : job_(job), sizes_(sizes), tags_(tags), parts_(parts), options_(options), explains_(explains) {
  before_ = most_planned(&RematPart::before_bytes);
  for (const RematPart& part : parts) {
    copied_ += part.outcome.copies.size();
    bound_ = std::max(bound_, part.bound_bytes);
    if (explains) std::ranges::move(explain_copies(*part.model, part.outcome), std::back_inserter(lines_));
  }
}

Change RematSummary::change() {
  for (const auto& program : job_.programs) saved_ += count_saved(program->graph);
  after_ = copied_ > 0 ? most_planned(&RematPart::after_bytes) : before_;
  Change change;
  change.changed = copied_ > 0;
  change.summary = copied_ > 0 ? text() : why_nothing();
  if (explains_) explain(&change);
  return change;
}

// Measures the graphs as they are; `known` tells which plans exist already.
int64_t RematSummary::most_planned(std::optional<int64_t> RematPart::*known) const {
  int64_t most = 0;
  for (size_t i = 0; i < job_.programs.size(); ++i) {
    const std::optional<int64_t>& bytes = parts_[i].*known;
    most = std::max(most, bytes ? *bytes : planned_peak(*job_.programs[i], sizes_[i]));
  }
  return most;
}

std::string RematSummary::text() const {
  std::string out = plural(copied_, "node") + " recomputed, " + std::to_string(saved_) + " saved, peak " +
                    human_bytes(double(before_)) + " -> " + human_bytes(double(after_));
  if (after_ > before_) out += ", higher than before: " + std::string(remedy());
  else if (after_ > before_ - before_ / kWorthwhile) out += ", hardly lower: --explain lists what is live at the peak";
  return bound_ > 0 ? out + above_bound(after_, bound_) : out;
}

// Against a policy that raises the peak; a target never does.
std::string_view RematSummary::remedy() const {
  switch (options_.policy) {
    case RematPolicy::save_costly: return "give --budget or --peak, which never raise it, or keep more values (--save)";
    case RematPolicy::tags: return "give --budget or --peak, which never raise it";
    default: return "give --budget or --peak, which never raise it, or keep more values (--save, --policy default)";
  }
}

std::string RematSummary::why_nothing() const {
  if (options_.target.budget && *options_.target.budget < 1)
    return "nothing to recompute: nothing that was found lowers the peak of " + human_bytes(double(before_));
  if (options_.target.is_set())
    return "nothing to recompute: the peak of " + human_bytes(double(before_)) + " is within what was asked for";
  if (options_.policy == RematPolicy::none && options_.recompute.empty())
    return "nothing to recompute: --policy none keeps everything";
  const auto has_some = [](const RematPart& part) { return std::ranges::count(part.allowed, 1) > 0; };
  if (options_.policy == RematPolicy::tags && std::ranges::none_of(parts_, has_some))
    return "nothing to recompute: no node is tagged for it";
  return "nothing to recompute: no value that the backward needs may be dropped";
}

void RematSummary::explain(Change* change) {
  for (size_t i = 0; i < parts_.size(); ++i) {
    const RematPart& part = parts_[i];
    const std::vector<uint8_t> open = part.open();
    std::vector<uint8_t> border(part.model->size(), 0);
    for (NodeId n : tags_[i].crossing) border[part.model->position(n)] = !options_.has_crossing();
    uint32_t head = RematModel::kNone;
    if (const NodeId n = tags_[i].head) {
      head = part.model->position(n);
      lines_.push_back("%" + std::string(part.model->graph().label(n)) +
                       " begins the head: from here on the forward is left alone, as its backward comes at once");
    }
    const RematDecided decided{part.decision, open, border, head, options_.target.is_set()};
    std::ranges::move(explain_peak(*part.model, decided, *job_.programs[i], sizes_[i]), std::back_inserter(lines_));
  }
  for (const std::string& line : lines_) change->plan += line + "\n";
  JsonWriter json;
  json.begin_object().member("recomputed", copied_).member("saved", saved_);
  json.member("peak_before", before_).member("peak_after", after_);
  if (options_.target.is_set()) json.member("target", parts_[0].target_bytes).member("lower_bound", bound_);
  json.key("decisions").begin_array();
  for (const std::string& line : lines_) json.string(line);
  json.end_array().end_object();
  change->plan_json = json.take();
}

}  // namespace sg
