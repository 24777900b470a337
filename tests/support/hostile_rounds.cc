// hostile_rounds SECONDS SEED [--ops PREFIX] [TEXT...]: random edits of graphs, verified and run, until the time is up.
//
// Like fuzz/fuzz_run.cc, for builds without libFuzzer: no coverage guides it, but every op of the table is called in
// turn. The graph is written to hostile_<SEED>.txt before it runs, so a crash leaves its input behind.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "libgraph/op.h"
#include "libgraph/text/text.h"
#include "tests/support/hostile_run.h"
#include "tests/support/random_edit.h"

using namespace sg;

namespace {

std::string read_file(const char* name) {
  std::ifstream in(name, std::ios::binary);
  std::ostringstream out;
  out << in.rdbuf();
  return std::move(out).str();
}

Job parse(const std::string& text) {
  Diagnostics diagnostics;
  auto job = parse_text(text, "text", &diagnostics);
  if (!job.ok()) std::fprintf(stderr, "a text does not parse: %s\n", job.error().message.c_str()), std::exit(2);
  return std::move(*job);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) return std::fprintf(stderr, "usage: hostile_rounds SECONDS SEED [--ops PREFIX] [TEXT...]\n"), 2;
  auto end = std::chrono::steady_clock::now() + std::chrono::seconds(std::atoi(argv[1]));
  std::string seed = argv[2], prefix;
  std::vector<std::string> texts;
  for (int i = 3; i < argc; ++i) {
    if (std::string(argv[i]) == "--ops" && i + 1 < argc) prefix = argv[++i];
    else texts.push_back(read_file(argv[i]));
  }
  texts.push_back("sg 1.0\ngraph rank *\n  input %x : f32[2, 3]\n  input %i : i64[3]\n  output %x\n");
  std::vector<const OpInfo*> ops;
  for (const OpInfo& op : all_ops())
    if (op.name.starts_with(prefix) && !op.has(kHigherOrder)) ops.push_back(&op);
  std::map<std::string_view, std::pair<int, int>> taken;  // calls that the rule accepted, and runs of them
  int counts[4] = {};
  for (uint64_t round = 0; std::chrono::steady_clock::now() < end; ++round) {
    test::Rng rng(static_cast<uint64_t>(std::atoll(seed.c_str())) * 1000003 + round);
    bool one_call = texts.size() == 1 || rng.percent(50);
    Job job = parse(one_call ? texts.back() : rng.pick(texts));
    const OpInfo* op = ops[round % ops.size()];
    if (one_call) {
      if (!test::add_random_call(job, *job.programs[0], *op, rng, 200)) continue;
      ++taken[op->name].first;
    } else {
      test::EditOptions options;
      options.ops = ops;
      for (uint64_t edits = 1 + rng.below(4); edits > 0; --edits) test::edit_job(job, rng, options);
    }
    std::ofstream("hostile_" + seed + ".txt") << print_text(job);
    test::HostileReport report = test::run_hostile(job, round, rng.percent(15));
    if (report.own_fault) return std::fprintf(stderr, "our own fault: %s\n", report.message.c_str()), 1;
    ++counts[static_cast<size_t>(report.outcome)];
    if (one_call && report.outcome == test::HostileOutcome::ran) ++taken[op->name].second;
    if (one_call && report.outcome == test::HostileOutcome::failed && std::getenv("SG_HOSTILE_VERBOSE"))
      std::printf("%s\n", report.message.c_str());
  }
  std::printf("too large %d, refused %d, failed %d, ran %d\n", counts[0], counts[1], counts[2], counts[3]);
  for (const OpInfo* op : ops)
    if (taken[op->name].second == 0)
      std::printf("never ran: %s (taken %d times)\n", std::string(op->name).c_str(), taken[op->name].first);
  return 0;
}
