#include "libpasses/remat/remat.h"

#include <algorithm>

#include "libgraph/expr/assume.h"
#include "libgraph/group_name.h"
#include "libgraph/human.h"
#include "libgraph/op.h"
#include "libgraph/recompute_tags.h"
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

class JobRemat {
 public:
  // `sizes` and `tags`: by program.
  JobRemat(Job* job, const RematOptions& options, PassContext& context, std::vector<SizeValues> sizes,
           std::vector<RematTags> tags)
      : job_(*job), options_(options), context_(context), sizes_(std::move(sizes)), tags_(std::move(tags)) {}

  // Chooses the nodes to recompute, for all ranks. Where ranks would diverge, the first rank decides; where that is not
  // enough, fewer collectives are recomputed.
  Status decide() {
    std::vector<bool> kept(job_.groups.size());
    for (;;) {
      SG_TRY(decide(kept));
      std::vector<RematPlaced> placed;
      for (const RematPart& part : parts_) placed.push_back({part.model.get(), &part.outcome});
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
  Status decide(const std::vector<bool>& kept) {
    parts_.clear();
    for (size_t i = 0; i < job_.programs.size(); ++i) {
      RematPart& part = parts_.emplace_back();
      part.model = std::make_unique<RematModel>(*job_.programs[i], job_.programs[i]->graph, sizes_[i], kept);
      part.allowed = tagged(*part.model, is_recomputed);
      if (options_.has_crossing())
        part.crossing = tagged(*part.model, [](Recompute tag) { return tag == Recompute::prefer_save; });
      part.decision.recompute = part.allowed;
    }
    std::vector<MissedTarget> missed;
    if (options_.target.is_set()) {
      const TargetQuestion question{job_, sizes_, options_.target, options_.tag_only, alike_, context_.threads};
      missed = choose_for_target(question, parts_);
    } else if (eases()) {
      for (size_t i = 0; i < parts_.size(); ++i)
        ease({std::span(parts_).first(i), alike_, context_.threads}, tags_[i].unshards, &job_.programs[i]->graph,
             &parts_[i]);
    }
    for (RematPart& part : parts_) part.outcome = part.model->place(part.decision);
    return missed.empty() ? ok_status() : out_of_reach(std::move(missed));
  }

  // The error of the program that needs most: a peak that it reaches is reached by all.
  Status out_of_reach(std::vector<MissedTarget> missed) {
    if (!context_.best_effort)
      return std::move(std::ranges::max_element(missed, {}, &MissedTarget::least_bytes)->error);
    for (MissedTarget& m : missed)
      context_.notes->warning("remat", m.error.message + "; that is taken", m.error.where, m.error.hint);
    return ok_status();
  }

  bool eases() const {
    return !options_.target.is_set() &&
           (options_.policy == RematPolicy::full || options_.policy == RematPolicy::save_costly);
  }

  Job& job_;
  const RematOptions& options_;
  PassContext& context_;
  const std::vector<SizeValues> sizes_;  // by program
  const std::vector<RematTags> tags_;    // by program
  std::vector<RematPart> parts_;         // by program
  bool alike_ = false;                   // the first program decides for all
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
  const std::vector<SymbolValues> values = usual_values(*job);
  RematSelectors selectors;
  SG_ASSIGN(selectors.save, ValueSelectors::parse("save", options.save));
  SG_ASSIGN(selectors.recompute, ValueSelectors::parse("recompute", options.recompute));
  for (const ValueSelectors* asked : {&selectors.save, &selectors.recompute})
    if (Status used = asked->check_used(*job, values); !used.ok()) {
      if (!context.best_effort) return std::move(used.error());
      context.notes->warning("remat", used.error().message, {}, used.error().hint);
    }
  if (options.policy == RematPolicy::tags && !(options.save.empty() && options.recompute.empty()))
    return usage("--save and --recompute cannot be combined with --policy tags: the graph's tags decide",
                 "use --policy default or full");
  if (options.target.budget && options.target.peak_bytes)
    return usage("--budget and --peak cannot be combined", "give one of them");
  const Recompute crossing = options.has_crossing() ? Recompute::prefer_save : Recompute::must_save;
  std::vector<SizeValues> sizes;
  std::vector<RematTags> tags;
  for (size_t i = 0; i < job->programs.size(); ++i) {
    sizes.push_back([&of = values[i]](StrId symbol) { return of.value(symbol); });
    tags.push_back(tag_for_recompute(job->programs[i].get(), options.policy, selectors, sizes[i], crossing));
  }
  if (options.tag_only && !options.target.is_set()) return count_tags(*job);
  JobRemat remat(job, options, context, std::move(sizes), std::move(tags));
  SG_TRY(remat.decide());
  remat.write_tags();
  return options.tag_only ? count_tags(*job) : remat.apply();
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
