#include "libgraph/composite/composite.h"

#include <algorithm>
#include <cassert>
#include <unordered_map>
#include <utility>

#include "libgraph/composite/composite_call.h"
#include "libgraph/composite/composite_forms.h"
#include "libgraph/op_schema.h"

namespace sg {

#define SG_COMPOSITE(name, schema, recipe) \
  namespace composite {                    \
  void recipe(CompositeCall& c);           \
  }
#define SG_SAME_AS(name, op)
#include "libgraph/composite/composites.def"
#undef SG_COMPOSITE
#undef SG_SAME_AS

namespace {

struct Composite {
  OpInfo schema;
  Recipe recipe = nullptr;
  std::string_view same_as;  // instead of a recipe: the row that this is another name for
};

struct CompositeTable {
  std::unordered_map<std::string_view, Composite> rows;

  void add(std::string_view name, std::string_view schema, Recipe recipe) {
    Composite row;
    row.recipe = recipe;
    row.schema.name = name;
    row.schema.schema = schema;
    [[maybe_unused]] Status parsed = parse_schema(&row.schema);
    assert(parsed.ok() && find_op(name) == nullptr);
    rows.emplace(name, std::move(row));
  }

  void add_name(std::string_view name, std::string_view op) {
    assert(find_op(name) == nullptr && find_op(op) != nullptr);
    rows[name].same_as = op;
  }

  CompositeTable() {
#define SG_COMPOSITE(name, schema, recipe) add(name, schema, composite::recipe);
#define SG_SAME_AS(name, op) add_name(name, op);
#include "libgraph/composite/composites.def"
#undef SG_COMPOSITE
#undef SG_SAME_AS
  }
};

const Composite* find_composite(std::string_view op) {
  static const CompositeTable table;
  auto it = table.rows.find(op);
  return it == table.rows.end() ? nullptr : &it->second;
}

// The recipe of what an in-place overload without a row writes.
const Composite* find_out_of_place(std::string_view op) {
  for (const std::string& name : names_out_of_place(op))
    if (const Composite* found = find_composite(name); found && found->recipe && gives_new_tensor(found->schema))
      return found;
  return nullptr;
}

struct Place {  // a node's location, for messages
  const Program* program;
  const Graph* graph;
  NodeId node;
  Location where() const {
    Location at;
    at.path = place_of(*program, *graph, node);
    return at;
  }
};

void discard(Graph* graph, const std::vector<NodeId>& parts) {
  for (auto it = parts.rbegin(); it != parts.rend(); ++it) graph->erase(*it);
}

bool is_known(const Graph& graph, const Node& node) {
  for (uint32_t i = 0; i < node.result_count; ++i)
    if (graph.type(node.result(i)).kind == TypeKind::unknown) return false;
  return true;
}

void infer_node(Graph* graph, NodeId n, TypeInferrer* inferrer) {
  if (is_known(*graph, graph->node(n))) return;
  auto types = inferrer->infer(*graph, n);
  if (!types.ok()) return;
  for (uint32_t i = 0; i < types->size(); ++i)
    if (ValueId v = graph->node(n).result(i); graph->type(v).kind == TypeKind::unknown)
      graph->set_type(v, graph->pool().types.intern((*types)[i]));
}

// Erases a profiler mark; the mark that ends a region takes the one that begins it along.
void drop_mark(Graph* graph, NodeId n) {
  const std::vector<Arg> args = graph->node(n).args;
  auto is_used = [&](NodeId mark) {
    for (uint32_t i = 0; i < graph->node(mark).result_count; ++i)
      if (graph->is_used(graph->node(mark).result(i))) return true;
    return false;
  };
  if (is_used(n)) return;
  graph->erase(n);
  for (const Arg& a : args)
    if (NodeId def = a.is(ArgKind::value) ? graph->value(a.as_value()).def : NodeId();
        !def.is_none() && is_profiler_mark(graph->op_name(def)) && !is_used(def))
      graph->erase(def);
}

// Calls of ops of the op table in a form that is made of others.
bool has_form(const Graph& graph, NodeId n) {
  return has_numbers_only(graph, n) || has_mask_index(graph, n) || is_waited_within(graph, n);
}

}  // namespace

bool is_composite(std::string_view op) {
  return find_composite(op) != nullptr || written_by_out(op) != nullptr || done_to_each(op) != nullptr ||
         written_in_place(op) != nullptr || find_out_of_place(op) != nullptr || is_profiler_mark(op);
}

bool is_taken_apart(const Graph& graph, NodeId n) { return is_composite(graph.op_name(n)) || has_form(graph, n); }

CompositeExpander::CompositeExpander(Program* program, bool rank_local)
    : program_(program), inferrer_(*program), seeds_(std::make_unique<SeedStreams>(rank_local)) {}
CompositeExpander::~CompositeExpander() = default;

Status CompositeExpander::expand(Graph* graph, NodeId n, RecordedTypes recorded) {
  if (is_profiler_mark(graph->op_name(n))) return drop_mark(graph, n), ok_status();
  const Composite* row = find_composite(graph->op_name(n));
  const Composite* of_result = row == nullptr ? find_out_of_place(graph->op_name(n)) : nullptr;
  if (of_result != nullptr) row = of_result;
  if (row == nullptr) return expand_form(graph, n, recorded);
  if (!row->same_as.empty()) {
    graph->set_op(n, graph->pool().op(row->same_as));
    infer_node(graph, n, &inferrer_);
    return ok_status();
  }
  CompositeCall call(program_, graph, n, row->schema, &inferrer_, seeds_.get());
  SG_TRY(call.bind());
  row->recipe(call);
  if (of_result != nullptr) call.write_to(call.arg(row->schema.params[0].name));
  return replace(graph, n, recorded, &call);
}

Status CompositeExpander::expand_form(Graph* graph, NodeId n, RecordedTypes recorded) {
  const OpInfo* op = graph->op_info(n);
  OpInfo named;
  named.name = graph->op_name(n);
  CompositeCall call(program_, graph, n, op ? *op : named, &inferrer_, seeds_.get());
  if (op && has_mask_index(*graph, n)) composite::mask_form(call, *graph, n);
  else if (op && is_waited_within(*graph, n)) composite::waited_form(call, *graph, n);
  else if (op) composite::numbers_form(call, *graph, n);
  else if (done_to_each(named.name)) composite::foreach_form(call, *graph, n);
  else if (written_in_place(named.name)) composite::in_place_form(call, *graph, n);
  else composite::out_form(call, *graph, n);
  return replace(graph, n, recorded, &call);
}

Status CompositeExpander::replace(Graph* graph, NodeId n, RecordedTypes recorded, CompositeCall* made) {
  CompositeCall& call = *made;
  const uint32_t count = graph->node(n).result_count;
  if (!call.failed() && call.results().size() != count)
    call.fail("has " + std::to_string(call.results().size()) + " results, not " + std::to_string(count));
  if (call.failed()) {
    discard(graph, call.parts());
    return call.error();
  }
  std::vector<std::string> names;
  for (uint32_t i = 0; i < count; ++i) {
    ValueId from = graph->node(n).result(i), to = call.results()[i];
    names.emplace_back(graph->name(from));
    if (recorded == RecordedTypes::hold && !call.has_own_type(to) && graph->is_used(from) &&
        graph->type(from).kind != TypeKind::unknown)
      graph->set_type(to, graph->value(from).type);
    graph->replace_uses(from, to);
  }
  if (!call.parts().empty()) replaced_[graph][n.index] = call.parts().back();
  graph->erase(n);
  for (uint32_t i = 0; i < count; ++i) graph->rename(call.results()[i], names[i]);
  return ok_status();
}

void CompositeExpander::relink() {
  for (auto& [graph, nodes] : replaced_)
    for (NodeId n : graph->nodes())
      if (auto it = nodes.find(graph->node(n).forward.index); !graph->node(n).forward.is_none() && it != nodes.end())
        graph->set_forward(n, it->second);
  replaced_.clear();
}

void expand_and_tell(CompositeExpander* expander, const Program& program, Graph* graph, NodeId n,
                     RecordedTypes recorded, ImportTally* tally) {
  const std::string op(graph->op_name(n));
  // A form of an op of the op table, or a profiler mark: expanding it is not worth reporting.
  const bool is_form = find_op(op) != nullptr || is_profiler_mark(op);
  Status done = expander->expand(graph, n, recorded);
  if (done.ok()) return is_form ? void() : tally->taken_apart(op);
  tally->kept_whole(op, done.error().message, Place{&program, graph, n});
}

void expand_composites(Program* program, bool rank_local, ImportTally* tally) {
  const OpTable& ops = program->graph.pool().ops;
  bool any = false;
  for (size_t i = 0; i < ops.size(); ++i)
    any = any || is_composite(program->graph.pool().op_name(OpId(static_cast<uint32_t>(i))));
  auto look = [&](const Graph& graph) {
    for (NodeId n : graph.nodes()) any = any || has_form(graph, n);
  };
  look(program->graph);
  for (auto& nested : program->nested) look(nested->graph);
  if (!any) return;
  CompositeExpander expander(program, rank_local);
  TypeInferrer inferrer(*program);
  auto expand_in = [&](Graph& graph) {
    for (NodeId n : graph.nodes())
      if (is_taken_apart(graph, n)) expand_and_tell(&expander, *program, &graph, n, RecordedTypes::hold, tally);
      else infer_node(&graph, n, &inferrer);
  };
  for (uint32_t i : inner_first(*program)) expand_in(program->nested[i]->graph);
  expand_in(program->graph);
  expander.relink();
  number_new_streams(program, rank_local);
}

std::vector<uint32_t> inner_first(const Program& program) {
  const size_t count = program.nested.size();
  std::vector<std::vector<uint32_t>> named(count);
  for (size_t i = 0; i < count; ++i) {
    const Graph& graph = program.nested[i]->graph;
    for (NodeId n : graph.nodes())
      for (const Arg& arg : graph.node(n).args)
        arg.walk([&](const Arg& a) {
          if (a.is(ArgKind::graph) && a.as_graph().index < count) named[i].push_back(a.as_graph().index);
        });
  }
  std::vector<uint32_t> out, open;
  std::vector<uint8_t> state(count);  // 1: being visited, 2: done
  for (uint32_t root = 0; root < count; ++root) {
    open.push_back(root);
    while (!open.empty()) {
      const uint32_t at = open.back();
      if (state[at] == 0) {
        state[at] = 1;
        for (uint32_t inner : named[at])
          if (state[inner] == 0) open.push_back(inner);
        continue;
      }
      open.pop_back();
      if (std::exchange(state[at], uint8_t{2}) == 1) out.push_back(at);
    }
  }
  return out;
}

uint32_t last_stream(const Program& program) {
  uint32_t last = 0;
  auto look = [&](const Graph& graph) {
    for (NodeId n : graph.nodes()) last = std::max(last, graph.meta(n).random.stream);
  };
  look(program.graph);
  for (const auto& nested : program.nested) look(nested->graph);
  return last;
}

void number_new_streams(Program* program, bool rank_local) {
  std::vector<Graph*> graphs{&program->graph};
  for (auto& nested : program->nested) graphs.push_back(&nested->graph);
  uint32_t last = last_stream(*program);
  for (Graph* graph : graphs)
    for (NodeId n : graph->nodes()) {
      if (graph->meta(n).random.stream != 0 || !draws_random(*graph, n)) continue;
      NodeMeta meta = graph->meta(n);
      meta.random.stream = ++last;
      meta.random.rank_local = rank_local;
      graph->set_meta(n, std::move(meta));
    }
}

}  // namespace sg
