#include "libgraph/pool.h"

#include <bit>

#include "libgraph/base/hashing.h"
#include "libgraph/op.h"

namespace sg {

bool operator==(const Type& a, const Type& b) {
  return a.kind == b.kind && a.dtype == b.dtype && a.has_value == b.has_value && a.device == b.device &&
         a.offset == b.offset && a.value == b.value &&
         std::bit_cast<uint64_t>(a.float_value) == std::bit_cast<uint64_t>(b.float_value) && a.text == b.text &&
         a.shape == b.shape && a.stride == b.stride && a.elements == b.elements;
}

uint64_t hash_of(const Type& t) {
  Hasher h;
  h.mix(static_cast<uint64_t>(t.kind)).mix(static_cast<uint64_t>(t.dtype)).mix(t.has_value).mix(t.device);
  h.mix(t.offset).mix(t.value).mix(std::bit_cast<uint64_t>(t.float_value)).mix(t.text);
  return h.mix_all(t.shape).mix_all(t.stride).mix_all(t.elements).value();
}

uint64_t hash_of(const Source& s) { return Hasher().mix(s.file).mix(uint64_t{s.line}).mix(s.function).value(); }

uint64_t hash_of(const NodeMeta& m) {
  Hasher h;
  auto mix_number = [&](auto v) { h.mix(static_cast<uint64_t>(v)); };
  mix_number(m.recompute), mix_number(m.recompute_region), mix_number(m.ep_role), mix_number(m.ep_step);
  h.mix(m.chunk.region).mix(m.chunk.role).mix(m.chunk.producer).mix(m.chunk.original);
  mix_number(m.chunk.index), mix_number(m.chunk.is_backward);
  for (const ResultChunk& r : m.result_chunks) mix_number(r.index), h.mix(r.original);
  mix_number(m.collective.role), mix_number(m.collective.direction), mix_number(m.collective.bucket);
  h.mix_all(m.collective.plan);
  mix_number(m.copy.kind), h.mix(m.copy.of);
  mix_number(m.random.stream), mix_number(m.random.rank_local);
  h.mix_all(m.random.origin_shape).mix_all(m.random.origin_offset).mix_all(m.more_modules);
  mix_number(m.binds.has_value());
  if (m.binds) h.mix_all(*m.binds);
  for (const KeyValue& kv : m.extra) h.mix(kv.key).mix(kv.json);
  return h.value();
}

OpId OpTable::intern(StrId name, std::string_view text) {
  auto [id, is_new] = index_.try_emplace(name, OpId(static_cast<uint32_t>(ops_.size())));
  if (is_new) ops_.push_back({name, find_op(text)});
  return *id;
}

Pool::Pool() : exprs(&strings) {
  types.intern(Type{});
  metas.intern(NodeMeta{});
}

Pool::Pool(const Pool& other)
    : strings(other.strings),
      exprs(other.exprs, &strings),
      types(other.types),
      sources(other.sources),
      metas(other.metas),
      ops(other.ops) {}

TypeId Pool::tensor(DType dtype, std::vector<Expr> shape, StrId device) {
  Type t;
  t.kind = TypeKind::tensor;
  t.dtype = dtype;
  t.device = device;
  t.offset = exprs.constant(0);
  t.stride = contiguous_strides(shape);
  t.shape = std::move(shape);
  return types.intern(std::move(t));
}

std::vector<Expr> Pool::contiguous_strides(const std::vector<Expr>& shape) {
  std::vector<Expr> stride(shape.size());
  Expr step = exprs.constant(1);
  for (size_t i = shape.size(); i-- > 0;) {
    stride[i] = step;
    step = exprs.mul(step, shape[i]);
  }
  return stride;
}

}  // namespace sg
