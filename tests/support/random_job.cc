#include "tests/support/random_job.h"

#include <algorithm>
#include <string>

#include "tests/support/random_graph.h"
#include "tests/support/rng.h"

namespace sg::test {
namespace {

void add_header(Job& job, Rng& rng) {
  Pool& pool = *job.pool;
  constexpr std::string_view kTitles[] = {"", "dsv3-ep4", "a title with \"quotes\"", "größe"};
  job.title = pool.str(rng.pick(kTitles));
  if (rng.percent(60)) job.producer = {{pool.str("torch"), pool.str("\"2.15.0\"")}};
  if (rng.percent(40)) job.note = "line one\nline \"two\"\tand more: é";
  if (rng.percent(40)) job.extra = {{pool.str("key"), pool.str("{\"json\":1}")}, {pool.str("odd key"), pool.str("[]")}};
  for (uint64_t i = rng.below(3); i-- > 0;) {
    Provenance p;
    p.tool = pool.str(i == 0 ? "sg-import" : "sg-clean");
    p.version = pool.str("0.1." + std::to_string(i));
    if (rng.percent(60))
      p.options = {{pool.str("policy"), pool.str("\"default\"")}, {pool.str("spmd"), pool.str("true")}};
    p.input_digest = rng.percent(80) ? pool.str("sha256:" + std::string(64, '0')) : StrId();
    job.provenance.push_back(p);
  }
}

// Parts of `size` ranks, `stride` apart: {0 1}{2 3} for (2, 1), {0 2}{1 3} for (2, 2).
Group family(Job& job, std::string_view axis, uint32_t size, uint32_t stride, uint32_t ordinal, Rng& rng) {
  Group group;
  group.axis = job.pool->str(axis);
  group.ordinal = ordinal;
  group.priority = rng.percent(20) ? 5 : 0;
  for (uint32_t first = 0; first < job.world; ++first) {
    if (first / stride % size != 0) continue;
    GroupPart part;
    for (uint32_t i = 0; i < size; ++i) part.ranks.push_back(first + i * stride);
    StrId name = job.pool->str(std::to_string(20 + first));
    for (uint32_t r : part.ranks) part.aliases.push_back({r, rng.percent(90) ? name : job.pool->str("odd name")});
    if (rng.percent(20)) part.aliases.clear();
    group.parts.push_back(std::move(part));
  }
  return group;
}

void add_groups(Job& job, Rng& rng) {
  if (job.world == 1) return;
  Pool& pool = *job.pool;
  uint32_t inner = job.world >= 4 ? 2 : 1;
  job.meshes.push_back({StringTable::kEmpty, {pool.str("fsdp"), pool.str("tp")}, {job.world / inner, inner}});
  if (rng.percent(50)) job.meshes.push_back({pool.str("sparse"), {pool.str("ep")}, {job.world}});
  job.groups.push_back(family(job, "ep", job.world, 1, 0, rng));
  if (rng.percent(50)) job.groups.push_back(family(job, "ep", job.world, 1, 1, rng));  // distinguished by its ordinal
  if (inner == 1) return;
  job.groups.push_back(family(job, "tp", inner, 1, 0, rng));
  job.groups.push_back(family(job, "batch/loss/fsdp", job.world / inner, inner, 0, rng));
  if (rng.percent(30)) {  // a family without some of the ranks
    Group partial = family(job, "odd axis", inner, 1, 0, rng);
    partial.parts.resize(1);
    job.groups.push_back(std::move(partial));
  }
}

void add_nested(Job& job, Program& program, Rng& shape, Rng& own, const RandomJobOptions& options) {
  Pool& pool = *job.pool;
  Expr n = pool.exprs.constant(4), m = pool.exprs.constant(8);
  for (uint64_t i = 0, count = shape.below(4); i < count; ++i) {
    StrId name = pool.str(i == 2 ? "odd body" : "sdpa_mask" + std::to_string(i));
    program.nested.push_back(std::make_unique<Nested>(Nested{name, Graph(&pool)}));
    std::vector<TypeId> inputs = {pool.tensor(DType::f32, {n, m}, pool.str("cpu"))};
    if (shape.percent(60)) inputs.push_back(pool.tensor(DType::f32, {m, m}, pool.str("cpu")));
    Graph& body = program.nested.back()->graph;
    GraphBuilder(job, program, body, shape, own, options).fill_nested(std::move(inputs), shape.below(8));
  }
}

// Which ranks share a program: all, none, or neighbours in pairs; sometimes the job holds only some of them.
std::vector<std::vector<uint32_t>> rank_sets(const Job& job, const RandomJobOptions& options, Rng& rng) {
  if (!options.ranks_apart || job.world == 1 || rng.percent(50)) return {{}};
  uint32_t share = job.world >= 4 && rng.percent(50) ? 2 : 1;
  uint32_t held = rng.percent(20) ? job.world / 2 : job.world;
  std::vector<std::vector<uint32_t>> sets;
  for (uint32_t first = 0; first < held; first += share) {
    sets.emplace_back();
    for (uint32_t r = first; r < std::min(first + share, held); ++r) sets.back().push_back(r);
  }
  return sets;
}

}  // namespace

Job random_job(uint64_t seed, const RandomJobOptions& options) {
  Rng rng(seed);
  Job job;
  constexpr uint32_t kWorlds[] = {1, 2, 4, 8};
  job.world = options.world != 0 ? options.world : rng.pick(kWorlds);
  add_header(job, rng);
  add_groups(job, rng);
  std::vector<std::vector<uint32_t>> sets = rank_sets(job, options, rng);
  uint64_t structure = rng.next();
  for (std::vector<uint32_t>& ranks : sets) {
    Program& program = job.add_program();
    program.ranks = ranks;
    Rng shape(structure), own(rng.next());
    if (options.nested) add_nested(job, program, shape, own, options);
    GraphBuilder(job, program, program.graph, shape, own, options).fill();
  }
  return job;
}

}  // namespace sg::test
