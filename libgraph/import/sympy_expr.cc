#include "libgraph/import/sympy_expr.h"

#include <charconv>
#include <optional>

#include "libgraph/base/chars.h"
#include "libgraph/expr/guard_text.h"

namespace sg {
namespace {

constexpr size_t kMaxText = 1 << 16;
constexpr int kMaxDepth = 64;
constexpr size_t kMaxGuards = 1024;

class SympyParser {
 public:
  SympyParser(Pool* pool, std::string_view text) : pool_(pool), text_(text) {}

  Result<Expr> expression() {
    SG_ASSIGN(Expr e, read(0));
    SG_TRY(end());
    return e;
  }

  Result<std::vector<Guard>> guards() {
    std::vector<Guard> out;
    SG_TRY(relation(0, &out));
    SG_TRY(end());
    return out;
  }

 private:
  Error fail(std::string message) const {
    Error error{ErrorKind::unreadable, std::move(message), {}, {}};
    error.where.column = static_cast<uint32_t>(at_) + 1;
    return error;
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool accept(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool accept_word(std::string_view w) {
    skip();
    if (!text_.substr(at_).starts_with(w)) return false;
    at_ += w.size();
    return true;
  }
  Status expect(char c) {
    if (accept(c)) return ok_status();
    return fail(std::string("expected `") + c + "`");
  }
  Status end() {
    skip();
    return at_ == text_.size() ? ok_status() : Status(fail("expected the end"));
  }
  std::string_view word() {
    skip();
    size_t begin = at_;
    while (at_ < text_.size() && is_dotted_word(text_[at_])) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  Result<int64_t> number() {
    skip();
    int64_t value = 0;
    auto [end, problem] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
    if (problem != std::errc())
      return fail(problem == std::errc::result_out_of_range ? "the number does not fit 64 bits"
                                                            : "expected a whole number");
    at_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  // Symbol('s0', positive=True, integer=True); the word `Symbol` has been read.
  Result<Expr> symbol() {
    skip();
    char quote = at_ < text_.size() ? text_[at_] : '\0';
    if (quote != '\'' && quote != '"') return fail("expected the symbol's name in quotes");
    size_t close = text_.find(quote, at_ + 1);
    if (close == std::string_view::npos) return fail("the symbol's name is not closed");
    std::string_view name = text_.substr(at_ + 1, close - at_ - 1);
    if (!ExprPool::is_symbol_name(name)) return fail("`" + std::string(name.substr(0, 100)) + "` is not a symbol name");
    at_ = close + 1;
    while (accept(',')) {  // assumptions: the ranges say the same
      word();
      SG_TRY(expect('='));
      word();
    }
    SG_TRY(expect(')'));
    return pool_->exprs.symbol(name);
  }

  Result<Expr> read(int depth) {
    if (depth > kMaxDepth) return fail("the expression nests too deep");
    skip();
    size_t begin = at_;
    if (at_ < text_.size() && (text_[at_] == '-' || is_digit(text_[at_]))) {
      SG_ASSIGN(int64_t value, number());
      return pool_->exprs.constant(value);
    }
    std::string_view name = word();
    if (!accept('(')) {
      at_ = begin;
      return fail("expected a call such as Integer(1) or Symbol('s0')");
    }
    if (name == "Symbol") return symbol();
    bool is_rounded = (name == "CeilToInt" || name == "FloorToInt") && accept_word("IntTrueDiv(");
    std::vector<Expr> args;
    if (!accept(')')) {
      do {
        SG_ASSIGN(Expr arg, read(depth + 1));
        args.push_back(arg);
      } while (accept(','));
      SG_TRY(expect(')'));
    }
    if (is_rounded) {  // CeilToInt(IntTrueDiv(a, b)): a division without a float
      SG_TRY(expect(')'));
      name = name == "CeilToInt" ? "CeilDiv" : "FloorDiv";
    }
    std::optional<Expr> made = call(name, args);
    if (!made) {
      at_ = begin;
      return fail("`" + std::string(name.substr(0, 100)) + "` of " + std::to_string(args.size()) +
                  " is none of the functions that sizes are made of");
    }
    if (pool_->exprs.is_invalid(*made)) {
      at_ = begin;
      return fail("the expression overflows, divides by zero or grows too large");
    }
    return *made;
  }

  std::optional<Expr> call(std::string_view name, const std::vector<Expr>& args) {
    ExprPool& exprs = pool_->exprs;
    auto is = [&](std::initializer_list<std::string_view> names, size_t count) {
      bool found = false;
      for (std::string_view n : names) found = found || n == name;
      return found && args.size() == count;
    };
    if (is({"Integer", "Identity"}, 1)) return args[0];
    if (name == "Add" && !args.empty()) return exprs.sum(args);
    if (name == "Mul" && !args.empty()) return exprs.product(args);
    if (is({"FloorDiv", "CleanDiv"}, 2)) return exprs.floordiv(args[0], args[1]);
    if (is({"CeilDiv"}, 2)) return exprs.neg(exprs.floordiv(exprs.neg(args[0]), args[1]));
    if (is({"Mod", "PythonMod"}, 2)) return exprs.mod(args[0], args[1]);
    if (is({"ModularIndexing"}, 3)) return exprs.mod(exprs.floordiv(args[0], args[1]), args[2]);
    if (name == "Max" && !args.empty()) return exprs.extremum(AtomKind::max, args);
    if (name == "Min" && !args.empty()) return exprs.extremum(AtomKind::min, args);
    if (is({"Pow", "PowByNatural"}, 2)) {
      auto power = exprs.constant_value(args[1]);
      if (power && *power >= 0 && *power <= 64) return exprs.pow(args[0], static_cast<uint32_t>(*power));
    }
    return std::nullopt;
  }

  Status relation(int depth, std::vector<Guard>* out) {
    static constexpr std::pair<std::string_view, Relation> kRelations[] = {
        {"Equality", Relation::eq},          {"Eq", Relation::eq},
        {"Unequality", Relation::ne},        {"Ne", Relation::ne},
        {"GreaterThan", Relation::ge},       {"Ge", Relation::ge},
        {"LessThan", Relation::le},          {"Le", Relation::le},
        {"StrictGreaterThan", Relation::gt}, {"Gt", Relation::gt},
        {"StrictLessThan", Relation::lt},    {"Lt", Relation::lt}};
    if (depth > kMaxDepth || out->size() >= kMaxGuards) return fail("too many relations");
    std::string_view name = word();
    SG_TRY(expect('('));
    if (name == "And") {
      do {
        SG_TRY(relation(depth + 1, out));
      } while (accept(','));
      return expect(')');
    }
    for (const auto& [word, relation] : kRelations) {
      if (word != name) continue;
      SG_ASSIGN(Expr left, read(depth + 1));
      SG_TRY(expect(','));
      SG_ASSIGN(Expr right, read(depth + 1));
      SG_TRY(expect(')'));
      out->push_back({relation, left, right, SourceId()});
      return ok_status();
    }
    return fail("`" + std::string(name.substr(0, 100)) + "` is not a relation");
  }

  Pool* pool_;
  std::string_view text_;
  size_t at_ = 0;
};

bool is_plain(std::string_view text) {
  return text.find("Symbol(") == std::string_view::npos && text.find("Integer(") == std::string_view::npos;
}

Error too_long() {
  return {ErrorKind::unreadable, "the expression is longer than " + std::to_string(kMaxText) + " bytes", {}, {}};
}

}  // namespace

Result<Expr> parse_sympy(Pool* pool, std::string_view text) {
  if (text.size() > kMaxText) return too_long();
  if (!is_plain(text)) return SympyParser(pool, text).expression();
  SG_ASSIGN(Expr e, pool->exprs.parse(text));
  if (pool->exprs.is_invalid(e))
    return Error{ErrorKind::unreadable, "the expression overflows or divides by zero", {}, {}};
  return e;
}

Result<std::vector<Guard>> parse_sympy_guards(Pool* pool, std::string_view text) {
  if (text.size() > kMaxText) return too_long();
  return is_plain(text) ? parse_guards(*pool, text) : SympyParser(pool, text).guards();
}

}  // namespace sg
