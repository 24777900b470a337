#include "libpasses/auto_chunk/auto_chunk.h"

#include <catch2/catch.hpp>

#include "libgraph/infer/infer.h"
#include "libpasses/auto_chunk/amplifiers.h"
#include "libpasses/auto_chunk/auto_chunk_outline.h"
#include "tests/support/parse.h"

using namespace sg;
using sg::test::parse;

namespace {

std::vector<int64_t> sizes(int64_t rows, int64_t chunks) {
  Pool pool;
  std::vector<int64_t> out;
  for (Expr e : cut_into(&pool.exprs, pool.exprs.constant(rows), chunks).sizes)
    out.push_back(*pool.exprs.constant_value(e));
  return out;
}

// A head of `rows` tokens, as in bf16 graphs.
Job head(int64_t rows, int64_t width, int64_t classes, bool bias) {
  const std::string n = std::to_string(rows), c = std::to_string(width), v = std::to_string(classes);
  Job out = parse(("sg 1.0 job \"t\" world 1\ngraph rank *\n  param %w : bf16[" + c + ", " + v +
                   "] \"w\"\n  param %b : bf16[" + v + "] \"b\"\n  input %x : bf16[" + n + ", " + c +
                   "]\n  forward head\n    %y = " + (bias ? "aten.addmm(%b, %x, %w)" : "aten.mm(%x, %w)") +
                   "\n    %s = aten.sum(%y)\n  loss %s\n")
                      .c_str());
  infer_missing_types(*out.programs[0]);
  return out;
}

double ratio_of(const Job& job) {
  AutoChunkOptions options;
  const Amplifiers all = find_amplifiers(*job.programs[0], options);
  return all.found.empty() ? 0 : all.found[0].ratio();
}

size_t accepted_at(const Job& job, double ratio) {
  AutoChunkOptions options;
  options.ratio = ratio;
  return find_amplifiers(*job.programs[0], options).found.size();
}

Result<Change> run(Job* job, const AutoChunkOptions& options) {
  Diagnostics notes;
  PassContext context;
  context.notes = &notes;
  return auto_chunk(job, options, context);
}

}  // namespace

TEST_CASE("auto chunk: sizes are torch.chunk's, and never none") {
  CHECK(sizes(32768, 64) == std::vector<int64_t>(64, 512));
  CHECK(sizes(100, 8) == std::vector<int64_t>{13, 13, 13, 13, 13, 13, 13, 9});
  CHECK(sizes(5, 4) == std::vector<int64_t>{2, 2, 1});
  CHECK(sizes(3, 8) == std::vector<int64_t>{1, 1, 1});
}

TEST_CASE("auto chunk: rows that are a symbol leave the rest to the last chunk") {
  Pool pool;
  const Expr rows = pool.exprs.symbol("s0");
  const AutoCuts cuts = cut_into(&pool.exprs, rows, 3);
  REQUIRE(cuts.sizes.size() == 3);
  CHECK(cuts.symbolic);
  CHECK(cuts.sizes[0] == cuts.sizes[1]);
  CHECK(pool.exprs.sum(cuts.sizes) == rows);
  CHECK(pool.exprs.evaluate(cuts.sizes[2], [](StrId) { return std::optional<int64_t>(11); }) == 5);
}

TEST_CASE("auto chunk: the ratio of heads of known models") {
  CHECK(ratio_of(head(32768, 768, 50257, true)) == Approx(25.8).margin(0.05));
  CHECK(ratio_of(head(32768, 768, 128256, false)) == Approx(34.0).margin(0.05));
  CHECK(ratio_of(head(16384, 2048, 151936, false)) == Approx(7.2).margin(0.05));
  CHECK(ratio_of(head(8192, 4096, 128256, false)) == Approx(1.9).margin(0.05));
}

TEST_CASE("auto chunk: a ratio of 8 takes the heads that AutoChunker takes, the default all") {
  CHECK(accepted_at(head(32768, 768, 50257, true), 8) == 1);
  CHECK(accepted_at(head(16384, 2048, 151936, false), 8) == 0);
  CHECK(accepted_at(head(18365, 2048, 151936, false), 8) == 1);
  CHECK(accepted_at(head(8192, 4096, 128256, false), 8) == 0);
  CHECK(accepted_at(head(44014, 4096, 128256, false), 8) == 1);
  CHECK(accepted_at(head(1 << 20, 4096, 32000, false), 8) == 0);
  CHECK(ratio_of(head(1 << 20, 4096, 32000, false)) > 0);
}

TEST_CASE("auto chunk: what is small is no amplifier, and a graph without one stays") {
  Job job = head(8, 2, 64, false);
  auto change = run(&job, {});
  REQUIRE(change.ok());
  CHECK_FALSE(change->changed);
  CHECK(change->summary.find("no forward node") != std::string::npos);
}

// `%away` is chunked along an axis that the product does not contract.
TEST_CASE("auto chunk: what one node takes whole is not cut for another") {
  Job job = parse(R"(sg 1.0 job "j" world 1
graph rank *
  input %x : f32[4, 4]
  param %w : f32[4, 13] "w"
  param %b : f32[13] "b"
  forward head
    %row    = aten.sum.dim_IntList(%x, [1], true)
    %y      = aten.mul.Tensor(%row, %b)
  backward head
    %turned = aten.t(%y)
    %away   = aten.t(%w)
    %whole  = aten.mm(%y, %away)
    %cut    = aten.cat([%turned, %away], 0)
  output %whole
  output %cut
)");
  infer_missing_types(*job.programs[0]);
  AutoChunkOptions options;
  options.min_output = 0;
  options.chunks = 2;
  REQUIRE(run(&job, options).ok());
  REQUIRE(job.programs[0]->nested.size() == 1);
  const Graph& body = job.programs[0]->nested[0]->graph;
  const NodeId whole = body.find_node("whole"), cut = body.find_node("cut");
  REQUIRE(whole);
  REQUIRE(cut);
  const Type& away = body.type(body.node(whole).args[1].as_value());
  CHECK(body.pool().exprs.constant_value(away.shape[1]) == 4);
  const Type& part = body.type(body.node(cut).args[0].items()[1].as_value());
  CHECK(body.pool().exprs.constant_value(part.shape[1]) == 2);
}

TEST_CASE("auto chunk: results that nobody asked for have no length") {
  Job job = parse(R"(sg 1.0 job "j" world 1
graph rank *
  input %g : f32[8, 4, 2]
  input %x : f32[8, 4, 3]
  input %mean : f32[8, 4, 1]
  input %rstd : f32[8, 4, 1]
  param %w : f32[3] "w"
  %wide = aten.slice_backward(%g, [8, 4, 3], 2, 0, 9223372036854775807, 2)
  %dx, %dw, %db = aten.native_layer_norm_backward(%wide, %x, [3], %mean, %rstd, %w, none, [false, true, false])
  output %dw
)");
  infer_missing_types(*job.programs[0]);
  AutoChunkOptions options;
  options.min_output = 0, options.ratio = 1.2, options.chunks = 2;
  auto change = run(&job, options);
  REQUIRE(change.ok());
  INFO(change->summary);
  CHECK(change->changed);
}

TEST_CASE("auto chunk: the fewest chunks for a peak") {
  for (int64_t peak : {int64_t{40} << 20, int64_t{20} << 20, int64_t{5} << 20}) {
    Job job = head(4096, 16, 16384, false);
    AutoChunkOptions options;
    options.peak_bytes = peak;
    auto change = run(&job, options);
    REQUIRE(change.ok());
    const int64_t chunks = (int64_t{4096} * 16384 * 2 + peak - 1) / peak;
    INFO(change->summary);
    CHECK(change->summary.find("%y " + std::to_string(chunks)) != std::string::npos);
  }
  Job job = head(4096, 16, 16384, false);
  AutoChunkOptions options;
  options.peak_bytes = 16;
  auto change = run(&job, options);
  REQUIRE_FALSE(change.ok());
  CHECK(change.error().kind == ErrorKind::cannot_apply);
}
