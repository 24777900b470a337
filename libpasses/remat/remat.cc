#include "libpasses/remat/remat.h"

#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/expr/assume.h"
#include "libgraph/facts/recompute_tags.h"
#include "libgraph/group_name.h"
#include "libgraph/op.h"
#include "libpasses/offload/offload_apply.h"
#include "libpasses/pass_order.h"
#include "libpasses/remat/remat_agreement.h"
#include "libpasses/remat/remat_apply.h"
#include "libpasses/remat/remat_ease.h"
#include "libpasses/remat/remat_summary.h"
#include "libpasses/remat/remat_tags.h"
#include "libpasses/remat/remat_target.h"

namespace sg {
namespace {

template <class Predicate>
std::vector<uint8_t> tagged(const RematModel& model, const Predicate& wanted) {
  std::vector<uint8_t> out(model.size(), 0);
  for (uint32_t at = 0; at < model.size(); ++at)
    out[at] = model.is_forward(at) && wanted(model.graph().meta(model.node(at)).recompute);
  return out;
}

// What a policy tags without a target.
struct PolicyTags {
  std::vector<uint8_t> recomputed;  // by node
  std::vector<NodeId> unshards;     // RematTags
  bool eases = false;
};

bool has_ease(RematPolicy policy) { return policy == RematPolicy::full || policy == RematPolicy::save_costly; }

// A search has to be at least as good as the policy itself and those that it replaces.
std::vector<PolicyTags> tags_of_policies(const Job& job, size_t program, const RematOptions& options,
                                         const RematSelectors& selectors, const SizeValues& sizes) {
  std::vector<PolicyTags> out;
  if (!options.target.is_set()) return out;
  std::vector<RematPolicy> policies = {options.policy};
  if (options.has_crossing()) policies = {RematPolicy::save_costly, RematPolicy::full};
  if (options.policy == RematPolicy::all) policies.push_back(RematPolicy::all);
  for (RematPolicy policy : policies) {
    const Job copy(job, std::span(&program, 1));
    const Graph& graph = copy.programs[0]->graph;
    PolicyTags& of = out.emplace_back();
    of.eases = has_ease(policy);
    of.unshards = tag_for_recompute(copy.programs[0].get(), policy, selectors, sizes).unshards;
    of.recomputed.resize(graph.node_id_limit());
    for (NodeId n : graph.nodes()) of.recomputed[n.index] = is_recomputed(graph.meta(n).recompute);
  }
  return out;
}

class JobRemat {
 public:
  // `sizes`, `tags` and `by_policies`: by program.
  JobRemat(Job* job, const RematOptions& options, PassContext& context, std::vector<SizeValues> sizes,
           std::vector<RematTags> tags, std::vector<std::vector<PolicyTags>> by_policies)
      : job_(*job),
        options_(options),
        context_(context),
        sizes_(std::move(sizes)),
        tags_(std::move(tags)),
        by_policies_(std::move(by_policies)) {}

  // Chooses the nodes to recompute, for all ranks.
  Status decide() {
    SG_TRY(options_.target.is_set() ? decide_for_target() : decide_by_policy());
    for (RematPart& part : parts_) part.outcome = part.model->place(part.decision);
    return ok_status();
  }

  void write_tags() {
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Recompute kept = options_.target.is_set() ? Recompute::must_save : Recompute::prefer_save;
      write_decision(&job_.programs[i]->graph, *parts_[i].model, parts_[i].decision, parts_[i].open(), kept);
    }
  }

  Change apply() {
    RematSummary summary(job_, sizes_, tags_, parts_, options_, context_.explain);
    for (size_t i = 0; i < parts_.size(); ++i) {
      apply_remat(*parts_[i].model, parts_[i].outcome, &job_.programs[i]->graph);
      if (!options_.target.is_set() && !parts_[i].outcome.copies.empty()) keep_borders(i);
    }
    for (size_t i = 0; i < parts_.size(); ++i)
      if (!parts_[i].outcome.copies.empty() && settle_offloads(job_.programs[i].get()) > 0)
        parts_[i].after_bytes.reset();
    return summary.change();
  }

 private:
  // Records layer borders as tags: a later run could not recognize them, because their users may be gone or kept.
  void keep_borders(size_t i) {
    Graph& graph = job_.programs[i]->graph;
    for (NodeId n : tags_[i].crossing) {
      if (!graph.alive(n)) continue;
      NodeMeta meta = graph.meta(n);
      meta.recompute = Recompute::prefer_save;
      graph.set_meta(n, std::move(meta));
    }
  }

  // `kept`: by group, whether its collectives are kept (not recomputed).
  std::vector<RematPart> parts_with(const std::vector<bool>& kept) const {
    std::vector<RematPart> parts;
    for (size_t i = 0; i < job_.programs.size(); ++i) {
      RematPart& part = parts.emplace_back();
      part.model = std::make_unique<RematModel>(*job_.programs[i], job_.programs[i]->graph, sizes_[i], kept);
      part.allowed = tagged(*part.model, is_recomputed);
      if (options_.has_crossing())
        part.crossing = tagged(*part.model, [](Recompute tag) { return tag == Recompute::prefer_save; });
      part.decision.recompute = part.allowed;
      for (const PolicyTags& policy : by_policies_[i]) part.rules.push_back(rule_of(policy, part));
    }
    return parts;
  }

  // Where ranks would diverge, the first rank decides; where that is not enough, fewer collectives are recomputed.
  Status decide_by_policy() {
    std::vector<bool> kept(job_.groups.size());
    for (bool alike = false;;) {
      parts_ = parts_with(kept);
      for (size_t i = 0; eases() && i < parts_.size(); ++i)
        ease({std::span(parts_).first(i), alike, context_.threads}, tags_[i].unshards, &job_.programs[i]->graph,
             &parts_[i]);
      const std::optional<RematParting> parting = parting_now();
      if (!parting || std::ranges::find(kept, false) == kept.end()) return ok_status();
      if (!alike && eases()) alike = true;
      else context_.notes->warning("remat", keep(*parting, &kept));
    }
  }

  // Keeps the collectives of the group that ranks would not agree about, or of all; says so.
  std::string keep(const RematParting& parting, std::vector<bool>* kept) const {
    const bool is_one = parting.group && !(*kept)[parting.group.index];
    if (is_one) (*kept)[parting.group.index] = true;
    else kept->assign(kept->size(), true);
    return "no collective" + (is_one ? " of @" + group_name(job_, parting.group) : "") +
           " is recomputed: " + parting.why;
  }

  std::optional<RematParting> parting_now() {
    std::vector<RematPlaced> placed;
    for (RematPart& part : parts_) {
      part.outcome = part.model->place(part.decision);
      placed.push_back({part.model.get(), &part.outcome});
    }
    return find_parting(job_, placed, context_.threads);
  }

  // Fewer collectives are recomputed where ranks would not agree under a lower peak, and that is lower.
  Status decide_for_target() {
    std::vector<bool> kept(job_.groups.size());
    parts_ = parts_with(kept);
    TargetAnswer best = choose_for_target(question(), parts_);
    std::optional<RematParting> parting = std::move(best.parting);
    std::vector<std::string> warnings;
    while (parting && std::ranges::find(kept, false) != kept.end()) {
      warnings.push_back(keep(*parting, &kept));
      std::vector<RematPart> parts = parts_with(kept);
      if (least_bound(parts) >= best.lowest_bytes) break;
      TargetAnswer answer = choose_for_target(question(), parts);
      parting = std::move(answer.parting);
      if (answer.lowest_bytes >= best.lowest_bytes && !(answer.missed.empty() && !best.missed.empty())) continue;
      parts_ = std::move(parts);
      best = std::move(answer);
      for (std::string& warning : warnings) context_.notes->warning("remat", std::move(warning));
      warnings.clear();
    }
    return best.missed.empty() ? ok_status() : out_of_reach(std::move(best.missed));
  }

  TargetQuestion question() const { return {job_, sizes_, options_.target, options_.tag_only, context_.threads}; }

  // No decision for the job is below it.
  static int64_t least_bound(std::span<const RematPart> parts) {
    int64_t out = 0;
    for (const RematPart& part : parts) out = std::max(out, part.model->bound(part.open()).bytes);
    return out;
  }

  // As far as the target's own limits allow it.
  static RematRule rule_of(const PolicyTags& policy, const RematPart& part) {
    const RematModel& model = *part.model;
    const std::vector<uint8_t> open = part.open();
    RematRule out{std::vector<uint8_t>(model.size(), 0), {}, policy.eases};
    for (uint32_t at = 0; at < model.size(); ++at)
      out.recompute[at] = open[at] && policy.recomputed[model.node(at).index];
    for (NodeId n : policy.unshards)
      if (policy.eases && open[model.position(n)]) out.unshards.push_back(model.position(n));
    std::ranges::sort(out.unshards);
    return out;
  }

  // The error of the program that needs most: a peak that it reaches is reached by all.
  Status out_of_reach(std::vector<MissedTarget> missed) {
    if (!context_.best_effort)
      return std::move(std::ranges::max_element(missed, {}, &MissedTarget::least_bytes)->error);
    for (MissedTarget& m : missed)
      context_.notes->warning("remat", m.error.message + "; that is taken", m.error.where, m.error.hint);
    return ok_status();
  }

  bool eases() const { return !options_.target.is_set() && has_ease(options_.policy); }

  Job& job_;
  const RematOptions& options_;
  PassContext& context_;
  const std::vector<SizeValues> sizes_;                     // by program
  const std::vector<RematTags> tags_;                       // by program
  const std::vector<std::vector<PolicyTags>> by_policies_;  // by program
  std::vector<RematPart> parts_;                            // by program
};

// By program, then by node.
std::vector<std::vector<Recompute>> tags_of(const Job& job) {
  std::vector<std::vector<Recompute>> out;
  for (const auto& program : job.programs) {
    std::vector<Recompute>& tags = out.emplace_back(program->graph.node_id_limit());
    for (NodeId n : program->graph.nodes()) tags[n.index] = program->graph.meta(n).recompute;
  }
  return out;
}

// REQUIRES: no node was added.
void restore_tags(const std::vector<std::vector<Recompute>>& tags, Job* job) {
  for (size_t i = 0; i < job->programs.size(); ++i) {
    Graph& graph = job->programs[i]->graph;
    for (NodeId n : graph.nodes()) {
      if (graph.meta(n).recompute == tags[i][n.index]) continue;
      NodeMeta meta = graph.meta(n);
      meta.recompute = tags[i][n.index];
      graph.set_meta(n, std::move(meta));
    }
  }
}

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
    {"policy", 'p', "default|full|all|none|tags", "values that may be recomputed; with --budget or --peak: all",
     "default"},
    {"save", 's', "PATTERN[:OP]|op=OP", "keep these values, as 'layers.*.attention:mm'", {}, true},
    {"recompute",
     0,
     "PATTERN[:OP]|op=OP",
     "recompute these, whatever the policy says; as 'op=mm,size<64KiB'",
     {},
     true},
    {"budget", 'b', "F", "target peak as a fraction: 0 = lowest reachable, 1 = current peak"},
    {"peak", 0, "SIZE", "recompute until the planned peak is at most this, as 60GiB"},
    {"tag-only", 0, {}, "only record the decision on the nodes, and recompute nothing"},
};
constexpr LaterPass kRematPrecedes[] = {{"chunk", "auto"}, {"bucket"}, {"overlap"}};

bool has_recomputed(const Job& job, std::span<const std::string> options) {
  return std::ranges::count(options, "tag-only") != 0 ||
         has_mark(job, [](const NodeMeta& m) { return m.copy.kind == CopyKind::remat; });
}

Error usage(std::string message, std::string hint) {
  return {ErrorKind::usage, std::move(message), {}, std::move(hint)};
}

Result<RematOptions> read_remat_options(const PassOptions& options) {
  RematOptions out;
  if (options.has("budget")) {
    SG_ASSIGN(out.target.budget, options.number("budget", 1));
    if (*out.target.budget > 1)
      return option_error("budget", " takes a number from 0 to 1, not " + options.text("budget"), "--peak takes bytes");
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
  if (out.policy == RematPolicy::tags && !(out.save.empty() && out.recompute.empty()))
    return usage("--save and --recompute cannot be combined with --policy tags: the graph's tags decide",
                 "use --policy default or full");
  if (out.target.budget && out.target.peak_bytes)
    return option_error("budget", " and --peak cannot be combined", "give one of them");
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
  const std::vector<SymbolValues> values = usual_values(*job);
  RematSelectors selectors;
  SG_ASSIGN(selectors.save, ValueSelectors::parse("save", options.save));
  SG_ASSIGN(selectors.recompute, ValueSelectors::parse("recompute", options.recompute));
  for (const ValueSelectors* asked : {&selectors.save, &selectors.recompute})
    if (Status used = asked->check_used(*job, values); !used.ok()) {
      if (!context.best_effort) return std::move(used.error());
      context.notes->warning("remat", used.error().message, {}, used.error().hint);
    }
  const std::vector<std::vector<Recompute>> before = tags_of(*job);
  const Recompute crossing = options.has_crossing() ? Recompute::prefer_save : Recompute::must_save;
  std::vector<SizeValues> sizes;
  std::vector<RematTags> tags;
  std::vector<std::vector<PolicyTags>> by_policies;
  for (size_t i = 0; i < job->programs.size(); ++i) {
    sizes.push_back([&of = values[i]](StrId symbol) { return of.value(symbol); });
    by_policies.push_back(tags_of_policies(*job, i, options, selectors, sizes[i]));
    tags.push_back(tag_for_recompute(job->programs[i].get(), options.policy, selectors, sizes[i], crossing));
  }
  if (options.tag_only && !options.target.is_set()) return count_tags(*job);
  JobRemat remat(job, options, context, std::move(sizes), std::move(tags), std::move(by_policies));
  SG_TRY(remat.decide());
  remat.write_tags();
  if (options.tag_only) return count_tags(*job);
  Change change = remat.apply();
  if (!change.changed) restore_tags(before, job);  // tags of a decision that was not carried out would be pending
  return change;
}

constexpr PassInfo remat_pass = {
    .name = "remat",
    .summary = "recompute forward values in the backward instead of keeping them",
    .precedes = kRematPrecedes,
    .options = kRematOptions,
    .examples = {{"sg-remat step.sg --policy full -o lean.sg", "recompute all but attention (lowest peak: --budget 0)"},
                 {"sg-clean step.sg | sg-remat --budget 0.5 | sg-stat", "lower the peak halfway, and show the result"}},
    .run = run_remat,
    .check = check_remat,
    .has_left_traces = has_recomputed,
};

}  // namespace sg
