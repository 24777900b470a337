// What does not count as a difference, and how differences are reported.
#include <algorithm>
#include <catch2/catch.hpp>
#include <map>

#include "libgraph/binary/binary.h"
#include "libgraph/diff/diff_cost.h"
#include "libgraph/diff/diff_text.h"
#include "libgraph/facts/order.h"
#include "tests/support/parse.h"
#include "tests/support/random_job.h"
#include "tests/support/rng.h"

namespace sg {
namespace {

using test::parse;

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

// Moves nodes to random places that the order allows.
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

TEST_CASE("what a change costs counts on all ranks, wherever it is") {
  const auto job = [](std::string_view of_rank_1) {
    return parse(
        "sg 1.0 world 3\ngraph rank 0 2\n  input %x : f32[64] \"x\"\n  forward -\n    %y = aten.neg(%x) : f32[64]\n"
        "  output %y\ngraph rank 1\n  input %x : f32[64] \"x\"\n  forward -\n    %y = aten.neg(%x) : f32[64]\n" +
        std::string(of_rank_1) + "  output %y\n");
  };
  const Job a = job(""), b = job("    %z = aten.exp(%y) : f32[64]\n");
  std::map<std::string, std::pair<double, double>> rows;
  for (const CostRow& row : compare_costs(collect_stats(a), collect_stats(b))) rows[row.key] = {row.before, row.after};
  CHECK(rows.at("nodes") == std::pair(3.0, 4.0));
  CHECK(rows.at("peak_bytes") == std::pair(256.0, 512.0));
  CHECK(compare_costs(collect_stats(a), collect_stats(a)).empty());
  const Job spmd = parse(
      "sg 1.0 world 3\ngraph rank *\n  input %x : f32[64] \"x\"\n  forward -\n    %y = aten.neg(%x) : f32[64]\n"
      "  output %y\n");
  CHECK(compare_costs(collect_stats(spmd), collect_stats(a)).empty());
}

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

TEST_CASE("diff: every node of both is told of once, in either direction") {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Job a = test::random_job(seed), b = test::random_job(seed + 1000);
    JobDiff there = diff_jobs(a, b), back = diff_jobs(b, a);
    CHECK(there.is_same() == back.is_same());
    for (const JobDiff* diff : {&there, &back})
      for (const ProgramDiff& p : diff->programs) {
        DiffCounts counts = count_edits(p.graphs[0]);
        CHECK(p.a->graph.node_count() + counts.added == p.b->graph.node_count() + counts.removed);
      }
  }
}

TEST_CASE("diff: operands of ops that commute may change places") {
  CHECK(told(kHead + "  %y = aten.add.Tensor(%x, %w) : f32[4, 4]\n  output %y\n",
             kHead + "  %y = aten.add.Tensor(%w, %x) : f32[4, 4]\n  output %y\n")
            .empty());
  CHECK_FALSE(told(kHead + "  %y = aten.sub.Tensor(%x, %w) : f32[4, 4]\n  output %y\n",
                   kHead + "  %y = aten.sub.Tensor(%w, %x) : f32[4, 4]\n  output %y\n")
                  .empty());
  CHECK_FALSE(told(kHead + "  %y = aten.add.Tensor(%x, %w, alpha=2) : f32[4, 4]\n  output %y\n",
                   kHead + "  %y = aten.add.Tensor(%w, %x, alpha=2) : f32[4, 4]\n  output %y\n")
                  .empty());
}

TEST_CASE("diff: symbols correspond by what they size") {
  auto text = [](const std::string& s, const std::string& t, const std::string& max) {
    return "sg 1.0 world 1\n\ngraph rank *\n  symbol " + s + " input [2, " + max + "]\n  symbol " + t +
           " input [2, 64]\n  guard " + s + " <= " + t + "\n  input %x : f32[" + s + ", " + t +
           "]\n  %y = aten.relu(%x) : f32[" + s + ", " + t + "]\n  output %y\n";
  };
  DiffOptions names;
  names.ignore_name = true;
  CHECK(told(text("s0", "s1", "32"), text("u9", "a", "32"), names).empty());
  CHECK(told(text("s0", "s1", "32"), text("s1", "s0", "32"), names).empty());  // swapped
  CHECK_FALSE(told(text("s0", "s1", "32"), text("s1", "s0", "32")).empty());
  CHECK_THAT(told(text("s0", "s1", "32"), text("s0", "s1", "48")),
             Catch::Contains("symbol changed  s0  max: 32 -> 48"));
}

TEST_CASE("diff: every field is seen, and ignored where that is asked for") {
  struct Case {
    const char* before;
    const char* after;
    const char* told;
    bool name, meta, order, loc;
  };
  const Case cases[] = {
      {"%y = aten.relu(%x) : f32[4, 4]", "%z = aten.relu(%x) : f32[4, 4]", "%z", true, false, false, false},
      {"%y = aten.relu(%x) : f32[4, 4]", "%y = aten.exp(%x) : f32[4, 4]", "aten.exp", false, false, false, false},
      {"%y = aten.relu(%x) : f32[4, 4]", "%y = aten.relu(%w) : f32[4, 4]", "%w", false, false, false, false},
      {"%y = aten.mul.Scalar(%x, 2.0) : f32[4, 4]", "%y = aten.mul.Scalar(%x, 3.0) : f32[4, 4]", "3.0", false, false,
       false, false},
      {"%y = foreign.op(%x) : f32[4, 4]", "%y = foreign.op(%x) : bf16[4, 4]", "bf16", false, false, false, false},
      {"%y = aten.relu(%x) : f32[4, 4]", "%y = aten.relu(%x) : f32[4, 4] recompute must_save", "must_save", false, true,
       false, false},
      {"forward a.b\n    %y = aten.relu(%x) : f32[4, 4]", "forward a.c\n    %y = aten.relu(%x) : f32[4, 4]",
       "module: a.b -> a.c", false, true, false, false},
      {"at \"m.py\":3 f\n  %y = aten.relu(%x) : f32[4, 4]", "at \"m.py\":4 f\n  %y = aten.relu(%x) : f32[4, 4]",
       "\"m.py\":4 f", false, false, false, true},
      {"%a = aten.exp(%x) : f32[4, 4]\n  %b = aten.exp(%w) : f32[4, 4]\n  %y = aten.mm(%a, %b) : f32[4, 4]",
       "%b = aten.exp(%w) : f32[4, 4]\n  %a = aten.exp(%x) : f32[4, 4]\n  %y = aten.mm(%a, %b) : f32[4, 4]", "moved",
       false, false, true, false},
  };
  for (const Case& c : cases) {
    std::string last = std::string(c.after).find("%z") != std::string::npos ? "%z" : "%y";
    std::string a = kHead + "  " + c.before + "\n  output %y\n",
                b = kHead + "  " + c.after + "\n  output " + last + "\n";
    CAPTURE(b);
    CHECK_THAT(told(a, b), Catch::Contains(c.told));
    DiffOptions options;
    options.ignore_name = c.name, options.ignore_meta = c.meta, options.ignore_order = c.order,
    options.ignore_loc = c.loc;
    CHECK(told(a, b, options).empty() == (c.name || c.meta || c.order || c.loc));
  }
}

TEST_CASE("diff: copies, dead nodes and in-place forms are explained") {
  std::string a = kHead +
                  "  %h = aten.exp(%x) : f32[4, 4]\n  %k = aten.relu(%h) : f32[4, 4]\n  backward -\n    %g = "
                  "aten.mm(%h, %w) : f32[4, 4]\n"
                  "    %unused = aten.neg(%w) : f32[4, 4]\n    %i = aten.add.Tensor(%k, %g) : f32[4, 4]\n    %o = "
                  "aten.relu_(%i) : f32[4, 4]\n  output %o\n";
  std::string b = kHead +
                  "  %h = aten.exp(%x) : f32[4, 4]\n  %k = aten.relu(%h) : f32[4, 4]\n  backward -\n    %again = "
                  "aten.exp(%x) : f32[4, 4]\n"
                  "    %g = aten.mm(%again, %w) : f32[4, 4]\n    %i = aten.add.Tensor(%k, %g) : f32[4, 4]\n    %o = "
                  "aten.relu(%i) : f32[4, 4]\n  output %o\n";
  std::string text = told(a, b);
  CHECK_THAT(text, Catch::Contains("1 node is computed again") && Catch::Contains("1 dead node gone") &&
                       Catch::Contains("1 in-place write made functional"));
  CHECK(text.find("@@") == std::string::npos);  // nothing is left to show
}

TEST_CASE("diff: symbols that became numbers are one thing, in both directions") {
  auto text = [](const std::string& u, bool symbolic, const std::string& planted) {
    std::string out = "sg 1.0 world 1\n\ngraph rank *\n";
    if (symbolic) out += "  symbol u0 input [2, 64]\n  guard u0 <= 64\n";
    out += "  input %x : f32[" + u + ", 4]\n";
    if (symbolic) out += "  %s = aten.sym_size.int(%x, 0) : int u0\n";
    out += "  %e = aten.exp(%x) : f32[" + u + ", 4]\n  %z = aten.new_zeros(%e, [" + std::string(symbolic ? "%s" : "8") +
           ", " + (symbolic ? "%s" : "8") + "]) : f32[" + u + ", " + u + "]\n  %y = " + planted + "(%z) : f32[" + u +
           ", " + u + "]\n";
    return out + "  output %y\n  output %e\n";
  };
  std::string dynamic = text("u0", true, "aten.relu"), fixed = text("8", false, "aten.relu");
  std::string forth = told(dynamic, fixed), back = told(fixed, dynamic);
  CHECK_THAT(forth, Catch::Contains("symbols made numbers: u0 = 8 (3 nodes); 1 node gone that computed sizes"));
  CHECK_THAT(back, Catch::Contains("numbers made symbols: 8 = u0 (3 nodes); 1 node new that computes sizes"));
  for (const std::string& report : {forth, back}) {
    CHECK(report.find("@@") == std::string::npos);
    CHECK(report.find("symbol removed") == std::string::npos);
    CHECK(report.find("guard") == std::string::npos);
    CHECK(report.find("input changed") == std::string::npos);
  }
  std::string other = told(dynamic, text("8", false, "aten.tanh"));  // other changes are shown, alone
  CHECK_THAT(other, Catch::Contains("u0 = 8 (3 nodes)") && Catch::Contains("+   %y = aten.tanh"));
  std::string smaller = told(dynamic, text("80", false, "aten.relu"));  // the guard does not hold for it
  CHECK_THAT(smaller, Catch::Contains("guard removed"));
}

TEST_CASE("diff: a guard with numbers for some of its symbols") {
  auto text = [](const std::string& u, const std::string& symbol, const std::string& guard) {
    return "sg 1.0 world 1\n\ngraph rank *\n" + symbol + "  symbol s1 input [2, 64]\n  guard " + guard +
           "\n  input %x : f32[" + u + ", s1]\n  %e = aten.exp(%x) : f32[" + u + ", s1]\n  output %e\n";
  };
  std::string a = text("s0", "  symbol s0 input [2, 64]\n", "2*s0 <= s1");
  CHECK_THAT(told(a, text("8", "", "16 <= s1")), Catch::Contains("s0 = 8") && !Catch::Contains("guard"));
  CHECK_THAT(told(a, text("8", "", "17 <= s1")), Catch::Contains("guard removed") && Catch::Contains("guard added"));
}

TEST_CASE("diff: nodes that only pass an argument on") {
  std::string rest = "  %o = aten.relu(%k) : f32[4, 4]\n  output %o\n";
  std::string clean = kHead + "  %m = aten.mm(%x, %w) : f32[4, 4]\n  %k = aten.exp(%m) : f32[4, 4]\n" + rest;
  auto with = [&](const std::string& lines, const std::string& last) {
    return kHead + "  %m = aten.mm(%x, %w) : f32[4, 4]\n" + lines + "  %k = aten.exp(" + last + ") : f32[4, 4]\n" +
           rest;
  };
  std::string all = with(
      "  %d = aten.detach(%m) : f32[4, 4]\n  %v = aten.view(%d, [4, 4]) : f32[4, 4]\n  %c = aten.clone(%v) : f32[4, "
      "4]\n",
      "%c");
  std::string forth = told(all, clean), back = told(clean, all);
  CHECK_THAT(forth, Catch::Contains("3 nodes gone that only passed their argument on (1 clone, 1 detach, 1 view)"));
  CHECK_THAT(back, Catch::Contains("3 nodes new that only pass their argument on (1 clone, 1 detach, 1 view)"));
  CHECK(forth.find("@@") == std::string::npos);
  CHECK(back.find("@@") == std::string::npos);
  std::string twice = with("  %t = aten.t(%m) : f32[4, 4] stride [1, 4]\n  %u = aten.t(%t) : f32[4, 4]\n", "%u");
  CHECK_THAT(told(twice, clean), Catch::Contains("1 node gone that only passed") &&
                                     Catch::Contains("1 dead node gone") && !Catch::Contains("@@"));
  // Not the same tensor: other strides; a copy that is written.
  CHECK_THAT(told(with("  %t = aten.t(%m) : f32[4, 4] stride [1, 4]\n", "%t"), clean), Catch::Contains("@@"));
  std::string written = with("  %c = aten.clone(%m) : f32[4, 4]\n  %r = aten.relu_(%c) : f32[4, 4]\n", "%c");
  CHECK_THAT(told(written, clean), Catch::Contains("@@") && !Catch::Contains("passed"));
}

TEST_CASE("diff: views of one memory, taken in other steps") {
  auto with = [&](const std::string& lines) {
    return kHead + "  %m = aten.mm(%x, %w) : f32[4, 4]\n" + lines +
           "  %k = aten.exp(%v) : f32[2, 4, 2] stride [2, 4, 1]\n  output %k\n";
  };
  std::string steps = with(
      "  %a = aten.view(%m, [4, 2, 2]) : f32[4, 2, 2]\n  %v = aten.transpose.int(%a, 0, 1) : f32[2, 4, 2] stride [2, "
      "4, 1]\n");
  std::string one = with("  %v = aten.as_strided(%m, [2, 4, 2], [2, 4, 1]) : f32[2, 4, 2] stride [2, 4, 1]\n");
  CHECK_THAT(told(steps, one),
             Catch::Contains("1 view of the same memory is taken another way; 1 step in between gone") &&
                 !Catch::Contains("@@"));
  CHECK_THAT(told(one, steps), Catch::Contains("1 step in between new") && !Catch::Contains("@@"));
  std::string other =
      with("  %v = aten.as_strided(%w, [2, 4, 2], [2, 4, 1]) : f32[2, 4, 2] stride [2, 4, 1]\n");  // of other memory
  CHECK_THAT(told(steps, other), !Catch::Contains("another way") && Catch::Contains("@@"));
}

TEST_CASE("diff: values that wait in the host's memory") {
  auto with = [&](const std::string& there, const std::string& back, const std::string& value) {
    return kHead + "  %m = aten.mm(%x, %w) : f32[4, 4]\n" + there + "  %r = aten.relu(%m) : f32[4, 4]\n" + back +
           "  %k = aten.mm(%r, " + value + ") : f32[4, 4]\n  output %k\n";
  };
  std::string plain = with("", "", "%m");
  std::string there = "  %o = sg.offload(%m) : f32[4, 4]\n  %h = sg.wait(%o) : f32[4, 4]\n";
  std::string moved =
      with(there, "  %l = sg.reload(%h, device=cpu) : f32[4, 4]\n  %b = sg.wait(%l) : f32[4, 4]\n", "%b");
  CHECK_THAT(told(plain, moved),
             Catch::Contains("1 value, 64 B, waits in the host's memory (4 nodes new)") && !Catch::Contains("@@"));
  CHECK_THAT(
      told(moved, plain),
      Catch::Contains("1 value, 64 B, no longer waits in the host's memory (4 nodes gone)") && !Catch::Contains("@@"));
  CHECK_THAT(
      told(plain, with(there, "  %l = sg.reload(%h, device=cpu) : f32[4, 4]\n  %b = aten.exp(%l) : f32[4, 4]\n", "%b")),
      Catch::Contains("@@"));
}

TEST_CASE("diff: a split that is computed again is no chunk") {
  std::string head =
      "sg 1.0 world 1\n\ngraph rank *\n  input %x : f32[8, 4]\n  forward layers.0\n  %a, %b = aten.split.Tensor(%x, 4) "
      ": f32[4, 4], f32[4, 4] +16\n"
      "  %e = aten.exp(%a) : f32[4, 4]\n  %f = aten.exp(%b) : f32[4, 4]\n  %m = aten.mm(%e, %f) : f32[4, 4]\n  "
      "backward layers.0\n";
  std::string tail = "  output %s\n";
  std::string kept = head + "  %s = aten.mm(%f, %e) : f32[4, 4]\n  output %m\n" + tail;
  std::string again = head +
                      "  %c, %d = aten.split.Tensor(%x, 4) : f32[4, 4], f32[4, 4] +16\n  %g = aten.exp(%c) : f32[4, "
                      "4]\n  %h = aten.exp(%d) : f32[4, 4]\n"
                      "  %s = aten.mm(%h, %g) : f32[4, 4]\n  output %m\n" +
                      tail;
  CHECK_THAT(told(kept, again),
             Catch::Contains("3 nodes are computed again") && !Catch::Contains("chunk") && !Catch::Contains("@@"));
}

TEST_CASE("diff: gathers merged into buckets, and gathered again for the backward") {
  auto text = [](bool merged, bool again) {
    std::string out =
        "sg 1.0 world 2\ngroup @dp [0 1]\n\ngraph rank *\n  input %x : f32[2, 4]\n  param %u : f32[4] \"u\"\n  param "
        "%v : f32[4] \"v\"\n";
    auto bucket = [](const std::string& n, const std::string& phase) {
      std::string meta = " unshard bucket " + n + " " + phase + " plan [layers.0]\n";
      return "  " + phase + " layers.0\n  %p" + n + " = sg.pack([%u, %v]) : f32[8]" + meta + "  %g" + n +
             " = _c10d_functional.all_gather_into_tensor(%p" + n + ", 2, @dp) : f32[16]" + meta + "  %w" + n +
             " = _c10d_functional.wait_tensor(%g" + n + ") : f32[16]" + meta + "  %r" + n + " = aten.view(%w" + n +
             ", [2, 8]) : f32[2, 8]" + meta + "  %a" + n + ", %b" + n + " = aten.split_with_sizes_copy(%r" + n +
             ", [4, 4], 1) : f32[2, 4], f32[2, 4]" + meta;
    };
    std::string single =
        "  forward layers.0\n  %gu = _c10d_functional.all_gather_into_tensor(%u, 2, @dp) : f32[8]\n  %wu = "
        "_c10d_functional.wait_tensor(%gu) : f32[8]\n"
        "  %a0 = aten.view(%wu, [2, 4]) : f32[2, 4]\n  %gv = _c10d_functional.all_gather_into_tensor(%v, 2, @dp) : "
        "f32[8]\n"
        "  %wv = _c10d_functional.wait_tensor(%gv) : f32[8]\n  %b0 = aten.view(%wv, [2, 4]) : f32[2, 4]\n";
    std::string n = again ? "1" : "0";
    return out + (merged ? bucket("0", "forward") : single) +
           "  %m = aten.mul.Tensor(%x, %a0) : f32[2, 4]\n  %o = aten.add.Tensor(%m, %b0) : f32[2, 4]\n" +
           (again ? bucket("1", "backward") : "  backward layers.0\n") + "  %d = aten.exp(%a" + n +
           ") : f32[2, 4]\n  %e = aten.mul.Tensor(%d, %b" + n + ") : f32[2, 4]\n  output %o\n  output %e\n";
  };
  CHECK_THAT(told(text(false, false), text(true, false)),
             Catch::Contains("2 all_gather on @dp merged into bucket 0 (forward): 6 nodes became 5") &&
                 !Catch::Contains("@@"));
  CHECK_THAT(told(text(true, false), text(false, false)),
             Catch::Contains("2 all_gather on @dp taken out of bucket 0 (forward): 5 nodes became 6") &&
                 !Catch::Contains("@@"));
  CHECK_THAT(told(text(false, false), text(true, true)),
             Catch::Contains("merged into bucket 0 (forward)") &&
                 Catch::Contains("2 all_gather on @dp done again in bucket 1 (backward): 5 new nodes") &&
                 !Catch::Contains("@@"));
}

TEST_CASE("diff: a conjugate bit belongs to views only") {
  std::string head = "sg 1.0 world 1\n\ngraph rank *\n  input %x : c64[4, 4]\n  %j = aten._conj(%x) : c64[4, 4]\n";
  auto with = [&](const std::string& lines, const std::string& last) {
    return head + "  %m = aten.mm(%j, %x) : c64[4, 4]\n" + lines + "  %k = aten.exp(" + last +
           ") : c64[4, 4]\n  output %k\n";
  };
  std::string views = "  %t = aten.t(%m) : c64[4, 4] stride [1, 4]\n  %u = aten.t(%t) : c64[4, 4]\n";
  CHECK_THAT(told(with(views, "%u"), with("", "%m")),
             Catch::Contains("1 node gone that only passed") && !Catch::Contains("@@"));
  std::string of_view = "  %t = aten.t(%j) : c64[4, 4] stride [1, 4]\n  %u = aten.t(%t) : c64[4, 4]\n";
  std::string plain =
      head + "  %k = aten.exp(%x) : c64[4, 4]\n  output %k\n  output %j\n";  // has the memory and the type of %u
  CHECK_THAT(told(head + of_view + "  %k = aten.exp(%u) : c64[4, 4]\n  output %k\n  output %j\n", plain),
             Catch::Contains("@@"));
}

TEST_CASE("diff: chunks without metadata are told by what they do") {
  std::string head = "sg 1.0 world 1\n\ngraph rank *\n  input %x : f32[8, 4]\n  param %w : f32[4, 4] \"w\"\n";
  std::string whole = head +
                      "  forward layers.0.mlp\n  %m = aten.mm(%x, %w) : f32[8, 4]\n  %r = aten.relu(%m) : f32[8, 4]\n  "
                      "%o = aten.exp(%r) : f32[8, 4]\n  output %o\n";
  auto cut = [&](const std::string& second, int rows) {
    std::string p = std::to_string(rows), q = std::to_string(8 - rows), n = std::to_string(rows * 4);
    return head + "  forward layers.0.mlp\n  %a, %b = aten.split_with_sizes(%x, [" + p + ", " + q + "], 0) : f32[" + p +
           ", 4], f32[" + q + ", 4] +" + n + "\n  %m0 = aten.mm(%a, %w) : f32[" + p +
           ", 4]\n  %m1 = aten.mm(%b, %w) : f32[" + q + ", 4]\n  %r0 = aten.relu(%m0) : f32[" + p +
           ", 4]\n"
           "  %r1 = " +
           second + "(%m1) : f32[" + q +
           ", 4]\n  %r = aten.cat([%r0, %r1], 0) : f32[8, 4]\n  %o = aten.exp(%r) : f32[8, 4]\n  output %o\n";
  };
  for (int rows : {4, 5})
    CHECK_THAT(told(whole, cut("aten.relu", rows)),
               Catch::Contains("split into 2 chunks (forward): 2 nodes became 4, 2 boundary nodes  [layers.0.mlp]") &&
                   !Catch::Contains("@@"));
  CHECK_THAT(told(whole, cut("aten.tanh", 4)),
             Catch::Contains("@@") && Catch::Contains("+   %r1 = aten.tanh"));  // not the same for both pieces
}

TEST_CASE("diff: planted edits of types, inputs, outputs, symbols, guards and groups are each told once") {
  const std::string base =
      "sg 1.0 world 2\ngroup @dp [0 1] {0 \"0\"}\n\ngraph rank *\n  symbol s0 input [2, 64]\n  guard s0 <= 64\n  input "
      "%x : f32[s0, 4]\n"
      "  param %w : f32[4, 4] \"w\"\n  %m = aten.mm(%x, %w) : f32[s0, 4]\n  %y = aten.relu(%m) : f32[s0, 4]\n  %f = "
      "foreign.op(%y) : f32[s0]\n"
      "  output %y\n  output %f\n";
  struct Case {
    const char *from, *to, *subject;
    EditKind kind;
  };
  const Case cases[] = {
      {"foreign.op(%y) : f32[s0]", "foreign.op(%y) : f64[s0]", "", EditKind::changed},
      {"f32[4, 4] \"w\"", "f32[4, 4] \"v\"", "input", EditKind::changed},
      {"  param %w", "  input %new : f32[3]\n  param %w", "input", EditKind::added},
      {"  output %f\n", "  output %m\n", "output", EditKind::changed},
      {"  output %f\n", "  output %f\n  output %m\n", "output", EditKind::added},
      {"[2, 64]", "[2, 48]", "symbol", EditKind::changed},
      {"  symbol s0", "  symbol s9 input [0, 9]\n  symbol s0", "symbol", EditKind::added},
      {"  guard s0 <= 64\n", "", "guard", EditKind::removed},
      {"  guard s0 <= 64\n", "  guard s0 <= 64\n  guard 3 <= s0\n", "guard", EditKind::added},
      {"group @dp [0 1] {0 \"0\"}\n", "", "group", EditKind::removed},
      {"{0 \"0\"}", "{0 \"1\"}", "group", EditKind::changed},
  };
  for (const Case& c : cases) {
    std::string other = base;
    other.replace(other.find(c.from), std::string(c.from).size(), c.to);
    CAPTURE(other);
    for (bool back : {false, true}) {
      Job a = parse(back ? other : base), b = parse(back ? base : other);
      JobDiff diff = diff_jobs(a, b);
      std::vector<ItemEdit> items = diff.items;
      const ProgramDiff& p = diff.programs.at(0);
      items.insert(items.end(), p.items.begin(), p.items.end());
      items.insert(items.end(), p.graphs[0].items.begin(), p.graphs[0].items.end());
      INFO(show(diff));
      EditKind kind = !back || c.kind == EditKind::changed ? c.kind
                      : c.kind == EditKind::added          ? EditKind::removed
                                                           : EditKind::added;
      bool is_node = std::string(c.subject).empty();
      REQUIRE(items.size() == (is_node ? 0 : 1));
      REQUIRE(p.graphs[0].edits.size() == (is_node ? 1 : 0));
      if (is_node) CHECK(p.graphs[0].edits[0].changes[0].aspect == Aspect::type);
      if (!is_node) CHECK((items[0].subject == c.subject && items[0].kind == kind));
    }
  }
}

TEST_CASE("diff: what a source does not know of its ports, sizes and groups") {
  auto text = [](const std::string& group, const std::string& facts, const std::string& w, const std::string& mesh,
                 const std::string& out) {
    return "sg 1.0 world 2\ngroup " + group + " [0 1]\n\ngraph rank *\n  symbol u0 data" + facts + "  " + w + mesh +
           "  input %n : i64[]\n  %u = aten._local_scalar_dense(%n) : int u0\n  %g = _c10d_functional.all_reduce(%w, "
           "\"sum\", " +
           group +
           ") : f32[4, 4]\n  %v = _c10d_functional.wait_tensor(%g) : f32[4, 4]\n  %e = aten.expand(%v, [%u, 4, 4]) : "
           "f32[u0, 4, 4] stride [0, 4, 1]\n  " +
           out + "  output %e\n";
  };
  const std::string knows = text("@dp", " [0, 8]\n  guard u0 <= 8\n", "param %w : f32[4, 4] \"w\"\n",
                                 "  opaque %m : opaque \"DeviceMesh\" of \"w\" attribute mesh\n", "grad %v of %w\n");
  const std::string bare =
      text("@0", "\n", "input %w : f32[4, 4]\n", "  opaque %m : opaque \"object\"\n", "output %v\n");
  DiffOptions all = *parse_ignore("name,meta");
  for (bool back : {false, true}) {
    Job a = parse(back ? bare : knows), b = parse(back ? knows : bare);
    INFO(show(diff_jobs(a, b, all)));
    CHECK(diff_jobs(a, b, all).is_same());
    JobDiff plain = diff_jobs(a, b);
    CHECK(count_edits(plain.programs.at(0).graphs[0]).added == 0);
    for (const ItemEdit& item : plain.programs[0].graphs[0].items)
      CHECK(item.kind == EditKind::changed);  // never removed and added
  }
  // What both sides state is compared, as are the members of groups, and the outputs.
  auto differs = [&](std::string from, std::string to) {
    std::string other = bare;
    other.replace(other.find(from), from.size(), to);
    Job a = parse(knows), b = parse(other);
    return !diff_jobs(a, b, all).is_same();
  };
  CHECK(differs("u0 data\n", "u0 data [0, 9]\n"));
  CHECK(differs("u0 data\n", "u0 data\n  guard u0 <= 9\n"));
  CHECK(differs("[0 1]", "[1 0]"));
  CHECK(differs("output %v\n", "output %g\n"));
}

TEST_CASE("diff: in the JSON, ranks with the same edits are one program") {
  auto text = [](const char* op, bool odd) {
    std::string out = "sg 1.0 world 3\n";
    for (int r = 0; r < 3; ++r)
      out += "\ngraph rank " + std::to_string(r) + "\n  input %x : f32[4]\n  %y" + std::to_string(r) + " = " +
             (odd && r == 1 ? "aten.exp" : op) + "(%x) : f32[4]\n  output %y" + std::to_string(r) + "\n";
    return out;
  };
  auto json = [&](const std::string& a, const std::string& b) {
    Job p = parse(a), q = parse(b);
    return diff_json(diff_jobs(p, q), {});
  };
  auto count = [](const std::string& s, const std::string& part) {
    size_t n = 0;
    for (size_t at = s.find(part); at != std::string::npos; at = s.find(part, at + 1)) ++n;
    return n;
  };
  CHECK(count(json(text("aten.relu", false), text("aten.tanh", false)), "\"ranks\"") == 1);
  CHECK(count(json(text("aten.relu", true), text("aten.tanh", true)), "\"ranks\"") == 2);
}

TEST_CASE("diff: collectives over another group are one thing") {
  auto text = [](const std::string& group, const std::string& reduction) {
    return "sg 1.0 world 2\ngroup @dp [0 1] {0 \"0\"}\ngroup @tp [0 1] {0 \"1\"}\n\ngraph rank *\n  input %x : f32[4, "
           "4]\n"
           "  %r = _c10d_functional.all_reduce(%x, \"" +
           reduction + "\", @" + group +
           ") : f32[4, 4]\n"
           "  %v = _c10d_functional.wait_tensor(%r) : f32[4, 4]\n  output %v\n";
  };
  CHECK_THAT(told(text("dp", "sum"), text("tp", "sum")),
             Catch::Contains("1 collective on @tp instead of @dp (1 all_reduce)") && !Catch::Contains("@@"));
  CHECK_THAT(told(text("dp", "sum"), text("tp", "avg")), !Catch::Contains("instead of") && Catch::Contains("@@"));
}

TEST_CASE("diff: what a file calls things cannot write to the terminal") {
  auto text = [](const std::string& op) {
    return "sg 1.0 job \"" + op +
           "\\u001b[31m\\nx\" world 1\n\ngraph rank *\n  input %x : f32[4]\n  forward "
           "\"lay\\ner.\\u001b[1m0.\\u009b2J\"\n"
           "  %y = aten." +
           op + "(%x) : f32[4]\n  %z = aten.exp(%y) : f32[4]\n  output %z\n";
  };
  Job a = parse(text("relu")), b = parse(text("tanh"));
  JobDiff diff = diff_jobs(a, b);
  for (const std::string& report : {show(diff), print_diff_stat(diff, {}), print_diff_names(diff),
                                    print_diff_side_by_side(diff, {}), diff_junit(diff, {})}) {
    INFO(report);
    CHECK(std::none_of(report.begin(), report.end(),
                       [](char c) { return c != '\n' && (static_cast<unsigned char>(c) < 0x20 || c == 0x7F); }));
    CHECK(report.find("\xc2\x9b") == std::string::npos);
    CHECK(report.find("lay\n") == std::string::npos);
  }
  CHECK_THAT(show(diff), Catch::Contains("@@ forward lay\\ner.\\x1b[1m0.\\u009b2J @@"));
}

TEST_CASE("diff: the same edit in many layers is told once") {
  auto text = [](const char* op) {
    std::string out = kHead;
    for (int i = 0; i < 12; ++i) {
      std::string n = std::to_string(i), from = i ? "%b" + std::to_string(i - 1) : "%x";
      out += "  forward layers." + n + ".mlp\n    %a" + n + " = aten.mm(" + from + ", %w) : f32[4, 4]\n    %b" + n +
             " = " + op + "(%a" + n + ") : f32[4, 4]\n";
    }
    return out + "  output %b11\n";
  };
  std::string told_once = told(text("aten.relu"), text("aten.tanh"));
  CHECK_THAT(told_once, Catch::Contains("@@ forward layers.{0..11}.mlp: the same in 12 layers @@"));
  CHECK(told_once.find("@@ forward", told_once.find("@@ forward") + 1) == std::string::npos);
}

TEST_CASE("diff: the same edit in many layers is told once, where nodes name themselves and their originals too") {
  auto text = [](const char* sorted, const char* slope) {
    std::string out = kHead;
    for (int i = 0; i < 12; ++i) {
      const std::string n = std::to_string(i), from = i ? "%v" + std::to_string(i - 1) : "%x";
      out += "  forward layers." + n + ".mlp\n    %a" + n + " = aten.mm(" + from + ", %w) : f32[4, 4]\n    %b" + n +
             " = aten.leaky_relu(%a" + n + ", " + slope + ") : f32[4, 4]  remat_of b_of_" + n + "\n    %v" + n +
             ", %i" + n + " = aten.topk(%b" + n + ", 4, 1, true, " + sorted + ") : f32[4, 4], i64[4, 4]  label topk_" +
             n + "\n";
    }
    return out + "  output %v11\n";
  };
  for (const std::string& report : {told(text("true", "0.1"), text("false", "0.1")),  // of several results
                                    told(text("true", "0.1"), text("true", "0.2"))}) {
    CHECK_THAT(report, Catch::Contains("@@ forward layers.{0..11}.mlp: the same in 12 layers @@"));
    CHECK(report.find("@@ forward", report.find("@@ forward") + 1) == std::string::npos);
  }
}

TEST_CASE("diff: modules that one side alone has are told as such, with their parameters and gradients") {
  auto text = [](int layers, const std::string& last_op) {
    std::string params, nodes, outputs, from = "%x";
    for (int i = 0; i < layers; ++i) {
      const std::string n = std::to_string(i), op = i == layers - 1 ? last_op : "aten.relu";
      params += "  param %w" + n + " : f32[4, 4] \"layers." + n + ".weight\"\n";
      nodes += "  forward layers." + n + "\n    %a" + n + " = aten.mm(" + from + ", %w" + n + ") : f32[4, 4]\n    %b" +
               n + " = " + op + "(%a" + n + ") : f32[4, 4]\n    %c" + n + " = aten.exp(%b" + n +
               ") : f32[4, 4]\n    %d" + n + " = aten.mul.Tensor(%c" + n + ", %a" + n +
               ") : f32[4, 4]\n  backward -\n    %e" + n + " = aten.mul.Tensor(%d" + n + ", %c" + n + ") : f32[4, 4]\n";
      outputs += "  grad %e" + n + " of %w" + n + "\n";
      from = "%d" + n;
    }
    return "sg 1.0\ngraph rank *\n" + params + "  input %x : f32[4, 4]\n" + nodes + "  output " + from + "\n" + outputs;
  };
  const std::string more = told(text(3, "aten.relu"), text(5, "aten.relu"));
  CHECK_THAT(more, Catch::Contains("module") &&
                       Catch::Contains("2 x new: 5 nodes, 1 input, 1 output  [layers.{3,4}]") &&
                       !Catch::Contains("@@ forward layers.3") && !Catch::Contains("input added"));
  CHECK_THAT(told(text(5, "aten.relu"), text(3, "aten.relu")),
             Catch::Contains("2 x gone: 5 nodes, 1 input, 1 output  [layers.{3,4}]"));
  CHECK_THAT(told(text(3, "aten.relu"), text(3, "aten.tanh")),
             !Catch::Contains("new: ") && Catch::Contains("aten.tanh"));
}

TEST_CASE("diff: what an optimizer does for a module is the module's, what it does with all of them is not") {
  auto text = [](int layers) {
    std::string params, states, nodes, updates, outputs, norms, from = "%x";
    for (int i = 0; i < layers; ++i) {
      const std::string n = std::to_string(i);
      params += "  param %w" + n + " : f32[4, 4] \"layers." + n + ".weight\"\n";
      states += "  buffer %m" + n + " : f32[4, 4] \"optimizer.exp_avg.layers." + n + ".weight\"\n";
      nodes += "  forward layers." + n + "\n    %a" + n + " = aten.mm(" + from + ", %w" + n + ") : f32[4, 4]\n    %b" +
               n + " = aten.exp(%a" + n + ") : f32[4, 4]\n    %c" + n + " = aten.mul.Tensor(%b" + n + ", %a" + n +
               ") : f32[4, 4]\n    %g" + n + " = aten.mul.Tensor(%c" + n + ", %b" + n +
               ") : f32[4, 4]\n  optimizer -\n    %n" + n + " = aten.linalg_vector_norm(%g" + n + ") : f32[]\n";
      updates += "    %d" + n + " = aten.mul.Tensor(%g" + n + ", %all) : f32[4, 4]\n    %e" + n +
                 " = aten.lerp_.Scalar(%m" + n + ", %d" + n + ", 0.1) : f32[4, 4]\n    %u" + n +
                 " = aten.add_.Tensor(%w" + n + ", %e" + n + ", alpha=-0.1) : f32[4, 4]\n";
      outputs += "  grad %g" + n + " of %w" + n + "\n";
      norms += (i ? ", %n" : "%n") + n;
      from = "%c" + n;
    }
    return "sg 1.0\ngraph rank *\n" + params + states + "  input %x : f32[4, 4]\n" + nodes +
           "  optimizer -\n    %stack = aten.stack([" + norms + "]) : f32[" + std::to_string(layers) +
           "]\n    %all = aten.sum(%stack) : f32[]\n" + updates + "  output " + from + "\n" + outputs;
  };
  const std::string more = told(text(3), text(5));
  CHECK_THAT(more, Catch::Contains("2 x new: 8 nodes, 2 inputs, 1 output  [layers.{3,4}]") &&
                       Catch::Contains("+   %stack") && !Catch::Contains("+   %e") && !Catch::Contains("input added"));
}

TEST_CASE("diff: sizes that follow from the inputs are one thing, other numbers are not") {
  auto text = [](int batch, int part, const std::string& dim) {
    auto n = [](int number) { return std::to_string(number); };
    const std::string rows = n(4 * batch), split = n(part) + ", " + n(6 - part);
    return "sg 1.0\ngraph rank *\n  input %x : f32[" + n(batch) + ", 4, 6]\n  %v = aten.view(%x, [" + rows +
           ", 6]) : f32[" + rows + ", 6]\n  %e = aten.exp(%v) : f32[" + rows +
           ", 6]\n  %p = aten.constant_pad_nd(%x, [0, 0, 0, 0, 2, 0], 0.0) : f32[" + n(batch + 2) +
           ", 4, 6]\n  %s, %t = aten.split_with_sizes(%e, [" + split + "], 1) : f32[" + rows + ", " + n(part) +
           "] stride [6, 1], f32[" + rows + ", " + n(6 - part) + "] stride [6, 1] +" + n(part) +
           "\n  %m = aten.cumsum(%x, " + dim + ") : f32[" + n(batch) +
           ", 4, 6]\n  output %s\n  output %t\n  output %p\n  output %m\n";
  };
  CHECK_THAT(
      told(text(1, 2, "0"), text(2, 2, "0")),
      Catch::Contains("5 nodes of other sizes, as inputs and groups have them: 1 -> 2") && !Catch::Contains("@@"));
  CHECK_THAT(told(text(3, 2, "0"), text(6, 2, "0")), Catch::Contains("3 -> 6") && !Catch::Contains("@@"));
  // A number that is not a size, and sizes that do not follow.
  CHECK_THAT(told(text(1, 2, "1"), text(2, 2, "2")), Catch::Contains("+   %m = aten.cumsum(%x, 2)"));
  CHECK_THAT(told(text(3, 2, "0"), text(6, 1, "0")), Catch::Contains("aten.split_with_sizes(%e, [1, 5], 1)"));
  CHECK_THAT(told(text(3, 2, "0"), text(3, 1, "0")), !Catch::Contains("resized") && Catch::Contains("[1, 5]"));
}

TEST_CASE("diff: more ranks are told by their groups, and the rest is shown") {
  auto text = [](int ranks, int shard, const char* kind) {
    auto n = [](int number) { return std::to_string(number); };
    std::string list, out = "sg 1.0 world " + n(ranks) + "\n";
    for (int r = 0; r < ranks; ++r) list += (r ? " " : "") + n(r);
    return out + "group @dp [" + list + "]\n\ngraph rank *\n  param %w : f32[" + n(shard) +
           ", 4] \"w\"\n  %g = _c10d_functional.all_gather_into_tensor(%w, " + n(ranks) + ", @dp) : f32[" +
           n(shard * ranks) + ", 4]\n  %f = _c10d_functional.wait_tensor(%g) : f32[" + n(shard * ranks) +
           ", 4]\n  %r = _c10d_functional.all_reduce(%f, \"" + kind + "\", @dp) : f32[" + n(shard * ranks) +
           ", 4]\n  %d = _c10d_functional.wait_tensor(%r) : f32[" + n(shard * ranks) + ", 4]\n  output %d\n";
  };
  const std::string more = told(text(3, 8, "sum"), text(4, 6, "sum"));
  CHECK_THAT(more, Catch::Contains("resized") && Catch::Contains("3 -> 4, 8 -> 6") && !Catch::Contains("@@"));
  CHECK_THAT(told(text(3, 34, "sum"), text(4, 26, "avg")), Catch::Contains("resized") && Catch::Contains("\"avg\""));
}

TEST_CASE("diff: nodes that moved and got a tag are no edits of their own") {
  auto text = [](bool backwards, const std::string& meta) {
    std::string out = kHead, outputs;
    for (int k = 0; k < 12; ++k) {
      const std::string i = std::to_string(backwards ? 11 - k : k);
      out += "  %a" + i + " = aten.add.Scalar(%x, " + i + ".5) : f32[4, 4]" + meta + "\n";
      outputs += "  output %a" + std::to_string(k) + "\n";
    }
    return out + outputs;
  };
  const std::string report = told(text(false, ""), text(true, "  recompute must_save"));
  CHECK_THAT(report, Catch::Contains("12 nodes: now recompute must_save") &&
                         Catch::Contains("11 nodes moved, and did not change but as told") && !Catch::Contains("@@"));
  CHECK_THAT(told(text(false, "  recompute must_save"), text(false, "  recompute prefer_save")),
             Catch::Contains("12 nodes: recompute: must_save -> prefer_save"));
}

TEST_CASE("diff: what a step captured again has otherwise is counted, and its edits name their source line") {
  auto text = [](int line, const std::string& prefix, const char* op) {
    std::string out = kHead + std::string("  forward layers.0.mlp\n");
    for (int i = 0; i < 12; ++i)
      out += "    at \"models/mlp.py\":" + std::to_string(line + i) + " forward\n    %" + prefix + std::to_string(i) +
             " = " + (i == 7 ? op : "aten.sin") + "(" + (i ? "%" + prefix + std::to_string(i - 1) : "%x") +
             ") : f32[4, 4]\n";
    return out + "  output %" + prefix + "11\n";
  };
  const std::string moved = told(text(10, "a", "aten.relu"), text(13, "a", "aten.tanh"));
  CHECK_THAT(moved, Catch::Contains("11 nodes changed only in source line (--full shows them)") &&
                        Catch::Contains("@@ forward layers.0.mlp at mlp.py:20 forward @@") &&
                        Catch::Contains("+   %a7 = aten.tanh(%a6)"));
  CHECK_THAT(told(text(10, "a", "aten.relu"), text(13, "b", "aten.tanh")),
             Catch::Contains("11 nodes changed only in name and source line"));
  const Job a = parse(text(10, "a", "aten.relu")), b = parse(text(10, "a", "aten.tanh"));
  CHECK_THAT(diff_json(diff_jobs(a, b), {}),
             Catch::Contains("\"source\":{\"file\":\"models/mlp.py\",\"line\":17,\"function\":\"forward\"}"));
  CHECK_THAT(diff_github(diff_jobs(a, b), {}),
             Catch::Contains("layers.0.mlp at mlp.py:17 forward: 1 changed: %25a7 (%25a7 op: "));
}

TEST_CASE("diff: ranks with the same edits are told together, and worlds of other sizes") {
  auto text = [](int world, int odd, const char* op) {
    std::string out = "sg 1.0 world " + std::to_string(world) + "\n";
    for (int r = 0; r < world; ++r)
      out += "\ngraph rank " + std::to_string(r) + "\n  input %x : f32[4]\n  %y = aten.mul.Scalar(%x, " +
             std::to_string(r) + ".0) : f32[4]\n  %z = " + (r == odd ? "aten.exp" : op) +
             "(%y) : f32[4]\n  output %z\n";
    return out;
  };
  std::string grouped = told(text(4, 2, "aten.relu"), text(4, 2, "aten.tanh"));
  CHECK_THAT(grouped, Catch::Contains("ranks {0,1,3}: ") && !Catch::Contains("rank 2"));
  CHECK_THAT(told(text(4, -1, "aten.relu"), text(2, -1, "aten.relu")), Catch::Contains("world changed") &&
                                                                           Catch::Contains("rank removed   2") &&
                                                                           Catch::Contains("rank removed   3"));
}

TEST_CASE("diff: --ignore") {
  CHECK(parse_ignore("name,loc")->ignore_loc);
  CHECK_FALSE(parse_ignore("name,loc")->ignore_meta);
  CHECK_THAT(parse_ignore("nmae").error().hint, Catch::Contains("name"));
}

TEST_CASE("diff text: outside of modules the source line heads a hunk, once for all places with the same edit") {
  auto graph = [](std::string_view op) {
    std::string out = "sg 1.0\ngraph rank *\n  input %x0 : f32[4]\n";
    for (int i = 0; i < 6; ++i) {
      const std::string from = std::to_string(i), to = std::to_string(i + 1);
      out += "  at \"models/block.py\":31 forward\n  %y" + from + " = aten." + std::string(op) + "(%x" + from +
             ") : f32[4]\n  at \"models/block.py\":32 forward\n";
      for (char c : {'a', 'b', 'c', 'd', 'e', 'f'})
        out += std::string("  %") + c + to + " = aten.sin(%" +
               (c == 'a' ? "y" + from : std::string(1, char(c - 1)) + to) + ") : f32[4]\n";
      out += "  %x" + to + " = aten.cos(%f" + to + ") : f32[4]\n";
    }
    return out + "  output %x6\n";
  };
  const std::string text = told(graph("relu"), graph("tanh"));
  CHECK_THAT(text, Catch::Contains("@@ forward block.py:31 forward: the same in 6 places @@"));
  CHECK(text.find("@@ forward", text.find("@@ forward") + 1) == std::string::npos);
}

}  // namespace sg
