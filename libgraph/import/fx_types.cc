// The annotations of FX text as types.
#include <algorithm>
#include <charconv>

#include "libgraph/base/chars.h"
#include "libgraph/import/fx_notes.h"

namespace sg {
namespace {

constexpr std::pair<std::string_view, DType> kAbbreviations[] = {{"f64", DType::f64},
                                                                 {"f32", DType::f32},
                                                                 {"f16", DType::f16},
                                                                 {"bf16", DType::bf16},
                                                                 {"i64", DType::i64},
                                                                 {"i32", DType::i32},
                                                                 {"i16", DType::i16},
                                                                 {"i8", DType::i8},
                                                                 {"u64", DType::u64},
                                                                 {"u32", DType::u32},
                                                                 {"u16", DType::u16},
                                                                 {"u8", DType::u8},
                                                                 {"b8", DType::boolean},
                                                                 {"c32", DType::c32},
                                                                 {"c64", DType::c64},
                                                                 {"c128", DType::c128},
                                                                 {"f8e4m3fn", DType::f8e4m3fn},
                                                                 {"f8e5m2", DType::f8e5m2},
                                                                 {"f8e4m3fnuz", DType::f8e4m3fnuz},
                                                                 {"f8e5m2fnuz", DType::f8e5m2fnuz}};

// Functions of sympy and PyTorch that symbolic integers cannot express.
constexpr std::string_view kBeyondIntegers[] = {"ToFloat",
                                                "FloatTrueDiv",
                                                "IntTrueDiv",
                                                "CeilToInt",
                                                "FloorToInt",
                                                "TruncToInt",
                                                "TruncToFloat",
                                                "RoundToInt",
                                                "RoundDecimal",
                                                "Piecewise",
                                                "Where",
                                                "FloatPow",
                                                "PowByNatural",
                                                "OpaqueUnaryFn_",
                                                "BitwiseFn_",
                                                "ModularIndexing",
                                                "LShift",
                                                "RShift",
                                                "IsNonOverlappingAndDenseIndicator",
                                                "Identity"};

bool goes_beyond_integers(std::string_view text) {
  return std::any_of(std::begin(kBeyondIntegers), std::end(kBeyondIntegers),
                     [&](std::string_view name) { return text.find(name) != std::string_view::npos; });
}

bool is_relation(std::string_view text) {
  constexpr std::string_view kCalls[] = {"Eq(", "Ne(", "Lt(", "Le(", "Gt(", "Ge(", "And(", "Or(", "Not("};
  if (text.find_first_of("<>=&|~") != std::string_view::npos) return true;
  return std::any_of(std::begin(kCalls), std::end(kCalls),
                     [&](std::string_view name) { return text.find(name) != std::string_view::npos; });
}

// zf3 and zuf3 are PyTorch's names for symbols of floats.
bool names_float(std::string_view text) {
  for (size_t i = 0; i < text.size(); ++i) {
    if (i > 0 && is_word(text[i - 1])) continue;
    std::string_view rest = text.substr(i);
    size_t digits = rest.starts_with("zf") ? 2 : rest.starts_with("zuf") ? 3 : 0;
    if (digits != 0 && digits < rest.size() && is_digit(rest[digits])) return true;
  }
  return false;
}

// `text` without the arguments of ...ToInt calls: CeilToInt(IntTrueDiv(s0, 2)) is an integer.
std::string without_rounded(std::string_view text) {
  constexpr std::string_view kRounds = "ToInt(";
  std::string out;
  for (size_t at; (at = text.find(kRounds)) != std::string_view::npos;) {
    size_t end = at + kRounds.size();
    out += text.substr(0, end);
    for (int depth = 1; end < text.size() && depth > 0; ++end)
      depth += text[end] == '(' ? 1 : text[end] == ')' ? -1 : 0;
    text.remove_prefix(end);
  }
  return out += text;
}

bool is_float(std::string_view text) {
  return names_float(text) || text.find('.') != text.npos || text.find("ToFloat") != text.npos ||
         text.find("TrueDiv") != text.npos || text.find("OpaqueUnaryFn_") != text.npos;
}

// The name before `(` if `text` is "Name(...)"; else empty.
std::string_view class_of(std::string_view text) {
  size_t n = 0;
  while (n < text.size() && is_dotted_word(text[n])) ++n;
  return n > 0 && n < text.size() && text[n] == '(' && text.back() == ')' ? text.substr(0, n) : std::string_view();
}

bool is_device(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return is_word(c) || c == ':'; });
}

}  // namespace

Error FxTypes::Reading::error(std::string message, std::string hint) const {
  return file->text->error(at, "in the type " + std::string(text.substr(0, 80)) + ": " + std::move(message),
                           std::move(hint));
}

Result<FxType> FxTypes::read(const FxFile& file, uint32_t annotation) {
  if (annotation == kNoFx || file.expr(annotation).kind != FxKind::string) return FxType();
  std::string_view literal = file.expr(annotation).text;
  const Known* known = types_.find(literal);
  if (!known) {
    if (literal.size() < 2 || literal.front() == 'b' || literal.find('\\') != std::string_view::npos) return FxType();
    own_ = {};
    Reading r{&file, file.expr(annotation).at, literal};
    SG_ASSIGN(FxType type, read_text(r, trim_spaces(literal.substr(1, literal.size() - 2))));
    known = types_.try_emplace(literal, {type, own_}).first;
  }
  gaps_->strides += known->gaps.strides;
  gaps_->devices += known->gaps.devices;
  gaps_->odd_types += known->gaps.odd_types;
  gaps_->subclasses += known->gaps.subclasses;
  return known->type;
}

Result<FxType> FxTypes::read_text(const Reading& r, std::string_view text) {
  std::string_view name = class_of(text);
  if (name.empty()) return tensor(r, text);
  text = text.substr(name.size() + 1, text.size() - name.size() - 2);
  if (name == "Sym") return scalar(trim_spaces(text));
  ++own_.subclasses;
  // The inner tensor ends before ", placements", outside all brackets.
  int depth = 0;
  size_t end = 0;
  for (; end < text.size() && !(text[end] == ',' && depth == 0); ++end)
    depth += text[end] == '[' || text[end] == '(' ? 1 : text[end] == ']' || text[end] == ')' ? -1 : 0;
  return tensor(r, trim_spaces(text.substr(0, end)));
}

// f32[4, s0][s0, 1]cuda:0
Result<FxType> FxTypes::tensor(const Reading& r, std::string_view text) {
  size_t bracket = text.find('[');
  if (bracket == std::string_view::npos) return r.error("expected an element type and sizes, such as f32[2, 3]");
  std::string_view abbreviation = text.substr(0, bracket);
  Type type;
  type.kind = TypeKind::tensor;
  for (const auto& [name, dtype] : kAbbreviations)
    if (name == abbreviation) type.dtype = dtype;
  if (!std::all_of(abbreviation.begin(), abbreviation.end(), is_word) || abbreviation.empty())
    return r.error("`" + std::string(abbreviation) + "` is not an element type");
  text.remove_prefix(bracket);
  SG_ASSIGN(auto shape, sizes(r, &text));
  std::optional<std::vector<Expr>> stride;
  bool has_stride = text.starts_with('[');
  if (has_stride) {
    SG_ASSIGN(stride, sizes(r, &text));
    if (stride && shape && stride->size() != shape->size())
      return r.error("the shape has " + std::to_string(shape->size()) + " axes, the stride " +
                     std::to_string(stride->size()));
  }
  if (!text.empty() && !is_device(text)) return r.error("`" + std::string(text.substr(0, 40)) + "` is not a device");
  FxType out;
  if (type.dtype == DType::none || !shape) {
    ++own_.odd_types;
    if (shape) {  // an element type that the IR lacks
      type = Type();
      type.kind = TypeKind::opaque;
      type.text = pool_->str(r.text.substr(1, r.text.size() - 2));
      out.type = pool_->types.intern(std::move(type));
    }
    return out;
  }
  bool lacks_stride = !stride && (!has_stride || !shape->empty()) && !shape->empty();
  own_.strides += lacks_stride;
  own_.devices += text.empty();
  out.is_guess = lacks_stride;
  type.device = text.empty() ? device_ : pool_->str(text);
  type.offset = pool_->exprs.constant(0);
  type.stride = stride ? std::move(*stride) : pool_->contiguous_strides(*shape);
  type.shape = std::move(*shape);
  for (Expr e : type.stride)
    if (pool_->exprs.is_invalid(e)) return r.error("the number of elements overflows 64 bits or is too large");
  out.type = pool_->types.intern(std::move(type));
  return out;
}

Result<std::optional<std::vector<Expr>>> FxTypes::sizes(const Reading& r, std::string_view* text) {
  int depth = 0;
  size_t end = 0;
  for (; end < text->size(); ++end) {
    char c = (*text)[end];
    depth += c == '[' || c == '(' ? 1 : c == ']' || c == ')' ? -1 : 0;
    if (depth == 0) break;
  }
  if (end >= text->size()) return r.error("a bracket is not closed");
  std::string_view inside = text->substr(1, end - 1);
  text->remove_prefix(end + 1);
  std::optional<std::vector<Expr>> out(std::in_place);
  while (!trim_spaces(inside).empty()) {
    size_t comma = 0;
    for (depth = 0; comma < inside.size() && !(inside[comma] == ',' && depth == 0); ++comma)
      depth += inside[comma] == '(' ? 1 : inside[comma] == ')' ? -1 : 0;
    std::string_view item = trim_spaces(inside.substr(0, comma));
    inside.remove_prefix(std::min(comma + 1, inside.size()));
    if (goes_beyond_integers(item))  // the pool owns the text that sizes_ refers to
      item = pool_->strings[pool_->str(computed_->named(pool_, item, ComputedSizes::Spelling::annotation))];
    if (goes_beyond_integers(item)) {
      out.reset();
      break;
    }
    SG_ASSIGN(Expr e, size(r, item));
    out->push_back(e);
  }
  return out;
}

Result<Expr> FxTypes::size(const Reading& r, std::string_view text) {
  int64_t value = 0;
  auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code == std::errc() && end == text.data() + text.size()) return pool_->exprs.constant(value);
  if (const Expr* known = sizes_.find(text)) return *known;
  auto parsed = pool_->exprs.parse(text);
  if (!parsed.ok() || pool_->exprs.is_invalid(parsed.value()))
    return r.error("`" + std::string(text.substr(0, 80)) +
                   "`: " + (parsed.ok() ? "the expression overflows or divides by zero" : parsed.error().message));
  return *sizes_.try_emplace(text, parsed.value()).first;
}

// Sym(s0*4): an integer, unless it looks like a bool or a float.
Result<FxType> FxTypes::scalar(std::string_view text) {
  Type type;
  if (text == "True" || text == "False") {
    type.kind = TypeKind::boolean;
    type.has_value = true;
    type.value = pool_->exprs.constant(text == "True" ? 1 : 0);
  } else if (is_relation(text)) {
    type.kind = TypeKind::boolean;
  } else if (is_float(without_rounded(text))) {
    type.kind = TypeKind::floating;
  } else {
    type.kind = TypeKind::integer;
    std::string named(text);
    if (goes_beyond_integers(text)) named = computed_->named(pool_, text, ComputedSizes::Spelling::annotation);
    auto parsed = goes_beyond_integers(named) ? Result<Expr>(ExprPool::kInvalid) : pool_->exprs.parse(named);
    if (parsed.ok() && !pool_->exprs.is_invalid(parsed.value())) {
      type.has_value = true;
      type.value = parsed.value();
    } else {
      ++own_.odd_types;
    }
  }
  bool is_odd = type.kind == TypeKind::integer && !type.has_value;  // the op's rule may know more
  return FxType{pool_->types.intern(std::move(type)), is_odd};
}

}  // namespace sg
