#include "libgraph/binary/binary.h"

#include <catch2/catch.hpp>
#include <cmath>
#include <future>
#include <memory>

#include "libgraph/binary/seal.h"
#include "libgraph/verify/verify.h"
#include "tests/support/random_job.h"
#include "tests/support/rng.h"
#include "tests/support/sample_job.h"

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

// Checks the invariants that the rest of the library relies on in a job that was read.
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

// Any bytes give an error, or a job that can be used, written, and read again.
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
  std::string bytes = written(test::sample_job());
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
  CHECK(g.node(g.find_node("join")).forward == split);
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
  CHECK(written(test::sample_job({"zz", "body", "u0", "cpu", "a_1"})) == written(test::sample_job()));
}

TEST_CASE("the bytes are the same when made from a copy of the pool, while the job's own goes on interning") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    INFO("seed " << seed);
    Job job = test::random_job(seed);
    const std::string bytes = written(job);
    const Pool copy(*job.pool);
    auto made = std::async(std::launch::async, [&] { return write_binary(job, copy); });
    verify(job, {}, std::make_unique<Diagnostics>().get());
    for (size_t i = 0; i < 5000; ++i) job.pool->str("name " + std::to_string(i));
    Result<std::string> again = made.get();
    REQUIRE(again.ok());
    CHECK(again.value() == bytes);
    CHECK(copy.strings.size() < job.pool->strings.size());
    for (uint32_t i = 0; i < copy.strings.size(); ++i)
      CHECK(copy.strings.find(job.pool->strings[StrId(i)]) == StrId(i));
  }
}

TEST_CASE("the bytes do not remember erased nodes and removed order") {
  Job job = test::sample_job(), other = test::sample_job();
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
  Job a = test::sample_job(), b = test::sample_job();
  for (const char* key : {"x", "b"}) a.extra.push_back({a.pool->str(key), a.pool->str("1")});
  for (const char* key : {"b", "x"}) b.extra.insert(b.extra.begin(), {b.pool->str(key), b.pool->str("1")});
  CHECK(written(a) == written(b));
}

TEST_CASE("every truncation of a file names the tool that wrote it") {
  std::string bytes = written(test::sample_job());
  for (size_t size = 0; size < bytes.size(); ++size) {
    Result<Job> job = read_binary(std::string_view(bytes).substr(0, size), "<stdin>");
    REQUIRE(!job.ok());
    CHECK(job.error().kind == ErrorKind::unreadable);
    CHECK(job.error().where.offset == size);
    if (size >= 150) {  // long enough for the front
      CHECK(job.error().message == "the stream from sg-import ended early (after " + std::to_string(size) +
                                       " bytes): the command before this one failed or was killed");
    }
  }
  const Error of_file = read_binary(std::string_view(bytes).substr(0, 500), "step.sg").error();
  CHECK(of_file.message == "the file ends after 500 bytes, without its seal (written by sg-import)");
  CHECK(of_file.hint == "copy it or make it again");
  CHECK(read_binary("", "<stdin>").error().message ==
        "empty input: the command before this one in the pipe wrote nothing");
}

TEST_CASE("every flipped bit is found by the seal") {
  std::string bytes = written(test::sample_job());
  for (size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
    Result<Job> job = read_binary(bytes, "x.sg");
    CHECK((!job.ok() && job.error().kind == ErrorKind::unreadable));
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ 1 << bit % 8);
  }
}

TEST_CASE("below the seal, any flipped bit or cut gives an error or a job") {
  std::string body = body_of(written(test::sample_job()));
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
      if (round == 0) survives("x" + changed);  // not aligned, wrong magic
    }
  }
}

TEST_CASE("bytes at any alignment are read") {
  std::string bytes = written(test::sample_job());
  for (size_t shift = 0; shift < 8; ++shift) {
    std::string shifted = std::string(shift, 'x') + bytes;
    CHECK(read_binary(std::string_view(shifted).substr(shift), "x.sg").ok());
  }
}

TEST_CASE("a newer major version is refused with both versions, a newer minor is read") {
  std::string body = body_of(written(test::sample_job()));
  FilePrefix prefix = read_prefix(body);
  CHECK((prefix.has_version && prefix.major == kSchemaMajor && prefix.minor == kSchemaMinor));
  CHECK(prefix.tool == "sg-import");
  // Find the field of the major version: the only byte of the front that changes the major version of the prefix.
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
  std::string bytes = written(test::sample_job());
  CHECK(looks_binary(bytes));
  CHECK(!looks_binary("sg 1.0 job"));
  CHECK(read_binary("{\"format\": \"step-capture\"}", "x.json").error().message == "this is not a binary graph file");
  CHECK(!read_binary(bytes + "\n", "x.sg").ok());
  Result<Job> twice = read_binary(bytes + bytes, "x.sg");
  REQUIRE(!twice.ok());
  CHECK(twice.error().message.find("the seal is for") == 0);
}

TEST_CASE("the writer refuses what no reader would take") {
  Job job = test::sample_job();
  Graph& g = job.programs[0]->graph;
  SECTION("arguments nested too deep") {
    Arg deep = Arg::integer(1);
    for (int i = 0; i < 40; ++i) deep = Arg::list({deep});
    g.set_args(g.first(), {deep});
  }
  SECTION("an expression that overflowed") { g.set_args(g.first(), {Arg::expr(ExprPool::kInvalid)}); }
  SECTION("a name that is no UTF-8") { g.set_module(g.first(), job.pool->str("\xC3\x28")); }
  Result<std::string> bytes = write_binary(job);
  REQUIRE(!bytes.ok());
  CHECK(bytes.error().kind == ErrorKind::cannot_apply);
}
