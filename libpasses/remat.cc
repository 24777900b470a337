#include "libpasses/remat.h"

#include <algorithm>
#include <map>

#include "libgraph/human.h"
#include "libgraph/json.h"
#include "libgraph/liveness.h"
#include "libgraph/op.h"
#include "libgraph/plan.h"
#include "libgraph/rewrite.h"
#include "libpasses/remat_tags.h"
#include "libpasses/schedule.h"

namespace sg {
namespace {

struct Counts {
  size_t copied = 0, gone = 0, saved = 0;
  std::vector<std::string> lines;                // --explain
};

// One program's main graph.
class Recomputer {
 public:
  Recomputer(Program* program, bool collectives, bool explain)
      : program_(*program), graph_(program->graph), alias_(*program, graph_), schedule_(graph_, alias_), collectives_(collectives), explain_(explain) {}

  Counts run() {
    const size_t nodes = graph_.node_id_limit();
    copy_.resize(nodes);
    state_.resize(nodes);
    asked_.resize(nodes);
    find_written();
    std::vector<NodeId> backward;
    for (NodeId n : graph_.nodes())
      if (graph_.node(n).phase != Phase::forward) backward.push_back(n);
    for (NodeId b : backward) serve(b);
    erase_unused();
    count_saved();
    return std::move(counts_);
  }

 private:
  enum class State : uint8_t { unknown, kept, wanted };

  // May be computed again at all: no effect, and nobody writes to what it makes.
  bool may_copy(NodeId n) const {
    const OpInfo* op = graph_.op_info(n);
    if (op == nullptr || graph_.node(n).phase != Phase::forward || !is_recomputed(graph_.meta(n).recompute)) return false;
    const bool exchanges = op->has(kCollective) || op->has(kWait);
    if (exchanges ? !collectives_ || (op->writes() && !op->has(kWait)) : !(op->has(kPure) || draws_random(graph_, n))) return false;
    if (op->has(kHostSync) || op->has(kAssert) || op->has(kSize) || !alias_.binds(n).empty()) return false;
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
      if (!is_unwritten(graph_.node(n).result(i), exchanges)) return false;
    return graph_.node(n).result_count > 0;
  }

  // A view of an input is as good as the input: whether what it shows changes is asked for each copy.
  bool is_unwritten(ValueId v, bool by_wait) const {
    const StorageId s = alias_.storage_of(v);
    if (s.is_none() || alias_.may_be_input(s)) return true;
    const Storage& storage = alias_.storage(s);
    return storage.certain && (by_wait || !written_[storage.alias_class]);
  }

  void find_written() {
    written_.resize(alias_.storages().size() + 1);
    for (NodeId n : graph_.nodes()) {
      const OpInfo* op = graph_.op_info(n);
      if (op != nullptr && op->has(kWait)) continue;
      for (StorageId s : alias_.writes(n)) written_[alias_.storage(s).alias_class] = true;
    }
  }

  template <class Fn>
  void for_operands(NodeId n, const Fn& fn) const {
    for (const Arg& arg : graph_.node(n).args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::value)) fn(a.as_value());
      });
  }

  bool wants_copy(ValueId v) {
    const NodeId def = graph_.value(v).def;
    if (!def || def.index >= state_.size()) return false;
    if (state_[def.index] == State::unknown) state_[def.index] = may_copy(def) ? State::wanted : State::kept;
    return state_[def.index] == State::wanted;
  }

  // Copies of all that backward node `b` needs and nobody has copied yet, before it, in the order of the forward.
  void serve(NodeId b) {
    std::vector<NodeId> needed, stack;
    auto need = [&](ValueId v) {
      if (!wants_copy(v)) return;
      const NodeId def = graph_.value(v).def;
      if (copy_[def.index] || asked_[def.index] == b) return;
      asked_[def.index] = b;
      needed.push_back(def);
      stack.push_back(def);
    };
    for_operands(b, need);
    while (!stack.empty()) {
      const NodeId n = stack.back();
      stack.pop_back();
      for_operands(n, need);
    }
    std::ranges::sort(needed, [&](NodeId x, NodeId y) { return graph_.before(x, y); });
    for (NodeId n : needed) copy_before(n, b);
    redirect(b);
  }

  // What the copy would read, and whether that is what the original read.
  bool reads_the_same(NodeId n, NodeId b) {
    bool same = true;
    for_operands(n, [&](ValueId v) {
      const uint32_t c = class_of(alias_, v);
      if (c == kNoClass || !mapped(v).is_none()) return;
      same &= !schedule_.is_written_between(c, schedule_.position(n), schedule_.position(b));
    });
    // A wait without its launch would be the second one for it.
    const OpInfo* op = graph_.op_info(n);
    if (op->has(kWait)) for_operands(n, [&](ValueId v) { same &= !mapped(v).is_none(); });
    return same;
  }

  ValueId mapped(ValueId v) const {
    const NodeId def = graph_.value(v).def;
    if (!def || def.index >= copy_.size() || !copy_[def.index]) return {};
    return graph_.node(copy_[def.index]).result(graph_.value(v).index);
  }

  void copy_before(NodeId n, NodeId b) {
    if (!reads_the_same(n, b)) {
      state_[n.index] = State::kept;
      if (explain_) counts_.lines.push_back("%" + std::string(graph_.label(n)) + " is kept: what it reads is written before the backward");
      return;
    }
    const NodeId copy = copy_node(&graph_, n, b, [&](ValueId v) { ValueId m = mapped(v); return m.is_none() ? v : m; }, "_recomputed");
    graph_.set_phase(copy, graph_.node(b).phase);
    graph_.set_forward(copy, n);
    NodeMeta meta = graph_.meta(copy);
    meta.recompute = Recompute::none;
    const StrId original = graph_.meta(n).copy.kind == CopyKind::none ? graph_.node(n).label : graph_.meta(n).copy.of;
    meta.copy = {CopyKind::remat, original};
    graph_.set_meta(copy, std::move(meta));
    copy_[n.index] = copy;
    copied_.push_back(n);
  }

  void redirect(NodeId b) {
    std::vector<ValueId> operands;
    for_operands(b, [&](ValueId v) { operands.push_back(v); });
    for (ValueId v : operands)
      if (ValueId m = mapped(v); !m.is_none()) graph_.replace_uses_in(b, v, m);
  }

  bool is_used(NodeId n) const {
    for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
      if (graph_.is_used(graph_.node(n).result(i))) return true;
    return false;
  }

  // Copies that only a kept node asked for, and originals that nobody asks for any more.
  void erase_unused() {
    for (size_t i = copied_.size(); i-- > 0;)
      if (NodeId& copy = copy_[copied_[i].index]; !is_used(copy)) graph_.erase(copy), copy = NodeId();
    for (size_t i = copied_.size(); i-- > 0;) {
      const NodeId n = copied_[i], copy = copy_[n.index];
      if (!copy) continue;
      ++counts_.copied;
      if (explain_) counts_.lines.push_back("%" + std::string(graph_.label(n)) + " is recomputed before %" + std::string(graph_.label(graph_.next(copy))));
    }
    std::ranges::sort(copied_, [&](NodeId x, NodeId y) { return graph_.before(y, x); });
    for (NodeId n : copied_)
      if (copy_[n.index] && !is_used(n)) graph_.erase(n), ++counts_.gone;
  }

  // Forward values that live into the backward.
  void count_saved() {
    for (NodeId n : graph_.nodes()) {
      if (graph_.node(n).phase != Phase::forward) continue;
      bool saved = false;
      for (uint32_t i = 0; i < graph_.node(n).result_count; ++i)
        graph_.for_each_use(graph_.node(n).result(i), [&](Use use) { saved |= use.user && graph_.node(use.user).phase != Phase::forward; });
      counts_.saved += saved;
    }
  }

  Program& program_;
  Graph& graph_;
  AliasAnalysis alias_;
  Schedule schedule_;
  bool collectives_, explain_;
  std::vector<NodeId> copy_;                     // by original
  std::vector<State> state_;                     // by original
  std::vector<NodeId> asked_;                    // by original: the last node it was looked at for
  std::vector<NodeId> copied_;
  std::vector<bool> written_;                    // by alias class; by anything but waits
  Counts counts_;
};

int64_t planned_peak(const Job& job) {
  int64_t most = 0;
  for (const auto& program : job.programs) {
    const SizeValues hints = [&](StrId s) { return program->find_symbol(s) ? program->find_symbol(s)->hint : std::nullopt; };
    most = std::max(most, plan_memory(compute_liveness(*program, program->graph, hints)).arena_bytes);
  }
  return most;
}

// The collectives that a program launches: ops in order, by group family.
std::map<GroupId, std::vector<std::string_view>> launches(const Program& program) {
  std::map<GroupId, std::vector<std::string_view>> out;
  for (NodeId n : program.graph.nodes()) {
    const OpInfo* op = program.graph.op_info(n);
    if (op == nullptr || !op->has(kCollective)) continue;
    for (const Arg& arg : program.graph.node(n).args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::group)) out[a.as_group()].push_back(op->name);
      });
  }
  return out;
}

// Programs that share a group launch the same on it: else the job hangs.
bool ranks_agree(const Job& job) {
  std::map<const Program*, std::map<GroupId, std::vector<std::string_view>>> of;
  for (const auto& program : job.programs) of[program.get()] = launches(*program);
  for (uint32_t g = 0; g < job.groups.size(); ++g)
    for (const GroupPart& part : job.groups[g].parts) {
      const Program* first = nullptr;
      for (uint32_t rank : part.ranks) {
        const Program* program = job.program_of(rank);
        if (program == nullptr || program == first) continue;
        if (first == nullptr) first = program;
        else if (of[program][GroupId(g)] != of[first][GroupId(g)]) return false;
      }
    }
  return true;
}

Counts recompute(Job* job, bool collectives, bool explain) {
  Counts all;
  for (auto& program : job->programs) {
    Counts c = Recomputer(program.get(), collectives, explain).run();
    all.copied += c.copied, all.gone += c.gone, all.saved += c.saved;
    all.lines.insert(all.lines.end(), c.lines.begin(), c.lines.end());
  }
  return all;
}

// Collectives on all ranks, or on none.
Counts recompute_alike(Job* job, PassContext& context) {
  if (job->programs.size() == 1) return recompute(job, true, context.explain);
  Job with_collectives(*job);
  Counts counts = recompute(&with_collectives, true, context.explain);
  if (ranks_agree(with_collectives)) {
    *job = std::move(with_collectives);
    return counts;
  }
  context.notes->warning("remat", "ranks would recompute different collectives: none is recomputed");
  return recompute(job, false, context.explain);
}

constexpr PassOption kOptions[] = {
    {"policy", 'p', "default|full|none|tags", "what may be recomputed", "default"},
    {"save", 's', "PATTERN[:OP]|op=OP", "keep these values, as 'layers.*.attention:mm'", {}, true},
    {"tag-only", 0, {}, "write the decision to the nodes and recompute nothing"},
};
constexpr std::string_view kPrecedes[] = {"chunk", "bucket", "overlap"};

Result<Change> run_remat(Job* job, const PassOptions& options, PassContext& context) {
  const std::string word = options.text("policy", "default");
  RematOptions out;
  out.policy = word == "full" ? RematPolicy::full : word == "none" ? RematPolicy::none : word == "tags" ? RematPolicy::tags : RematPolicy::save_costly;
  out.save = options.all("save");
  out.tag_only = options.has("tag-only");
  return remat(job, out, context);
}

}  // namespace

Result<Change> remat(Job* job, const RematOptions& options, PassContext& context) {
  SG_ASSIGN(SaveSelectors save, SaveSelectors::parse(options.save));
  SG_TRY(save.check_used(*job));
  if (options.policy == RematPolicy::tags && !options.save.empty())
    return Error{ErrorKind::usage, "--save does not go with --policy tags: the capture has decided", {}, "use --policy default or full"};
  for (auto& program : job->programs) tag_for_recompute(program.get(), options.policy, save);
  Change change;
  if (options.tag_only) {
    change.changed = true;
    size_t marked = 0;
    for (const auto& program : job->programs)
      for (NodeId n : program->graph.nodes()) marked += is_recomputed(program->graph.meta(n).recompute);
    change.summary = plural(marked, "node") + " tagged for recomputation";
    return change;
  }
  const int64_t before = planned_peak(*job);
  Counts counts = recompute_alike(job, context);
  change.changed = counts.copied > 0;
  const int64_t after = planned_peak(*job);
  change.summary = counts.copied == 0 ? "nothing to recompute: no value that the backward needs may be dropped"
                                      : plural(counts.copied, "node") + " recomputed, " + std::to_string(counts.saved) + " saved, peak " +
                                            human_bytes(before) + " -> " + human_bytes(after);
  for (const std::string& line : counts.lines) change.plan += line + "\n";
  if (context.explain) {
    JsonWriter json;
    json.begin_object().key("recomputed").natural(counts.copied).key("saved").natural(counts.saved);
    json.key("peak_before").integer(before).key("peak_after").integer(after).key("decisions").begin_array();
    for (const std::string& line : counts.lines) json.string(line);
    json.end_array().end_object();
    change.plan_json = json.take();
  }
  return change;
}

constexpr PassInfo remat_pass = {
    "remat", "compute forward values again in the backward instead of keeping them", {}, Results::bitwise, kPrecedes, kOptions,
    {{"sg-remat step.sg --policy full -o lean.sg", "the least memory"},
     {"sg-clean step.sg | sg-remat --policy default | sg-stat", "and what it comes to"}},
    run_remat};

}  // namespace sg
