#include "libgraph/expr/expr_parse.h"

#include <algorithm>
#include <array>

#include "libgraph/base/chars.h"

namespace sg {

namespace {

constexpr int kMaxNesting = 4 * ExprPool::kMaxDepth;  // nested parentheses, calls and exponents

// The names that sympy and PyTorch use for the four atoms. CleanDiv divides without a remainder.
struct Function {
  std::string_view name;
  AtomKind kind;
};
constexpr std::array kFunctions = {
    Function{"max", AtomKind::max}, Function{"min", AtomKind::min},           Function{"Max", AtomKind::max},
    Function{"Min", AtomKind::min}, Function{"FloorDiv", AtomKind::floordiv}, Function{"CleanDiv", AtomKind::floordiv},
    Function{"Mod", AtomKind::mod}, Function{"PythonMod", AtomKind::mod},
};

constexpr uint64_t kLowestMagnitude = uint64_t{1} << 63;

}  // namespace

ExprParser::ExprParser(ExprPool& pool, std::string_view text) : pool_(pool), builder_{pool}, text_(text) {
  // A text's length bounds what it may expand to: (a + b)**4000 is an attack, not a size.
  builder_.max_terms = std::min(ExprPool::kMaxTerms, 64 + text.size());
  builder_.budget = 1024 + 64 * text.size();
  if (text.size() > ExprPool::kMaxText)
    fail("expression is longer than " + std::to_string(ExprPool::kMaxText) + " bytes");
}

void ExprParser::fail(std::string message, std::string hint) {
  if (error_) return;
  Error e{ErrorKind::unreadable, std::move(message), {}, std::move(hint)};
  e.where.line = 1;
  e.where.column = static_cast<uint32_t>(position_ + 1);
  error_ = std::move(e);
}

void ExprParser::skip_spaces() {
  while (position_ < text_.size() && is_space(text_[position_])) ++position_;
}

bool ExprParser::at_end() {
  skip_spaces();
  return position_ == text_.size();
}

bool ExprParser::accept(std::string_view token) {
  skip_spaces();
  if (error_ || !rest_starts_with(token)) return false;
  position_ += token.size();
  return true;
}

bool ExprParser::expect(std::string_view token) {
  if (accept(token)) return true;
  fail("expected '" + std::string(token) + "'");
  return false;
}

std::string_view ExprParser::peek_name() {
  skip_spaces();
  size_t end = position_;
  if (end < text_.size() && is_letter(text_[end]))
    while (end < text_.size() && is_word(text_[end])) ++end;
  return text_.substr(position_, end - position_);
}

Expr ExprParser::expression() {
  skip_spaces();
  size_t start = position_;
  Poly p = sum();
  if (error_) return ExprPool::kInvalid;
  Expr e = builder_.intern(std::move(p));
  if (pool_.is_invalid(e)) {
    position_ = start;
    fail("expression overflows 64 bits, divides by zero or is too large");
  }
  return e;
}

Poly ExprParser::sum() {
  if (depth_ >= kMaxNesting) {
    fail("expression is nested too deeply");
    return Poly::invalid();
  }
  ++depth_;
  Poly first = product();
  if (accept("+") || accept("-")) {
    --position_;
    std::vector<Term> all = std::move(first.terms);
    bool valid = first.valid;
    while (!error_) {
      bool is_negative = accept("-");
      if (!is_negative && !accept("+")) break;
      Poly next = product();
      if (is_negative) next = builder_.scaled(next, -1);
      valid &= next.valid;
      all.insert(all.end(), next.terms.begin(), next.terms.end());
      if (all.size() < 4 * ExprPool::kMaxTerms) continue;
      Poly so_far = builder_.collect(std::move(all));  // bounds the memory of a long sum of powers
      valid &= so_far.valid;
      all = std::move(so_far.terms);
    }
    first = valid ? builder_.collect(std::move(all)) : Poly::invalid();
  }
  --depth_;
  return error_ ? Poly::invalid() : first;
}

Poly ExprParser::product() {
  Poly p = unary();
  while (!error_) {
    if (accept("//")) {
      p = builder_.floordiv(p, unary());
    } else if (accept("*")) {
      p = builder_.mul(p, unary());
    } else if (accept("%")) {
      p = builder_.mod(p, unary());
    } else {
      skip_spaces();
      if (rest_starts_with("/"))
        fail("'/' is not an operation on integers", "write // for a division that rounds down");
      break;
    }
  }
  return p;
}

Poly ExprParser::unary() {
  bool is_negative = false;
  for (;;) {
    if (accept("-")) is_negative = !is_negative;
    else if (!accept("+")) break;
  }
  skip_spaces();
  if (is_negative && position_ < text_.size() && is_digit(text_[position_])) {
    size_t start = position_;
    if (number() == kLowestMagnitude && !accept("**")) return builder_.constant(INT64_MIN);
    position_ = start;
  }
  Poly p = power();
  return is_negative ? builder_.scaled(p, -1) : p;
}

Poly ExprParser::power() {
  Poly base = primary();
  if (!accept("**")) return base;
  if (++depth_ >= kMaxNesting) fail("expression is nested too deeply");
  if (error_) return Poly::invalid();
  skip_spaces();
  size_t start = position_;
  auto exponent = ExprBuilder::constant_value(unary());
  --depth_;
  if (error_) return Poly::invalid();
  if (!exponent || *exponent < 0 || *exponent > UINT32_MAX) {
    position_ = start;
    fail("an exponent must be a number from 0 to 2**32 - 1");
    return Poly::invalid();
  }
  return builder_.pow(base, static_cast<uint32_t>(*exponent));
}

std::optional<uint64_t> ExprParser::number() {
  uint64_t value = 0;
  for (; position_ < text_.size() && is_digit(text_[position_]); ++position_) {
    uint64_t digit = static_cast<uint64_t>(text_[position_] - '0');
    if (value > (kLowestMagnitude - digit) / 10) return std::nullopt;
    value = value * 10 + digit;
  }
  return value;
}

Poly ExprParser::primary() {
  if (error_) return Poly::invalid();
  if (accept("(")) {
    Poly p = sum();
    expect(")");
    return p;
  }
  if (position_ < text_.size() && is_digit(text_[position_])) {
    size_t start = position_;
    auto value = number();
    if (!value || *value > INT64_MAX) {
      position_ = start;
      fail("number does not fit 64 bits");
      return Poly::invalid();
    }
    return builder_.constant(static_cast<int64_t>(*value));
  }
  std::string_view name = peek_name();
  if (name.empty()) {
    fail(at_end() ? "expression ends where a number or a symbol is expected" : "expected a number, a symbol or '('");
    return Poly::invalid();
  }
  size_t start = position_;
  position_ += name.size();
  if (!accept("(")) return builder_.poly(pool_.symbol(name));
  position_ = start;
  return call(name);
}

Poly ExprParser::call(std::string_view name) {
  const Function* function = nullptr;
  for (const Function& f : kFunctions)
    if (f.name == name) function = &f;
  if (!function) {
    fail("unknown function '" + std::string(name) + "'", "known are min, max, Mod, FloorDiv and their spellings");
    return Poly::invalid();
  }
  size_t start = position_;
  position_ += name.size();
  expect("(");
  std::vector<Poly> operands;
  do operands.push_back(sum());
  while (!error_ && accept(","));
  expect(")");
  if (error_) return Poly::invalid();
  bool is_extremum = function->kind == AtomKind::min || function->kind == AtomKind::max;
  if (is_extremum) return builder_.extremum(function->kind, std::move(operands));
  if (operands.size() != 2) {
    position_ = start;
    fail(std::string(name) + " takes two arguments");
    return Poly::invalid();
  }
  return function->kind == AtomKind::mod ? builder_.mod(operands[0], operands[1])
                                         : builder_.floordiv(operands[0], operands[1]);
}

Result<Expr> ExprPool::parse(std::string_view text) {
  ExprParser parser(*this, text);
  Expr e = parser.expression();
  if (!parser.at_end()) parser.fail("unexpected text after the expression");
  if (parser.has_error()) return parser.take_error();
  return e;
}

}  // namespace sg
