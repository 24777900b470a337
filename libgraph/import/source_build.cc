// Builds the nodes and outputs of a source's graph, and the program of its graphs.
#include "libgraph/import/source_build.h"

#include <algorithm>
#include <iterator>
#include <map>

#include "libgraph/base/nearest.h"
#include "libgraph/composite/composite.h"
#include "libgraph/composite/composite_forms.h"
#include "libgraph/import/source_graph_builder.h"
#include "libgraph/op.h"

namespace sg {
namespace {

using Shape = SourceResults::Shape;

constexpr size_t kMaxHintNames = 100000;

}  // namespace

Status SourceGraphBuilder::build() {
  graph_->reserve(source_.nodes.size(), source_.nodes.size() + source_.inputs.size());
  SG_TRY(add_inputs());
  for (uint32_t i = 0; i < records_.size(); ++i) SG_TRY(declare_node(i));
  for (uint32_t i = 0; i < records_.size(); ++i) SG_TRY(fold_getitem(i));
  mark_used();
  for (current_ = 0; current_ < records_.size(); ++current_)
    if (!records_[current_].is_folded()) SG_TRY(build_node(current_));
  link_forward();
  for (const SourceOutput& output : source_.outputs) SG_TRY(add_output(output));
  return ok_status();
}

// --- nodes ---

Status SourceGraphBuilder::build_node(uint32_t index) {
  const SourceNode& source = source_.nodes[index];
  Record& record = records_[index];
  NodeSpec spec;
  spec.op = pool().op(text(source.op));
  const OpInfo* info = pool().ops[spec.op].info;
  if (info == nullptr && !is_composite(text(source.op))) tally_->unknown_op(text(source.op), at(source.place));
  spec.args.reserve(source.args.size());
  for (const Arg& arg : source.args) {
    SG_ASSIGN(Arg resolved, resolve(source, arg));
    spec.args.push_back(std::move(resolved));
  }
  if (record.is_tuple && source.results.shape == Shape::unknown)
    record.result_count = std::max(record.result_count, split_result_count(info, spec.args));
  set_results(info, source, &record, &spec);
  if (source.name) spec.label = text(source.name);
  name_results(source, record, &spec);
  spec.phase = source.phase;
  spec.module = source.module;
  spec.source = source.source;
  spec.meta = pool().metas.intern(meta_of(source, record));
  record.node = graph_->append(spec);
  for (uint32_t g : record.getitems) records_[g].node = record.node;
  if (source.results.is_guess) guessed_->add(graph_, record.node, Guess::layout);
  else if (source.results.offset_is_guess) guessed_->add(graph_, record.node, Guess::offset);
  if (info != nullptr && draws_random(*graph_, record.node)) number_stream(record.node);
  return ok_status();
}

// The source's argument with references resolved to values. Readers bound the nesting depth.
Result<Arg> SourceGraphBuilder::resolve(const SourceNode& node, const Arg& source) const {
  if (source.is(ArgKind::value)) {
    SG_ASSIGN(Arg value, resolve(node.refs[source.as_value().index]));
    return std::move(value.set_key(source.key()));
  }
  Arg arg = source;
  if (!arg.has_items()) return arg;
  for (Arg& item : arg.mutable_items()) {
    if (!item.is(ArgKind::value) && !item.has_items()) continue;
    SG_ASSIGN(item, resolve(node, item));
  }
  return arg;
}

Result<Arg> SourceGraphBuilder::resolve(const SourceRef& ref) const {
  const Named* named = names_.find(ref.name);
  if (named == nullptr) return unknown_name(ref);
  if (named->kind == Named::Kind::input) return Arg::value(graph_->inputs()[named->index].value);
  if (named->index >= current_)
    return error(ref.place,
                 quoted(ref.name) + " is used before it is defined, at " + print_location(at(place_of(*named)).where()),
                 "nodes stand in the order in which they run");
  const Record& record = records_[named->index];
  const Node& node = graph_->node(record.node);
  if (named->kind == Named::Kind::result) return Arg::value(node.result(named->result));
  if (record.is_folded()) return Arg::value(node.result(record.result));
  if (!node.is_tuple && node.result_count == 0) return error(ref.place, quoted(ref.name) + " has no result");
  if (!node.is_tuple) return Arg::value(node.result(0));
  ArgList all;
  for (uint32_t i = 0; i < node.result_count; ++i) all.push_back(Arg::value(node.result(i)));
  return Arg::list(std::move(all));
}

Error SourceGraphBuilder::unknown_name(const SourceRef& ref) const {
  Nearest nearest(text(ref.name));
  if (source_.nodes.size() + source_.inputs.size() < kMaxHintNames) {
    for (const SourceInput& input : source_.inputs) nearest.offer(text(input.name));
    for (const SourceNode& node : source_.nodes) {
      if (node.name) nearest.offer(text(node.name));
      for (StrId name : node.results.names)
        if (name) nearest.offer(text(name));
    }
  }
  return error(ref.place, "no node or input is called " + quoted(ref.name), nearest.hint());
}

// Determines the result types, and whether the op returns a tuple.
void SourceGraphBuilder::set_results(const OpInfo* info, const SourceNode& source, Record* record, NodeSpec* spec) {
  spec->is_tuple = record->is_tuple;
  if (source.results.shape == Shape::one) {
    spec->result_types.push_back(source.results.types.empty() ? Pool::kUnknownType : source.results.types[0]);
  } else if (source.results.shape == Shape::tuple) {
    spec->result_types = source.results.types;
  } else if (record->is_tuple) {
    spec->result_types.resize(record->result_count, Pool::kUnknownType);
  } else if (source.results.shape == Shape::unknown && !returns_nothing(source) &&
             (record->is_used || (info != nullptr && info->results.size() == 1 && !info->returns_list))) {
    spec->result_types.push_back(Pool::kUnknownType);
  }
  for (uint32_t g : record->getitems) take_getitem_type(g, &spec->result_types[records_[g].result]);
}

// Takes a getitem's type where its parent has none; the parent's type takes precedence.
void SourceGraphBuilder::take_getitem_type(uint32_t getitem, TypeId* type) {
  const SourceNode& source = source_.nodes[getitem];
  if (source.results.types.empty() || source.results.types[0] == Pool::kUnknownType) return;
  TypeKind kind = pool().types[*type].kind;
  if (kind == TypeKind::unknown || kind == TypeKind::none) *type = source.results.types[0];
  else if (*type != source.results.types[0]) tally_->type_conflict(at(source.place));
}

// Results are named as in the source, else after the getitems that extract them. The others become `label.i`, avoiding
// all names of the source, which take precedence.
void SourceGraphBuilder::name_results(const SourceNode& source, const Record& record, NodeSpec* spec) {
  if (!record.is_tuple) return;
  spec->names.resize(spec->result_types.size());
  for (size_t i = 0; i < std::min(source.results.names.size(), spec->names.size()); ++i)
    if (source.results.names[i]) spec->names[i] = text(source.results.names[i]);
  for (uint32_t g : record.getitems)
    if (spec->names[records_[g].result].empty() && source_.nodes[g].name)
      spec->names[records_[g].result] = text(source_.nodes[g].name);
  std::string base = source.name ? std::string(text(source.name)) : std::string(text(source.op));
  for (size_t i = 0; i < spec->names.size(); ++i) {
    std::string& name = spec->names[i];
    if (!name.empty()) continue;
    const std::string wish = base + "." + std::to_string(i);
    name = wish;
    for (uint32_t k = 1; names_.contains(pool().str(name)); ++k) name = wish + "_" + std::to_string(k);
  }
}

// Keeps the names of further getitems of the same result, which would otherwise be lost.
NodeMeta SourceGraphBuilder::meta_of(const SourceNode& source, const Record& record) const {
  NodeMeta meta = source.meta;
  std::vector<StrId> taken(record.result_count);
  for (uint32_t i = 0; i < std::min<size_t>(source.results.names.size(), taken.size()); ++i)
    taken[i] = source.results.names[i];
  bool has_more = false;
  Extras extras;
  for (const KeyValue& kv : meta.extra) extras.add(std::string(text(kv.key)), std::string(text(kv.json)));
  for (uint32_t g : record.getitems) {
    StrId name = source_.nodes[g].name;
    StrId& owner = taken[records_[g].result];
    if (owner && name) {
      extras.add("getitem." + std::string(text(name)), std::to_string(records_[g].result));
      has_more = true;
    } else {
      owner = name;
    }
  }
  if (has_more) meta.extra = extras.take(&pool());
  return meta;
}

void SourceGraphBuilder::number_stream(NodeId n) {
  NodeMeta meta = graph_->meta(n);
  meta.random.stream = ++*next_stream_;
  meta.random.rank_local = job_.world > 1;
  graph_->set_meta(n, std::move(meta));
}

// Only a node before it is what a backward node belongs to: an optimizer's nodes may have its number, too.
void SourceGraphBuilder::link_forward() {
  std::map<uint64_t, NodeId> first;
  for (uint32_t i = 0; i < records_.size(); ++i) {
    const SourceNode& source = source_.nodes[i];
    if (!source.seq || records_[i].is_folded()) continue;
    NodeId node = records_[i].node;
    if (source.phase == Phase::forward && !is_profiler_mark(graph_->op_name(node))) {
      first.try_emplace(*source.seq, node);
    } else if (source.phase == Phase::backward) {
      auto it = first.find(*source.seq);
      if (it != first.end()) graph_->set_forward(node, it->second);
    }
  }
}

// --- outputs ---

Status SourceGraphBuilder::add_output(const SourceOutput& source) {
  Output output = source.output;
  if (source.value.name) {
    SG_ASSIGN(Arg value, resolve(source.value));
    if (!value.is(ArgKind::value))
      return error(source.value.place, quoted(source.value.name) + " has several results; an output is one of them");
    output.value = value.as_value();
  }
  if (source.of) {
    const std::vector<Input>& inputs = graph_->inputs();
    auto is_meant = [&](const Input& input) { return input.fqn == source.of; };
    auto it = std::find_if(inputs.begin(), inputs.end(), is_meant);
    const Named* named = names_.find(source.of);
    if (it != inputs.end()) output.of = it->value;
    else if (named != nullptr && named->kind == Named::Kind::input) output.of = inputs[named->index].value;
    else output.of_name = source.of;
  }
  graph_->add_output(std::move(output));
  return ok_status();
}

Status build_program(const SourceProgram& source, const Job& job, ImportTally* tally, Program* program) {
  for (const SourceNested& nested : source.nested)
    program->nested.push_back(std::make_unique<Nested>(Nested{nested.name, Graph(job.pool.get())}));
  declare_symbols(source, job.pool.get(), program);
  uint32_t streams = 0;
  GuessedTypes guessed;
  SG_TRY(SourceGraphBuilder(source, source.graph, job, tally, &streams, &program->graph, &guessed).build());
  for (size_t i = 0; i < source.nested.size(); ++i)
    SG_TRY(
        SourceGraphBuilder(source, source.nested[i].graph, job, tally, &streams, &program->nested[i]->graph, &guessed)
            .build());
  settle_types(program, job.world > 1, guessed, tally);
  SG_TRY(bind_computed(source.computed, program));
  number_new_streams(program, job.world > 1);
  return ok_status();
}

std::string op_of_target(std::string_view target) {
  // FX prints functions outside torch.ops by module and name in one word.
  static constexpr std::pair<std::string_view, std::string_view> kPlainNames[] = {
      {"math_ceil", "ceil"}, {"math_floor", "floor"}, {"math_trunc", "trunc"}, {"round", "round"}, {"abs", "abs"}};
  for (const auto& [name, ours] : kPlainNames)
    if (target == name) return "python." + std::string(ours);
  static constexpr std::pair<std::string_view, std::string_view> kPrefixes[] = {{"torch.ops.", ""},
                                                                                {"_operator.", "python."},
                                                                                {"operator.", "python."},
                                                                                {"_operator_", "python."},
                                                                                {"builtins.", "python."},
                                                                                {"math.ceil", "python.ceil"},
                                                                                {"math.floor", "python.floor"},
                                                                                {"math.trunc", "python.trunc"},
                                                                                {"torch.sym_", "python.sym_"},
                                                                                {"torch._sym_", "python.sym_"}};
  for (const auto& [prefix, ours] : kPrefixes)
    if (target.starts_with(prefix)) return std::string(ours) + std::string(target.substr(prefix.size()));
  return std::string(target);
}

bool call_body(std::string* op, std::vector<Arg>* args) {
  const bool sets_gradients = *op == "higher_order.wrap_with_set_grad_enabled";  // (enabled, body, operands...)
  const bool is_region = *op == "higher_order.invoke_subgraph";                  // (body, its name, operands...)
  const size_t body = sets_gradients ? 1 : 0;
  if ((!sets_gradients && !is_region) || args->size() < 2 || !(*args)[body].is(ArgKind::graph)) return false;
  *op = "sg.call";
  if (body != 0) std::swap((*args)[0], (*args)[body]);
  ArgList operands(std::make_move_iterator(args->begin() + 2), std::make_move_iterator(args->end()));
  args->resize(1);
  args->push_back(Arg::list(std::move(operands)));
  return true;
}

}  // namespace sg
