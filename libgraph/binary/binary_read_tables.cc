// The tables of the root: strings, expressions, types, sources, metadata, operators.
#include <algorithm>

#include "libgraph/base/utf8.h"
#include "libgraph/binary/binary_reader.h"

namespace sg {
namespace {

constexpr size_t kFreeExprWeight = 1 << 22;

}  // namespace

// --- indices and lists of them ---

bool FileReader::string(uint32_t index, const char* field, StrId* out) {
  if (index < strings_.size()) {
    *out = strings_[index];
    return true;
  }
  *out = StrId();
  return index == kNoIndex || bad_index(field, index, strings_.size());
}

bool FileReader::required_string(uint32_t index, const char* field, StrId* out) {
  return index != kNoIndex ? string(index, field, out) : bad_index(field, index, 0);
}

bool FileReader::expr(uint32_t index, const char* field, Expr* out) {
  return index == kNoIndex || required_expr(index, field, out);
}

bool FileReader::required_expr(uint32_t index, const char* field, Expr* out) {
  if (index >= exprs_.size()) return bad_index(field, index, exprs_.size());
  *out = exprs_[index];
  return true;
}

bool FileReader::type(uint32_t index, const char* field, TypeId* out) {
  if (index != kNoIndex && index >= types_.size()) return bad_index(field, index, types_.size());
  *out = index == kNoIndex ? Pool::kUnknownType : types_[index];
  return true;
}

bool FileReader::source(uint32_t index, const char* field, SourceId* out) {
  if (index == kNoIndex) return true;
  if (index >= sources_.size()) return bad_index(field, index, sources_.size());
  *out = sources_[index];
  return true;
}

bool FileReader::dtype(uint32_t value, const char* field, DType* out) {
  if (value >= kDTypeCount) return unknown_enumerator(static_cast<int>(value), field);
  *out = static_cast<DType>(value);
  return true;
}

bool FileReader::strings(const Numbers* in, const char* field, std::vector<StrId>* out) {
  uint32_t count = size_of(in);
  if (!charge(4 * size_t{count}, field)) return false;
  out->resize(count);
  for (uint32_t i = 0; i < count; ++i)
    if (!required_string(in->Get(i), field, &(*out)[i])) return at_index(i);
  return true;
}

bool FileReader::exprs(const Numbers* in, const char* field, std::vector<Expr>* out) {
  uint32_t count = size_of(in);
  if (!charge(4 * size_t{count}, field)) return false;
  out->resize(count);
  for (uint32_t i = 0; i < count; ++i)
    if (!required_expr(in->Get(i), field, &(*out)[i])) return at_index(i);
  return true;
}

// --- strings and operators ---

bool FileReader::read_strings() {
  const auto* list = root_->strings();
  uint32_t count = size_of(list);
  strings_.reserve(count);
  job_.pool->strings.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    std::string_view text(list->Get(i)->c_str(), list->Get(i)->size());
    if (!charge(text.size() + 4, "strings")) return false;
    if (!is_utf8(text)) return fail("strings[" + std::to_string(i) + "]", "is not valid UTF-8");
    strings_.push_back(job_.pool->str(text));
  }
  return true;
}

bool FileReader::read_ops() {
  std::vector<StrId> names;
  if (!strings(root_->ops(), "ops", &names)) return false;
  for (StrId name : names) {
    if (name == StringTable::kEmpty) return fail("ops", "an operator has no name");
    ops_.push_back(job_.pool->ops.intern(name, job_.pool->strings[name]));
  }
  return true;
}

// --- expressions: rebuilt from their parts, which must reproduce exactly those parts ---

bool FileReader::read_exprs() {
  expr_budget_ = kFreeExprWeight + bytes_.size();
  exprs_.reserve(size_of(root_->exprs()));
  expr_weights_.reserve(size_of(root_->exprs()));
  return each(root_->exprs(), "exprs", [&](const fb::Expr& in, uint32_t i) {
    Expr e;
    if (!read_expr(in, i, &e)) return false;
    exprs_.push_back(e);
    return true;
  });
}

bool FileReader::read_expr(const fb::Expr& in, uint32_t index, Expr* out) {
  if (size_of(in.terms()) > ExprPool::kMaxTerms) return fail("terms", "are more than an expression may have");
  if (!spend_weight(in)) return false;
  std::vector<Expr> terms;
  bool ok = each(in.terms(), "terms", [&](const fb::Term& term, uint32_t) {
    std::vector<Expr> factors = {job_.pool->exprs.constant(term.coefficient())};
    if (!read_term(term, index, &factors)) return false;
    terms.push_back(job_.pool->exprs.product(factors));
    return true;
  });
  if (!ok) return false;
  terms.push_back(job_.pool->exprs.constant(in.constant()));
  *out = job_.pool->exprs.sum(terms);
  return is_same(in, *out) || fail("terms", "are not in normal form");
}

// Charges the cost of building and printing an expression: its factors, plus those of each operand every time it
// occurs.
bool FileReader::spend_weight(const fb::Expr& in) {
  size_t weight = 1;
  for (uint32_t t = 0; t < size_of(in.terms()); ++t) {
    const auto* factors = in.terms()->Get(t)->factors();
    for (uint32_t f = 0; f < size_of(factors); ++f) {
      ++weight;
      const auto* operands = factors->Get(f)->operands();
      for (uint32_t o = 0; o < size_of(operands); ++o)
        if (operands->Get(o) < expr_weights_.size()) weight += expr_weights_[operands->Get(o)];  // else refused below
    }
  }
  if (weight > ExprPool::kMaxWeight) return fail("terms", "are too large a tree");
  if (weight > expr_budget_) return fail("terms", "the expressions of the file are too large in all");
  expr_budget_ -= weight;
  expr_weights_.push_back(static_cast<uint32_t>(weight));
  return true;
}

bool FileReader::read_term(const fb::Term& in, uint32_t limit, std::vector<Expr>* factors) {
  return each(in.factors(), "factors",
              [&](const fb::Factor& factor, uint32_t) { return read_factor(factor, limit, &factors->emplace_back()); });
}

bool FileReader::read_factor(const fb::Factor& in, uint32_t limit, Expr* out) {
  ExprPool& pool = job_.pool->exprs;
  if (in.kind() == fb::AtomKind::symbol) {
    StrId name;
    if (!required_string(in.symbol(), "symbol", &name)) return false;
    if (!ExprPool::is_symbol_name(job_.pool->strings[name])) return fail("symbol", "is not a valid symbol name");
    *out = pool.symbol(name);
  } else if (!read_operands(in, limit, out)) {
    return false;
  }
  *out = pool.pow(*out, in.power());
  return true;
}

bool FileReader::read_operands(const fb::Factor& in, uint32_t limit, Expr* out) {
  ExprPool& pool = job_.pool->exprs;
  std::vector<Expr> operands;
  if (in.kind() > fb::AtomKind::max) return unknown_enumerator(static_cast<int>(in.kind()), "kind");
  if (!exprs(in.operands(), "operands", &operands)) return false;
  for (uint32_t i = 0; i < operands.size(); ++i)
    if (in.operands()->Get(i) >= limit) return fail("operands", "come after the expression that uses them");
  bool is_division = in.kind() == fb::AtomKind::floordiv || in.kind() == fb::AtomKind::mod;
  if (operands.size() < 2 || operands.size() > (is_division ? 2 : kMaxOperands))
    return fail("operands", "are too many or too few");
  switch (in.kind()) {
    case fb::AtomKind::floordiv: *out = pool.floordiv(operands[0], operands[1]); break;
    case fb::AtomKind::mod: *out = pool.mod(operands[0], operands[1]); break;
    case fb::AtomKind::min: *out = pool.extremum(AtomKind::min, operands); break;
    default: *out = pool.extremum(AtomKind::max, operands);
  }
  return true;
}

bool FileReader::is_same(const fb::Expr& in, Expr e) const {
  const ExprPool& pool = job_.pool->exprs;
  if (pool.is_invalid(e)) return false;
  std::span<const Term> terms = pool.terms(e);
  bool has_constant = !terms.empty() && terms.back().factors.empty();
  if (in.constant() != (has_constant ? terms.back().coefficient : 0)) return false;
  if (has_constant) terms = terms.first(terms.size() - 1);
  if (size_of(in.terms()) != terms.size()) return false;
  for (uint32_t t = 0; t < terms.size(); ++t) {
    const fb::Term& term = *in.terms()->Get(t);
    if (term.coefficient() != terms[t].coefficient || size_of(term.factors()) != terms[t].factors.size()) return false;
    for (uint32_t f = 0; f < terms[t].factors.size(); ++f)
      if (!is_same_factor(*term.factors()->Get(f), terms[t].factors[f])) return false;
  }
  return true;
}

bool FileReader::is_same_factor(const fb::Factor& in, const Factor& f) const {
  const Atom& atom = job_.pool->exprs.atom(f.atom);
  if (in.power() != f.power || static_cast<int>(in.kind()) != static_cast<int>(atom.kind)) return false;
  if (atom.kind == AtomKind::symbol) return strings_[in.symbol()] == atom.symbol && size_of(in.operands()) == 0;
  if (in.symbol() != kNoIndex || size_of(in.operands()) != atom.operands.size()) return false;
  for (uint32_t i = 0; i < atom.operands.size(); ++i)
    if (exprs_[in.operands()->Get(i)] != atom.operands[i]) return false;
  return true;
}

// --- types ---

bool FileReader::read_types() {
  types_.reserve(size_of(root_->types()));
  return each(root_->types(), "types", [&](const fb::Type& in, uint32_t i) {
    Type t;
    if (!read_type(in, i, &t)) return false;
    types_.push_back(job_.pool->types.intern(std::move(t)));
    return true;
  });
}

bool FileReader::read_type(const fb::Type& in, uint32_t index, Type* out) {
  out->has_value = in.has_value();
  if (auto v = in.float_value(); v.has_value()) out->float_value = canonical_float(*v);
  bool ok =
      enumerator(in.kind(), "kind", &out->kind) && dtype(static_cast<uint32_t>(in.dtype()), "dtype", &out->dtype) &&
      string(in.device(), "device", &out->device) && exprs(in.shape(), "shape", &out->shape) &&
      exprs(in.stride(), "stride", &out->stride) && expr(in.offset(), "offset", &out->offset) &&
      expr(in.value(), "value", &out->value) && string(in.text(), "text", &out->text) && read_elements(in, index, out);
  if (!ok) return false;
  if (out->shape.size() != out->stride.size()) return fail("stride", "is not as long as shape");
  bool is_tensor = out->kind == TypeKind::tensor;
  if (is_tensor && out->offset.is_none()) return fail("offset", "is required");
  if (is_tensor && out->dtype == DType::none) return fail("dtype", "is required");
  if (!is_tensor && !out->shape.empty()) return fail("shape", "is for tensors only");
  if (out->kind != TypeKind::list && !out->elements.empty()) return fail("elements", "are for lists only");
  bool has_number = out->kind == TypeKind::integer || out->kind == TypeKind::boolean;
  if (has_number && out->has_value && out->value.is_none()) return fail("value", "is required");
  return true;
}

bool FileReader::read_elements(const fb::Type& in, uint32_t index, Type* out) {
  size_t weight = 1, depth = 1;
  uint32_t count = size_of(in.elements());
  if (!charge(4 * size_t{count}, "elements")) return false;
  out->elements.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t element = in.elements()->Get(i);
    if (element != kNoIndex && element >= index) return fail("elements", "come after the list that holds them");
    if (!type(element, "elements", &out->elements.emplace_back())) return false;
    weight += element == kNoIndex ? 1 : type_weights_[element];
    if (element != kNoIndex) depth = std::max(depth, size_t{type_depths_[element]} + 1);
    if (weight > kMaxTypeWeight || depth > kMaxTypeDepth) return fail("elements", "are nested too deep or too large");
  }
  type_weights_.push_back(static_cast<uint32_t>(weight));
  type_depths_.push_back(static_cast<uint8_t>(depth));
  return true;
}

// --- sources and metadata ---

bool FileReader::read_sources() {
  sources_.reserve(size_of(root_->sources()));
  return each(root_->sources(), "sources", [&](const fb::Source& in, uint32_t) {
    Source s;
    s.line = in.line();
    if (!string(in.file(), "file", &s.file) || !string(in.function(), "function", &s.function)) return false;
    sources_.push_back(job_.pool->sources.intern(s));
    return true;
  });
}

bool FileReader::read_metas() {
  metas_.reserve(size_of(root_->metas()));
  return each(root_->metas(), "metas", [&](const fb::Meta& in, uint32_t) {
    NodeMeta m;
    if (!read_meta(in, &m)) return false;
    metas_.push_back(job_.pool->metas.intern(std::move(m)));
    return true;
  });
}

bool FileReader::read_meta(const fb::Meta& in, NodeMeta* out) {
  out->recompute_region = in.recompute_region();
  out->chunk.index = in.chunk_index();
  out->chunk.is_backward = in.chunk_is_backward();
  out->collective.bucket = in.bucket();
  out->random.stream = in.random_stream();
  out->random.rank_local = in.random_rank_local();
  if (in.binds()) out->binds.emplace();
  auto result_chunk = [&](const fb::ResultChunk& r, uint32_t) {
    out->result_chunks.push_back({r.index(), {}});
    return string(r.original(), "original", &out->result_chunks.back().original);
  };
  bool ok = enumerator(in.recompute(), "recompute", &out->recompute) &&
            enumerator(in.ep_role(), "ep_role", &out->ep_role) && enumerator(in.ep_step(), "ep_step", &out->ep_step) &&
            string(in.chunk_region(), "chunk_region", &out->chunk.region) &&
            string(in.chunk_role(), "chunk_role", &out->chunk.role) &&
            string(in.chunk_producer(), "chunk_producer", &out->chunk.producer) &&
            string(in.chunk_original(), "chunk_original", &out->chunk.original) &&
            each(in.result_chunks(), "result_chunks", result_chunk) &&
            enumerator(in.collective_role(), "collective_role", &out->collective.role) &&
            enumerator(in.bucket_direction(), "bucket_direction", &out->collective.direction) &&
            strings(in.bucket_plan(), "bucket_plan", &out->collective.plan) &&
            enumerator(in.copy_kind(), "copy_kind", &out->copy.kind) &&
            string(in.copy_of(), "copy_of", &out->copy.of) &&
            exprs(in.random_origin_shape(), "random_origin_shape", &out->random.origin_shape) &&
            exprs(in.random_origin_offset(), "random_origin_offset", &out->random.origin_offset) &&
            strings(in.more_modules(), "more_modules", &out->more_modules) &&
            (!out->binds || strings(in.binds(), "binds", &*out->binds)) && key_values(in.extra(), "extra", &out->extra);
  if (!ok) return false;
  if (out->random.origin_shape.size() != out->random.origin_offset.size())
    return fail("random_origin_offset", "is not as long as random_origin_shape");
  int is_backward = out->chunk.is_backward;
  return (is_backward >= -1 && is_backward <= 1) || unknown_enumerator(is_backward, "chunk_is_backward");
}

}  // namespace sg
