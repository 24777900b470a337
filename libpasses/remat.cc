#include "libpasses/remat.h"

#include <algorithm>
#include <memory>

#include "libgraph/expr/assume.h"
#include "libgraph/group_name.h"
#include "libgraph/human.h"
#include "libgraph/json.h"
#include "libgraph/op.h"
#include "libpasses/offload_apply.h"
#include "libpasses/planned_peak.h"
#include "libpasses/remat_agreement.h"
#include "libpasses/remat_alike.h"
#include "libpasses/remat_apply.h"
#include "libpasses/remat_report.h"
#include "libpasses/remat_tags.h"
#include "libpasses/remat_target.h"

namespace sg {
namespace {

// One program: what may be recomputed, and what is.
struct Part {
  std::unique_ptr<RematModel> model;
  std::vector<uint8_t> allowed, crossing;  // by position: RematSearch
  RematDecision decision;
  RematOutcome outcome;
  int64_t bound_bytes = 0, target_bytes = 0;
  std::optional<int64_t> before_bytes, after_bytes;  // planned, where that is known
};

template <class Predicate>
std::vector<uint8_t> tagged(const RematModel& model, const Predicate& wanted) {
  std::vector<uint8_t> out(model.size(), 0);
  for (uint32_t at = 0; at < model.size(); ++at)
    out[at] = model.is_forward(at) && wanted(model.graph().meta(model.node(at)).recompute);
  return out;
}

constexpr int64_t kWorthwhile = 100;   // a peak that is lower by less than this part of it is hardly lower
constexpr size_t kEaseWork = 2000000;  // node visits of the model

// Nodes of other ranks that do the same get the same decision, as one search would find another by its numbers.
bool has_equal_nodes(const RematModel& a, const RematModel& b) {
  if (a.size() != b.size()) return false;
  for (uint32_t at = 0; at < a.size(); ++at) {
    const Node &x = a.graph().node(a.node(at)), &y = b.graph().node(b.node(at));
    if (x.op != y.op || x.phase != y.phase || x.result_count != y.result_count || a.bar(at) != b.bar(at)) return false;
    for (uint32_t i = 0; i < x.result_count; ++i)
      if (a.graph().value(x.result(i)).type != b.graph().value(y.result(i)).type) return false;
  }
  return true;
}

class JobRemat {
 public:
  // `tags` and `values`: by program.
  JobRemat(Job* job, const RematOptions& options, PassContext& context, std::vector<RematTags> tags,
           std::vector<SymbolValues> values)
      : job_(*job), options_(options), context_(context), tags_(std::move(tags)), values_(std::move(values)) {}

  // Which nodes are recomputed, on all ranks. Where ranks would part, the first one decides; where that is not enough,
  // fewer collectives are.
  Status decide() {
    std::vector<bool> kept(job_.groups.size());
    for (;;) {
      SG_TRY(decide(kept));
      std::vector<RematPlaced> placed;
      for (const Part& part : parts_) placed.push_back({part.model.get(), &part.outcome});
      const std::optional<RematParting> parting = find_parting(job_, placed, context_.threads);
      if (!parting || std::ranges::find(kept, false) == kept.end()) return ok_status();
      if (!alike_ && (eases() || options_.target.is_set())) {
        alike_ = true;
        continue;
      }
      const bool is_one = parting->group && !kept[parting->group.index];
      const std::string of = is_one ? " of @" + group_name(job_, parting->group) : "";
      context_.notes->warning("remat", "no collective" + of + " is recomputed: " + parting->why);
      if (is_one) kept[parting->group.index] = true;
      else kept.assign(kept.size(), true);
    }
  }

  void write_tags() {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Recompute kept = options_.target.is_set() ? Recompute::must_save : Recompute::prefer_save;
      write_decision(&job_.programs[i]->graph, *parts_[i].model, parts_[i].decision, open_of(parts_[i]), kept);
    }
  }

  Change apply() {
    const int64_t before = most_planned(&Part::before_bytes);
    if (context_.explain)
      for (const Part& part : parts_)
        std::ranges::move(explain_copies(*part.model, part.outcome), std::back_inserter(lines_));
    for (size_t i = 0; i < parts_.size(); ++i) {
      apply_remat(*parts_[i].model, parts_[i].outcome, &job_.programs[i]->graph);
      if (!options_.target.is_set() && !parts_[i].outcome.copies.empty()) keep_borders(i);
    }
    for (size_t i = 0; i < parts_.size(); ++i)
      if (!parts_[i].outcome.copies.empty() && settle_offloads(job_.programs[i].get()) > 0)
        parts_[i].after_bytes.reset();
    return summed_up(before);
  }

 private:
  SizeValues sizes(size_t i) const {
    return [&values = values_[i]](StrId symbol) { return values.value(symbol); };
  }

  // The next run will not find them by what they cross into: that may be gone, or kept.
  void keep_borders(size_t i) {
    Graph& graph = job_.programs[i]->graph;
    for (NodeId n : tags_[i].crossing) {
      if (!graph.alive(n)) continue;
      NodeMeta meta = graph.meta(n);
      meta.recompute = Recompute::prefer_save;
      graph.set_meta(n, std::move(meta));
    }
  }

  // What there was something to decide about.
  static std::vector<uint8_t> open_of(const Part& part) {
    std::vector<uint8_t> out = part.allowed;
    for (size_t at = 0; at < part.crossing.size(); ++at) out[at] |= part.crossing[at];
    return out;
  }

  // `kept`: by group, whose collectives are not recomputed.
  Status decide(const std::vector<bool>& kept) {
    parts_.clear();
    for (size_t i = 0; i < job_.programs.size(); ++i) {
      Program& program = *job_.programs[i];
      Part part;
      part.model = std::make_unique<RematModel>(program, program.graph, sizes(i), kept);
      part.allowed = tagged(*part.model, is_recomputed);
      if (options_.has_crossing())
        part.crossing = tagged(*part.model, [](Recompute tag) { return tag == Recompute::prefer_save; });
      part.decision.recompute = part.allowed;
      if (options_.target.is_set()) SG_TRY(choose(i, &part));
      else if (eases()) ease(&part);
      part.outcome = part.model->place(part.decision);
      parts_.push_back(std::move(part));
    }
    return ok_status();
  }

  bool eases() const {
    return !options_.target.is_set() &&
           (options_.policy == RematPolicy::full || options_.policy == RematPolicy::save_costly);
  }

  Status choose(size_t i, Part* part) {
    for (const Part& other : parts_)
      if (has_equal_nodes(*other.model, *part->model)) {
        part->decision = other.decision;
        part->bound_bytes = other.bound_bytes;
        part->target_bytes = other.target_bytes;
        return ok_status();
      }
    const SizeValues values = sizes(i);
    const TargetQuestion question{job_,
                                  i,
                                  values,
                                  part->model.get(),
                                  part->allowed,
                                  part->crossing,
                                  options_.target,
                                  options_.tag_only,
                                  context_.best_effort,
                                  context_.threads};
    if (alike_ && !parts_.empty() && take_alike(question, part)) return ok_status();
    SG_ASSIGN(TargetChoice choice, choose_for(question));
    if (choice.missed)
      context_.notes->warning("remat", choice.missed->message + "; that is taken", choice.missed->where,
                              choice.missed->hint);
    part->decision = std::move(choice.decision);
    part->bound_bytes = choice.bound.bytes;
    part->target_bytes = choice.target_bytes;
    part->before_bytes = choice.kept_bytes;
    part->after_bytes = choice.planned_bytes;
    return ok_status();
  }

  // As the first program, if that meets the target here too; a budget has none of this program's own, and never grows.
  bool take_alike(const TargetQuestion& question, Part* part) const {
    const Part& first = parts_[0];
    RematDecision decision = decision_alike(*first.model, first.decision, *part->model, open_of(*part));
    const int64_t before = planned_peak(*job_.programs[question.which], question.sizes),
                  after = planned_with(question, decision);
    if (after > (options_.target.peak_bytes ? *options_.target.peak_bytes : before)) return false;
    part->decision = std::move(decision);
    part->bound_bytes = first.bound_bytes, part->target_bytes = first.target_bytes;
    part->before_bytes = before, part->after_bytes = after;
    return true;
  }

  // By the policy, but for what would make the peak.
  void ease(Part* part) {
    const std::vector<NodeId>& unshards = tags_[parts_.size()].unshards;
    const std::vector<uint32_t> places = places_of(*part->model, unshards);
    std::optional<RematDecision> given = given_by_others(*part, places);
    part->decision = given ? std::move(*given) : eased(*part, part->allowed);
    if (unshards.empty()) return;
    if (!given) weigh_unshards(places, part);
    if (!part->decision.recompute[places[0]]) return;
    for (uint32_t at : places) part->allowed[at] = 1;
    Graph& graph = job_.programs[parts_.size()]->graph;
    for (NodeId n : unshards) {
      NodeMeta meta = graph.meta(n);
      meta.recompute = Recompute::prefer_recompute;
      graph.set_meta(n, std::move(meta));
    }
  }

  // What was decided for the same nodes on other ranks.
  std::optional<RematDecision> given_by_others(const Part& part, const std::vector<uint32_t>& unshards) const {
    for (const Part& other : parts_)
      if (has_equal_nodes(*other.model, *part.model)) return other.decision;
    if (!alike_ || parts_.empty()) return std::nullopt;
    std::vector<uint8_t> allowed = part.allowed;
    for (uint32_t at : unshards) allowed[at] = 1;
    return decision_alike(*parts_[0].model, parts_[0].decision, *part.model, allowed);
  }

  // The parameters of the head stay gathered, but where that costs a hundredth of the peak. As the search finds now
  // this and now that by little, what it finds for parameters that are gathered again is another try for those that
  // stay.
  void weigh_unshards(const std::vector<uint32_t>& places, Part* part) const {
    std::vector<uint8_t> allowed = part->allowed;
    for (uint32_t at : places) allowed[at] = 1;
    RematDecision again = eased(*part, std::move(allowed)), kept = again;
    for (uint32_t at : places) kept.recompute[at] = 0, again.recompute[at] = 1;
    const auto peak = [&](const RematDecision& decision) { return part->model->weigh(decision).peak_bytes; };
    if (peak(kept) < peak(part->decision)) part->decision = std::move(kept);
    const int64_t now = peak(part->decision);
    if (now - peak(again) >= now / kWorthwhile) part->decision = std::move(again);
  }

  static std::vector<uint32_t> places_of(const RematModel& model, const std::vector<NodeId>& nodes) {
    std::vector<uint32_t> out;
    for (uint32_t at = 0; at < model.size(); ++at)
      if (std::ranges::find(nodes, model.node(at)) != nodes.end()) out.push_back(at);
    return out;
  }

  RematDecision eased(const Part& part, std::vector<uint8_t> allowed) const {
    RematDecision decision{allowed, {}};
    RematChooser chooser(
        part.model.get(),
        {.allowed = std::move(allowed), .crossing = {}, .work = kEaseWork, .threads = context_.threads});
    return chooser.ease(std::move(decision));
  }

  // The graphs as they are; `known` says which plans have been made.
  int64_t most_planned(std::optional<int64_t> Part::*known) const {
    int64_t most = 0;
    for (size_t i = 0; i < job_.programs.size(); ++i) {
      const std::optional<int64_t>& bytes = parts_[i].*known;
      most = std::max(most, bytes ? *bytes : planned_peak(*job_.programs[i], sizes(i)));
    }
    return most;
  }

  Change summed_up(int64_t before) {
    size_t copied = 0, saved = 0;
    int64_t bound = 0;
    for (size_t i = 0; i < parts_.size(); ++i) {
      copied += parts_[i].outcome.copies.size();
      saved += count_saved(job_.programs[i]->graph);
      bound = std::max(bound, parts_[i].bound_bytes);
    }
    Change change;
    change.changed = copied > 0;
    const int64_t after = copied > 0 ? most_planned(&Part::after_bytes) : before;
    change.summary = copied == 0 ? why_nothing(before)
                                 : plural(copied, "node") + " recomputed, " + std::to_string(saved) + " saved, peak " +
                                       human_bytes(double(before)) + " -> " + human_bytes(double(after));
    if (after > before) change.summary += ", which is more: keep more (--save, --policy default)";
    else if (copied > 0 && after > before - before / kWorthwhile)
      change.summary += ", hardly less: --explain says what stays through the peak";
    if (copied > 0 && bound > 0) change.summary += above(after, bound);
    if (context_.explain) explain(&change, before, after, copied, saved, bound);
    return change;
  }

  std::string why_nothing(int64_t peak) const {
    if (options_.target.is_set())
      return "nothing to recompute: the peak of " + human_bytes(double(peak)) + " is within what was asked for";
    if (options_.policy == RematPolicy::none && options_.recompute.empty())
      return "nothing to recompute: --policy none keeps everything";
    const auto has_some = [](const Part& part) { return std::ranges::count(part.allowed, 1) > 0; };
    if (options_.policy == RematPolicy::tags && std::ranges::none_of(parts_, has_some))
      return "nothing to recompute: no node is tagged for it";
    return "nothing to recompute: no value that the backward needs may be dropped";
  }

  static std::string above(int64_t peak, int64_t bound) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f", 100.0 * (double(peak) / double(bound) - 1));
    return ", " + std::string(text) + " % above the lower bound";
  }

  void explain(Change* change, int64_t before, int64_t after, size_t copied, size_t saved, int64_t bound) {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Part& part = parts_[i];
      const std::vector<uint8_t> open = open_of(part);
      std::vector<uint8_t> border(part.model->size(), 0);
      for (NodeId n : tags_[i].crossing) border[part.model->position(n)] = !options_.has_crossing();
      uint32_t head = RematModel::kNone;
      if (const NodeId n = tags_[i].head) {
        head = part.model->position(n);
        lines_.push_back("%" + std::string(part.model->graph().label(n)) +
                         " begins the head: from here on the forward is left alone, as its backward comes at once");
      }
      const RematDecided decided{part.decision, open, border, head, options_.target.is_set()};
      std::ranges::move(explain_peak(*part.model, decided, *job_.programs[i], sizes(i)), std::back_inserter(lines_));
    }
    for (const std::string& line : lines_) change->plan += line + "\n";
    JsonWriter json;
    json.begin_object().member("recomputed", copied).member("saved", saved);
    json.member("peak_before", before).member("peak_after", after);
    if (options_.target.is_set()) json.member("target", parts_[0].target_bytes).member("lower_bound", bound);
    json.key("decisions").begin_array();
    for (const std::string& line : lines_) json.string(line);
    json.end_array().end_object();
    change->plan_json = json.take();
  }

  Job& job_;
  const RematOptions& options_;
  PassContext& context_;
  const std::vector<RematTags> tags_;       // by program
  const std::vector<SymbolValues> values_;  // by program
  std::vector<Part> parts_;                 // by program
  bool alike_ = false;                      // the first program decides for all
  std::vector<std::string> lines_;
};

Change count_tags(const Job& job) {
  size_t marked = 0;
  for (const auto& program : job.programs)
    for (NodeId n : program->graph.nodes()) marked += is_recomputed(program->graph.meta(n).recompute);
  Change change;
  change.changed = true;
  change.summary = plural(marked, "node") + " tagged for recomputation";
  return change;
}

constexpr PassOption kRematOptions[] = {
    {"policy", 'p', "default|full|all|none|tags", "what may be recomputed; all with --budget or --peak", "default"},
    {"save", 's', "PATTERN[:OP]|op=OP", "keep these values, as 'layers.*.attention:mm'", {}, true},
    {"recompute",
     0,
     "PATTERN[:OP]|op=OP",
     "recompute these, whatever the policy says; as 'op=mm,size<64KiB'",
     {},
     true},
    {"budget", 'b', "F", "recompute until the planned peak is there: 0 = the lowest, 1 = as it is"},
    {"peak", 0, "SIZE", "recompute until the planned peak is at most this, as 60GiB"},
    {"tag-only", 0, {}, "write the decision to the nodes and recompute nothing"},
};
constexpr std::string_view kPrecedes[] = {"chunk", "bucket", "overlap"};

Error usage(std::string message, std::string hint) {
  return {ErrorKind::usage, std::move(message), {}, std::move(hint)};
}

Result<RematOptions> read_remat_options(const PassOptions& options) {
  RematOptions out;
  if (options.has("budget")) {
    SG_ASSIGN(out.target.budget, options.number("budget", 1));
    if (*out.target.budget > 1)
      return usage("--budget takes a number from 0 to 1, not " + options.text("budget"), "--peak takes bytes");
  }
  if (options.has("peak")) {
    SG_ASSIGN(out.target.peak_bytes, options.bytes("peak", 0));
  }
  const std::string word = options.text("policy", out.target.is_set() ? "all" : "default");
  out.policy = word == "full"   ? RematPolicy::full
               : word == "all"  ? RematPolicy::all
               : word == "none" ? RematPolicy::none
               : word == "tags" ? RematPolicy::tags
                                : RematPolicy::save_costly;
  out.save = options.all("save");
  out.recompute = options.all("recompute");
  out.tag_only = options.has("tag-only");
  return out;
}

Result<Change> run_remat(Job* job, const PassOptions& options, PassContext& context) {
  SG_ASSIGN(const RematOptions read, read_remat_options(options));
  return remat(job, read, context);
}

Status check_remat(const PassOptions& options) {
  SG_ASSIGN(const RematOptions read, read_remat_options(options));
  SG_TRY(ValueSelectors::parse("save", read.save));
  SG_TRY(ValueSelectors::parse("recompute", read.recompute));
  return ok_status();
}

}  // namespace

Result<Change> remat(Job* job, const RematOptions& options, PassContext& context) {
  std::vector<SymbolValues> values = usual_values(*job);
  RematSelectors selectors;
  SG_ASSIGN(selectors.save, ValueSelectors::parse("save", options.save));
  SG_ASSIGN(selectors.recompute, ValueSelectors::parse("recompute", options.recompute));
  for (const ValueSelectors* asked : {&selectors.save, &selectors.recompute})
    if (Status used = asked->check_used(*job, values); !used.ok()) {
      if (!context.best_effort) return std::move(used.error());
      context.notes->warning("remat", used.error().message, {}, used.error().hint);
    }
  if (options.policy == RematPolicy::tags && !(options.save.empty() && options.recompute.empty()))
    return usage("--save and --recompute do not go with --policy tags: the capture has decided",
                 "use --policy default or full");
  if (options.target.budget && options.target.peak_bytes)
    return usage("--budget and --peak do not go together", "give one of them");
  const Recompute crossing = options.has_crossing() ? Recompute::prefer_save : Recompute::must_save;
  std::vector<RematTags> tags;
  for (size_t i = 0; i < job->programs.size(); ++i) {
    const SizeValues sizes = [&](StrId symbol) { return values[i].value(symbol); };
    tags.push_back(tag_for_recompute(job->programs[i].get(), options.policy, selectors, sizes, crossing));
  }
  if (options.tag_only && !options.target.is_set()) return count_tags(*job);
  JobRemat remat(job, options, context, std::move(tags), std::move(values));
  SG_TRY(remat.decide());
  remat.write_tags();
  return options.tag_only ? count_tags(*job) : remat.apply();
}

constexpr PassInfo remat_pass = {
    "remat",
    "compute forward values again in the backward instead of keeping them",
    {},
    Results::bitwise,
    kPrecedes,
    kRematOptions,
    {{"sg-remat step.sg --policy full -o lean.sg",
      "all but attention is computed again; --budget 0 has the lowest peak"},
     {"sg-clean step.sg | sg-remat --budget 0.5 | sg-stat", "half of the way there, and what it comes to"}},
    run_remat,
    check_remat};

}  // namespace sg
