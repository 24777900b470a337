// Nodes: results and their names, context, metadata, folded getitems, links.
#include <algorithm>

#include "libgraph/base/nearest.h"
#include "libgraph/composite/composite.h"
#include "libgraph/import/capture_graph.h"
#include "libgraph/names.h"

namespace sg {

Status GraphReader::build_node(size_t index) {
  NodeRecord& record = records_[index];
  JsonPlace place = place_of_node(index);
  PlacedNode node{&record, &place, json_.text};
  Extras extras;
  NodeSpec spec;
  spec.op = context_->pool().op(record.op);
  spec.label = record.name;
  const OpInfo* info = context_->pool().ops[spec.op].info;
  if (info == nullptr && !is_composite(record.op))
    context_->tally.unknown_op(record.op, Json{record.object, &place, json_.text});
  SG_ASSIGN(spec.args, read_args(context_, node, info, this, &extras));
  if (record.is_tuple && !record.has(NodeField::type))  // getitems reveal only the results that are used
    record.result_count = std::max(record.result_count, split_result_count(info, spec.args));
  SG_TRY(read_results(node, info, &spec, &extras));
  name_results(record, &spec);
  SG_TRY(read_context(node, &spec, &extras));
  NodeMeta meta;
  SG_TRY(read_meta(context_, node, &meta, &extras));
  SG_TRY(read_folded(node, &meta, &extras));
  if (record.has_unknown_keys) SG_TRY(keep_unknown_keys({record.object, &place, json_.text}, "", &extras));
  if (!extras.empty()) meta.extra = extras.take(&context_->pool());
  spec.meta = context_->pool().metas.intern(std::move(meta));
  record.node = graph_->append(std::move(spec));
  for (uint32_t g : record.getitems) records_[g].node = record.node;
  SG_TRY(give_stream(node, info != nullptr && draws_random(*graph_, record.node)));
  return node.with(NodeField::binds, [&](const Json& json) { return read_binds(json, record.node); });
}

// Determines the result types, and whether the op returns a tuple.
Status GraphReader::read_results(const PlacedNode& node, const OpInfo* info, NodeSpec* spec, Extras* extras) {
  const NodeRecord& record = *node.record;
  spec->is_tuple = record.is_tuple;
  if (record.has(NodeField::type)) {
    SG_TRY(node.with(NodeField::type, [&](const Json& json) -> Status {
      auto add = [&](const Json& type) -> Status {
        SG_ASSIGN(TypeId id, read_type(context_, type, extras, node.place));
        spec->result_types.push_back(id);
        return ok_status();
      };
      return record.is_tuple ? for_each_item(json, [&](size_t, const Json& item) { return add(item); }) : add(json);
    }));
  } else if (record.is_tuple) {
    spec->result_types.resize(record.result_count, Pool::kUnknownType);
  } else if (record.is_used || (info != nullptr && info->results.size() == 1 && !info->returns_list)) {
    spec->result_types.push_back(Pool::kUnknownType);
  }
  for (uint32_t g : record.getitems) SG_TRY(take_getitem_type(g, &spec->result_types[records_[g].result], extras));
  return ok_status();
}

// Takes a getitem's type where its parent records none; the parent's type takes precedence.
Status GraphReader::take_getitem_type(uint32_t index, TypeId* type, Extras* extras) {
  JsonPlace place = place_of_node(index);
  PlacedNode getitem{&records_[index], &place, json_.text};
  return getitem.with(NodeField::type, [&](const Json& json) -> Status {
    SG_ASSIGN(TypeId own, read_type(context_, json, extras, &place));
    TypeKind kind = context_->pool().types[*type].kind;
    if (kind == TypeKind::unknown || kind == TypeKind::none) *type = own;
    else if (own != *type) context_->tally.type_conflict(json);
    return ok_status();
  });
}

// Results are named after the getitems that extract them. The others become `label.i`, avoiding all names of the file,
// which take precedence.
void GraphReader::name_results(const NodeRecord& record, NodeSpec* spec) {
  if (!record.is_tuple) return;
  spec->names.resize(spec->result_types.size());
  for (uint32_t g : record.getitems)
    if (spec->names[records_[g].result].empty()) spec->names[records_[g].result] = records_[g].name;
  for (size_t i = 0; i < spec->names.size(); ++i) {
    std::string& name = spec->names[i];
    if (!name.empty()) continue;
    const std::string base = std::string(record.name) + "." + std::to_string(i);
    name = base;
    for (uint32_t suffix = 1; names_.find(name); ++suffix) name = base + "_" + std::to_string(suffix);
  }
}

// Reads module, phase and source; keeps a sequence number that links to no forward node.
Status GraphReader::read_context(const PlacedNode& node, NodeSpec* spec, Extras* extras) {
  SG_TRY(node.with(NodeField::module, [&](const Json& json) -> Status {
    SG_ASSIGN(std::string_view module, json.string());
    if (!module.empty()) spec->module = context_->str(module);
    return ok_status();
  }));
  SG_TRY(node.with(NodeField::phase, [&](const Json& json) -> Status {
    SG_ASSIGN(std::string_view word, json.string());
    auto phase = enum_named<Phase>(word);
    if (!phase) return json.error("unknown phase `" + std::string(word) + "`", nearest_hint(word, names_of<Phase>()));
    spec->phase = *phase;
    return ok_status();
  }));
  SG_TRY(node.with(NodeField::source, [&](const Json& json) -> Status {
    SG_ASSIGN(Source source, read_source(context_, json, "source", extras));
    spec->source = context_->pool().sources.intern(source);
    return ok_status();
  }));
  return node.with(NodeField::seq, [&](const Json& json) -> Status {
    if (!json.is_integer() && !json.element.is_uint64()) SG_TRY(json.integer());
    bool has_forward = node.record->forward != NodeRecord::kNoForward;
    if (spec->phase == Phase::backward && !has_forward) extras->add("seq", canonical_json(json.element));
    return ok_status();
  });
}

// A stream of its own, or that of the node whose numbers it draws again.
Status GraphReader::give_stream(const PlacedNode& node, bool draws) {
  const NodeId n = node.record->node;
  NodeMeta meta = graph_->meta(n);
  if (draws && !node.record->has(NodeField::draws_as)) {
    meta.random.stream = ++*next_stream_;
    meta.random.rank_local = capture_.world > 1;
    graph_->set_meta(n, std::move(meta));
  }
  return node.with(NodeField::draws_as, [&](const Json& json) -> Status {
    SG_ASSIGN(std::string_view name, json.string());
    SG_ASSIGN(Named named, find(json, name));
    if (!named.is_input && named.index >= current_) return forward_reference(json, named.index);
    const NodeId first = named.is_input ? NodeId() : records_[named.index].node;
    if (!draws || first.is_none() || graph_->node(first).op != graph_->node(n).op ||
        graph_->meta(first).random.stream == 0)
      return json.error("`" + std::string(name) + "` does not draw random numbers as this node does",
                        "`draws_as` names a node before this one, of the same random op");
    meta.random = graph_->meta(first).random;
    meta.copy = {CopyKind::remat, graph_->node(first).label};
    graph_->set_meta(n, std::move(meta));
    return ok_status();
  });
}

// Kept only if it differs from the op table's rule.
Status GraphReader::read_binds(const Json& json, NodeId n) {
  std::vector<StrId> symbols;
  SG_TRY(for_each_item(json, [&](size_t, const Json& item) -> Status {
    SG_ASSIGN(std::string_view name, item.string());
    symbols.push_back(context_->str(name));
    return ok_status();
  }));
  if (symbols == default_binds(*program_, *graph_, n)) return ok_status();
  NodeMeta meta = graph_->meta(n);
  meta.binds = std::move(symbols);
  graph_->set_meta(n, std::move(meta));
  return ok_status();
}

// Metadata of folded getitems besides their names.
Status GraphReader::read_folded(const PlacedNode& parent, NodeMeta* meta, Extras* extras) {
  const ResultChunk own{meta->chunk.index, meta->chunk.original};
  std::vector<ResultChunk> chunks(parent.record->result_count, own);
  std::vector<bool> is_named(parent.record->result_count);
  bool differs = false;
  std::string same;
  for (uint32_t g : parent.record->getitems) {
    const NodeRecord& getitem = records_[g];
    JsonPlace place = place_of_node(g);
    ResultChunk chunk = own;
    SG_TRY(read_getitem_meta(context_, {&getitem, &place, json_.text}, parent, &chunk, extras));
    if (getitem.has_unknown_keys)
      SG_TRY(keep_unknown_keys({getitem.object, &place, json_.text}, "getitem." + std::string(getitem.name) + ".",
                               extras));
    if (is_named[getitem.result])  // a second getitem of the same result: only its name would be lost
      extras->add("getitem." + std::string(getitem.name), std::to_string(getitem.result));
    else chunks[getitem.result] = chunk;
    is_named[getitem.result] = true;
    differs = differs || !(chunk == own);
  }
  if (differs) meta->result_chunks = std::move(chunks);
  return ok_status();
}

Status GraphReader::keep_unknown_keys(const Json& json, const std::string& prefix, Extras* extras) {
  return for_each_field(json, [&](std::string_view key, const Json& value) -> Status {
    if (std::find(std::begin(kNodeKeys), std::end(kNodeKeys), key) != std::end(kNodeKeys)) return ok_status();
    context_->tally.unknown_key("nodes", key, value);
    extras->add(prefix + std::string(key), canonical_json(value.element));
    return ok_status();
  });
}

void GraphReader::link_forward() {
  for (const NodeRecord& record : records_) {
    if (record.is_folded() || graph_->node(record.node).phase != Phase::backward) continue;
    if (record.forward != NodeRecord::kNoForward) graph_->set_forward(record.node, records_[record.forward].node);
  }
}

}  // namespace sg
