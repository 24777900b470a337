#include "libgraph/binary.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <cmath>
#include <limits>

#include "libgraph/seal.h"
#include "libgraph/sha256.h"
#include "tests/support/random_job.h"
#include "tests/support/rng.h"

using namespace sg;

namespace {

std::string written(const Job& job) {
  Result<std::string> bytes = write_binary(job);
  if (!bytes.ok()) FAIL(bytes.error().message);
  return bytes.value();
}

Job loaded(const std::string& bytes) {
  Result<Job> job = read_binary(bytes, "x.sg");
  if (!job.ok()) FAIL(job.error().message << " at " << job.error().where.path);
  return std::move(job.value());
}

std::string body_of(const std::string& sealed) { return sealed.substr(0, sealed.size() - kTrailerBytes); }

std::string sealed_again(std::string body) {
  seal(&body);
  return body;
}

// A job of a few hundred bytes with something of everything. `noise` is interned first: it must not show in the bytes.
Job small_job(const std::vector<std::string>& noise = {}) {
  Job job;
  Pool& pool = *job.pool;
  for (const std::string& s : noise) {
    pool.str(s);
    pool.op("noise." + s);
    pool.tensor(DType::i8, {pool.exprs.add(pool.exprs.symbol(s), pool.exprs.constant(7))}, pool.str(s));
  }
  StrId u0 = pool.str("u0");
  Expr rows = pool.exprs.max(pool.exprs.constant(1), pool.exprs.symbol(u0));
  TypeId matrix = pool.tensor(DType::bf16, {rows, pool.exprs.constant(64)}, pool.str("cpu"));
  job.title = pool.str("small");
  job.note = "two lines\nof text";
  job.world = 2;
  job.groups.push_back({pool.str("ep"), 1, 5, {{{0, 1}, {{0, pool.str("113")}, {1, pool.str("114")}}}}});
  job.meshes.push_back({StringTable::kEmpty, {pool.str("ep")}, {2}});
  job.provenance.push_back({pool.str("sg-import"), pool.str("0.1.0"), {}, pool.str("sha256:00")});
  job.extra.push_back({pool.str("k"), pool.str("[1,2]")});
  Program& program = job.add_program();
  Symbol symbol{u0, SymbolKind::data};
  symbol.min = 0;
  program.symbols.push_back(symbol);
  program.guards.push_back({Relation::le, rows, pool.exprs.constant(9), {}});
  program.nested.push_back(std::make_unique<Nested>(Nested{pool.str("body"), Graph(&pool)}));
  Graph& body = program.nested[0]->graph;
  body.add_output({body.add_input("x", matrix, {})});

  Graph& g = program.graph;
  Input parameter;
  parameter.kind = InputKind::parameter;
  parameter.fqn = pool.str("w");
  parameter.sharding = {{pool.exprs.constant(128)}, {pool.str("S(0)")}, {pool.str("ep")}};
  ValueId w = g.add_input("w", matrix, parameter);
  NodeSpec spec;
  spec.op = pool.op("aten.split");
  spec.args = {Arg::value(w), Arg::list({Arg::expr(rows), Arg::integer(-3)}), Arg::floating(-0.0)};
  spec.args.push_back(Arg::complex(1, std::numeric_limits<double>::quiet_NaN()).set_key(pool.str("alpha")));
  spec.args.push_back(Arg::dict({Arg::graph(NestedId(0)).set_key(pool.str("g")), Arg(Arg::group(GroupId(0))).set_key(u0)}));
  spec.result_types = {matrix, Pool::kUnknownType};
  spec.names = {"a", "b"};
  spec.label = "split";
  spec.module = pool.str("layers.0");
  spec.source = pool.sources.intern({pool.str("f.py"), 12, pool.str("forward")});
  NodeMeta meta;
  meta.recompute = Recompute::must_save;
  meta.binds.emplace();
  meta.result_chunks = {{0, {}}, {1, pool.str("o")}};
  spec.meta = pool.metas.intern(meta);
  NodeId split = g.append(spec);
  NodeSpec last;
  last.op = pool.op("aten.mm");
  last.args = {Arg::value(g.node(split).result(0)), Arg::dtype(DType::c64), Arg::text(ArgKind::string, pool.str("s"))};
  last.result_types = {matrix};
  last.phase = Phase::backward;
  last.forward = split;
  NodeId mm = g.append(last);
  g.add_output({g.node(mm).result(0), OutputKind::gradient, w});
  g.add_output({ValueId(), OutputKind::none});
  return job;
}

// The invariants that the rest of the library takes for granted in a job that was read.
void use_everything(const Job& job) {
  for (const auto& program : job.programs) {
    const Graph& g = program->graph;
    for (NodeId n : g.nodes()) {
      CHECK(g.find_node(g.label(n)) == n);
      for (uint32_t i = 0; i < g.node(n).result_count; ++i)
        CHECK(g.find_value(g.name(g.node(n).result(i))) == g.node(n).result(i));
      for (const Arg& arg : g.node(n).args)
        arg.walk([&](const Arg& a) {
          if (a.is(ArgKind::value)) CHECK(a.as_value().index < g.value_id_limit());
        });
    }
  }
}

// Whatever the bytes, there is an error or a job that can be used, written, and read again.
void survives(const std::string& body) {
  Result<Job> job = read_unsealed(body, "hostile.sg");
  if (!job.ok()) {
    CHECK(job.error().kind == ErrorKind::unreadable);
    CHECK(!job.error().message.empty());
    return;
  }
  use_everything(*job);
  Result<std::string> again = write_binary(*job);
  REQUIRE(again.ok());
  Result<Job> reread = read_binary(*again, "again.sg");
  REQUIRE(reread.ok());
  CHECK(*write_binary(*reread) == *again);
}

}  // namespace

TEST_CASE("a job is the same after writing and reading") {
  std::string bytes = written(small_job());
  Job job = loaded(bytes);
  CHECK(written(job) == bytes);
  CHECK(job.note == "two lines\nof text");
  const Graph& g = job.programs[0]->graph;
  NodeId split = g.find_node("split");
  REQUIRE(split);
  CHECK(g.node(split).args[1].items()[1].as_int() == -3);
  CHECK(std::signbit(g.node(split).args[2].as_float()));
  CHECK(std::isnan(g.node(split).args[3].items()[1].as_float()));
  CHECK(job.pool->exprs.print(g.type(g.find_value("a")).shape[0]) == "max(1, u0)");
  CHECK(g.meta(split).binds.has_value());
  CHECK(g.node(g.find_node("mm")).forward == split);
  CHECK(job.groups[0].parts[0].aliases[1].rank == 1);
}

TEST_CASE("random jobs are the same after writing and reading") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    INFO("seed " << seed);
    std::string bytes = written(test::random_job(seed));
    Job job = loaded(bytes);
    use_everything(job);
    CHECK(written(job) == bytes);
    CHECK(written(Job(job)) == bytes);
  }
}

TEST_CASE("the bytes depend on the job only, not on what its pool holds") {
  CHECK(written(small_job({"zz", "body", "u0", "cpu", "a_1"})) == written(small_job()));
}

TEST_CASE("the bytes do not remember erased nodes and removed order") {
  Job job = small_job(), other = small_job();
  Graph& g = other.programs[0]->graph;
  NodeSpec extra;
  extra.op = other.pool->op("aten.neg");
  extra.args = {Arg::value(g.inputs()[0].value)};
  extra.result_types = {Pool::kUnknownType};
  NodeId added = g.insert_before(g.first(), extra);
  CHECK(written(other) != written(job));
  g.erase(added);
  CHECK(written(other) == written(job));
}

TEST_CASE("extra keys are written in order") {
  Job a = small_job(), b = small_job();
  for (const char* key : {"x", "b"}) a.extra.push_back({a.pool->str(key), a.pool->str("1")});
  for (const char* key : {"b", "x"}) b.extra.insert(b.extra.begin(), {b.pool->str(key), b.pool->str("1")});
  CHECK(written(a) == written(b));
}

TEST_CASE("every truncation of a file names the tool that wrote it") {
  std::string bytes = written(small_job());
  for (size_t size = 0; size < bytes.size(); ++size) {
    Result<Job> job = read_binary(std::string_view(bytes).substr(0, size), "<stdin>");
    REQUIRE(!job.ok());
    CHECK(job.error().kind == ErrorKind::unreadable);
    CHECK(job.error().where.offset == size);
    if (size >= 150) {   // the front is there
      CHECK(job.error().message == "the stream from sg-import ended early (" + std::to_string(size) +
                                       " of ? bytes): the command before this one failed or was killed");
    }
  }
  CHECK(read_binary("", "<stdin>").error().message ==
        "empty input: the command before this one in the pipe wrote nothing");
}

TEST_CASE("every flipped bit is found by the seal") {
  std::string bytes = written(small_job());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    Result<Job> job = read_binary(bytes, "x.sg");
    CHECK((!job.ok() && job.error().kind == ErrorKind::unreadable));
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
  }
}

TEST_CASE("below the seal, any flipped bit or cut gives an error or a job") {
  std::string body = body_of(written(small_job()));
  for (size_t bit = 0; bit < 8 * body.size(); ++bit) {
    std::string changed = body;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ 1 << bit % 8);
    survives(changed);
  }
  for (size_t size = 0; size < body.size(); ++size) survives(body.substr(0, size));
}

TEST_CASE("below the seal, random changes to a random job give an error or a job") {
  test::Rng rng(7);
  for (uint64_t seed = 1; seed <= 6; ++seed) {
    std::string body = body_of(written(test::random_job(seed)));
    for (int round = 0; round < 150; ++round) {
      std::string changed = body;
      for (uint64_t edits = 1 + rng.below(4); edits != 0; --edits) {
        size_t at = rng.below(changed.size() / 4) * 4;
        uint32_t word = rng.percent(50) ? static_cast<uint32_t>(rng.below(64)) : static_cast<uint32_t>(rng.next());
        for (size_t i = 0; i < 4; ++i) changed[at + i] = static_cast<char>(word >> (8 * i));
      }
      survives(changed);
      if (round == 0) survives("x" + changed);   // not aligned, not ours
    }
  }
}

TEST_CASE("bytes at any alignment are read") {
  std::string bytes = written(small_job());
  for (size_t shift = 0; shift < 8; ++shift) {
    std::string shifted = std::string(shift, 'x') + bytes;
    CHECK(read_binary(std::string_view(shifted).substr(shift), "x.sg").ok());
  }
}

TEST_CASE("a newer major version is refused with both versions, a newer minor is read") {
  std::string body = body_of(written(small_job()));
  FilePrefix prefix = read_prefix(body);
  CHECK((prefix.has_version && prefix.major == kSchemaMajor && prefix.minor == kSchemaMinor));
  CHECK(prefix.tool == "sg-import");
  // Find the field of the major version: the only byte of the front that changes what the prefix says about it.
  size_t major_at = 0;
  for (size_t at = 8; at < 120 && major_at == 0; ++at) {
    std::string changed = body;
    changed[at] = 9;
    if (read_prefix(changed).major == 9) major_at = at;
  }
  REQUIRE(major_at != 0);
  body[major_at] = 2;
  Result<Job> newer = read_binary(sealed_again(body), "x.sg");
  REQUIRE(!newer.ok());
  CHECK(newer.error().message == "the file has schema version 2.0, this stepgraph reads up to 1.0");
  CHECK(!newer.error().hint.empty());
}

TEST_CASE("what is not ours, or has more after the end, is refused") {
  std::string bytes = written(small_job());
  CHECK(looks_binary(bytes));
  CHECK(!looks_binary("sg 1.0 job"));
  CHECK(read_binary("{\"format\": \"step-capture\"}", "x.json").error().message == "this is not a binary graph file");
  CHECK(!read_binary(bytes + "\n", "x.sg").ok());
  Result<Job> twice = read_binary(bytes + bytes, "x.sg");
  REQUIRE(!twice.ok());
  CHECK(twice.error().message.find("the seal is for") == 0);
}

TEST_CASE("the writer refuses what no reader would take") {
  Job job = small_job();
  Graph& g = job.programs[0]->graph;
  SECTION("arguments nested too deep") {
    Arg deep = Arg::integer(1);
    for (int i = 0; i < 40; ++i) deep = Arg::list({deep});
    g.set_args(g.first(), {deep});
  }
  SECTION("an expression that overflowed") {
    g.set_args(g.first(), {Arg::expr(ExprPool::kInvalid)});
  }
  SECTION("a name that is no UTF-8") { g.set_module(g.first(), job.pool->str("\xC3\x28")); }
  Result<std::string> bytes = write_binary(job);
  REQUIRE(!bytes.ok());
  CHECK(bytes.error().kind == ErrorKind::cannot_apply);
}
