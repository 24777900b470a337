#include <charconv>

#include "libgraph/base/human.h"
#include "libgraph/base/nearest.h"
#include "libgraph/text/text_parser.h"

namespace sg::text {
namespace {

constexpr int64_t kSmallConstants = 1 << 16;
constexpr size_t kMostHints = 20;
constexpr std::string_view kTypeWords[] = {"bf16", "f64", "f32",  "f16", "i64",   "i32",  "i16",  "i8",    "u8",
                                           "bool", "c64", "c128", "int", "float", "list", "none", "opaque"};

}  // namespace

bool TextParser::type(TypeId* out, int depth) {
  if (depth > kMaxDepth)
    return lexer_.error("parse-depth", "types are nested more than " + std::to_string(kMaxDepth) + " deep");
  const char* at = (lexer_.peek(), lexer_.cursor());
  if (lexer_.take('?')) {
    *out = Pool::kUnknownType;
    return true;
  }
  std::string_view w = lexer_.word();
  bool is_tensor = lexer_.peek() == '[';
  if (auto dtype = w == "none" ? DType::none : parse_dtype(w); is_tensor && dtype) return tensor(*dtype, out);
  if (w == "int") return scalar(TypeKind::integer, out);
  if (w == "float") return scalar(TypeKind::floating, out);
  if (w == "bool") return scalar(TypeKind::boolean, out);
  if (w == "list") return list_type(out, depth);
  Type t;
  if (w == "none") {
    t.kind = TypeKind::none;
  } else if (w == "opaque") {
    t.kind = TypeKind::opaque;
    if (!lexer_.take('-') && !string(&t.text)) return false;
  } else {
    lexer_.back_to(at);
    std::string hint = "a type is f32[2, 3], int, float, bool, none, list(...), opaque \"...\" or ?";
    if (auto torch = parse_torch_dtype(w)) hint = "write " + std::string(dtype_name(*torch)) + "[...]";
    else if (parse_dtype(w))
      hint = "the shape follows the dtype: " + std::string(w) + "[], or " + std::string(w) + "[2, 3]";
    else if (std::string near = nearest_hint(w, kTypeWords); !near.empty()) hint = near;
    return lexer_.error("parse-type", "expected a type, found " + lexer_.found(), std::move(hint));
  }
  *out = pool_.types.intern(std::move(t));
  return true;
}

bool TextParser::tensor(DType dtype, TypeId* out) {
  Type t;
  t.kind = TypeKind::tensor;
  t.dtype = dtype;
  t.device = device_;
  if (!exprs(&t.shape) || !tensor_details(&t)) return false;
  *out = pool_.types.intern(std::move(t));
  return true;
}

// stride [...], +offset, on device: each at most once.
bool TextParser::tensor_details(Type* t) {
  bool has_stride = false, has_offset = false, has_device = false;
  for (;;) {
    const char* at = (lexer_.peek(), lexer_.cursor());
    if (!has_offset && lexer_.take('+')) {
      has_offset = true;
      if (!expr(&t->offset)) return false;
    } else if (!has_stride && skip_word("stride")) {
      has_stride = true;
      if (lexer_.peek() != '[') return lexer_.expected("`[` before the strides");
      if (!exprs(&t->stride)) return false;
      if (t->stride.size() != t->shape.size())
        return lexer_.error_at(
            at, "parse-type",
            "the shape has " + plural(t->shape.size(), "size") + ", the stride " + plural(t->stride.size(), "number"),
            "one stride per dimension; leave `stride` out when the tensor is contiguous");
    } else if (!has_device && skip_word("on")) {
      has_device = true;
      if (!text<is_device_char>("a device", &t->device)) return false;
    } else {
      break;
    }
  }
  if (!has_offset) t->offset = pool_.exprs.constant(0);
  if (!has_stride) t->stride = pool_.contiguous_strides(t->shape);
  return true;
}

// Whether a value follows `int`, `float` or `bool`. Metadata may follow too.
bool TextParser::starts_value() {
  char c = lexer_.peek();
  if (is_digit(c) || c == '-' || c == '(') return true;
  return is_letter(c) && !is_metadata_word(lexer_.peek_word());
}

bool TextParser::scalar(TypeKind kind, TypeId* out) {
  Type t;
  t.kind = kind;
  t.has_value = starts_value();
  if (t.has_value) {
    if (kind == TypeKind::floating) {
      if (!lexer_.floating(&t.float_value)) return false;
    } else if (kind == TypeKind::boolean && skip_word("true")) {
      t.value = pool_.exprs.constant(1);
    } else if (kind == TypeKind::boolean && skip_word("false")) {
      t.value = pool_.exprs.constant(0);
    } else if (!expr(&t.value)) {
      return false;
    }
  }
  *out = pool_.types.intern(std::move(t));
  return true;
}

bool TextParser::list_type(TypeId* out, int depth) {
  Type t;
  t.kind = TypeKind::list;
  if (!lexer_.expect('(', "after `list`")) return false;
  if (!lexer_.take(')')) {
    do {
      t.elements.emplace_back();
      if (!type(&t.elements.back(), depth + 1)) return false;
    } while (lexer_.take(','));
    if (!lexer_.expect(')', "or `,` in a list of types")) return false;
  }
  *out = pool_.types.intern(std::move(t));
  return true;
}

// --- expressions ---

bool TextParser::exprs(std::vector<Expr>* out) {
  if (!lexer_.expect('[', "before the sizes")) return false;
  if (lexer_.take(']')) return true;
  do {
    out->emplace_back();
    if (!expr(&out->back())) return false;
  } while (lexer_.take(','));
  return lexer_.expect(']', "or `,` after a size");
}

// Fast paths: most sizes are small numbers, and a few expressions recur.
bool TextParser::expr(Expr* out) {
  const char* at = (lexer_.peek(), lexer_.cursor());
  int64_t value;
  auto [end, failure] = std::from_chars(at, lexer_.end(), value);
  if (failure == std::errc() && end != lexer_.end() && (*end == ',' || *end == ']')) {
    lexer_.back_to(end);
    if (value < 0 || value >= kSmallConstants) {
      *out = pool_.exprs.constant(value);
      return true;
    }
    if (constants_.size() <= static_cast<size_t>(value)) constants_.resize(static_cast<size_t>(value) + 1);
    Expr& constant = constants_[static_cast<size_t>(value)];
    if (!constant) constant = pool_.exprs.constant(value);
    *out = constant;
    return true;
  }
  std::string_view text;
  if (!lexer_.expression(&text)) return false;
  const Expr* known = expressions_.find(text);
  if (!known) {
    auto parsed = pool_.exprs.parse(text);
    if (!parsed.ok()) {
      uint32_t column = parsed.error().where.column;
      return lexer_.error_at(at + (column ? std::min<size_t>(column - 1, text.size()) : 0), "parse-expression",
                             parsed.error().message, parsed.error().hint);
    }
    if (pool_.exprs.is_invalid(*parsed))
      return lexer_.error_at(at, "parse-expression", "this expression has no value",
                             "it divides by zero, or its numbers do not fit in 64 bits");
    check_symbols(*parsed, text);
    known = expressions_.try_emplace(text, *parsed).first;
  }
  *out = *known;
  return true;
}

// Only a warning: the verifier refuses undeclared symbols, but cannot point into the text.
void TextParser::check_symbols(Expr e, std::string_view text) {
  std::vector<StrId> mentioned;
  pool_.exprs.collect_symbols(e, &mentioned);
  for (StrId symbol : mentioned) {
    if (!symbols_.insert(symbol).second) continue;
    std::string_view name = pool_.strings[symbol];
    size_t offset = text.find(name);
    std::string hint;
    if (++undeclared_ <= kMostHints) {  // each compares with every symbol
      Nearest nearest(name);
      for (const Symbol& s : program_->symbols) nearest.offer(pool_.strings[s.name]);
      hint = nearest.hint();
    }
    if (hint.empty()) hint = "declare it before the inputs, as in: symbol " + std::string(name) + " data [0, 256]";
    lexer_.warning_at(text.data() + (offset == std::string_view::npos ? 0 : offset), "parse-symbol",
                      "the symbol `" + std::string(name) + "` is not declared", std::move(hint));
  }
}

}  // namespace sg::text
