#include "libpasses/clean/clean.h"

#include <algorithm>

#include "libgraph/base/json.h"
#include "libpasses/clean/clean_parts.h"

namespace sg {
namespace {

using namespace clean_parts;

// Singular and plural.
constexpr std::string_view kKindNames[kKinds][2] = {{"identity", "identities"},
                                                    {"copy", "copies"},
                                                    {"chain shortened", "chains shortened"},
                                                    {"use of a second constant", "uses of second constants"},
                                                    {"common subexpression", "common subexpressions"},
                                                    {"write made functional", "writes made functional"},
                                                    {"size made a number", "sizes made numbers"},
                                                    {"cast folded", "casts folded"},
                                                    {"loss folded", "losses folded"},
                                                    {"unshard merged", "unshards merged"},
                                                    {"dead node", "dead nodes"},
                                                    {"unused symbol", "unused symbols"}};
constexpr std::string_view kKindKeys[kKinds] = {"identities", "copies", "chains", "constants", "common", "functional",
                                                "sizes",      "casts",  "losses", "unshards",  "dead",   "symbols"};
constexpr size_t kMaxRounds = 100;  // real graphs need two or three, whatever their size

size_t clean_graph(Scope scope, const SymbolUses& uses, const CleanOptions& options) {
  size_t changes = merge_constants(scope);
  if (options.fold_casts) {
    const AliasAnalysis alias(scope.program, scope.graph);
    changes += fold_casts(scope, alias, Schedule(scope.graph, alias));
  }
  if (options.fold_losses) {
    const AliasAnalysis alias(scope.program, scope.graph);
    changes += fold_losses(scope, alias, Schedule(scope.graph, alias));
  }
  {
    const AliasAnalysis alias(scope.program, scope.graph);
    const Schedule schedule(scope.graph, alias);
    changes += merge_identities(scope, alias, schedule);
    changes += merge_common(scope, alias, schedule);
    changes += fold_sizes(scope);
    changes += merge_sizes(scope);
  }
  {
    const AliasAnalysis alias(scope.program, scope.graph);
    changes += shorten_chains(scope, alias);
    changes += make_functional(scope, alias);
  }
  const AliasAnalysis alias(scope.program, scope.graph);
  return changes + remove_dead(scope, alias, Schedule(scope.graph, alias), uses, options.drop_asserts);
}

size_t clean_round(Job* job, const CleanOptions& options, Tally* tally) {
  size_t changes = 0;
  for (auto& program : job->programs) {
    const SymbolUses uses(*program);
    changes += clean_graph({*program, program->graph, *tally}, uses, options);
    for (auto& nested : program->nested) changes += clean_graph({*program, nested->graph, *tally}, uses, options);
    changes += remove_symbols(program.get(), tally);
  }
  return changes + remove_collectives(job, tally);
}

std::string summary_of(const Tally& tally) {
  std::string out;
  for (size_t i = 0; i < kKinds; ++i)
    if (tally.counts[i] > 0)
      out += (out.empty() ? "" : ", ") + std::to_string(tally.counts[i]) + " " +
             std::string(kKindNames[i][tally.counts[i] > 1]);
  return out.empty() ? "nothing to clean: nothing is dead, done twice or a mere copy" : out;
}

// Ranks of equal programs say the same.
std::vector<std::string> all_losses_left(Job* job, Tally* tally) {
  std::vector<std::string> out;
  const auto look_at = [&](const Program& program, Graph& graph) {
    Scope scope{program, graph, *tally};
    for (std::string& line : losses_left(scope))
      if (std::ranges::count(out, line) == 0) out.push_back(std::move(line));
  };
  for (auto& program : job->programs) {
    look_at(*program, program->graph);
    for (auto& nested : program->nested) look_at(*program, nested->graph);
  }
  return out;
}

// Why --fold-losses folds none, for the summary.
std::string no_loss_text(const std::vector<std::string>& left) {
  if (left.empty()) return "; no loss folded: there is no log-softmax";
  return "; no loss folded: " + left[0] +
         (left.size() > 1 ? " (" + std::to_string(left.size() - 1) + " more: --explain)" : "");
}

std::string json_of(const Tally& tally, const std::vector<std::string>& losses_left) {
  JsonWriter json;
  json.begin_object();
  for (size_t i = 0; i < kKinds; ++i) json.member(kKindKeys[i], tally.counts[i]);
  json.key("changes").begin_array();
  for (const std::string& line : tally.lines) json.string(line);
  json.end_array();
  if (!losses_left.empty()) {
    json.key("losses_left").begin_array();
    for (const std::string& line : losses_left) json.string(line);
    json.end_array();
  }
  json.end_object();
  return json.take();
}

constexpr PassOption kCleanOptions[] = {
    {"drop-asserts", 0, {}, "also remove assertions, and nodes that only they use"},
    {"fold-casts", 0, {}, "fold casts from bf16 and f16 into the softmax after them; for sg-run, not for PyTorch"},
    {"fold-losses", 0, {}, "merge log-softmax and nll_loss into one op that stores no log-probabilities"},
};
constexpr LaterPass kCleanPrecedes[] = {{"remat"}, {"offload"}, {"chunk"}, {"bucket"}, {"overlap"}};

Result<Change> run_clean(Job* job, const PassOptions& options, PassContext& context) {
  return clean(job, {options.has("drop-asserts"), options.has("fold-casts"), options.has("fold-losses")}, context);
}

}  // namespace

Result<Change> clean(Job* job, const CleanOptions& options, PassContext& context) {
  Tally tally;
  tally.keep_lines = context.explain;
  for (size_t round = 0; round < kMaxRounds && clean_round(job, options, &tally) > 0; ++round) {
  }
  Change change;
  change.changed = tally.total() > 0;
  change.summary = summary_of(tally);
  std::vector<std::string> left;
  if (options.fold_losses) left = all_losses_left(job, &tally);
  if (options.fold_losses && tally.counts[static_cast<size_t>(Kind::loss)] == 0) change.summary += no_loss_text(left);
  if (!context.explain) return change;
  for (const std::vector<std::string>* lines : {&tally.lines, &left})
    for (const std::string& line : *lines) change.plan += line + "\n";
  change.plan_json = json_of(tally, left);
  return change;
}

constexpr PassInfo clean_pass = {
    .name = "clean",
    .summary = "remove work that cannot affect results: dead code, identities, common subexpressions",
    .precedes = kCleanPrecedes,
    .options = kCleanOptions,
    .examples = {{"sg-clean step.sg -o clean.sg", "the same step with fewer nodes"},
                 {"sg-import step.json | sg-clean --explain > clean.sg",
                  "the same in a pipe, listing what was removed"}},
    .run = run_clean,
};

}  // namespace sg
