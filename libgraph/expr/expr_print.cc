#include <charconv>

#include "libgraph/expr/expr.h"

namespace sg {

namespace {

void put_number(uint64_t v, std::string* out) {
  char digits[20];
  auto end = std::to_chars(digits, digits + sizeof digits, v).ptr;
  out->append(digits, end);
}

class Printer {
 public:
  Printer(const ExprPool& pool, const StringTable& strings, std::string* out)
      : pool_(pool), strings_(strings), out_(*out) {}

  void sum(Expr e) {
    if (pool_.is_invalid(e)) {
      out_ += "<invalid>";
      return;
    }
    std::span<const Term> terms = pool_.terms(e);
    if (terms.empty()) out_ += '0';
    for (size_t i = 0; i < terms.size(); ++i) term(terms[i], i == 0);
  }

 private:
  void term(const Term& t, bool is_first) {
    bool is_negative = t.coefficient < 0;
    // The most negative number is written as one literal, including its sign: "a - 2**63" would not fit.
    bool is_lowest = t.coefficient == INT64_MIN;
    if (!is_first) out_ += is_negative && !is_lowest ? " - " : " + ";
    if (is_negative && (is_first || is_lowest)) out_ += '-';
    uint64_t number = is_negative ? 0 - static_cast<uint64_t>(t.coefficient) : static_cast<uint64_t>(t.coefficient);
    bool has_number = number != 1 || t.factors.empty();
    if (has_number) put_number(number, &out_);
    bool is_bare = t.coefficient == 1 && t.factors.size() == 1 && t.factors[0].power == 1;
    for (size_t i = 0; i < t.factors.size(); ++i) {
      if (has_number || i > 0) out_ += '*';
      atom(pool_.atom(t.factors[i].atom), !is_bare);
      if (t.factors[i].power == 1) continue;
      out_ += "**";
      put_number(t.factors[i].power, &out_);
    }
  }

  void atom(const Atom& a, bool in_product) {
    if (a.kind == AtomKind::symbol) {
      out_ += strings_[a.symbol];
    } else if (a.kind == AtomKind::min || a.kind == AtomKind::max) {
      out_ += a.kind == AtomKind::min ? "min(" : "max(";
      for (size_t i = 0; i < a.operands.size(); ++i) {
        if (i > 0) out_ += ", ";
        sum(a.operands[i]);
      }
      out_ += ')';
    } else {
      if (in_product) out_ += '(';
      operand(a.operands[0]);
      out_ += a.kind == AtomKind::floordiv ? "//" : "%";
      operand(a.operands[1]);
      if (in_product) out_ += ')';
    }
  }

  // An operand of // or %: in parentheses unless it is a name, a call or an unsigned number.
  void operand(Expr e) {
    auto value = pool_.constant_value(e);
    std::span<const Term> terms = pool_.terms(e);
    bool is_plain = value ? *value >= 0 : terms.size() == 1 && is_name_or_call(terms[0]);
    if (!is_plain) out_ += '(';
    sum(e);
    if (!is_plain) out_ += ')';
  }

  bool is_name_or_call(const Term& t) const {
    if (t.coefficient != 1 || t.factors.size() != 1 || t.factors[0].power != 1) return false;
    AtomKind kind = pool_.atom(t.factors[0].atom).kind;
    return kind != AtomKind::floordiv && kind != AtomKind::mod;
  }

  const ExprPool& pool_;
  const StringTable& strings_;
  std::string& out_;
};

}  // namespace

std::string ExprPool::print(Expr e) const {
  std::string out;
  print_to(e, &out);
  return out;
}

void ExprPool::print_to(Expr e, std::string* out) const { Printer(*this, *strings_, out).sum(e); }

}  // namespace sg
