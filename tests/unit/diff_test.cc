// What is no difference, and how a difference is told.
#include <catch2/catch.hpp>

#include "libgraph/binary.h"
#include "libgraph/diff_text.h"
#include "libgraph/order.h"
#include "libgraph/text.h"
#include "tests/support/random_job.h"
#include "tests/support/rng.h"

namespace sg {
namespace {

Job parse(const std::string& text) {
  Diagnostics diagnostics;
  Result<Job> job = parse_text(text, "test", &diagnostics);
  for (const Diagnostic& d : diagnostics.list()) UNSCOPED_INFO(d.message);
  REQUIRE(job.ok());
  return std::move(*job);
}

std::string show(const JobDiff& diff) {
  DiffTextOptions options;
  options.name_a = "A", options.name_b = "B";
  return print_diff(diff, options);
}

std::string told(const std::string& a, const std::string& b, const DiffOptions& options = {}) {
  Job p = parse(a), q = parse(b);
  return show(diff_jobs(p, q, options));
}

void rename_all(Graph* graph) {
  uint32_t next = 0;
  auto fresh = [&] { return "other " + std::to_string(next++); };
  for (const Input& i : graph->inputs()) graph->rename(i.value, fresh());
  for (NodeId n : graph->nodes()) {
    for (uint32_t r = 0; r < graph->node(n).result_count; ++r) graph->rename(graph->node(n).result(r), fresh());
    graph->relabel(n, fresh());
  }
}

// Nodes to random places that the order allows.
size_t permute(const Program& program, Graph* graph, uint64_t seed) {
  test::Rng rng(seed);
  OrderFacts facts(program, *graph);
  std::vector<NodeId> nodes;
  for (NodeId n : graph->nodes()) nodes.push_back(n);
  size_t moved = 0;
  for (size_t i = 0; i < nodes.size(); ++i) {
    NodeId n = nodes[rng.below(nodes.size())], to = nodes[rng.below(nodes.size())];
    if (n == to || !graph->before(to, n) || !facts.may_move_before(n, to)) continue;
    graph->move_before(n, to);
    ++moved;
  }
  return moved;
}

const std::string kHead = "sg 1.0 world 1\n\ngraph rank *\n  input %x : f32[4, 4]\n  param %w : f32[4, 4] \"w\"\n";

}  // namespace

TEST_CASE("diff: a job is its own equal, also read back") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Job job = test::random_job(seed);
    Result<std::string> bytes = write_binary(job);
    REQUIRE(bytes.ok());
    Result<Job> again = read_binary(*bytes, "again");
    REQUIRE(again.ok());
    JobDiff diff = diff_jobs(job, *again);
    INFO(show(diff));
    CHECK(diff.is_same());
    CHECK(show(diff).empty());
  }
}

TEST_CASE("diff: names are no difference when they are ignored") {
  DiffOptions options;
  options.ignore_name = true;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Job job = test::random_job(seed), renamed(job);
    for (auto& program : renamed.programs) {
      rename_all(&program->graph);
      for (auto& nested : program->nested) rename_all(&nested->graph);
    }
    JobDiff diff = diff_jobs(job, renamed, options);
    INFO(show(diff));
    CHECK(diff.is_same());
    CHECK_FALSE(diff_jobs(job, renamed).is_same());
  }
}

TEST_CASE("diff: a legal order is no difference when order is ignored") {
  DiffOptions options;
  options.ignore_order = true;
  size_t moved = 0;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    CAPTURE(seed);
    Job job = test::random_job(seed), permuted(job);
    for (auto& program : permuted.programs) moved += permute(*program, &program->graph, seed);
    JobDiff diff = diff_jobs(job, permuted, options);
    INFO(show(diff));
    CHECK(diff.is_same());
    for (const ProgramDiff& p : diff_jobs(job, permuted).programs) CHECK(count_edits(p).changed == 0);
  }
  CHECK(moved > 500);
}

TEST_CASE("diff: threads and the direction do not matter") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Job a = test::random_job(seed), b = test::random_job(seed + 1000);
    DiffOptions threads;
    threads.threads = 4;
    CHECK(show(diff_jobs(a, b)) == show(diff_jobs(a, b, threads)));
    if (a.programs.size() != b.programs.size()) continue;
    DiffCounts forth, back;
    JobDiff there = diff_jobs(a, b), here = diff_jobs(b, a);
    for (const ProgramDiff& p : there.programs) forth = count_edits(p);
    for (const ProgramDiff& p : here.programs) back = count_edits(p);
    CHECK(there.is_same() == here.is_same());
  }
}

TEST_CASE("diff: operands of ops that commute may change places") {
  CHECK(told(kHead + "  %y = aten.add.Tensor(%x, %w) : f32[4, 4]\n  output %y\n",
             kHead + "  %y = aten.add.Tensor(%w, %x) : f32[4, 4]\n  output %y\n").empty());
  CHECK_FALSE(told(kHead + "  %y = aten.sub.Tensor(%x, %w) : f32[4, 4]\n  output %y\n",
                   kHead + "  %y = aten.sub.Tensor(%w, %x) : f32[4, 4]\n  output %y\n").empty());
  CHECK_FALSE(told(kHead + "  %y = aten.add.Tensor(%x, %w, alpha=2) : f32[4, 4]\n  output %y\n",
                   kHead + "  %y = aten.add.Tensor(%w, %x, alpha=2) : f32[4, 4]\n  output %y\n").empty());
}

TEST_CASE("diff: symbols correspond by what they size") {
  auto text = [](const std::string& s, const std::string& t, const std::string& max) {
    return "sg 1.0 world 1\n\ngraph rank *\n  symbol " + s + " input [2, " + max + "]\n  symbol " + t + " input [2, 64]\n  guard " + s +
           " <= " + t + "\n  input %x : f32[" + s + ", " + t + "]\n  %y = aten.relu(%x) : f32[" + s + ", " + t + "]\n  output %y\n";
  };
  DiffOptions names;
  names.ignore_name = true;
  CHECK(told(text("s0", "s1", "32"), text("u9", "a", "32"), names).empty());
  CHECK(told(text("s0", "s1", "32"), text("s1", "s0", "32"), names).empty());     // both renamed, into each other
  CHECK_FALSE(told(text("s0", "s1", "32"), text("s1", "s0", "32")).empty());
  CHECK_THAT(told(text("s0", "s1", "32"), text("s0", "s1", "48")), Catch::Contains("symbol changed  s0  max: 32 -> 48"));
}

TEST_CASE("diff: every field is seen, and ignored where that is asked for") {
  struct Case { const char* before; const char* after; const char* told; bool name, meta, order, loc; };
  const Case cases[] = {
      {"%y = aten.relu(%x) : f32[4, 4]", "%z = aten.relu(%x) : f32[4, 4]", "%z", true, false, false, false},
      {"%y = aten.relu(%x) : f32[4, 4]", "%y = aten.exp(%x) : f32[4, 4]", "aten.exp", false, false, false, false},
      {"%y = aten.relu(%x) : f32[4, 4]", "%y = aten.relu(%w) : f32[4, 4]", "%w", false, false, false, false},
      {"%y = aten.mul.Scalar(%x, 2.0) : f32[4, 4]", "%y = aten.mul.Scalar(%x, 3.0) : f32[4, 4]", "3.0", false, false, false, false},
      {"%y = foreign.op(%x) : f32[4, 4]", "%y = foreign.op(%x) : bf16[4, 4]", "bf16", false, false, false, false},
      {"%y = aten.relu(%x) : f32[4, 4]", "%y = aten.relu(%x) : f32[4, 4] recompute must_save", "must_save", false, true, false, false},
      {"forward a.b\n    %y = aten.relu(%x) : f32[4, 4]", "forward a.c\n    %y = aten.relu(%x) : f32[4, 4]", "module: a.b -> a.c", false, true, false, false},
      {"at \"m.py\":3 f\n  %y = aten.relu(%x) : f32[4, 4]", "at \"m.py\":4 f\n  %y = aten.relu(%x) : f32[4, 4]", "\"m.py\":4 f", false, false, false, true},
      {"%a = aten.exp(%x) : f32[4, 4]\n  %b = aten.exp(%w) : f32[4, 4]\n  %y = aten.mm(%a, %b) : f32[4, 4]",
       "%b = aten.exp(%w) : f32[4, 4]\n  %a = aten.exp(%x) : f32[4, 4]\n  %y = aten.mm(%a, %b) : f32[4, 4]", "moved", false, false, true, false},
  };
  for (const Case& c : cases) {
    std::string last = std::string(c.after).find("%z") != std::string::npos ? "%z" : "%y";
    std::string a = kHead + "  " + c.before + "\n  output %y\n", b = kHead + "  " + c.after + "\n  output " + last + "\n";
    CAPTURE(b);
    CHECK_THAT(told(a, b), Catch::Contains(c.told));
    DiffOptions options;
    options.ignore_name = c.name, options.ignore_meta = c.meta, options.ignore_order = c.order, options.ignore_loc = c.loc;
    CHECK(told(a, b, options).empty() == (c.name || c.meta || c.order || c.loc));
  }
}

TEST_CASE("diff: copies, dead nodes and in-place forms are explained") {
  std::string a = kHead + "  %h = aten.exp(%x) : f32[4, 4]\n  %k = aten.relu(%h) : f32[4, 4]\n  backward -\n    %g = aten.mm(%h, %w) : f32[4, 4]\n"
                          "    %unused = aten.neg(%w) : f32[4, 4]\n    %i = aten.add.Tensor(%k, %g) : f32[4, 4]\n    %o = aten.relu_(%i) : f32[4, 4]\n  output %o\n";
  std::string b = kHead + "  %h = aten.exp(%x) : f32[4, 4]\n  %k = aten.relu(%h) : f32[4, 4]\n  backward -\n    %again = aten.exp(%x) : f32[4, 4]\n"
                          "    %g = aten.mm(%again, %w) : f32[4, 4]\n    %i = aten.add.Tensor(%k, %g) : f32[4, 4]\n    %o = aten.relu(%i) : f32[4, 4]\n  output %o\n";
  std::string text = told(a, b);
  CHECK_THAT(text, Catch::Contains("1 node recompute 1 node") && Catch::Contains("1 node that nothing used is gone") &&
                       Catch::Contains("1 node no longer write in place"));
  CHECK(text.find("@@") == std::string::npos);       // nothing is left to be shown
}

TEST_CASE("diff: the same edit in many layers is told once") {
  auto text = [](const char* op) {
    std::string out = kHead;
    for (int i = 0; i < 12; ++i) {
      std::string n = std::to_string(i), from = i ? "%b" + std::to_string(i - 1) : "%x";
      out += "  forward layers." + n + ".mlp\n    %a" + n + " = aten.mm(" + from + ", %w) : f32[4, 4]\n    %b" + n + " = " + op + "(%a" + n + ") : f32[4, 4]\n";
    }
    return out + "  output %b11\n";
  };
  std::string told_once = told(text("aten.relu"), text("aten.tanh"));
  CHECK_THAT(told_once, Catch::Contains("@@ forward layers.{0..11}.mlp: the same in 12 layers @@"));
  CHECK(told_once.find("@@ forward", told_once.find("@@ forward") + 1) == std::string::npos);
}

TEST_CASE("diff: ranks with the same edits are told together, and worlds of other sizes") {
  auto text = [](int world, int odd, const char* op) {
    std::string out = "sg 1.0 world " + std::to_string(world) + "\n";
    for (int r = 0; r < world; ++r)
      out += "\ngraph rank " + std::to_string(r) + "\n  input %x : f32[4]\n  %y = aten.mul.Scalar(%x, " + std::to_string(r) + ".0) : f32[4]\n  %z = " +
             (r == odd ? "aten.exp" : op) + "(%y) : f32[4]\n  output %z\n";
    return out;
  };
  std::string grouped = told(text(4, 2, "aten.relu"), text(4, 2, "aten.tanh"));
  CHECK_THAT(grouped, Catch::Contains("ranks {0,1,3}: ") && !Catch::Contains("rank 2"));
  CHECK_THAT(told(text(4, -1, "aten.relu"), text(2, -1, "aten.relu")), Catch::Contains("world changed") && Catch::Contains("rank removed   2") &&
                                                                            Catch::Contains("rank removed   3"));
}

TEST_CASE("diff: --ignore") {
  CHECK(parse_ignore("name,loc")->ignore_loc);
  CHECK_FALSE(parse_ignore("name,loc")->ignore_meta);
  CHECK_THAT(parse_ignore("nmae").error().hint, Catch::Contains("name"));
}

}  // namespace sg
