// Indices of interned objects, and the tables they refer to.
#include <algorithm>
#include <bit>

#include "libgraph/base/json.h"
#include "libgraph/base/utf8.h"
#include "libgraph/binary/binary_writer.h"

namespace sg {

template <class PoolId>
bool FileWriter::Used<PoolId>::add(PoolId id) {
  if (index[id.index] != kNoIndex) return false;
  index[id.index] = static_cast<uint32_t>(list.size());
  list.push_back(id);
  return true;
}

// --- indices ---

uint32_t FileWriter::string(StrId id) {
  if (id.is_none()) return kNoIndex;
  if (strings_.add(id) && !is_utf8(pool_.strings[id]))
    fail(ErrorKind::cannot_apply, "a file holds UTF-8 alone, and not " + json_string(pool_.strings[id]), "rename it");
  return strings_[id];
}

uint32_t FileWriter::expr(Expr e) {
  if (e.is_none()) return kNoIndex;
  if (exprs_.index[e.index] != kNoIndex) return exprs_[e];
  if (pool_.exprs.is_invalid(e)) {
    fail(ErrorKind::cannot_apply, "a size overflows 64 bits, divides by zero or is too large",
         "sg-check names the place");
    return kNoIndex;
  }
  for (const Term& t : pool_.exprs.terms(e)) {  // operands first; the pool bounds the depth
    for (const Factor& f : t.factors)
      for (Expr operand : pool_.exprs.atom(f.atom).operands) expr(operand);
  }
  exprs_.add(e);
  return exprs_[e];
}

size_t FileWriter::type_weight(const Type& t, size_t depth) {
  if (depth > kMaxTypeDepth) return kMaxTypeWeight + 1;
  size_t weight = 1;
  for (TypeId element : t.elements) {
    weight += type_weight(pool_.types[element], depth + 1);
    if (weight > kMaxTypeWeight) break;
  }
  return weight;
}

uint32_t FileWriter::type(TypeId id) {
  if (id.is_none() || id == Pool::kUnknownType) return kNoIndex;
  if (types_.index[id.index] != kNoIndex) return types_[id];
  const Type& t = pool_.types[id];
  if (!t.elements.empty() && type_weight(t, 1) > kMaxTypeWeight) {
    fail(ErrorKind::cannot_apply, "a type is a list nested too deep or too large");
    return kNoIndex;
  }
  for (TypeId element : t.elements) type(element);
  types_.add(id);
  return types_[id];
}

uint32_t FileWriter::source(SourceId id) {
  if (id.is_none()) return kNoIndex;
  sources_.add(id);
  return sources_[id];
}

uint32_t FileWriter::meta(MetaId id) {
  if (id.is_none() || id == Pool::kDefaultMeta) return kNoIndex;
  metas_.add(id);
  return metas_[id];
}

uint32_t FileWriter::op(OpId id) {
  ops_.add(id);
  return ops_[id];
}

// --- parts shared by many tables ---

FileWriter::Numbers FileWriter::strings(const std::vector<StrId>& list) {
  std::vector<uint32_t> out;
  for (StrId id : list) out.push_back(string(id));
  return numbers(out);
}

FileWriter::Numbers FileWriter::exprs(const std::vector<Expr>& list) {
  std::vector<uint32_t> out;
  for (Expr e : list) out.push_back(expr(e));
  return numbers(out);
}

FileWriter::Tables<fb::KeyValue> FileWriter::key_values(const std::vector<KeyValue>& list) {
  std::vector<KeyValue> sorted = list;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [&](const KeyValue& a, const KeyValue& b) { return pool_.strings[a.key] < pool_.strings[b.key]; });
  std::vector<Offset<fb::KeyValue>> out;
  for (const KeyValue& kv : sorted) {
    uint32_t key = string(kv.key), json = string(kv.json);
    if (!room(32)) return 0;
    out.push_back(builder_.share(fb::CreateKeyValue(builder_, key, json)));
  }
  return tables(out);
}

FileWriter::Offset<fb::Sharding> FileWriter::sharding(const Sharding& s) {
  if (s.empty()) return 0;
  auto global_shape = exprs(s.global_shape);
  auto placements = strings(s.placements);
  auto mesh_axes = strings(s.mesh_axes);
  if (!room(32)) return 0;
  return builder_.share(fb::CreateSharding(builder_, global_shape, placements, mesh_axes));
}

// --- the tables of the root ---

FileWriter::Offset<fb::Meta> FileWriter::meta_table(const NodeMeta& m) {
  std::vector<Offset<fb::ResultChunk>> result_chunks;
  for (const ResultChunk& r : m.result_chunks) {
    uint32_t original = string(r.original);
    if (!room(32)) return 0;
    result_chunks.push_back(builder_.share(fb::CreateResultChunk(builder_, r.index, original)));
  }
  auto chunk_list = tables(result_chunks);
  auto plan = strings(m.collective.plan);
  auto origin_shape = exprs(m.random.origin_shape);
  auto origin_offset = exprs(m.random.origin_offset);
  auto more_modules = strings(m.more_modules);
  Numbers binds = 0;
  if (m.binds) {
    std::vector<uint32_t> names;
    for (StrId id : *m.binds) names.push_back(string(id));
    binds = numbers_or_empty(names);
  }
  auto extra = key_values(m.extra);
  uint32_t region = string(m.chunk.region), role = string(m.chunk.role), producer = string(m.chunk.producer);
  uint32_t original = string(m.chunk.original), copy_of = string(m.copy.of);
  if (!room(256)) return 0;
  return builder_.share(fb::CreateMeta(builder_, static_cast<fb::Recompute>(m.recompute), m.recompute_region,
                                       static_cast<fb::EpRole>(m.ep_role), static_cast<fb::EpStep>(m.ep_step), region,
                                       m.chunk.index, role, producer, original, m.chunk.is_backward, chunk_list,
                                       static_cast<fb::CollectiveRole>(m.collective.role),
                                       static_cast<fb::BucketDirection>(m.collective.direction), m.collective.bucket,
                                       plan, static_cast<fb::CopyKind>(m.copy.kind), copy_of, m.random.stream,
                                       m.random.rank_local, origin_shape, origin_offset, more_modules, binds, extra));
}

FileWriter::Tables<fb::Meta> FileWriter::meta_tables() {
  std::vector<Offset<fb::Meta>> out;
  out.reserve(metas_.list.size());
  for (MetaId id : metas_.list) out.push_back(meta_table(pool_.metas[id]));
  return tables(out);
}

FileWriter::Offset<fb::Type> FileWriter::type_table(const Type& t) {
  auto shape = exprs(t.shape);
  auto stride = exprs(t.stride);
  std::vector<uint32_t> element_indices;
  for (TypeId element : t.elements) element_indices.push_back(type(element));
  auto elements = numbers(element_indices);
  uint32_t device = string(t.device), offset = expr(t.offset), value = expr(t.value), opaque_text = string(t.text);
  flatbuffers::Optional<double> float_value;
  if (std::bit_cast<uint64_t>(t.float_value) != 0) float_value = canonical_float(t.float_value);
  if (!room(128)) return 0;
  return builder_.share(fb::CreateType(builder_, static_cast<fb::TypeKind>(t.kind), static_cast<fb::DType>(t.dtype),
                                       device, shape, stride, offset, t.has_value, value, float_value, opaque_text,
                                       elements));
}

FileWriter::Tables<fb::Type> FileWriter::type_tables() {
  std::vector<Offset<fb::Type>> out;
  for (size_t i = 0; i < types_.list.size(); ++i) out.push_back(type_table(pool_.types[types_.list[i]]));
  return tables(out);
}

FileWriter::Offset<fb::Factor> FileWriter::factor(const Factor& f) {
  const Atom& atom = pool_.exprs.atom(f.atom);
  if (atom.operands.size() > kMaxOperands) {
    fail(ErrorKind::cannot_apply, "a size is the min or max of more than 256 operands");
    return 0;
  }
  auto operands = exprs(atom.operands);
  uint32_t symbol = string(atom.symbol);
  if (!room(64)) return 0;
  return builder_.share(fb::CreateFactor(builder_, static_cast<fb::AtomKind>(atom.kind), symbol, operands, f.power));
}

FileWriter::Offset<fb::Expr> FileWriter::expr_table(Expr e) {
  int64_t constant = 0;
  std::vector<Offset<fb::Term>> terms;
  for (const Term& t : pool_.exprs.terms(e)) {
    if (t.factors.empty()) {
      constant = t.coefficient;
      continue;
    }
    std::vector<Offset<fb::Factor>> factors;
    for (const Factor& f : t.factors) factors.push_back(factor(f));
    auto factor_list = tables(factors);
    if (!room(32)) return 0;
    terms.push_back(builder_.share(fb::CreateTerm(builder_, t.coefficient, factor_list)));
  }
  auto term_list = tables(terms);
  if (!room(32)) return 0;
  return builder_.share(fb::CreateExpr(builder_, constant, term_list));
}

FileWriter::Tables<fb::Expr> FileWriter::expr_tables() {
  std::vector<Offset<fb::Expr>> out;
  for (Expr e : exprs_.list) out.push_back(expr_table(e));
  return tables(out);
}

FileWriter::Offset<fb::Source> FileWriter::source_table(const Source& s) {
  uint32_t file = string(s.file), function = string(s.function);
  if (!room(32)) return 0;
  return builder_.share(fb::CreateSource(builder_, file, s.line, function));
}

FileWriter::Tables<fb::Source> FileWriter::source_tables() {
  std::vector<Offset<fb::Source>> out;
  for (SourceId id : sources_.list) out.push_back(source_table(pool_.sources[id]));
  return tables(out);
}

FileWriter::Numbers FileWriter::op_names() {
  std::vector<uint32_t> out;
  for (OpId id : ops_.list) out.push_back(string(pool_.ops[id].name));
  return numbers(out);
}

FileWriter::Offset<flatbuffers::Vector<FileWriter::Offset<flatbuffers::String>>> FileWriter::string_table() {
  std::vector<Offset<flatbuffers::String>> out;
  out.reserve(strings_.list.size());
  for (StrId id : strings_.list) out.push_back(text(pool_.strings[id]));
  return tables(out);
}

}  // namespace sg
