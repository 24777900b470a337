#include "libgraph/import/capture_graph.h"

#include "libgraph/base/joined.h"
#include "libgraph/base/nearest.h"

namespace sg {

Status GraphReader::read() {
  SG_TRY(list("inputs", [&](size_t i, const Json& item) { return read_input(i, item); }));
  reserve();
  SG_TRY(list("nodes", [&](size_t i, const Json& item) { return index_node(i, item); }));
  find_first_of_numbers();
  for (size_t i = 0; i < records_.size(); ++i) SG_TRY(fold_getitem(i));
  mark_used();
  for (current_ = 0; current_ < records_.size(); ++current_)
    if (!records_[current_].is_folded()) SG_TRY(build_node(current_));
  link_forward();
  return list("outputs", [&](size_t, const Json& item) { return read_output(item); });
}

Result<Arg> GraphReader::resolve(const Json& at, std::string_view name) {
  SG_ASSIGN(Named named, find(at, name));
  if (named.is_input) return Arg::value(graph_->inputs()[named.index].value);
  const NodeRecord& record = records_[named.index];
  if (named.index >= current_) return forward_reference(at, named.index);
  const Node& node = graph_->node(record.node);
  if (record.is_folded()) return Arg::value(node.result(record.result));
  if (!node.is_tuple && node.result_count == 0) return at.error("`" + std::string(name) + "` has no result");
  if (!node.is_tuple) return Arg::value(node.result(0));
  ArgList all;
  for (uint32_t i = 0; i < node.result_count; ++i) all.push_back(Arg::value(node.result(i)));
  return Arg::list(std::move(all));
}

Result<NestedId> GraphReader::nested(const Json& at, std::string_view name) {
  if (const NestedId* id = nested_.find(name)) return *id;
  return at.error("the capture has no nested graph `" + std::string(name) + "`");
}

Result<GroupId> GraphReader::group(const Json& at, std::string_view name) {
  const uint32_t* index = capture_.group_index.find(name);
  if (!index) return unknown_group(at, name);
  const CapturedGroup& group = capture_.groups[*index];
  if (group.holds_rank) return group.family;
  return at.error("the group `" + std::string(name) + "` does not hold rank " + std::to_string(capture_.rank));
}

void GraphReader::reserve() {
  simdjson::dom::array nodes;
  if (!json_.is_object() || json_.element["nodes"].get(nodes)) return;
  records_.reserve(nodes.size());
  names_.reserve(nodes.size() + graph_->inputs().size());
  graph_->reserve(nodes.size(), graph_->inputs().size() + nodes.size());
}

Status GraphReader::declare(const Json& at, std::string_view name, bool is_input, size_t index) {
  if (name.empty()) return at.error("the name is empty");
  auto [owner, is_new] = names_.try_emplace(name, Named{is_input, static_cast<uint32_t>(index)});
  if (is_new) return ok_status();
  return at.error("the name `" + std::string(name) + "` is taken by " + print(*owner));
}

std::string GraphReader::print(Named named) const {
  JsonPlace list = JsonPlace::at_key(json_.place, named.is_input ? "inputs" : "nodes");
  JsonPlace place = JsonPlace::at_index(&list, named.index);
  return print_place(&place);
}

Result<GraphReader::Named> GraphReader::find(const Json& at, std::string_view name) const {
  if (const Named* named = names_.find(name)) return *named;
  Nearest nearest(name);
  if (names_.size() < 100000)
    for (const Input& input : graph_->inputs()) nearest.offer(graph_->name(input.value));
  if (records_.size() < 100000)
    for (const NodeRecord& record : records_) nearest.offer(record.name);
  return at.error("no node or input is called `" + std::string(name) + "`", nearest.hint());
}

Error GraphReader::forward_reference(const Json& at, uint32_t index) const {
  const NodeRecord& record = records_[index];
  JsonPlace place = place_of_node(index);
  std::string message = "`" + std::string(record.name) + "` is used before it is defined, at " + print_place(&place);
  if (auto offset = offset_of(at.text->json(), &place)) message += " (byte " + std::to_string(*offset) + ")";
  return at.error(std::move(message), "nodes stand in the order in which they run");
}

Error GraphReader::unknown_group(const Json& at, std::string_view name) const {
  const std::string known = joined(first_of(capture_.groups, 8), ", ", [](const auto& g) { return g.name; });
  return at.error("the capture declares no group `" + std::string(name) + "`",
                  known.empty() ? "add it to `groups`: {name, axis, ranks}" : "the groups are: " + known);
}

Status read_graph(ImportContext* context, const RankCapture& capture, const NestedIndex& nested, const Json& json,
                  uint32_t* next_stream, Program* program, Graph* graph) {
  return GraphReader(context, capture, nested, json, next_stream, program, graph).read();
}

}  // namespace sg
