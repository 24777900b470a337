#include <catch2/catch.hpp>

#include <random>

#include "libgraph/expr/guard_text.h"
#include "libgraph/pool.h"
#include "tests/support/random_expr.h"

using namespace sg;
using namespace sg::test;

namespace {

std::string parsed(Pool& pool, std::string_view text) {
  auto e = pool.exprs.parse(text);
  if (!e) return "column " + std::to_string(e.error().where.column) + ": " + e.error().message;
  return pool.exprs.print(*e);
}

}  // namespace

TEST_CASE("expressions of captures and their normal form") {
  Pool pool;
  const std::pair<const char*, const char*> cases[] = {
      {"Max(1,u0)", "max(1, u0)"},
      {"64*Max(1,u0)", "64*max(1, u0)"},
      {"Max(1,u0)**2", "max(1, u0)**2"},
      {"4*Max(1,u0)**2", "4*max(1, u0)**2"},
      {"2*((u0//2))", "2*(u0//2)"},
      {"(u0//2)", "u0//2"},
      {"s28*s32", "s28*s32"},
      {"48*s28", "48*s28"},
      {"u4+u5+u6+u7", "u4 + u5 + u6 + u7"},
      {"u10+u7+u8+u9", "u7 + u8 + u9 + u10"},
      {"(64*u0)//64", "u0"},
      {"(64*u0+5)//64", "u0"},
      {"(64*u0-5)//64", "u0 - 1"},
      {"(6*u0)//4", "(3*u0)//2"},
      {"(u0//2)//3", "u0//6"},
      {"(u0//2 + 1)//3", "(u0 + 2)//6"},
      {"(u0+127)//128*128", "128*((u0 + 127)//128)"},
      {"-(u0//2)", "-(u0//2)"},
      {"4 - u0//2", "-(u0//2) + 4"},
      {"Mod(7*u0, 7)", "0"},
      {"Mod(u0*k, k)", "0"},
      {"Mod(6*u0 + 4, 8)", "2*((3*u0 + 2)%4)"},
      {"PythonMod(u0 % 8, 4)", "u0%4"},
      {"u0 % 8 % 16", "u0%8"},
      {"(u0 % 8)//8", "0"},
      {"-7 // 2", "-4"},
      {"-7 % 3", "2"},
      {"7 % -3", "-2"},
      {"(s0*s1 + s0*s2)//(s1 + s2)", "s0"},
      {"(s0*s1 + 3)//s0", "s1 + 3//s0"},
      {"(2*s0)//(4*s1)", "s0//(2*s1)"},
      {"u0//(-2)", "(-u0)//2"},
      {"max(1, 5)", "5"},
      {"max(3, u0, max(5, u1), u0)", "max(5, u0, u1)"},
      {"min(u0 + 3, u0 + 1, 9)", "min(9, u0 + 1)"},
      {"max(u0)", "u0"},
      {"(u0 + u1)**2", "u0**2 + 2*u0*u1 + u1**2"},
      {"(u0 - 1)*(u0 + 1)", "u0**2 - 1"},
      {"2*u0 + (s0//2)*max(1, u1) + 4", "2*u0 + (s0//2)*max(1, u1) + 4"},
      {"u0 - u0", "0"},
      {"-9223372036854775808", "-9223372036854775808"},
      {"u0 + -9223372036854775808*u1", "u0 + -9223372036854775808*u1"},
      {"9223372036854775807*s2", "9223372036854775807*s2"},
      {"-2**2", "-4"},
      {"2**3**2", "512"},
      {"--u0", "u0"},
      {"  u0\t+ 1 ", "u0 + 1"},
      {"max", "max"},
  };
  for (auto [text, wanted] : cases) {
    CAPTURE(text);
    CHECK(parsed(pool, text) == wanted);
    CHECK(parsed(pool, wanted) == wanted);
  }
}

TEST_CASE("the normal form equals its tree, for all values") {
  std::mt19937 rng(20240611);
  Pool pool;
  int compared = 0;
  for (int round = 0; round < 4000; ++round) {
    Tree t = random_tree(rng, 1 + round % 4);
    Expr e = build(pool.exprs, t);
    CAPTURE(round, pool.exprs.print(e));
    for (int sample = 0; sample < 8; ++sample) {
      int64_t values[kSymbols];
      for (int64_t& v : values) v = static_cast<int64_t>(rng() % 41) - (sample < 4 ? 0 : 20);
      auto wanted = evaluate(t, values);
      if (!wanted) continue;
      auto got = pool.exprs.evaluate(e, values_of(pool.strings, values));
      REQUIRE(got == wanted);
      ++compared;
    }
  }
  CHECK(compared > 20000);
}

TEST_CASE("algebra, printing, substitution and order of random expressions") {
  std::mt19937 rng(7);
  Pool pool;
  ExprPool& x = pool.exprs;
  std::vector<Expr> some;
  for (int round = 0; round < 1500; ++round) {
    Expr a = build(x, random_tree(rng, 3)), b = build(x, random_tree(rng, 2)), c = build(x, random_tree(rng, 2));
    if (x.is_invalid(a) || x.is_invalid(b) || x.is_invalid(c)) continue;
    CAPTURE(x.print(a), x.print(b), x.print(c));
    CHECK(x.sub(x.add(a, b), b) == a);
    CHECK(x.add(a, b) == x.add(b, a));
    CHECK(x.mul(a, b) == x.mul(b, a));
    CHECK(x.mul(a, x.add(b, c)) == x.add(x.mul(a, b), x.mul(a, c)));
    CHECK(x.mul(x.mul(a, b), c) == x.mul(a, x.mul(b, c)));
    CHECK(x.max(a, x.max(b, c)) == x.max(x.max(c, a), b));
    CHECK(x.max(a, a) == a);
    CHECK(x.substitute(a, [](StrId) { return std::nullopt; }) == a);
    auto again = x.parse(x.print(a));
    REQUIRE(again.ok());
    CHECK(*again == a);

    int64_t values[kSymbols];
    for (int64_t& v : values) v = static_cast<int64_t>(rng() % 21) - 4;
    auto number = values_of(pool.strings, values);
    auto lookup = [&](StrId name) -> std::optional<Expr> { return x.constant(*number(name)); };
    if (auto value = x.evaluate(a, number)) CHECK(x.constant_value(x.substitute(a, lookup)) == value);
    if (some.size() < 60) some.push_back(a);
  }
  for (Expr a : some)
    for (Expr b : some) {
      CHECK((x.compare(a, b) == 0) == (a == b));
      CHECK((x.compare(a, b) < 0) == (x.compare(b, a) > 0));
      for (Expr c : some)
        if (x.compare(a, b) < 0 && x.compare(b, c) < 0) REQUIRE(x.compare(a, c) < 0);
    }
}

TEST_CASE("print and order do not depend on what was built before, and copies keep ids") {
  std::mt19937 rng(99);
  std::vector<Tree> trees;
  for (int i = 0; i < 300; ++i) trees.push_back(random_tree(rng, 4));
  Pool forward, backward;
  std::vector<Expr> a(trees.size()), b(trees.size());
  for (size_t i = 0; i < trees.size(); ++i) a[i] = build(forward.exprs, trees[i]);
  for (size_t i = trees.size(); i-- > 0;) b[i] = build(backward.exprs, trees[i]);
  Pool copy(forward);
  for (size_t i = 0; i < trees.size(); ++i) {
    CHECK(forward.exprs.print(a[i]) == backward.exprs.print(b[i]));
    CHECK(forward.exprs.compare(a[i], a[0]) == backward.exprs.compare(b[i], b[0]));
    CHECK(copy.exprs.print(a[i]) == forward.exprs.print(a[i]));
    CHECK(build(copy.exprs, trees[i]) == a[i]);
  }
}

TEST_CASE("hostile expressions are refused, in bounded time and memory") {
  Pool pool;
  ExprPool& x = pool.exprs;
  auto refused = [&](const std::string& text) { return !x.parse(text).ok(); };
  CHECK(refused(""));
  CHECK(refused("u0 +"));
  CHECK(refused("u0 u1"));
  CHECK(refused("u0 / 2"));
  CHECK(refused("1.5*u0"));
  CHECK(refused("sin(u0)"));
  CHECK(refused("Mod(u0)"));
  CHECK(refused("max()"));
  CHECK(refused("u0 // 0"));
  CHECK(refused("u0 % (3 - 3)"));
  CHECK(refused("9223372036854775808"));
  CHECK(refused("9223372036854775807 + 1"));
  CHECK(refused("99999999999999999999999"));
  CHECK(refused("(-9223372036854775808)//(-1)"));
  CHECK(refused("(a + b)**1000"));
  CHECK(refused("(a + b + c + d + e)**4294967295"));
  CHECK(refused("2**u0"));
  CHECK(refused("2**(-1)"));
  CHECK(refused("u0**4294967296"));
  CHECK(refused("(u0**4294967295)**2"));
  CHECK(refused(std::string("u0\0", 3)));
  CHECK(refused("\xff\xfe"));
  CHECK(refused(std::string(100000, '1')));
  CHECK(refused(std::string(60000, '(')));
  CHECK(refused(std::string(60000, '-')));
  CHECK(refused("2" + std::string(60000, '*')));
  for (const char* open : {"max(u0,", "(u0+1)//(", "u0**(", "1+("}) {
    std::string deep;
    for (int i = 0; i < 5000; ++i) deep += open;
    CHECK(refused(deep));
  }
  std::string many;
  for (int i = 0; i < 5000; ++i) many += "(a+b+c)**80*";
  CHECK(refused(many + "1"));
  CHECK(x.size() < 2000);

  Expr e = x.symbol("u0");
  for (int i = 0; i < 200; ++i) e = x.floordiv(x.add(x.mul(e, e), x.symbol("u1")), x.add(e, x.symbol("u2")));
  CHECK(x.is_invalid(e));
  CHECK(x.is_invalid(x.add(e, x.constant(1))));
  CHECK(x.is_invalid(x.max(x.constant(1), e)));
  CHECK(x.is_invalid(x.mul(e, x.constant(0))));
  CHECK(x.is_invalid(x.sub(e, e)));
  CHECK_FALSE(x.evaluate(e, [](StrId) { return 1; }).has_value());
  CHECK(x.is_invalid(x.mul(x.constant(INT64_MAX), x.constant(2))));
  CHECK_FALSE(x.evaluate(x.pow(x.symbol("u0"), 64), [](StrId) { return 2; }).has_value());
}

TEST_CASE("errors of expressions name their column") {
  Pool pool;
  CHECK(parsed(pool, "u0 + $") == "column 6: expected a number, a symbol or '('");
  CHECK(parsed(pool, "u0 + sin(3)") == "column 6: unknown function 'sin'");
  CHECK(parsed(pool, "u0)") == "column 3: unexpected text after the expression");
  CHECK(parsed(pool, "u0//0") == "column 1: expression overflows 64 bits, divides by zero or is too large");
  CHECK(parsed(pool, "u0/2") == "column 3: '/' is not an operation on integers");
}

TEST_CASE("guards as captures spell them") {
  Pool pool;
  auto guards = [&](std::string_view text) {
    auto list = parse_guards(pool, text);
    if (!list) return "column " + std::to_string(list.error().where.column);
    std::string out;
    for (const Guard& g : *list) {
      if (!out.empty()) out += "; ";
      out += pool.exprs.print(g.left) + " " + std::string(relation_sign(g.relation)) + " " + pool.exprs.print(g.right);
    }
    return out;
  };
  CHECK(guards("Eq(u0+u1+u2+u3,256)") == "u0 + u1 + u2 + u3 == 256");
  CHECK(guards("Ne(u0, 1)") == "u0 != 1");
  CHECK(guards("0<=u0") == "0 <= u0");
  CHECK(guards("0<=u0<=5") == "0 <= u0; u0 <= 5");
  CHECK(guards("u0 > u1 != 4") == "u0 > u1; u1 != 4");
  CHECK(guards("Ge(2*((u0//2)), Max(1, u1))") == "2*(u0//2) >= max(1, u1)");
  CHECK(guards("u0 == 3") == "u0 == 3");
  CHECK(guards("u0") == "column 3");
  CHECK(guards("u0 <") == "column 5");
  CHECK(guards("Eq(u0)") == "column 6");
  CHECK(guards("Eq(u0, 1, 2)") == "column 9");
  CHECK(guards("") == "column 1");
  for (Relation r : {Relation::eq, Relation::ne, Relation::lt, Relation::le, Relation::gt, Relation::ge})
    CHECK(negated(negated(r)) == r);
}
