#include "librun/values/shard.h"

#include <catch2/catch.hpp>

#include "tests/support/parse.h"

using namespace sg;
using sg::test::parse;

namespace {

const SizeValues kNoSymbols = [](StrId) -> std::optional<int64_t> { return std::nullopt; };

// A job with one parameter, its sharding in the text form: "f32[2] ... shard [8] fsdp S(0)".
Job sharded_job(std::string_view type, std::string_view sharding, std::string_view header = "mesh [fsdp 2, tp 2]\n") {
  return parse("sg 1.0 job \"t\" world 4\n" + std::string(header) + "graph rank *\n  param %w : " + std::string(type) +
               " \"w\" shard " + std::string(sharding) + "\n  forward -\n    %x = aten.neg(%w)\n  output %x\n");
}

Result<Shard> shard_of(const Job& job, uint32_t rank) {
  const Graph& graph = job.programs[0]->graph;
  std::vector<int64_t> local;
  for (Expr e : graph.type(graph.inputs()[0].value).shape) local.push_back(*job.pool->exprs.constant_value(e));
  return Shard::of(job, rank, graph.inputs()[0].sharding, local, kNoSymbols);
}

std::vector<int64_t> along(const Result<Shard>& shard, size_t axis) {
  REQUIRE(shard.ok());
  std::vector<int64_t> out;
  for (int64_t i = 0; i < shard->local_shape()[axis]; ++i) out.push_back(shard->global_index(axis, i));
  return out;
}

using List = std::vector<int64_t>;

}  // namespace

TEST_CASE("S(d) gives the ranks of a mesh axis one piece each, in order") {
  Job job = sharded_job("f32[2, 3]", "[4, 6] fsdp S(0), tp S(1)");
  CHECK(along(shard_of(job, 0), 0) == List{0, 1});
  CHECK(along(shard_of(job, 2), 0) == List{2, 3});
  CHECK(along(shard_of(job, 2), 1) == List{0, 1, 2});
  CHECK(along(shard_of(job, 3), 1) == List{3, 4, 5});
}

TEST_CASE("axes that do not divide leave the last ranks less, or nothing") {
  const char* const mesh = "mesh [fsdp 4]\n";
  CHECK(along(shard_of(sharded_job("f32[3]", "[10] fsdp S(0)", mesh), 2), 0) == List{6, 7, 8});
  CHECK(along(shard_of(sharded_job("f32[1]", "[10] fsdp S(0)", mesh), 3), 0) == List{9});
  CHECK(along(shard_of(sharded_job("f32[0]", "[3] fsdp S(0)", mesh), 3), 0).empty());
  auto wrong = shard_of(sharded_job("f32[3]", "[10] fsdp S(0)", mesh), 3);
  REQUIRE(!wrong.ok());
  CHECK(wrong.error().message == "its placements give rank 3 1 elements of axis 0, the graph has [3]");
}

TEST_CASE("two mesh axes may cut one tensor axis: the second within the first, or with strides the other way round") {
  Job nested = sharded_job("f32[2]", "[8] fsdp S(0), tp S(0)");
  CHECK(along(shard_of(nested, 1), 0) == List{2, 3});
  CHECK(along(shard_of(nested, 2), 0) == List{4, 5});
  Job strided = sharded_job("f32[2]", "[8] fsdp _S(0, 2), tp S(0)");  // as if tp had cut first
  CHECK(along(shard_of(strided, 0), 0) == List{0, 1});
  CHECK(along(shard_of(strided, 1), 0) == List{4, 5});
  CHECK(along(shard_of(strided, 2), 0) == List{2, 3});
  CHECK(along(shard_of(strided, 3), 0) == List{6, 7});
  Job alone = sharded_job("f32[4]", "[8] fsdp _S(0, 2), tp R");
  auto shard = shard_of(alone, 2);
  CHECK(along(shard, 0) == List{2, 3, 6, 7});
  CHECK(shard->run_length(0, 0) == 2);
  CHECK(shard->run_length(0, 1) == 1);
}

TEST_CASE("replicas are whole, and of a sum the first rank has it all") {
  Job job = sharded_job("f32[4]", "[4] fsdp R, tp P(sum)");
  CHECK(along(shard_of(job, 3), 0) == List{0, 1, 2, 3});
  CHECK(shard_of(job, 3)->is_zero());
  CHECK(!shard_of(job, 2)->is_zero());
  CHECK(!shard_of(sharded_job("f32[4]", "[4] fsdp R, tp P(avg)"), 3)->is_zero());
}

TEST_CASE("axes are found in the mesh that has all of them, else among the groups") {
  Job sparse = sharded_job("f32[2]", "[8] efsdp S(0), ep S(0)", "mesh [fsdp 4, tp 1]\nmesh sparse [efsdp 1, ep 4]\n");
  CHECK(along(shard_of(sparse, 3), 0) == List{6, 7});
  Job group = sharded_job("f32[4]", "[8] fsdp S(0)", "group @\"loss/fsdp\" [0 2] [1 3]\n");
  CHECK(along(shard_of(group, 3), 0) == List{4, 5, 6, 7});
  auto none = shard_of(sharded_job("f32[4]", "[8] fsdp S(0)", ""), 0);
  REQUIRE(!none.ok());
  CHECK(none.error().message == "no mesh and no group has the axis `fsdp`");
}

TEST_CASE("placements that mean nothing are errors") {
  for (const char* placement :
       {"\"S(2)\"", "\"S(0\"", "\"X\"", "\"_S(0)\"", "\"_S(0, 0)\"", "\"S(99999999999999999999)\"",
        "\"_S(0, 4611686018427387904)\"", "\"_S(0, 1048577)\""}) {
    CAPTURE(placement);
    std::string text(placement);
    CHECK(!shard_of(sharded_job("f32[4]", "[8] fsdp " + text + ", tp R"), 0).ok());
  }
}
