// One graph of a source at a time: names, getitems, nodes, outputs. The class stands here; types and symbols of the
// whole program, which need all graphs, in source_types.cc.
#include "libgraph/import/source_build.h"

#include <algorithm>
#include <map>

#include "libgraph/composite/composite.h"
#include "libgraph/flat_map.h"
#include "libgraph/import/source_types.h"
#include "libgraph/nearest.h"
#include "libgraph/op.h"

namespace sg {
namespace {

using Shape = SourceResults::Shape;

constexpr std::string_view kGetitem = "python.getitem";
// How many results a source may claim through getitems of nodes of unknown shape: some a node, and a few.
constexpr size_t kUntypedResultsPerNode = 16;
constexpr size_t kUntypedResults = 4096;
constexpr size_t kMaxHintNames = 100000;

class GraphBuilder {
 public:
  GraphBuilder(const SourceProgram& program, const SourceGraph& source, const Job& job, ImportTally* tally,
               uint32_t* next_stream, Graph* graph, GuessedTypes* guessed)
      : program_(program),
        source_(source),
        job_(job),
        tally_(tally),
        next_stream_(next_stream),
        graph_(graph),
        guessed_(guessed),
        records_(source.nodes.size()) {}

  Status build();

 private:
  // What must be known of a node before the first is built.
  struct Record {
    static constexpr uint32_t kNotFolded = 0xFFFFFFFFu;
    uint32_t folded_into = kNotFolded;  // getitems: the node that they take apart
    uint32_t result = 0;                // getitems: which result
    uint32_t result_count = 0;
    bool is_tuple = false;
    bool is_used = false;  // told only for nodes of unknown shape
    NodeId node;           // once built; for a getitem its parent's
    std::vector<uint32_t> getitems;
    bool is_folded() const { return folded_into != kNotFolded; }
  };
  struct Named {
    enum class Kind : uint8_t { input, node, result };
    Kind kind;
    uint32_t index;  // of the input, or of the node
    uint32_t result = 0;
  };
  // A place that knows its source: what tallies ask.
  struct At {
    const SourceProgram* program;
    SourcePlace place;
    Location where() const { return program->where ? program->where(place) : Location(); }
  };

  At at(SourcePlace place) const { return {&program_, place}; }
  Error error(SourcePlace place, std::string message, std::string hint = {}) const {
    return {ErrorKind::unreadable, std::move(message), at(place).where(), std::move(hint)};
  }
  Pool& pool() const { return *job_.pool; }
  std::string_view text(StrId s) const { return pool().strings[s]; }
  std::string quoted(StrId s) const { return "`" + std::string(text(s)) + "`"; }

  Status add_inputs();
  Status declare(SourcePlace place, StrId name, Named named);
  Status declare_node(uint32_t index);
  SourcePlace place_of(Named named) const;

  const SourceRef* getitem_parent(const SourceNode& node, int64_t* index) const;
  Status fold_getitem(uint32_t index);
  Status fold_into_tuple(uint32_t index, int64_t result, const SourceNode& parent, Record* record);
  Status claim_result(uint32_t index, int64_t result, const SourceNode& parent, Record* record);
  Error no_result(uint32_t index, int64_t result, const SourceNode& parent) const;
  bool returns_nothing(const SourceNode& node) const;
  void mark_used();

  Status build_node(uint32_t index);
  Result<Arg> resolve(const SourceNode& node, const Arg& source) const;
  Result<Arg> resolve(const SourceRef& ref) const;
  Error unknown_name(const SourceRef& ref) const;
  void set_results(const OpInfo* info, const SourceNode& source, Record* record, NodeSpec* spec);
  void take_getitem_type(uint32_t getitem, TypeId* type);
  std::vector<std::string> name_results(const SourceNode& source, const Record& record, NodeSpec* spec);
  NodeMeta meta_of(const SourceNode& source, const Record& record) const;
  void number_stream(NodeId n);
  void link_forward();

  Status add_output(const SourceOutput& source);

  const SourceProgram& program_;
  const SourceGraph& source_;
  const Job& job_;
  ImportTally* tally_;
  uint32_t* next_stream_;
  Graph* graph_;
  GuessedTypes* guessed_;
  std::vector<Record> records_;
  FlatMap<StrId, Named> names_;
  size_t claimed_results_ = 0;
  uint32_t current_ = 0;  // the node being built: what comes later is not defined yet
};

Status GraphBuilder::build() {
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

// --- names ---

Status GraphBuilder::add_inputs() {
  for (uint32_t i = 0; i < source_.inputs.size(); ++i) {
    const SourceInput& input = source_.inputs[i];
    SG_TRY(declare(input.place, input.name, {Named::Kind::input, i}));
    graph_->add_input(text(input.name), input.type, input.input);
  }
  return ok_status();
}

Status GraphBuilder::declare(SourcePlace place, StrId name, Named named) {
  if (!name || name == StringTable::kEmpty) return error(place, "the name is empty");
  auto [owner, is_new] = names_.try_emplace(name, named);
  if (is_new) return ok_status();
  return error(place,
               "the name " + quoted(name) + " is taken by what is at " + print_location(at(place_of(*owner)).where()));
}

SourcePlace GraphBuilder::place_of(Named named) const {
  return named.kind == Named::Kind::input ? source_.inputs[named.index].place : source_.nodes[named.index].place;
}

// The node's name and those of its results, the first of which may be the same.
Status GraphBuilder::declare_node(uint32_t index) {
  const SourceNode& node = source_.nodes[index];
  const SourceResults& results = node.results;
  Record& record = records_[index];
  record.is_tuple = results.shape == Shape::tuple;
  record.result_count = record.is_tuple ? static_cast<uint32_t>(results.types.size()) : 0;
  for (uint32_t i = 0; i < results.names.size(); ++i)
    if (results.names[i]) SG_TRY(declare(node.place, results.names[i], {Named::Kind::result, index, i}));
  if (!node.name || (!results.names.empty() && node.name == results.names[0])) return ok_status();
  return declare(node.place, node.name, {Named::Kind::node, index});
}

// --- getitems ---

// What a getitem with a constant index takes apart; null for all other nodes.
const SourceRef* GraphBuilder::getitem_parent(const SourceNode& node, int64_t* index) const {
  if (text(node.op) != kGetitem || node.args.size() != 2 || node.args[0].key() || node.args[1].key()) return nullptr;
  if (!node.args[0].is(ArgKind::value) || !node.args[1].is(ArgKind::integer)) return nullptr;
  *index = node.args[1].as_int();
  return &node.refs[node.args[0].as_value().index];
}

Status GraphBuilder::fold_getitem(uint32_t index) {
  int64_t result = 0;
  const SourceRef* ref = getitem_parent(source_.nodes[index], &result);
  const Named* named = ref == nullptr ? nullptr : names_.find(ref->name);
  if (named == nullptr || named->kind != Named::Kind::node || named->index >= index) return ok_status();  // said later
  const SourceNode& parent = source_.nodes[named->index];
  Record& record = records_[named->index];
  if (record.is_folded()) return ok_status();
  const OpInfo* info = find_op(text(parent.op));
  bool is_single =
      parent.results.shape == Shape::one || parent.results.shape == Shape::nothing ||
      (parent.results.shape == Shape::unknown && info != nullptr && !info->returns_list && info->results.size() < 2);
  if (is_single) return ok_status();
  SG_TRY(parent.results.shape == Shape::tuple ? fold_into_tuple(index, result, parent, &record)
                                              : claim_result(index, result, parent, &record));
  records_[index].folded_into = named->index;
  record.getitems.push_back(index);
  return ok_status();
}

Status GraphBuilder::fold_into_tuple(uint32_t index, int64_t result, const SourceNode& parent, Record* record) {
  int64_t count = record->result_count;
  int64_t from_start = result < 0 ? result + count : result;
  if (from_start < 0 || from_start >= count) return no_result(index, result, parent);
  records_[index].result = static_cast<uint32_t>(from_start);
  return ok_status();
}

Status GraphBuilder::claim_result(uint32_t index, int64_t result, const SourceNode& parent, Record* record) {
  size_t limit = kUntypedResults + kUntypedResultsPerNode * records_.size();
  if (result < 0 || static_cast<uint64_t>(result) >= limit - claimed_results_) return no_result(index, result, parent);
  record->is_tuple = true;
  records_[index].result = static_cast<uint32_t>(result);
  if (result < record->result_count) return ok_status();
  claimed_results_ += static_cast<size_t>(result) + 1 - record->result_count;
  record->result_count = static_cast<uint32_t>(result) + 1;
  return ok_status();
}

Error GraphBuilder::no_result(uint32_t index, int64_t result, const SourceNode& parent) const {
  std::string message = quoted(parent.name) + " has no result " + std::to_string(result);
  if (parent.results.shape == Shape::tuple) message += "; it has " + std::to_string(parent.results.types.size());
  return error(source_.nodes[index].place, std::move(message));
}

bool GraphBuilder::returns_nothing(const SourceNode& node) const {
  const OpInfo* info = find_op(text(node.op));
  return info != nullptr && info->results.empty() && !info->returns_list;
}

// Whether a node of unknown shape has a result at all is told by its users, unless the op table knows.
void GraphBuilder::mark_used() {
  auto mark = [&](StrId name) {
    const Named* named = names_.find(name);
    if (named != nullptr && named->kind == Named::Kind::node) records_[named->index].is_used = true;
  };
  for (const SourceNode& node : source_.nodes)
    for (const SourceRef& ref : node.refs) mark(ref.name);
  for (const SourceOutput& output : source_.outputs)
    if (output.value.name) mark(output.value.name);
}

// --- nodes ---

Status GraphBuilder::build_node(uint32_t index) {
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
  std::vector<std::string> storage = name_results(source, record, &spec);
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

// The source's argument with values where it has references. Readers nest to a bounded depth only.
Result<Arg> GraphBuilder::resolve(const SourceNode& node, const Arg& source) const {
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

Result<Arg> GraphBuilder::resolve(const SourceRef& ref) const {
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

Error GraphBuilder::unknown_name(const SourceRef& ref) const {
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

// The result types, and whether the op returns a tuple.
void GraphBuilder::set_results(const OpInfo* info, const SourceNode& source, Record* record, NodeSpec* spec) {
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

// The parent's word counts; the getitem's fills a gap.
void GraphBuilder::take_getitem_type(uint32_t getitem, TypeId* type) {
  const SourceNode& source = source_.nodes[getitem];
  if (source.results.types.empty() || source.results.types[0] == Pool::kUnknownType) return;
  TypeKind kind = pool().types[*type].kind;
  if (kind == TypeKind::unknown || kind == TypeKind::none) *type = source.results.types[0];
  else if (*type != source.results.types[0]) tally_->type_conflict(at(source.place));
}

// Results are called as the source says, else like the getitems that take them out; the others `label.i`, past all
// names of the source, which are the first to have a right to theirs.
std::vector<std::string> GraphBuilder::name_results(const SourceNode& source, const Record& record, NodeSpec* spec) {
  std::vector<std::string> storage;
  if (!record.is_tuple) return storage;
  spec->names.resize(spec->result_types.size());
  for (size_t i = 0; i < std::min(source.results.names.size(), spec->names.size()); ++i)
    if (source.results.names[i]) spec->names[i] = text(source.results.names[i]);
  for (uint32_t g : record.getitems)
    if (spec->names[records_[g].result].empty() && source_.nodes[g].name)
      spec->names[records_[g].result] = text(source_.nodes[g].name);
  storage.resize(spec->names.size());
  std::string base = source.name ? std::string(text(source.name)) : std::string(text(source.op));
  for (size_t i = 0; i < storage.size(); ++i) {
    if (!spec->names[i].empty()) continue;
    std::string wish = base + "." + std::to_string(i);
    storage[i] = wish;
    for (uint32_t k = 1; names_.contains(pool().str(storage[i])); ++k) storage[i] = wish + "_" + std::to_string(k);
    spec->names[i] = storage[i];
  }
  return storage;
}

// A second getitem of the same result: only its name is lost, and kept here.
NodeMeta GraphBuilder::meta_of(const SourceNode& source, const Record& record) const {
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

void GraphBuilder::number_stream(NodeId n) {
  NodeMeta meta = graph_->meta(n);
  meta.random.stream = ++*next_stream_;
  meta.random.rank_local = job_.world > 1;
  graph_->set_meta(n, std::move(meta));
}

void GraphBuilder::link_forward() {
  std::map<uint64_t, NodeId> first;
  for (uint32_t i = 0; i < records_.size(); ++i) {
    const SourceNode& source = source_.nodes[i];
    if (source.seq && source.phase == Phase::forward) first.try_emplace(*source.seq, records_[i].node);
  }
  for (uint32_t i = 0; i < records_.size(); ++i) {
    const SourceNode& source = source_.nodes[i];
    if (!source.seq || source.phase != Phase::backward || records_[i].is_folded()) continue;
    auto it = first.find(*source.seq);
    if (it != first.end()) graph_->set_forward(records_[i].node, it->second);
  }
}

// --- outputs ---

Status GraphBuilder::add_output(const SourceOutput& source) {
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

}  // namespace

Status build_program(const SourceProgram& source, const Job& job, ImportTally* tally, Program* program) {
  for (const SourceNested& nested : source.nested)
    program->nested.push_back(std::make_unique<Nested>(Nested{nested.name, Graph(job.pool.get())}));
  declare_symbols(source, job.pool.get(), program);
  uint32_t streams = 0;
  GuessedTypes guessed;
  SG_TRY(GraphBuilder(source, source.graph, job, tally, &streams, &program->graph, &guessed).build());
  for (size_t i = 0; i < source.nested.size(); ++i)
    SG_TRY(GraphBuilder(source, source.nested[i].graph, job, tally, &streams, &program->nested[i]->graph, &guessed)
               .build());
  settle_types(program, job.world > 1, guessed, tally);
  SG_TRY(bind_computed(source.computed, program));
  number_new_streams(program, job.world > 1);
  return ok_status();
}

std::string op_of_target(std::string_view target) {
  // FX prints what is no operator of torch by its module and name in one word.
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
    if (target.substr(0, prefix.size()) == prefix) return std::string(ours) + std::string(target.substr(prefix.size()));
  return std::string(target);
}

}  // namespace sg
