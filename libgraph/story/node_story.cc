#include "libgraph/story/node_story.h"

#include <algorithm>
#include <deque>
#include <set>

#include "libgraph/base/joined.h"
#include "libgraph/base/nearest.h"
#include "libgraph/facts/cost.h"
#include "libgraph/group_name.h"
#include "libgraph/modules/module_path.h"
#include "libgraph/names.h"
#include "libgraph/op.h"
#include "libgraph/operands.h"
#include "libgraph/plan/plan.h"
#include "libgraph/story/source_text.h"
#include "libgraph/text/text_printer.h"

namespace sg {
namespace {

std::string percent(std::string_view name) { return "%" + std::string(name); }

class Teller {
 public:
  Teller(const Job& job, const Program& program, const Graph& graph, const SizeValues& sizes,
         const StoryHistory& history)
      : job_(job), program_(program), graph_(graph), sizes_(sizes), history_(history), print_(job) {}

  // `asked`: the result that the name is of.
  NodeStory of_node(NodeId n, ValueId asked) {
    const Node& node = graph_.node(n);
    out_.name = graph_.label(n), out_.op = graph_.op_name(n), out_.phase = name_of(node.phase);
    out_.line = print_.node_alone(program_, graph_, n);
    out_.module = text(node.module);
    if (node.source) out_.source = print_.source_alone(node.source);
    reasons(n);
    for (ValueId v : operands(n)) out_.from.push_back(described(v));
    if (node.forward) out_.forward = graph_.label(node.forward);
    who_names(n);
    for (uint32_t r = 0; r < node.result_count; ++r) uses_of(node.result(r)), symbols_of(node.result(r));
    for (const Arg& arg : node.args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::expr)) collect(a.as_expr());
      });
    tell_symbols();
    if (node.result_count > 0) memory_of(asked ? asked : node.result(0));
    nearest_collectives({n});
    return finish();
  }

  NodeStory of_input(const Input& input) {
    out_.is_input = true;
    out_.name = graph_.name(input.value), out_.op = name_of(input.kind);
    out_.line = print_.input_alone(graph_, input);
    out_.made_by.push_back({"the caller", input.fqn ? "\"" + text(input.fqn) + "\"" : "given to the step"});
    uses_of(input.value), symbols_of(input.value);
    tell_symbols();
    memory_of(input.value);
    nearest_collectives(graph_.users(input.value));
    return finish();
  }

 private:
  NodeStory finish() {
    out_.ranks = program_.ranks;
    return std::move(out_);
  }

  std::string text(StrId id) const { return id ? job_.pool->strings.str(id) : std::string(); }

  std::vector<ValueId> operands(NodeId n) const {
    std::vector<ValueId> list;
    for_operands(graph_, n, [&](ValueId v) {
      if (std::find(list.begin(), list.end(), v) == list.end()) list.push_back(v);
    });
    return list;
  }

  StoryValue described(ValueId v) {
    StoryValue out{std::string(graph_.name(v)), "", print_.type_alone(graph_.value(v).type), "", ""};
    NodeId def = graph_.value(v).def;
    if (def.is_none()) {
      const Input& input = graph_.inputs()[graph_.value(v).index];
      out.op = name_of(input.kind), out.module = text(input.fqn);
    } else {
      out.op = graph_.op_name(def), out.phase = name_of(graph_.node(def).phase),
      out.module = text(graph_.node(def).module);
    }
    return out;
  }

  void uses_of(ValueId v) {
    for (NodeId u : graph_.users(v)) {
      const Node& user = graph_.node(u);
      std::string type = user.result_count ? print_.type_alone(graph_.value(user.first_result).type) : "()";
      out_.used_by.push_back({std::string(graph_.label(u)), std::string(graph_.op_name(u)), type,
                              std::string(name_of(user.phase)), text(user.module)});
    }
    for (const Output& o : graph_.outputs())
      if (o.value == v)
        out_.used_by.push_back(
            {std::string(name_of(o.kind)), "output", o.of ? "of " + percent(graph_.name(o.of)) : "", "", ""});
  }

  void who_names(NodeId n) {
    const Node& node = graph_.node(n);
    std::set<std::string_view> names = {graph_.label(n)};
    for (uint32_t r = 0; r < node.result_count; ++r) names.insert(graph_.name(node.result(r)));
    for (NodeId m : graph_.nodes()) {
      if (graph_.node(m).forward == n) out_.backward.emplace_back(graph_.label(m));
      const NodeMeta& meta = graph_.meta(m);
      bool is_copy = (meta.copy.of && names.contains(job_.pool->strings[meta.copy.of])) ||
                     (m != n && meta.chunk.original && names.contains(job_.pool->strings[meta.chunk.original]));
      if (is_copy) out_.copies.emplace_back(graph_.label(m));
    }
  }

  // --- who made it ---

  // The last step of the history that ran `tool`; without one, what else is known about it.
  std::string step(std::string_view tool) const {
    for (size_t i = history_.size(); i-- > 0;) {
      std::string_view command = history_[i];
      if (command.substr(0, command.find(' ')) == tool) return history_[i];
    }
    return "the source";
  }

  void reasons(NodeId n) {
    const NodeMeta& meta = graph_.meta(n);
    auto add = [&](std::string_view tool, std::string what) { out_.made_by.push_back({step(tool), std::move(what)}); };
    bool is_new = meta.copy.kind != CopyKind::none || graph_.op_name(n).starts_with("sg.") || comes_from_pack(n);
    if (meta.copy.kind == CopyKind::remat)
      add("sg-remat", "a copy of " + percent(text(meta.copy.of)) + ", computed again" + original_tag(meta.copy.of));
    if (meta.copy.kind == CopyKind::offload)
      add("sg-offload", "keeps " + percent(text(meta.copy.of)) + " in the host's memory, or brings it back");
    if (meta.chunk.region && meta.chunk.original)
      add("sg-chunk", "chunk " + std::to_string(meta.chunk.index) + " of " + percent(text(meta.chunk.original)) +
                          " in " + text(meta.chunk.region));
    else if (meta.chunk.region)
      add("sg-chunk",
          "of the chunked region " + text(meta.chunk.region) + (meta.chunk.role ? ", " + text(meta.chunk.role) : ""));
    if (meta.collective.bucket >= 0)
      add("sg-bucket", (is_new ? "made for bucket " : "alone in bucket ") + bucket(meta.collective));
    if (out_.made_by.empty() || !is_new)
      out_.made_by.insert(out_.made_by.begin(), {history_.empty() ? "the source" : history_[0], origin(n)});
    if (meta.recompute != Recompute::none)
      add("sg-remat", "tagged " + std::string(name_of(meta.recompute)) +
                          (meta.recompute == Recompute::must_save || meta.recompute == Recompute::prefer_save
                               ? ": kept for the backward"
                               : ": may be computed again there"));
    for (const Arg& arg : graph_.node(n).args)
      if (arg.is(ArgKind::group) && arg.as_group().index < job_.groups.size() &&
          job_.groups[arg.as_group().index].ordinal > 0)
        add("sg-overlap", "on " + print_.arg_alone(program_, graph_, arg) + ", a communicator of its own");
  }

  // Whether the input of a bucket's node comes from the bucket's own sg.pack.
  bool comes_from_pack(NodeId n) const {
    const int32_t bucket = graph_.meta(n).collective.bucket;
    for (int reach = 0; bucket >= 0 && reach < 16; ++reach) {
      if (graph_.op_name(n) == "sg.pack") return true;
      std::vector<ValueId> list = operands(n);
      NodeId def = list.empty() ? NodeId() : graph_.value(list[0]).def;
      if (def.is_none() || graph_.meta(def).collective.bucket != bucket) return false;
      n = def;
    }
    return false;
  }

  std::string origin(NodeId n) const {
    const Node& node = graph_.node(n);
    std::string out = "in the " + std::string(name_of(node.phase));
    if (!node.source) return out;
    out += ", at " + short_source_text(graph_.pool(), node.source);
    const StrId function = graph_.pool().sources[node.source].function;
    return function ? out + " in " + text(function) : out;
  }

  std::string original_tag(StrId of) const {
    NodeId original = of ? graph_.find_node(job_.pool->strings[of]) : NodeId();
    if (!original || graph_.meta(original).recompute == Recompute::none) return "";
    return ", which is tagged " + std::string(name_of(graph_.meta(original).recompute));
  }

  std::string bucket(const CollectiveInfo& info) const {
    std::string out = std::to_string(info.bucket);
    if (info.direction != BucketDirection::none) out += " (" + std::string(name_of(info.direction)) + ")";
    if (!info.plan.empty()) out += " of " + joined(info.plan, ", ", [this](const auto& s) { return text(s); });
    return out;
  }

  // --- symbols ---

  void collect(Expr e) {
    std::vector<StrId> list;
    job_.pool->exprs.collect_symbols(e, &list);
    for (StrId s : list)
      if (std::find(symbols_.begin(), symbols_.end(), s) == symbols_.end()) symbols_.push_back(s);
  }

  void symbols_of(ValueId v) {
    const Type& t = graph_.type(v);
    for (Expr e : t.shape) collect(e);
    for (Expr e : t.stride) collect(e);
    if (!t.value.is_none() && t.has_value) collect(t.value);
  }

  void tell_symbols() {
    for (StrId name : symbols_) {
      const Symbol* symbol = program_.find_symbol(name);
      if (symbol == nullptr) continue;
      StorySymbol out{print_.symbol_alone(*symbol), definer(name), {}};
      for (const Guard& g : program_.guards) {
        std::vector<StrId> list;
        job_.pool->exprs.collect_symbols(g.left, &list), job_.pool->exprs.collect_symbols(g.right, &list);
        if (std::find(list.begin(), list.end(), name) != list.end()) out.guards.push_back(print_.guard_alone(g));
      }
      out_.symbols.push_back(std::move(out));
    }
  }

  std::string definer(StrId symbol) const {
    for (NodeId n : graph_.nodes()) {
      const OpInfo* op = graph_.op_info(n);
      const NodeMeta& meta = graph_.meta(n);
      if (!meta.binds && !(op && op->has(kBindsSymbol))) continue;
      std::vector<StrId> list = meta.binds ? *meta.binds : default_binds(program_, graph_, n);
      if (std::find(list.begin(), list.end(), symbol) != list.end()) return percent(graph_.label(n));
    }
    return {};
  }

  // --- memory ---

  void memory_of(ValueId v) {
    if (&graph_ != &program_.graph) return;
    const Liveness live = compute_liveness(program_, graph_, sizes_);
    const MemoryPlan plan = plan_memory(live);
    StoryMemory m;
    m.positions = static_cast<uint32_t>(live.schedule.size());
    StorageId s = v.index < live.storage_of.size() ? live.storage_of[v.index] : StorageId();
    const LiveStorage* storage = live.find(s);
    if (storage == nullptr) {
      m.place = s.is_none() ? "none" : "input";
      out_.memory = m;
      return;
    }
    m.owner = graph_.name(storage->owner);
    m.bytes = storage->bytes_known ? storage->bytes : -1;
    m.offset = plan.offset_of(s);
    m.place = m.offset < 0 ? "pool" : storage->is_host ? "host arena" : "arena";
    m.first = graph_.label(storage->def), m.first_position = storage->first_position,
    m.last_position = storage->last_position;
    if (!storage->is_output) m.last = graph_.label(storage->last);
    if (const LiveStorage* other = live.find(storage->takes_over)) m.takes_over = graph_.name(other->owner);
    m.at_peak = storage->first_position <= live.peak_position && live.peak_position <= storage->last_position;
    out_.memory = m;
  }

  // --- collectives ---

  StoryCollective collective(NodeId n, size_t steps) const {
    Communication c = communication_of(job_, program_, graph_, n, sizes_);
    return {std::string(graph_.label(n)), std::string(c.kind), group_name(job_, c.group), c.payload_bytes, steps};
  }

  void nearest_collectives(const std::vector<NodeId>& from) {
    auto walk = [&](bool forward, std::vector<StoryCollective>* found) {
      std::vector<uint8_t> seen(graph_.node_id_limit());
      std::deque<std::pair<NodeId, size_t>> work;
      auto push = [&](NodeId n, size_t steps) {
        if (!n.is_none() && !seen[n.index]) seen[n.index] = 1, work.push_back({n, steps});
      };
      for (NodeId n : from) push(n, out_.is_input ? 1 : 0);
      while (!work.empty() && found->size() < NodeStory::kMost) {
        auto [n, steps] = work.front();
        work.pop_front();
        const OpInfo* op = graph_.op_info(n);
        if (steps > 0 && op != nullptr && op->has(kCollective)) {
          found->push_back(collective(n, steps));
          continue;
        }
        if (forward) {
          for (uint32_t r = 0; r < graph_.node(n).result_count; ++r)
            for (NodeId u : graph_.users(graph_.node(n).result(r))) push(u, steps + 1);
        } else {
          for (ValueId v : operands(n)) push(graph_.value(v).def, steps + 1);
        }
      }
    };
    walk(true, &out_.feeds);
    if (!out_.is_input) walk(false, &out_.fed_by);
  }

  const Job& job_;
  const Program& program_;
  const Graph& graph_;
  const SizeValues& sizes_;
  const StoryHistory& history_;
  text::TextPrinter print_;
  std::vector<StrId> symbols_;
  NodeStory out_;
};

Error unknown(const Graph& graph, std::string_view name) {
  if (std::string hint = hint_of_module(graph, name); !hint.empty())
    return {ErrorKind::cannot_apply, "the graph has no node %" + std::string(name), {}, std::move(hint)};
  std::vector<std::string_view> known;
  for (NodeId n : graph.nodes()) known.push_back(graph.label(n));
  for (const Input& i : graph.inputs()) {
    known.push_back(graph.name(i.value));
    if (i.fqn) known.push_back(graph.pool().strings[i.fqn]);
  }
  return {ErrorKind::cannot_apply, "the graph has no node %" + std::string(name), {}, nearest_hint(name, known, "%")};
}

}  // namespace

std::string hint_of_module(const Graph& graph, std::string_view name) {
  if (name.empty()) return {};
  NodeId first, last;
  size_t count = 0;
  for (NodeId n : graph.nodes()) {
    const Node& node = graph.node(n);
    const std::string_view module = node.module ? graph.pool().strings[node.module] : std::string_view();
    if (!is_in_module(module, name)) continue;
    if (count++ == 0) first = n;
    last = n;
  }
  if (count == 0) return {};
  return "`" + std::string(name) + "` is a module of " + std::to_string(count) + " nodes, from %" +
         std::string(graph.label(first)) + " to %" + std::string(graph.label(last));
}

Result<NodeStory> tell_node(const Job& job, const Program& program, std::string_view name, const SizeValues& sizes,
                            const StoryHistory& history) {
  std::vector<const Graph*> graphs = {&program.graph};
  for (const auto& nested : program.nested) graphs.push_back(&nested->graph);
  const std::string_view bare = name.starts_with('%') ? name.substr(1) : name;
  for (std::string_view called : {name, bare})  // a name may itself begin with %
    for (const Graph* graph : graphs) {
      Teller teller(job, program, *graph, sizes, history);
      if (NodeId n = graph->find_node(called)) return teller.of_node(n, graph->find_value(called));
      for (const Input& input : graph->inputs())
        if (graph->name(input.value) == called) return teller.of_input(input);
    }
  for (const Input& input : program.graph.inputs())
    if (input.fqn && program.graph.pool().strings[input.fqn] == name)
      return Teller(job, program, program.graph, sizes, history).of_input(input);
  for (const Output& output : program.graph.outputs())
    if (bare == "loss" && output.kind == OutputKind::loss && !output.value.is_none())
      return tell_node(job, program, program.graph.name(output.value), sizes, history);
  return unknown(program.graph, bare);
}

}  // namespace sg
