#include "libpasses/remat/remat.h"

#include <algorithm>

#include "libgraph/expr/assume.h"
#include "libgraph/group_name.h"
#include "libgraph/human.h"
#include "libgraph/op.h"
#include "libpasses/offload/offload_apply.h"
#include "libpasses/planned_peak.h"
#include "libpasses/remat/remat_agreement.h"
#include "libpasses/remat/remat_alike.h"
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
  // A peak that a program does not reach, and the lowest that it can.
  struct Missed {
    Error error;
    int64_t least_bytes;
  };

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
    missed_.clear();
    for (size_t i = 0; i < job_.programs.size(); ++i) {
      Program& program = *job_.programs[i];
      RematPart part;
      part.model = std::make_unique<RematModel>(program, program.graph, sizes_[i], kept);
      part.allowed = tagged(*part.model, is_recomputed);
      if (options_.has_crossing())
        part.crossing = tagged(*part.model, [](Recompute tag) { return tag == Recompute::prefer_save; });
      part.decision.recompute = part.allowed;
      if (options_.target.is_set()) choose(i, &part);
      else if (eases()) ease({parts_, alike_, context_.threads}, tags_[i].unshards, &program.graph, &part);
      part.outcome = part.model->place(part.decision);
      parts_.push_back(std::move(part));
    }
    return missed_.empty() ? ok_status() : out_of_reach();
  }

  // The error of the program with the highest minimum: a peak that it reaches, all reach.
  Status out_of_reach() {
    if (!context_.best_effort)
      return std::ranges::max(missed_, {}, [](const Missed& m) { return m.least_bytes; }).error;
    for (const Missed& missed : missed_)
      context_.notes->warning("remat", missed.error.message + "; that is taken", missed.error.where, missed.error.hint);
    return ok_status();
  }

  bool eases() const {
    return !options_.target.is_set() &&
           (options_.policy == RematPolicy::full || options_.policy == RematPolicy::save_costly);
  }

  void choose(size_t i, RematPart* part) {
    for (const RematPart& other : parts_)
      if (has_equal_nodes(*other.model, *part->model)) {
        part->decision = other.decision;
        part->bound_bytes = other.bound_bytes;
        part->target_bytes = other.target_bytes;
        return;
      }
    const std::vector<std::vector<uint8_t>> starts = {allowed_by(*part, is_kept_by_default),
                                                      allowed_by(*part, is_kept_by_full)};
    const TargetQuestion question{job_,           i,      sizes_[i],       part->model.get(), part->allowed,
                                  part->crossing, starts, options_.target, options_.tag_only, context_.threads};
    if (alike_ && !parts_.empty() && take_alike(question, part)) return;
    TargetChoice choice = choose_for(question);
    if (choice.missed) missed_.push_back({std::move(*choice.missed), choice.planned_bytes});
    part->decision = std::move(choice.decision);
    part->bound_bytes = choice.bound.bytes;
    part->target_bytes = choice.target_bytes;
    part->before_bytes = choice.kept_bytes;
    part->after_bytes = choice.planned_bytes;
  }

  // The allowed nodes that a policy which keeps less would recompute.
  template <class Predicate>
  static std::vector<uint8_t> allowed_by(const RematPart& part, const Predicate& is_kept) {
    std::vector<uint8_t> out = part.allowed;
    for (uint32_t at = 0; at < out.size(); ++at)
      if (out[at] != 0) out[at] = !is_kept(part.model->graph(), part.model->node(at));
    return out;
  }

  // Takes the first program's decision if it meets the target here too; with a budget, if the peak does not grow.
  bool take_alike(const TargetQuestion& question, RematPart* part) const {
    const RematPart& first = parts_[0];
    RematDecision decision = decision_alike(*first.model, first.decision, *part->model, part->open());
    const int64_t before = planned_peak(*job_.programs[question.which], question.sizes),
                  after = planned_with(question, decision);
    if (after > (options_.target.peak_bytes ? *options_.target.peak_bytes : before)) return false;
    part->decision = std::move(decision);
    part->bound_bytes = first.bound_bytes, part->target_bytes = first.target_bytes;
    part->before_bytes = before, part->after_bytes = after;
    return true;
  }

  Job& job_;
  const RematOptions& options_;
  PassContext& context_;
  const std::vector<SizeValues> sizes_;  // by program
  const std::vector<RematTags> tags_;    // by program
  std::vector<RematPart> parts_;         // by program
  std::vector<Missed> missed_;
  bool alike_ = false;  // the first program decides for all
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
constexpr std::string_view kRematPrecedes[] = {"chunk but --auto", "bucket", "overlap"};

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
    return usage("--save and --recompute do not go with --policy tags: the capture has decided",
                 "use --policy default or full");
  if (options.target.budget && options.target.peak_bytes)
    return usage("--budget and --peak do not go together", "give one of them");
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
};

}  // namespace sg
