#include "libgraph/names.h"
#include "libgraph/text/text_printer.h"

namespace sg::text {

// --- types ---

const std::string& TextPrinter::type_text(TypeId id) {
  if (types_.size() <= id.index) types_.resize(pool_.types.size());
  if (types_[id.index].empty()) {
    std::string text = captured([&] { type(pool_.types[id]); });
    types_[id.index] = std::move(text);
  }
  return types_[id.index];
}

void TextPrinter::type(const Type& t) {
  auto value = [&](Expr e) {
    std::string text = captured([&] { expr(e); });
    bool wrap = is_metadata_word(std::string_view(text).substr(0, text.find_first_of(" *+-/%")));
    put(' ');
    if (wrap) put('(');
    put(text);
    if (wrap) put(')');
  };
  switch (t.kind) {
    case TypeKind::unknown: return put('?');
    case TypeKind::tensor: return tensor(t);
    case TypeKind::integer:
      put("int");
      if (t.has_value) value(t.value);
      return;
    case TypeKind::floating:
      put("float");
      if (t.has_value) put(' '), append_float(t.float_value, &out_);
      return;
    case TypeKind::boolean: {
      put("bool");
      auto constant = t.has_value && t.value ? pool_.exprs.constant_value(t.value) : std::nullopt;
      if (constant == 0 || constant == 1) put(*constant ? " true" : " false");
      else if (t.has_value) value(t.value);
      return;
    }
    case TypeKind::list: {
      put("list(");
      for (size_t i = 0; i < t.elements.size(); ++i) {
        std::string element = type_text(t.elements[i]);  // a copy: nested calls may move the cache
        if (i) put(", ");
        put(element);
      }
      return put(')');
    }
    case TypeKind::none: return put("none");
    case TypeKind::opaque:
      put("opaque ");
      if (t.text) append_quoted(text_of(t.text), &out_);
      else put('-');
      return;
  }
}

void TextPrinter::tensor(const Type& t) {
  put(dtype_name(t.dtype)), exprs(t.shape);
  if (t.stride != pool_.contiguous_strides(t.shape)) put(" stride "), exprs(t.stride);
  auto offset = t.offset ? pool_.exprs.constant_value(t.offset) : 0;
  if (offset != 0) put(" +"), expr(t.offset);
  if (t.device != device_) put(" on "), text<is_device_char>(t.device);
}

// --- metadata ---

void TextPrinter::node_metadata(const Graph& graph, const Node& node) {
  size_t begin = out_.size();
  if (node.forward && graph.alive(node.forward)) put(" of "), value_name(graph.label(node.forward));
  StrId usual = node.result_count ? graph.value(node.first_result).name : node.label;
  if (node.label != usual) put(" label "), word(node.label);
  if (node.meta != Pool::kDefaultMeta) put(meta_text(node.meta));
  if (out_.size() != begin) out_.insert(begin, 1, ' ');  // two spaces separate metadata from the type
}

const std::string& TextPrinter::meta_text(MetaId id) {
  if (metas_.size() <= id.index) metas_.resize(pool_.metas.size());
  if (metas_[id.index].empty()) {
    std::string text = captured([&] { metadata(pool_.metas[id]); });
    metas_[id.index] = std::move(text);
  }
  return metas_[id.index];
}

void TextPrinter::metadata(const NodeMeta& m) {
  if (m.recompute != Recompute::none) put(" recompute "), put(name_of(m.recompute));
  if (m.recompute_region != -1) put(" recompute_region "), number(m.recompute_region);
  if (m.ep_role != EpRole::none || m.ep_step != EpStep::none) put(" ep "), put(name_of(m.ep_role));
  if (m.ep_step != EpStep::none) put(' '), put(name_of(m.ep_step));
  if (m.chunk != ChunkInfo{}) chunk(m.chunk);
  for (size_t i = 0; i < m.result_chunks.size(); ++i) {
    const ResultChunk& r = m.result_chunks[i];
    put(i ? ", " : " chunks [");
    if (r.index == -1) put("all");
    else number(r.index);
    if (r.original) put(" original "), word(r.original);
  }
  if (!m.result_chunks.empty()) put(']');
  if (m.collective != CollectiveInfo{}) collective(m.collective);
  if (m.copy != CopyOf{}) {
    put(' '), put(m.copy.kind == CopyKind::none ? "copy" : name_of(m.copy.kind)), put("_of "), word(m.copy.of);
  }
  if (m.random != RandomInfo{}) random(m.random);
  if (!m.more_modules.empty()) put(" also "), words(m.more_modules);
  if (m.binds) put(" binds "), words(*m.binds);
  extra(m.extra);
}

void TextPrinter::chunk(const ChunkInfo& c) {
  put(" chunk ");
  if (c.index == -1) put("all");
  else number(c.index);
  if (c.region) put(" in "), word(c.region);
  if (c.role) put(" role "), word(c.role);
  if (c.producer) put(" from "), word(c.producer);
  if (c.original) put(" original "), word(c.original);
  if (c.is_backward != -1) put(c.is_backward ? " backward true" : " backward false");
}

void TextPrinter::collective(const CollectiveInfo& info) {
  put(' '), put(info.role == CollectiveRole::none ? "collective" : name_of(info.role));
  if (info.bucket != -1) put(" bucket "), number(info.bucket);
  if (info.direction != BucketDirection::none) put(' '), put(name_of(info.direction));
  if (!info.plan.empty()) put(" plan "), words(info.plan);
}

void TextPrinter::random(const RandomInfo& info) {
  put(" stream "), number(info.stream);
  if (!info.rank_local) put(" shared");
  if (info.origin_shape.empty() && info.origin_offset.empty()) return;
  put(" origin "), exprs(info.origin_shape), put(" at "), exprs(info.origin_offset);
}

void TextPrinter::sharding(const Sharding& s) {
  if (s.empty()) return;
  put(" shard "), exprs(s.global_shape);
  for (size_t i = 0; i < std::max(s.mesh_axes.size(), s.placements.size()); ++i) {
    put(i ? ", " : " ");
    if (i < s.mesh_axes.size()) text<is_axis_char>(s.mesh_axes[i]);
    else put('-');
    put(' ');
    if (i >= s.placements.size()) put('-');
    else if (std::string_view p = text_of(s.placements[i]); is_plain_placement(p)) put(p);
    else append_quoted(p, &out_);
  }
}

void TextPrinter::extra(const std::vector<KeyValue>& list) {
  if (!list.empty()) put(" extra "), key_values(list);
}

void TextPrinter::key_values(const std::vector<KeyValue>& list) {
  put('{');
  for (size_t i = 0; i < list.size(); ++i) {
    if (i) put(", ");
    append_quoted(text_of(list[i].key), &out_), put(": "), json(list[i].json);
  }
  put('}');
}

// Text that is no compact JSON (only programs that bypass the writers produce it) is kept as a string.
void TextPrinter::json(StrId json) {
  std::string_view text = text_of(json);
  if (is_compact_json(text)) return put(text);
  put("raw "), append_quoted(text, &out_);
}

}  // namespace sg::text
