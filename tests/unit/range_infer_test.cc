#include "libgraph/expr/range_infer.h"

#include <catch2/catch.hpp>
#include <optional>
#include <string>
#include <vector>

#include "libgraph/base/diag.h"
#include "libgraph/expr/assume.h"
#include "libgraph/expr/guard_text.h"
#include "libgraph/import/capture.h"
#include "libgraph/text/text.h"
#include "tests/support/traces.h"

using namespace sg;

namespace {

std::optional<Job> import(std::vector<std::string> paths, bool spmd) {
  std::vector<CaptureFile> files;
  for (const std::string& path : paths) {
    std::optional<std::string> bytes = test::trace(path);
    if (!bytes) return std::nullopt;
    files.push_back({path, std::move(*bytes)});
  }
  auto job = import_captures(std::move(files), {spmd}, nullptr);
  REQUIRE(job.ok());
  return std::move(job.value());
}

// An exchange on a group of `world` ranks: symbols sent0.. and received0.., as in a capture.
struct Exchanging {
  Job job;
  Program& program = job.add_program();
  Pool& pool = *job.pool;

  explicit Exchanging(uint32_t world) {
    job.world = world;
    Group group;
    group.axis = pool.str("ep");
    group.parts.emplace_back();
    for (uint32_t r = 0; r < world; ++r) group.parts[0].ranks.push_back(r);
    job.groups.push_back(group);
  }
  void symbol(const std::string& name, std::optional<int64_t> min, std::optional<int64_t> max,
              SymbolKind kind = SymbolKind::data, std::optional<int64_t> hint = std::nullopt) {
    Symbol s;
    s.name = pool.str(name), s.kind = kind, s.min = min, s.max = max, s.hint = hint;
    program.symbols.push_back(s);
  }
  void guard(std::string_view text) {
    auto list = parse_guards(pool, text);
    REQUIRE(list.ok());
    program.guards.insert(program.guards.end(), list->begin(), list->end());
  }
  void exchange(Program& p, const std::vector<std::string>& received, const std::vector<std::string>& sent) {
    StrId cpu = pool.str("cpu");
    TypeId type = pool.tensor(DType::f32, {pool.exprs.constant(8)}, cpu);
    ValueId x = p.graph.add_input("x" + std::to_string(p.graph.inputs().size()), type, {});
    auto list = [&](const std::vector<std::string>& texts) {
      ArgList items;
      for (const std::string& t : texts) items.push_back(Arg::expr(*pool.exprs.parse(t)));
      return Arg::list(std::move(items));
    };
    NodeSpec spec;
    spec.op = pool.op("_c10d_functional.all_to_all_single.default");
    spec.args = {Arg::value(x), list(received), list(sent), Arg::group(GroupId(0))};
    spec.result_types = {type};
    spec.label = "swap";
    p.graph.append(spec);
  }
  std::string range(const RangeInference& inference, const char* name, size_t index = 0) {
    return print(inference.facts[index].range_of_symbol(pool.str(name)));
  }
};

std::string values(const Job& job, const std::vector<std::string_view>& assume, std::vector<const char*> names) {
  auto assumption = parse_assume(assume);
  if (!assumption) return assumption.error().message;
  auto solved = assume_values(job, infer_ranges(job), *assumption);
  if (!solved) return solved.error().message;
  std::string out;
  for (const char* name : names) {
    auto value = (*solved)[0].value(job.pool->strings.find(name));
    out += (out.empty() ? "" : " ") + (value ? std::to_string(*value) : "none");
  }
  return out;
}

}  // namespace

TEST_CASE("a received count inherits the range of what the senders may send") {
  Exchanging x(2);
  x.symbol("u0", std::nullopt, std::nullopt), x.symbol("u1", 0, std::nullopt);
  x.symbol("u2", std::nullopt, std::nullopt), x.symbol("u3", 0, std::nullopt);
  x.symbol("u9", 0, std::nullopt);
  x.guard("Eq(u0 + u1, 100)");
  x.guard("u1 >= 10");
  x.exchange(x.program, {"u2", "u3"}, {"u0", "u1"});
  x.exchange(x.program, {"3", "4"}, {"u9", "1"});
  RangeInference inference = infer_ranges(x.job);
  CHECK(x.range(inference, "u0") == "[0, 90]");  // a split size is never negative
  CHECK(x.range(inference, "u1") == "[10, 100]");
  CHECK(x.range(inference, "u2") == "[0, 100]");
  CHECK(x.range(inference, "u3") == "[0, 100]");
  REQUIRE(inference.tightened.size() == 4);
  CHECK(inference.tightened[1].reason == "guards");
  CHECK(inference.tightened[2].reason == "%swap receives what ranks of group ep send: [0, 100]");
  REQUIRE(inference.unbounded.size() == 1);
  CHECK(x.pool.strings[inference.unbounded[0].symbol] == "u9");
  for (const InferredRange& found : inference.tightened)
    for (Symbol& symbol : x.job.programs[found.program]->symbols)
      if (symbol.name == found.symbol) symbol.min = found.range.min, symbol.max = found.range.max;
  CHECK(infer_ranges(x.job).tightened.empty());
}

TEST_CASE("a size that is computed of others follows from them") {
  Diagnostics diagnostics;
  auto job = parse_text(R"(sg 1.0 job "room" world 1
graph rank *
  symbol rows input [2, inf] hint 34 "x.size()[0]"
  symbol made0 data [1, inf]
  input %x : f32[rows, 4] "x"

  forward -
    %rows  = aten.sym_size.int(%x, 0) : int rows
    %more  = python.mul(1.25, %rows) : float
    %part  = python.truediv(%more, 5) : float
    %room  = python.ceil(%part) : int made0  binds [made0]
    %slots = aten.zeros([%room, 4], dtype=f32, device=cpu, pin_memory=false) : f32[made0, 4]
  output %slots
)",
                        "room", &diagnostics);
  REQUIRE(job.ok());
  CHECK(values(*job, {}, {"rows", "made0"}) == "34 9");
  CHECK(values(*job, {"max"}, {"rows", "made0"}) == "34 9");
  CHECK(values(*job, {"rows=100"}, {"rows", "made0"}) == "100 25");
  CHECK(values(*job, {"made0=7"}, {"rows", "made0"}) == "34 7");
}

TEST_CASE("an index is not a size that something has to bound, and a count is at most what it counts in") {
  Diagnostics diagnostics;
  Result<Job> job = parse_text(R"(sg 1.0 job "j" world 1
device cpu

graph rank *
  symbol b input [2, 64] hint 5 "x.size()[0]"
  symbol u0 data [0, 64]
  symbol u1 data
  symbol u2 data
  input %x : f32[b, 4] "x"

  forward -
    %lt      = aten.lt.Scalar(%x, 0) : bool[b, 4]
    %nonzero = aten.nonzero(%lt) : i64[u0, 2]  binds [u0]
    %best    = aten.argmax(%x) : i64[]
    %at      = aten._local_scalar_dense(%best) : int u1  binds [u1]
    %row     = aten.select.int(%x, 0, %at) : f32[4] +u2  binds [u2]
    %back    = aten.select_backward(%row, [b, 4], 0, %at) : f32[b, 4]
  output %nonzero
  output %back
)",
                               "index", &diagnostics);
  REQUIRE(job.ok());
  CHECK(values(*job, {}, {"b", "u0", "u1"}) == "5 20 none");
  CHECK(values(*job, {"b=9"}, {"b", "u0"}) == "9 36");
  CHECK(values(*job, {"max"}, {"u0"}) == "20");
}

TEST_CASE("there are at most as many different elements or rows as there are") {
  Diagnostics diagnostics;
  Result<Job> job = parse_text(R"(sg 1.0 job "j" world 1
device cpu

graph rank *
  symbol b input [2, 64] hint 5 "x.size()[0]"
  symbol u0 data
  symbol u1 data
  symbol u2 data
  input %x : f32[b, 4] "x"

  forward -
    %all, %ia, %na   = aten.unique_consecutive(%x) : f32[u0], i64[0], i64[0]  binds [u0]
    %rows, %ir, %nr  = aten.unique_consecutive(%x, false, false, 0) : f32[u1, 4], i64[0], i64[0]  binds [u1]
    %wide, %iw, %nw  = aten.unique_dim(%x, -1) : f32[b, u2], i64[4], i64[u2]  binds [u2]
  output %all
  output %rows
  output %wide
)",
                               "unique", &diagnostics);
  REQUIRE(job.ok());
  CHECK(values(*job, {}, {"b", "u0", "u1", "u2"}) == "5 20 5 4");
}

TEST_CASE("ranks that run different programs bound each other, exchange by exchange") {
  Exchanging x(2);
  x.program.ranks = {0};
  Program& other = x.job.add_program();
  Program& first = *x.job.programs[0];
  other.ranks = {1};
  for (const char* name : {"a", "b"}) {
    Symbol s;
    s.name = x.pool.str(name), s.kind = SymbolKind::data;
    first.symbols.push_back(s), other.symbols.push_back(s);
  }
  x.exchange(first, {"a", "4"}, {"3", "4"});
  x.exchange(first, {"b", "1"}, {"1", "1"});
  x.exchange(other, {"a", "1"}, {"7", "9"});
  x.exchange(other, {"b", "1"}, {"u_open", "1"});
  RangeInference inference = infer_ranges(x.job);
  CHECK(x.range(inference, "a", 0) == "[3, 9]");
  CHECK(x.range(inference, "a", 1) == "[3, 9]");
  CHECK(x.range(inference, "b", 0) == "[0, inf]");  // what the other rank sends is unknown
}

TEST_CASE("ranks that the job does not hold may send anything") {
  Exchanging x(2);
  x.symbol("a", 0, std::nullopt);
  x.exchange(x.program, {"a", "4"}, {"3", "4"});
  x.program.ranks = {0};
  CHECK(x.range(infer_ranges(x.job), "a") == "[0, inf]");
  x.job.groups[0].parts = {{{0}, {}}, {{1}, {}}};  // all members of the rank's own part are in the job
  CHECK(x.range(infer_ranges(x.job), "a") == "[3, 4]");
}

TEST_CASE("assumed values follow guards and exchanges") {
  Exchanging x(4);
  x.symbol("s0", 64, 128, SymbolKind::input);
  for (int i = 0; i < 8; ++i) x.symbol("u" + std::to_string(i), 0, std::nullopt);
  x.guard("Eq(u0 + u1 + u2 + u3, 2*s0 + 2)");
  x.exchange(x.program, {"u4", "u5", "u6", "u7"}, {"u0", "u1", "u2", "u3"});
  CHECK(values(x.job, {}, {"s0", "u0", "u1", "u2", "u3", "u4", "u7"}) == "128 65 65 64 64 65 64");
  CHECK(values(x.job, {"s0=64"}, {"s0", "u0", "u3", "u7"}) == "64 33 32 32");
  CHECK(values(x.job, {"u0=100", "s0=64"}, {"u0", "u1", "u2", "u3", "u4"}) == "100 10 10 10 100");
  CHECK(values(x.job, {"max"}, {"s0", "u0", "u7"}) == "128 258 258");
  CHECK(values(x.job, {"s0=1"}, {}) == "--assume s0=1 is outside [64, 128]");
  CHECK(values(x.job, {"s1=1"}, {}) == "--assume names 's1', which is not a symbol of the job");
  CHECK(values(x.job, {"most"}, {}) == "--assume cannot read 'most'");
  CHECK(values(x.job, {"u0="}, {}) == "--assume cannot read 'u0='");
  CHECK(values(x.job, {"u0=99999999999999999999"}, {}) == "--assume cannot read 'u0=99999999999999999999'");
  x.symbol("u8", 0, std::nullopt);
  CHECK(values(x.job, {}, {"u0", "u8"}) == "65 none");  // nothing uses it
  x.exchange(x.program, {"u8", "1", "1", "1"}, {"u8", "1", "1", "1"});
  CHECK(values(x.job, {}, {}) == "nothing bounds the data-dependent sizes u8");
  x.program.symbols.back().hint = 5;
  CHECK(values(x.job, {}, {"u8"}) == "5");
}

TEST_CASE("what captured exchanges receive is bounded") {
  struct Case {
    std::vector<std::string> files;
    bool spmd;
    const char* received;
    const char* range;
    const char* balanced;
  };
  auto rank = [](int r) { return "multi/dsv3-ep4/rank" + std::to_string(r) + "/step.json"; };
  const Case cases[] = {
      {{rank(0), rank(1), rank(2), rank(3)}, false, "u7", "[0, 256]", "64"},
      {{"peer/dsv3-ep4/graphchunk/00-traced.json.gz"}, true, "u10", "[0, 256]", "64"},
      {{"shape/dsv3-16b-ep32/step.json.gz"}, true, "u63", "[0, 98304]", "3072"},
      {{"deep/dsv3-deep/after-all-graphchunk.json.gz"}, true, "u209", "[0, 256]", nullptr},
  };
  for (const Case& c : cases) {
    auto job = import(c.files, c.spmd);
    if (!job) return;
    INFO(c.files[0]);
    RangeInference inference = infer_ranges(*job);
    CHECK(print(inference.facts[0].range_of_symbol(job->pool->str(c.received))) == c.range);
    // In the last file, a chunk pass left types whose symbols no node binds: nothing can bound those.
    if (c.balanced == nullptr) continue;
    CHECK(inference.unbounded.empty());
    CHECK(values(*job, {}, {c.received}) == c.balanced);
  }
}
