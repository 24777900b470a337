#include "libpasses/axis/axis_rules.h"

#include <catch2/catch.hpp>
#include <set>

#include "libgraph/text/text.h"
#include "libpasses/chunk/chunk.h"
#include "tests/support/parse.h"

using namespace sg;
using sg::test::parse;

namespace {

// Chunks module `m` of a graph whose nodes are `body`: the resulting text, or the message of a refusal.
struct Chunked {
  std::string text, refusal;
};
Chunked chunk_body(const std::string& body, int64_t chunks = 2) {
  Job job = parse(("sg 1.0 job \"t\" world 1\ngraph rank *\n" + body).c_str());
  Diagnostics notes;
  PassContext context;
  context.notes = &notes;
  ChunkOptions options;
  options.modules = "m";
  options.chunks = chunks;
  auto change = chunk(&job, options, context);
  return change.ok() ? Chunked{print_text(job), {}} : Chunked{{}, change.error().message};
}

std::string chunk_of(const std::string& body, int64_t chunks = 2) { return chunk_body(body, chunks).refusal; }

bool says(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

const std::string kInputs =
    "  param %w : f32[4, 4] \"w\"\n  input %x : f32[8, 4]\n  input %y : f32[8, 8]\n  forward m\n";

}  // namespace

TEST_CASE("axis rules: every row names an op of the table, once") {
  std::set<std::string_view> seen;
  for (const AxisRow& row : all_axis_rules()) {
    INFO(row.op);
    CHECK(find_op(row.op) != nullptr);
    CHECK(seen.insert(row.op).second);
    CHECK(find_axis_rule(*find_op(row.op)) == &row);
  }
}

TEST_CASE("axis rules: pointwise ops need no row, and what is neither has none") {
  CHECK(find_axis_rule(*find_op("aten.tanh.default")) != nullptr);
  CHECK(find_axis_rule(*find_op("aten.as_strided.default")) == nullptr);
}

TEST_CASE("axis rules: what is added to zeros by index is a sum of the chunks") {
  const std::string begin = kInputs +
                            "    %s, %i = aten.topk(%y, 2) : f32[8, 2], i64[8, 2]\n"
                            "    %k = aten.view(%i, [16]) : i64[16]\n    %v = aten.view(%s, [16]) : f32[16]\n";
  auto step = [&](const std::string& into, const std::string& adds) {
    return chunk_body(begin + "    %z = " + into + " : f32[8]\n    %c = " + adds +
                      " : f32[8]\n  forward -\n    %o = aten.neg(%c) : f32[8]\n  output %o\n");
  };
  const std::string zeros = "aten.zeros([8], dtype=f32, device=cpu)";
  CHECK(says(step(zeros, "aten.index_add(%z, 0, %k, %v)").text, "%c_sum = aten.add.Tensor(%c_chunk0, %c_chunk1)"));
  CHECK(says(step(zeros, "aten.scatter_add(%z, 0, %k, %v)").text, "%c_sum = aten.add.Tensor(%c_chunk0, %c_chunk1)"));
  const std::string ones = "aten.full([8], 1.0, dtype=f32, device=cpu)";
  CHECK(says(step(ones, "aten.index_add(%z, 0, %k, %v)").refusal, "write to one another's entries"));
  CHECK(says(step(zeros, "aten.index_add_(%z, 0, %k, %v)").refusal, "write to one another's entries"));
}

TEST_CASE("axis rules: a log-sigmoid is chunked with what it keeps, if it keeps something") {
  auto step = [](const std::string& types) {
    return "    %o, %b = aten.log_sigmoid_forward(%x) : " + types + "\n  output %o\n";
  };
  CHECK(chunk_of(kInputs + step("f32[8, 4], f32[8, 4]")) == "");
  CHECK(says(chunk_of(kInputs + step("f32[8, 4], f32[0]")), "is empty, as on a device"));
}

TEST_CASE("axis rules: chunked axes must meet") {
  const std::string square =
      kInputs +
      "    %t = aten.t(%y) : f32[8, 8] stride [1, 8]\n    %s = aten.add.Tensor(%y, %t) : f32[8, 8]\n  output %s\n";
  CHECK(says(chunk_of(square), "do not meet"));
}

TEST_CASE("axis rules: an axis of one row in a chunk is not squeezed away") {
  const std::string body =
      "  input %x : f32[2, 4]\n  forward m\n    %s = aten.squeeze(%x) : f32[2, 4]\n    %r = aten.neg(%s) : f32[2, 4]\n "
      " output %r\n";
  CHECK(says(chunk_of(body), "a chunk may have one row"));
}

TEST_CASE("axis rules: the bias of a contracted product is added once") {
  const std::string body =
      kInputs +
      "    %t = aten.t(%x) : f32[4, 8] stride [1, 4]\n    %r = aten.addmm(%w, %t, %x) : f32[4, 4]\n  output %r\n";
  CHECK(says(chunk_of(body), "the bias would be added in every chunk"));
}

TEST_CASE("axis rules: products of float8 are chunked with their scales of rows, and not where those are of blocks") {
  auto step = [](const std::string& scale) {
    return "  param %w : f8e4m3fn[128, 16] \"w\"\n  input %x : f8e4m3fn[8, 128]\n  input %s : f32[" + scale +
           "]\n  input %t : f32[]\n  forward m\n    %r = aten._scaled_mm(%x, %w, %s, %t) : f8e4m3fn[8, 16]\n"
           "  output %r\n";
  };
  CHECK(says(chunk_body(step("8, 1")).text, "%r_chunk1 = aten._scaled_mm(%x_chunk1, %w, %s_chunk1, %t)"));
  CHECK(chunk_of(step("")).empty());
  CHECK(chunk_of(step("1, 1")).empty());
  CHECK(says(chunk_of(step("1, 2")), "its scales are of blocks"));
}

TEST_CASE("axis rules: a sum that is rounded to whole numbers is added up first") {
  const std::string body = kInputs +
                           "    %s = aten.sum.dim_IntList(%x, [0]) : f32[4]\n"
                           "    %i = aten._to_copy(%s, dtype=i64) : i64[4]\n  output %i\n";
  CHECK(says(chunk_body(body).text, "%i = aten._to_copy(%s_sum"));
}

TEST_CASE("axis rules: as many chunks as rows, and no more") {
  const std::string body = kInputs + "    %r = aten.mm(%x, %w) : f32[8, 4]\n  output %r\n";
  CHECK(chunk_of(body, 8).empty());
  CHECK(says(chunk_of(body, 9), "too few for 9 chunks"));
}
