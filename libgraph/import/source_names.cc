// Names of a source's graph, and the getitems that are folded into the nodes they index.
#include "libgraph/import/source_graph_builder.h"
#include "libgraph/op.h"

namespace sg {
namespace {

using Shape = SourceResults::Shape;

constexpr std::string_view kGetitem = "python.getitem";
// Limits the results a source may claim through getitems of nodes of unknown shape: some per node, plus a few.
constexpr size_t kUntypedResultsPerNode = 16;
constexpr size_t kUntypedResults = 4096;

}  // namespace

Status SourceGraphBuilder::add_inputs() {
  for (uint32_t i = 0; i < source_.inputs.size(); ++i) {
    const SourceInput& input = source_.inputs[i];
    SG_TRY(declare(input.place, input.name, {Named::Kind::input, i}));
    graph_->add_input(text(input.name), input.type, input.input);
  }
  return ok_status();
}

Status SourceGraphBuilder::declare(SourcePlace place, StrId name, Named named) {
  if (!name || name == StringTable::kEmpty) return error(place, "the name is empty");
  auto [owner, is_new] = names_.try_emplace(name, named);
  if (is_new) return ok_status();
  return error(place,
               "the name " + quoted(name) + " is taken by what is at " + print_location(at(place_of(*owner)).where()));
}

SourcePlace SourceGraphBuilder::place_of(Named named) const {
  return named.kind == Named::Kind::input ? source_.inputs[named.index].place : source_.nodes[named.index].place;
}

// Declares the names of a node and its results; the first result may share the node's name.
Status SourceGraphBuilder::declare_node(uint32_t index) {
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

// The node that a getitem with a constant index takes apart; null for all other nodes.
const SourceRef* SourceGraphBuilder::getitem_parent(const SourceNode& node, int64_t* index) const {
  if (text(node.op) != kGetitem || node.args.size() != 2 || node.args[0].key() || node.args[1].key()) return nullptr;
  if (!node.args[0].is(ArgKind::value) || !node.args[1].is(ArgKind::integer)) return nullptr;
  *index = node.args[1].as_int();
  return &node.refs[node.args[0].as_value().index];
}

Status SourceGraphBuilder::fold_getitem(uint32_t index) {
  int64_t result = 0;
  const SourceRef* ref = getitem_parent(source_.nodes[index], &result);
  const Named* named = ref == nullptr ? nullptr : names_.find(ref->name);
  if (named == nullptr || named->kind != Named::Kind::node || named->index >= index) return ok_status();  // fails later
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

Status SourceGraphBuilder::fold_into_tuple(uint32_t index, int64_t result, const SourceNode& parent, Record* record) {
  int64_t count = record->result_count;
  int64_t from_start = result < 0 ? result + count : result;
  if (from_start < 0 || from_start >= count) return no_result(index, result, parent);
  records_[index].result = static_cast<uint32_t>(from_start);
  return ok_status();
}

Status SourceGraphBuilder::claim_result(uint32_t index, int64_t result, const SourceNode& parent, Record* record) {
  size_t limit = kUntypedResults + kUntypedResultsPerNode * records_.size();
  if (result < 0 || static_cast<uint64_t>(result) >= limit - claimed_results_) return no_result(index, result, parent);
  record->is_tuple = true;
  records_[index].result = static_cast<uint32_t>(result);
  if (result < record->result_count) return ok_status();
  claimed_results_ += static_cast<size_t>(result) + 1 - record->result_count;
  record->result_count = static_cast<uint32_t>(result) + 1;
  return ok_status();
}

Error SourceGraphBuilder::no_result(uint32_t index, int64_t result, const SourceNode& parent) const {
  std::string message = quoted(parent.name) + " has no result " + std::to_string(result);
  if (parent.results.shape == Shape::tuple) message += "; it has " + std::to_string(parent.results.types.size());
  return error(source_.nodes[index].place, std::move(message));
}

bool SourceGraphBuilder::returns_nothing(const SourceNode& node) const {
  const OpInfo* info = find_op(text(node.op));
  return info != nullptr && info->results.empty() && !info->returns_list;
}

// Marks nodes that have a user: for a node of unknown shape, unless the op table knows, only users tell whether it has
// a result.
void SourceGraphBuilder::mark_used() {
  auto mark = [&](StrId name) {
    const Named* named = names_.find(name);
    if (named != nullptr && named->kind == Named::Kind::node) records_[named->index].is_used = true;
  };
  for (const SourceNode& node : source_.nodes)
    for (const SourceRef& ref : node.refs) mark(ref.name);
  for (const SourceOutput& output : source_.outputs)
    if (output.value.name) mark(output.value.name);
}

}  // namespace sg
