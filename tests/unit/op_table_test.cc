// The op table as data: every row must match its traits.
#include <catch2/catch.hpp>

#include <algorithm>
#include <set>
#include <string>

#include "libgraph/graph.h"
#include "libgraph/job.h"
#include "libgraph/op.h"
#include "libgraph/op_pattern.h"
#include "libgraph/op_schema.h"

namespace sg {
namespace {

bool any_param(const OpInfo& op, bool (*test)(const Param&)) {
  return std::any_of(op.params.begin(), op.params.end(), test);
}

TEST_CASE("op table: every schema parses and names are unique") {
  std::set<std::string_view> names;
  for (const OpInfo& row : all_ops()) {
    INFO(row.name);
    OpInfo copy;
    copy.schema = row.schema;
    CHECK(parse_schema(&copy).ok());
    CHECK(names.insert(row.name).second);
    CHECK(find_op(row.name) == &row);
    std::set<std::string_view> params;
    for (const Param& p : row.params) CHECK(params.insert(p.name).second);
  }
  CHECK(names.size() > 400);
  CHECK(find_op("aten.no_such_op.default") == nullptr);
}

TEST_CASE("op table: traits agree with the schema") {
  for (const OpInfo& op : all_ops()) {
    INFO(op.name);
    bool aliases = std::any_of(op.results.begin(), op.results.end(), [](const ResultInfo& r) { return r.alias != 0; });
    if (op.has(kView) || op.has(kMayAlias)) CHECK(aliases);
    if (aliases) CHECK((op.has(kView) || op.has(kMayAlias) || op.writes()));
    if (op.has(kPure)) CHECK_FALSE(op.writes());
    if (op.has(kPure)) CHECK_FALSE((op.has(kRandom) || op.has(kCollective) || op.has(kAssert) || op.has(kHostSync)));
    if (op.has(kCollective)) CHECK(any_param(op, [](const Param& p) { return p.kind == ParamKind::group; }));
    if (op.has(kAssert)) CHECK(op.results.empty());
    if (op.has(kHigherOrder)) CHECK(any_param(op, [](const Param& p) { return p.kind == ParamKind::graph; }));
    if (op.has(kRandomIfDropout)) CHECK((op.param_index("dropout_p") >= 0 || op.param_index("p") >= 0));
    for (const ResultInfo& result : op.results)
      if (result.alias != 0)
        CHECK(std::any_of(op.params.begin(), op.params.end(), [&](const Param& p) { return p.alias == result.alias; }));
  }
}

TEST_CASE("op table: linear_in names parameters") {
  for (const OpInfo& op : all_ops()) {
    INFO(op.name);
    std::string text(op.linear_in);
    std::replace(text.begin(), text.end(), '+', ',');
    for (size_t at = 0; at < text.size();) {
      size_t end = std::min(text.find(',', at), text.size());
      CHECK(op.param_index(std::string_view(text).substr(at, end - at)) >= 0);
      at = end + 1;
    }
  }
}

TEST_CASE("op schema: what it says") {
  const OpInfo* op = find_op("_c10d_functional.all_gather_into_tensor_out.default");
  REQUIRE(op != nullptr);
  REQUIRE(op->params.size() == 4);
  CHECK(op->params[2].kind == ParamKind::group);
  CHECK(op->params[3].written);
  CHECK(op->params[3].keyword_only);
  CHECK(op->writes());
  const OpInfo* split = find_op("aten.split.Tensor");
  REQUIRE(split != nullptr);
  CHECK(split->returns_list);
  CHECK(split->results[0].alias == 'a');
  CHECK(split->params[2].default_text == "0");
  const OpInfo* index = find_op("aten.index.Tensor");
  REQUIRE(index != nullptr);
  CHECK(index->params[1].kind == ParamKind::tensor_list);
  CHECK(find_op("aten.gelu.default")->params[1].default_text == "'none'");
}

TEST_CASE("op schema: broken ones are refused, not followed") {
  for (const char* text :
       {"", "(", "()", "() ->", "(Tensor) -> Tensor", "(Tensor(a self) -> Tensor", "(Foo x) -> Tensor",
        "(Tensor x -> Tensor", "(Tensor[ x) -> Tensor", "(Tensor x) -> (Tensor", "(Tensor x) -> Tensor )",
        "(Tensor(1) x) -> Tensor", "(Tensor x,) -> Tensor", "(int x=[) -> int"}) {
    INFO(text);
    OpInfo op;
    op.schema = text;
    CHECK_FALSE(parse_schema(&op).ok());
  }
}

TEST_CASE("draws_random looks at the dropout probability") {
  Job job;
  Pool& pool = *job.pool;
  Graph graph(&pool);
  TypeId type = pool.tensor(DType::f32, {pool.exprs.constant(2)}, pool.str("cpu"));
  ValueId x = graph.add_input("x", type, {});
  auto dropout = [&](double p, bool train) {
    NodeSpec spec;
    spec.op = pool.op("aten.dropout.default");
    spec.args = {Arg::value(x), Arg::floating(p), Arg::boolean(train)};
    spec.result_types = {type};
    return graph.append(spec);
  };
  CHECK(draws_random(graph, dropout(0.1, true)));
  CHECK_FALSE(draws_random(graph, dropout(0.1, false)));
  CHECK_FALSE(draws_random(graph, dropout(0.0, true)));
}

TEST_CASE("default_binds names the new data symbols only") {
  Job job;
  Pool& pool = *job.pool;
  Program& program = job.add_program();
  for (const char* name : {"u0", "u1"}) {
    Symbol symbol;
    symbol.name = pool.str(name);
    symbol.kind = SymbolKind::data;
    program.symbols.push_back(symbol);
  }
  Graph& graph = program.graph;
  StrId cpu = pool.str("cpu");
  ValueId x = graph.add_input("x", pool.tensor(DType::i64, {pool.exprs.symbol("u0")}, cpu), {});
  NodeSpec spec;
  spec.op = pool.op("aten.nonzero.default");
  spec.args = {Arg::value(x)};
  spec.result_types = {pool.tensor(DType::i64, {pool.exprs.symbol("u1"), pool.exprs.symbol("u0")}, cpu)};
  CHECK(default_binds(program, graph, graph.append(spec)) == std::vector<StrId>{pool.str("u1")});
  spec.op = pool.op("aten.relu.default");
  CHECK(default_binds(program, graph, graph.append(spec)).empty());
}

TEST_CASE("op patterns: the namespace and the overload may be left out, a star stands for any text") {
  for (std::string_view pattern : {"aten.mm.default", "aten.mm", "mm.default", "mm", "*mm", "aten.m*", "m*t", "*"})
    CHECK(op_is_called("aten.mm.default", pattern));
  for (std::string_view pattern : {"aten.m", "m", "aten", "default", "mm.out", "aten.mm.", "aten.*x", "", "prims.mm"})
    CHECK_FALSE(op_is_called("aten.mm.default", pattern));
  CHECK(op_is_called("aten.addmm.default", "*mm"));
  CHECK_FALSE(op_is_called("aten.addmm.default", "mm"));
  CHECK(op_is_called("sg.wait", "wait"));  // without an overload
  CHECK_FALSE(op_is_called("sg.wait", "sg"));
  CHECK(op_is_called("unknown", "unknown"));
  CHECK(fits_stars("a*c*e", "abcde"));
  CHECK_FALSE(fits_stars("a*c*e", "abcd"));
  for (std::string_view pattern : {"mm", "aten.mm", "*_gather*", "sg.*"}) CHECK(names_an_op(pattern));
  for (std::string_view pattern : {"aten.mn", "aten.*x1"}) CHECK_FALSE(names_an_op(pattern));
  CHECK(nearest_op("aten.mmm").hint() == "did you mean `aten.mm`?");
  CHECK(nearest_op("reul").hint() == "did you mean `relu`?");
}

}  // namespace
}  // namespace sg
