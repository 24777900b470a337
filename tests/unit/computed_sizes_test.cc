// Sizes computed with floats: which calls get a symbol, and where it is bound.
#include <catch2/catch.hpp>

#include "libgraph/import/computed_sizes.h"
#include "libgraph/import/fx_import.h"
#include "libgraph/verify/verify.h"

using namespace sg;
using Spelling = ComputedSizes::Spelling;

TEST_CASE("calls that make whole numbers of floats get symbols") {
  struct Case {
    Spelling spelling;
    const char *text, *want;
  };
  const Case kCasesOfText[] = {
      {Spelling::annotation, "TruncToInt(0.9*ToFloat(s0))", "made0"},
      {Spelling::annotation, "s0 - TruncToInt(0.9*ToFloat(s0)) + 1", "s0 - made0 + 1"},
      {Spelling::annotation, "Max(FloorToInt(0.7*ToFloat(s0)), RoundToInt(0.5*ToFloat(s0)))", "Max(made1, made2)"},
      {Spelling::annotation, "TruncToInt(0.3*ToFloat(TruncToInt(0.9*ToFloat(s0))))", "made3"},
      {Spelling::annotation, "LShift(1, s0)*2", "made4*2"},
      {Spelling::annotation, "TruncToInt(0.9*ToFloat(s0))//2", "made0//2"},  // equal texts share one
      // Divisions that the rules know are left to them.
      {Spelling::annotation, "CeilToInt(IntTrueDiv(s0, 3))", "CeilToInt(IntTrueDiv(s0, 3))"},
      {Spelling::annotation, "FloorToInt(0.75*ToFloat(s0))", "FloorToInt(0.75*ToFloat(s0))"},
      {Spelling::plain, "CeilToInt(IntTrueDiv(s0, 3))", "made5"},
      {Spelling::constructors, "Add(Integer(1), TruncToInt(Mul(Float('0.9'), ToFloat(Symbol('s0')))))",
       "Add(Integer(1), Symbol('made6'))"},
      {Spelling::constructors, "CeilToInt(IntTrueDiv(Symbol('s0'), Integer(2)))",
       "CeilToInt(IntTrueDiv(Symbol('s0'), Integer(2)))"},
      // An unknown call, and calls without an end.
      {Spelling::annotation, "MyTruncToInt(s0)", "MyTruncToInt(s0)"},
      {Spelling::annotation, "TruncToInt(0.9*ToFloat(s0)", "TruncToInt(0.9*ToFloat(s0)"},
      {Spelling::annotation, "TruncToInt(", "TruncToInt("},
  };
  Pool pool;
  ComputedSizes sizes;
  for (const Case& c : kCasesOfText) {
    INFO(c.text);
    CHECK(sizes.named(&pool, c.text, c.spelling) == c.want);
  }
  CHECK(sizes.list().size() == 7);
}

namespace {

std::string module_of(std::string_view lines) {
  return "class G(torch.nn.Module):\n    def forward(self, x: \"f32[s0, 4]\"):\n" + std::string(lines);
}

Result<Job> imported(std::string_view lines) { return import_fx({{"fx.txt", module_of(lines)}}, {}, nullptr); }

constexpr std::string_view kTruncated = R"fx(
        n: "Sym(s0)" = torch.ops.aten.sym_size.int(x, 0)
        f: "Sym(ToFloat(s0))" = torch.sym_float(n)
        m: "Sym(0.9*ToFloat(s0))" = f * 0.9
        t: "Sym(TruncToInt(0.9*ToFloat(s0)))" = math_trunc(m)
        again: "Sym(TruncToInt(0.9*ToFloat(s0)))" = math_trunc(m)
        y: "f32[TruncToInt(0.9*ToFloat(s0)), 4]" = torch.ops.aten.slice.Tensor(x, 0, 0, t)
        z: "f32[s0 - TruncToInt(0.9*ToFloat(s0)), 4]" = torch.ops.aten.slice.Tensor(x, 0, again)
        return (y, z)
)fx";

}  // namespace

TEST_CASE("the first node that computes the size binds its symbol") {
  auto job = imported(kTruncated);
  REQUIRE(job.ok());
  Diagnostics findings;
  verify(*job, {}, &findings);
  CHECK_FALSE(findings.has_errors());
  const Program& program = *job->programs[0];
  const Graph& graph = program.graph;
  StrId made = job->pool->str("made0");
  REQUIRE(program.find_symbol(made));
  CHECK(program.find_symbol(made)->kind == SymbolKind::data);
  CHECK(graph.meta(graph.find_node("t")).binds == std::vector{made});
  CHECK(graph.meta(graph.find_node("again")).binds.value_or(std::vector<StrId>()).empty());
  CHECK(graph.type(graph.find_value("y")).shape[0] == job->pool->exprs.symbol(made));
}

TEST_CASE("a size that no node computes is refused") {
  auto job = imported(R"fx(
        y: "f32[2 + TruncToInt(0.9*ToFloat(s0))]" = torch.ops.aten.some_op.default(x)
        return (y,)
)fx");
  REQUIRE_FALSE(job.ok());
  CHECK(job.error().kind == ErrorKind::unreadable);
  CHECK(job.error().message ==
        "no node computes the size `TruncToInt(0.9*ToFloat(s0))`, which the graph's types mention");
}
