#include "libgraph/expr/guard_text.h"

#include <array>
#include <optional>

#include "libgraph/expr/expr_parse.h"

namespace sg {

namespace {

// Indexed by Relation.
constexpr std::array<std::string_view, 6> kSigns = {"==", "!=", "<", "<=", ">", ">="};
constexpr std::array<std::string_view, 6> kCalls = {"Eq", "Ne", "Lt", "Le", "Gt", "Ge"};
constexpr size_t kMaxChain = 64;

std::optional<Relation> call_relation(std::string_view name) {
  for (size_t i = 0; i < kCalls.size(); ++i)
    if (kCalls[i] == name) return static_cast<Relation>(i);
  return std::nullopt;
}

std::optional<Relation> accept_sign(ExprParser& parser) {
  for (size_t i : {3, 5, 0, 1, 2, 4})  // longer signs first: <= before <
    if (parser.accept(kSigns[i])) return static_cast<Relation>(i);
  return std::nullopt;
}

void parse_call(ExprParser& parser, Relation relation, std::vector<Guard>* out) {
  parser.expect("(");
  Expr left = parser.expression();
  parser.expect(",");
  Expr right = parser.expression();
  parser.expect(")");
  out->push_back({relation, left, right, SourceId()});
}

void parse_chain(ExprParser& parser, std::vector<Guard>* out) {
  Expr left = parser.expression();
  while (!parser.has_error()) {
    auto relation = accept_sign(parser);
    if (!relation) break;
    if (out->size() == kMaxChain) parser.fail("chain of relations is too long");
    Expr right = parser.expression();
    out->push_back({*relation, left, right, SourceId()});
    left = right;
  }
  if (out->empty()) parser.fail("expected a relation", "for example Eq(u0, 8), u0 != u1 or 0 <= u0 <= 64");
}

}  // namespace

std::string_view relation_sign(Relation r) { return kSigns[static_cast<size_t>(r)]; }

std::string print_guard(const ExprPool& exprs, const Guard& guard) {
  return exprs.print(guard.left) + " " + std::string(relation_sign(guard.relation)) + " " + exprs.print(guard.right);
}

bool holds(Relation r, int64_t a, int64_t b) {
  switch (r) {
    case Relation::eq: return a == b;
    case Relation::ne: return a != b;
    case Relation::lt: return a < b;
    case Relation::le: return a <= b;
    case Relation::gt: return a > b;
    case Relation::ge: return a >= b;
  }
  return false;
}

Relation negated(Relation r) {
  constexpr std::array kTable = {Relation::ne, Relation::eq, Relation::ge, Relation::gt, Relation::le, Relation::lt};
  return kTable[static_cast<size_t>(r)];
}

Result<std::vector<Guard>> parse_guards(Pool& pool, std::string_view text) {
  std::vector<Guard> out;
  ExprParser parser(pool.exprs, text);
  std::string_view name = parser.peek_name();
  auto relation = call_relation(name);
  if (relation) {
    parser.set_position(parser.position() + name.size());
    parse_call(parser, *relation, &out);
  } else {
    parse_chain(parser, &out);
  }
  if (!parser.at_end()) parser.fail("unexpected text after the relation");
  if (parser.has_error()) return parser.take_error();
  return out;
}

}  // namespace sg
