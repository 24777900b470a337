#include <catch2/catch.hpp>

#include <random>

#include "libgraph/expr/guard_text.h"
#include "libgraph/expr/symbols.h"
#include "tests/support/random_expr.h"

using namespace sg;
using namespace sg::test;

namespace {

struct Setting {
  Pool pool;
  Program program{&pool};

  void symbol(const char* name, std::optional<int64_t> min, std::optional<int64_t> max, int64_t divisor = 1) {
    Symbol s;
    s.name = pool.str(name);
    s.min = min, s.max = max, s.divisor = divisor;
    program.symbols.push_back(s);
  }
  void guard(std::string_view text) {
    auto list = parse_guards(pool, text);
    REQUIRE(list.ok());
    program.guards.insert(program.guards.end(), list->begin(), list->end());
  }
  Expr expr(std::string_view text) {
    auto e = pool.exprs.parse(text);
    REQUIRE(e.ok());
    return *e;
  }
  std::string range(std::string_view text) { return print(Facts(program).range(expr(text))); }
  std::string simplified(std::string_view text, bool use_equalities = false) {
    return pool.exprs.print(Facts(program).simplify(expr(text), use_equalities));
  }
  Answer prove(std::string_view relation) {
    auto list = parse_guards(pool, relation);
    REQUIRE(list.ok());
    return Facts(program).prove((*list)[0].relation, (*list)[0].left, (*list)[0].right);
  }
};

}  // namespace

TEST_CASE("ranges follow from declarations and guards") {
  Setting s;
  s.symbol("s0", 2, std::nullopt, 8);
  s.symbol("s1", 1, 64);
  s.symbol("u0", 0, std::nullopt);
  s.symbol("u1", 0, std::nullopt);
  s.symbol("u2", 0, std::nullopt);
  s.guard("Eq(u0+u1+u2, 256)");
  s.guard("u9 >= 3");
  CHECK(s.range("s0") == "[8, inf]");
  CHECK(s.range("u0") == "[0, 256]");
  CHECK(s.range("u0 + u1") == "[0, 256]");
  CHECK(s.range("u0 + u1 + u2") == "[256, 256]");
  CHECK(s.range("64*max(1, u0) + 1") == "[65, 16385]");
  CHECK(s.range("s1//8") == "[0, 8]");
  CHECK(s.range("s1 % 8") == "[0, 7]");
  CHECK(s.range("-s1") == "[-64, -1]");
  CHECK(s.range("(s1 - 32)**2") == "[-3071, 5056]");  // expanded: each term on its own
  CHECK(s.range("min(s1, 4)*s1") == "[1, 256]");
  CHECK(s.range("u9") == "[3, inf]");
  CHECK(s.range("s9*0 + 7") == "[7, 7]");
  CHECK(s.range("9223372036854775807*s0") == "[9223372036854775807, inf]");
  CHECK(s.range("unheard_of") == "[-inf, inf]");
}

TEST_CASE("relations are proved from ranges, guards and divisibility") {
  Setting s;
  s.symbol("s0", 2, std::nullopt, 8);
  s.symbol("s1", 2, std::nullopt);
  s.symbol("u0", 64, 128);
  for (const char* u : {"u1", "u2", "u3"}) s.symbol(u, 0, std::nullopt);
  s.guard("Eq(u1 + u2 + u3, 2*u0)");
  s.guard("Eq(s0*s1, s2*s3)");
  s.guard("Ne(u1, u2)");
  s.guard("s4 < s1");
  CHECK(s.prove("u1 + u2 <= 2*u0") == Answer::yes);
  CHECK(s.prove("u1 + u2 + u3 == 2*u0") == Answer::yes);
  CHECK(s.prove("u1 <= 256") == Answer::yes);
  CHECK(s.prove("u1 > 256") == Answer::no);
  CHECK(s.prove("u1 <= 255") == Answer::unknown);
  CHECK(s.prove("s0*s1 == s2*s3") == Answer::yes);
  CHECK(s.prove("64*s2*s3 >= 64*s0*s1") == Answer::yes);
  CHECK(s.prove("u1 == u2") == Answer::no);
  CHECK(s.prove("u2 != u1") == Answer::yes);
  CHECK(s.prove("s0 == 4*s0 + 2") == Answer::no);
  CHECK(s.prove("16*u1 != 8*u2 + 4") == Answer::yes);
  CHECK(s.prove("s4 + 1 <= s1") == Answer::yes);
  CHECK(s.prove("s4 >= s1") == Answer::no);
  CHECK(s.prove("u1 <= max(u1, s0)") == Answer::yes);
  CHECK(s.prove("max(u1, u2) <= u1 + u2") == Answer::yes);
  CHECK(s.prove("8*(u1//8) <= u1") == Answer::yes);
  CHECK(s.prove("u1 <= 8*(u1//8) + 7") == Answer::yes);
  CHECK(s.prove("s0 == s1") == Answer::unknown);
}

TEST_CASE("simplify uses what is known") {
  Setting s;
  s.symbol("s0", 8, std::nullopt, 8);
  s.symbol("u0", 1, 100);
  s.symbol("u1", 0, std::nullopt);
  for (const char* u : {"u3", "u4"}) s.symbol(u, 0, std::nullopt);
  s.guard("Eq(u9, u0)");
  s.guard("Eq(u3 + u4, 2*u0)");
  s.guard("Eq(s5, 12)");
  CHECK(s.simplified("64*Max(1,u0)") == "64*u0");
  CHECK(s.simplified("Max(1,u1)") == "max(1, u1)");
  CHECK(s.simplified("min(u0, 200)") == "u0");
  CHECK(s.simplified("s0 % 4") == "0");
  CHECK(s.simplified("u0 % 128") == "u0");
  CHECK(s.simplified("u0//128") == "0");
  CHECK(s.simplified("8*(s0//8)") == "s0");
  CHECK(s.simplified("max(u1, u1 + u0, 1)") == "u0 + u1");
  CHECK(s.simplified("s5*u1") == "12*u1");
  CHECK(s.simplified("u9 + 1") == "u9 + 1");
  CHECK(s.simplified("u9 + 1", true) == "u0 + 1");
  CHECK(s.simplified("u3 + u4 + 5", true) == "2*u0 + 5");
  CHECK(s.simplified("u4 + 5", true) == "u4 + 5");
}

TEST_CASE("contradictions, divisors and ends of 64 bits are survived") {
  Setting s;
  s.symbol("a", 5, 3);
  s.symbol("b", INT64_MIN, INT64_MAX, INT64_MAX);
  s.symbol("c", INT64_MAX, INT64_MAX);
  s.symbol("d", 0, 10, -4);
  s.guard("a > a + 1");
  s.guard("c + b <= d");
  s.guard("b*b*b >= c*c");
  s.guard("Eq(d % 3, 0)");
  Facts facts(s.program);
  CHECK(facts.contradictory());
  for (const char* text : {"a", "b", "c*c*c", "-c*c", "b//c", "c % b", "b**7 - b**6", "max(b, c)//min(b, c)", "d"}) {
    Expr e = s.expr(text);
    facts.range(e), facts.divisor(e), facts.simplify(e, true), facts.prove(Relation::lt, e, s.expr("c - b"));
  }
  CHECK(print(facts.range(s.expr("d"))) == "[0, 9]");
  CHECK(facts.divisor(s.expr("4*d + 6")) == 6);
  CHECK(facts.divisor(s.expr("0")) == 0);
}

// Tries every assignment of small numbers that satisfies the guards: no answer may be wrong for any of them.
TEST_CASE("answers hold for every assignment") {
  std::mt19937 rng(424242);
  auto pick = [&](int n) { return static_cast<int>(rng() % static_cast<unsigned>(n)); };
  constexpr int kFirst = -2, kLast = 5, kUsed = 3;
  int decided = 0, ranged = 0, simplified = 0, satisfiable = 0;
  for (int round = 0; round < 400; ++round) {
    Setting s;
    for (int i = 0; i < kUsed; ++i) {
      int low = kFirst + pick(4);
      s.symbol(kNames[i], low, low + pick(kLast - low + 1), pick(4) == 0 ? 1 + pick(3) : 1);
    }
    s.symbol(kNames[kUsed], 1, 1);
    std::vector<Guard> guards;
    for (int i = pick(4); i > 0; --i) {
      Guard g{static_cast<Relation>(pick(6)), build(s.pool.exprs, random_tree(rng, 1 + pick(2))),
              build(s.pool.exprs, random_tree(rng, 1)), SourceId()};
      s.program.guards.push_back(g);
    }
    std::vector<Expr> exprs;
    for (int i = 0; i < 6; ++i) exprs.push_back(build(s.pool.exprs, random_tree(rng, 1 + pick(3))));
    Facts facts(s.program);

    // values[assignment][expression]
    std::vector<std::vector<std::optional<int64_t>>> table;
    std::vector<Expr> simple;
    for (Expr e : exprs) simple.push_back(facts.simplify(e, pick(2) != 0));
    for (int code = 0; code < 8 * 8 * 8; ++code) {
      int64_t v[kSymbols] = {kFirst + code % 8, kFirst + code / 8 % 8, kFirst + code / 64, 1};
      bool allowed = true;
      for (int i = 0; i < kUsed; ++i) {
        const Symbol& symbol = s.program.symbols[static_cast<size_t>(i)];
        allowed &= v[i] >= *symbol.min && v[i] <= *symbol.max && v[i] % symbol.divisor == 0;
      }
      auto values = values_of(s.pool.strings, v);
      for (const Guard& g : s.program.guards) {
        auto a = s.pool.exprs.evaluate(g.left, values), b = s.pool.exprs.evaluate(g.right, values);
        allowed &= a && b && holds(g.relation, *a, *b);
      }
      if (!allowed) continue;
      table.emplace_back();
      for (size_t i = 0; i < exprs.size(); ++i) {
        auto value = s.pool.exprs.evaluate(exprs[i], values);
        table.back().push_back(value);
        if (!value) continue;
        CAPTURE(round, s.pool.exprs.print(exprs[i]), s.pool.exprs.print(simple[i]), v[0], v[1], v[2]);
        REQUIRE(s.pool.exprs.evaluate(simple[i], values) == value);
        REQUIRE(facts.range(exprs[i]).contains(*value));
        int64_t d = facts.divisor(exprs[i]);
        REQUIRE((d == 0 ? *value == 0 : *value % d == 0));
      }
    }
    if (table.empty()) continue;
    ++satisfiable;
    REQUIRE_FALSE(facts.contradictory());
    for (size_t i = 0; i < exprs.size(); ++i) {
      ranged += facts.range(exprs[i]).has_max();
      simplified += simple[i] != exprs[i];
      for (size_t j = 0; j < exprs.size(); ++j) {
        Relation r = static_cast<Relation>(pick(6));
        Answer answer = facts.prove(r, exprs[i], exprs[j]);
        if (answer == Answer::unknown) continue;
        ++decided;
        CAPTURE(round, s.pool.exprs.print(exprs[i]), relation_sign(r), s.pool.exprs.print(exprs[j]));
        for (const auto& row : table)
          if (row[i] && row[j]) REQUIRE(holds(r, *row[i], *row[j]) == (answer == Answer::yes));
      }
    }
  }
  // The test is meaningful only if the answers are not all unknown.
  CHECK(satisfiable > 100);
  CHECK(decided > 2000);
  CHECK(ranged > 500);
  CHECK(simplified > 50);
}
