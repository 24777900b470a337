// What build_program makes of a source's graph: the rules that all importers share.
#include <catch2/catch.hpp>

#include <sstream>

#include "libgraph/import/source_build.h"
#include "libgraph/text/text.h"
#include "libgraph/verify/verify.h"

using namespace sg;

namespace {

// A source, and the job to put it into; places (a, b) are line and column.
struct Made {
  Job job;
  SourceProgram source;
  ImportTally tally;

  Made() {
    source.where = [](SourcePlace p) {
      Location where{"src"};
      where.line = p.a;
      where.column = p.b;
      return where;
    };
  }

  Pool& pool() { return *job.pool; }
  StrId str(std::string_view s) { return pool().str(s); }
  Expr expr(std::string_view text) { return pool().exprs.parse(text).value(); }
  TypeId f32(std::vector<std::string> shape) {
    std::vector<Expr> sizes;
    for (const std::string& s : shape) sizes.push_back(expr(s));
    return pool().tensor(DType::f32, sizes, str("cpu"));
  }
  void input(std::string_view name, TypeId type) {
    uint32_t line = static_cast<uint32_t>(source.graph.inputs.size()) + 1;
    source.graph.inputs.push_back({{line, 1}, str(name), type, {}});
  }
  SourceNode& node(std::string_view name, std::string_view op, std::vector<std::string> refs,
                   SourceResults results = {}) {
    SourceNode& n = source.graph.nodes.emplace_back();
    n.place = {static_cast<uint32_t>(100 + source.graph.nodes.size()), 3};
    n.name = str(name);
    n.op = str(op);
    for (const std::string& r : refs) {
      n.args.push_back(Arg::value(ValueId(static_cast<uint32_t>(n.refs.size()))));
      n.refs.push_back({str(r), {n.place.a, 20}});
    }
    n.results = std::move(results);
    return n;
  }
  void getitem(std::string_view name, std::string_view of, int64_t index) {
    node(name, "python.getitem", {std::string(of)}).args.push_back(Arg::integer(index));
  }
  void output(std::string_view name) { source.graph.outputs.push_back({{str(name), {200, 1}}, {}, {}}); }

  Status build() { return build_program(source, job, &tally, &job.add_program()); }
  // The text form, with runs of spaces collapsed.
  std::string text() {
    std::string out;
    for (char c : print_text(job))
      if (c != ' ' || out.empty() || out.back() != ' ') out += c;
    return out;
  }
  std::string error() {
    Status status = build();
    REQUIRE(!status.ok());
    CHECK(status.error().kind == ErrorKind::unreadable);
    return print_location(status.error().where) + ": " + status.error().message;
  }
};

constexpr auto kUnknown = Pool::kUnknownType;
SourceResults one(TypeId type) { return {SourceResults::Shape::one, {type}, {}, false}; }
SourceResults tuple(std::vector<TypeId> types, std::vector<StrId> names = {}) {
  return {SourceResults::Shape::tuple, std::move(types), std::move(names), false};
}

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("types that a source leaves out are inferred, and the result is a valid job") {
  Made m;
  m.input("x", m.f32({"4", "8"}));
  m.input("w", m.f32({"8", "2"}));
  m.node("mm", "aten.mm.default", {"x", "w"});
  m.node("relu", "aten.relu.default", {"mm"}, one(kUnknown));
  m.output("relu");
  REQUIRE(m.build().ok());
  CHECK(contains(m.text(), "%mm = aten.mm(%x, %w) : f32[4, 2]"));
  CHECK(contains(m.text(), "%relu = aten.relu(%mm)"));
  Diagnostics found;
  verify(m.job, {}, &found);
  CHECK(!found.has_errors());
}

TEST_CASE("getitems become the results of what they take apart") {
  Made m;
  m.input("x", m.f32({"4", "8"}));
  m.node("split", "aten.split.Tensor", {"x"}).args.push_back(Arg::integer(2));
  m.source.graph.nodes.back().results = tuple({m.f32({"2", "8"}), kUnknown});
  m.getitem("second", "split", -1);
  m.getitem("first", "split", 0);
  m.getitem("again", "split", 1);
  m.node("add", "aten.add.Tensor", {"first", "again"});
  m.output("add");
  m.output("second");
  REQUIRE(m.build().ok());
  CHECK(contains(m.text(), "%first, %second = aten.split.Tensor(%x, 2)"));
  CHECK(contains(m.text(), "aten.add.Tensor(%first, %second)"));
  CHECK(contains(m.text(), "getitem.again"));
  CHECK(!contains(m.text(), "python.getitem"));
}

TEST_CASE("without a shape the getitems say how many results there are; a tuple's name stands for all of them") {
  Made m;
  m.input("x", m.f32({"4", "8"}));
  m.node("parts", "aten.unbind.int", {"x"});
  m.getitem("b", "parts", 2);
  m.node("stack", "some.op.default", {"parts"}, one(kUnknown));
  m.output("b");
  REQUIRE(m.build().ok());
  const Graph& graph = m.job.programs[0]->graph;
  const Node& parts = graph.node(graph.first());
  CHECK(parts.result_count == 3);
  CHECK(graph.name(parts.result(0)) == "parts.0");
  CHECK(graph.name(parts.result(2)) == "b");
  const Arg& all = graph.node(graph.last()).args[0];
  REQUIRE(all.is(ArgKind::list));
  CHECK(all.items().size() == 3);
  Diagnostics notes;
  m.tally.report(ImportTally::kNoRank, &notes);
  REQUIRE(notes.list().size() == 1);
  CHECK(contains(notes.list()[0].message, "some.op.default (1)"));
  CHECK(notes.list()[0].where.line == 103);
}

TEST_CASE("named results: the node keeps its own name as label") {
  Made m;
  m.input("x", m.f32({"4", "8"}));
  m.node("topk", "aten.topk.default", {"x"}, tuple({kUnknown, kUnknown}, {m.str("values"), m.str("indices")}));
  m.source.graph.nodes[0].args.push_back(Arg::integer(2));
  m.node("neg", "aten.neg.default", {"values"});
  m.output("neg");
  REQUIRE(m.build().ok());
  const Graph& graph = m.job.programs[0]->graph;
  CHECK(graph.label(graph.first()) == "topk");
  CHECK(contains(m.text(), "%values, %indices"));
  CHECK(graph.type(graph.find_value("indices")).dtype == DType::i64);
}

TEST_CASE("values inside lists and dicts are found, with their keys") {
  Made m;
  m.input("x", m.f32({"4", "8"}));
  SourceNode& cat = m.node("cat", "aten.cat.default", {});
  cat.refs = {{m.str("x"), {101, 20}}, {m.str("x"), {101, 25}}};
  Arg dim = Arg::integer(1);
  cat.args.push_back(Arg::list({Arg::value(ValueId(0)), Arg::value(ValueId(1))}));
  cat.args.push_back(dim.set_key(m.str("dim")));
  m.output("cat");
  REQUIRE(m.build().ok());
  CHECK(contains(m.text(), "aten.cat([%x, %x], dim=1)"));
  CHECK(contains(m.text(), "f32[4, 16]"));
}

TEST_CASE("symbols that nobody declares are declared as PyTorch names them") {
  Made m;
  m.source.guards.push_back({Relation::ge, m.expr("s9"), m.expr("2"), SourceId()});
  m.input("x", m.f32({"s0", "8"}));
  m.node("nz", "aten.nonzero.default", {"x"}, one(m.f32({"u3", "2"})));
  m.output("nz");
  REQUIRE(m.build().ok());
  const SymbolList& symbols = m.job.programs[0]->symbols;
  REQUIRE(symbols.size() == 3);
  CHECK(m.pool().strings[symbols[0].name] == "s9");
  CHECK(m.pool().strings[symbols[1].name] == "s0");
  CHECK(symbols[1].kind == SymbolKind::input);
  CHECK(symbols[2].kind == SymbolKind::data);
}

TEST_CASE("made-up strides give way to inferred ones, made-up shapes do not") {
  Made m;
  m.input("x", m.f32({"4", "8"}));
  SourceResults guess = one(m.f32({"8", "4"}));
  guess.is_guess = true;
  m.node("t", "aten.t.default", {"x"}, guess);
  SourceResults wrong = one(m.f32({"8", "5"}));
  wrong.is_guess = true;
  m.node("t2", "aten.t.default", {"x"}, wrong);
  m.node("t3", "aten.neg.default", {"t"}, guess);
  m.output("t");
  REQUIRE(m.build().ok());
  CHECK(contains(m.text(), "%t = aten.t(%x) : f32[8, 4] stride [1, 8]"));
  CHECK(contains(m.text(), "%t2 = aten.t(%x) : f32[8, 5]\n"));
  CHECK(contains(m.text(), "%t3 = aten.neg(%t) : f32[8, 4] stride [1, 8]"));
}

TEST_CASE("backward nodes find the forward node of their number") {
  Made m;
  m.input("x", m.f32({"4"}));
  m.node("a", "aten.neg.default", {"x"}).seq = 7;
  SourceNode& b = m.node("b", "aten.neg.default", {"a"});
  b.seq = 7;
  b.phase = Phase::backward;
  m.output("b");
  m.source.graph.outputs[0].output.kind = OutputKind::gradient;
  m.source.graph.outputs[0].of = m.str("x");
  REQUIRE(m.build().ok());
  CHECK(contains(m.text(), "of %a"));
  CHECK(m.job.programs[0]->graph.outputs()[0].of == m.job.programs[0]->graph.inputs()[0].value);
}

TEST_CASE("broken sources are refused with the place") {
  struct Case {
    const char* what;
    void (*make)(Made&);
    const char* message;
  };
  const Case cases[] = {
      {"unknown", [](Made& m) { m.node("a", "aten.neg.default", {"y"}); },
       "src:101:20: no node or input is called `y`"},
      {"forward",
       [](Made& m) {
         m.node("a", "aten.neg.default", {"b"});
         m.node("b", "aten.neg.default", {"x"});
       },
       "src:101:20: `b` is used before it is defined, at src:102:3"},
      {"cycle", [](Made& m) { m.node("a", "aten.neg.default", {"a"}); },
       "src:101:20: `a` is used before it is defined"},
      {"name twice",
       [](Made& m) {
         m.node("a", "aten.neg.default", {"x"});
         m.node("a", "aten.neg.default", {"x"});
       },
       "src:102:3: the name `a` is taken by what is at src:101:3"},
      {"input's name", [](Made& m) { m.node("x", "aten.neg.default", {"x"}); },
       "src:101:3: the name `x` is taken by what is at src:1:1"},
      {"result's name",
       [](Made& m) {
         m.node("a", "o.o", {"x"}, tuple({kUnknown, kUnknown}, {m.str("x"), StrId()}));
       },
       "src:101:3: the name `x` is taken"},
      {"no such result",
       [](Made& m) {
         m.node("a", "o.o", {"x"}, tuple({kUnknown}));
         m.getitem("g", "a", 1);
       },
       "src:102:3: `a` has no result 1; it has 1"},
      {"too many results",
       [](Made& m) {
         m.node("a", "o.o", {"x"});
         m.getitem("g", "a", int64_t{1} << 40);
       },
       "src:102:3: `a` has no result 1099511627776"},
      {"nothing",
       [](Made& m) {
         m.node("a", "o.o", {"x"}, {SourceResults::Shape::nothing, {}, {}, false});
         m.node("b", "o.o", {"a"});
       },
       "src:102:20: `a` has no result"},
      {"output", [](Made& m) { m.output("z"); }, "src:200:1: no node or input is called `z`"},
      {"output of many",
       [](Made& m) {
         m.node("a", "o.o", {"x"}, tuple({kUnknown, kUnknown}));
         m.output("a");
       },
       "src:200:1: `a` has several results"},
      {"no name", [](Made& m) { m.input("", m.f32({"1"})); }, "src:2:1: the name is empty"},
  };
  for (const Case& c : cases) {
    INFO(c.what);
    Made m;
    m.input("x", m.f32({"4"}));
    c.make(m);
    std::string said = m.error();
    INFO(said);
    CHECK(said.rfind(c.message, 0) == 0);
  }
}

TEST_CASE("targets are called as the op table spells them") {
  CHECK(op_of_target("torch.ops.aten.mm.default") == "aten.mm.default");
  CHECK(op_of_target("torch.ops.higher_order.cond") == "higher_order.cond");
  CHECK(op_of_target("_operator.floordiv") == "python.floordiv");
  CHECK(op_of_target("operator.getitem") == "python.getitem");
  CHECK(op_of_target("torch.sym_max") == "python.sym_max");
  CHECK(op_of_target("torch._sym_sqrt") == "python.sym_sqrt");
  CHECK(op_of_target("math.trunc") == "python.trunc");
  CHECK(op_of_target("math_ceil") == "python.ceil");
  CHECK(op_of_target("_operator_abs") == "python.abs");
  CHECK(op_of_target("math.gcd") == "math.gcd");
}
