// plan_job: plans the memory of each program of binary jobs, for benchmarks; a line per program.
//
//   plan_job [--runs K] [--work N] FILE...     nodes, pieces of memory, planned and lower bound bytes,
//                                              ms for liveness and for the plan (median of K)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "libgraph/binary/binary.h"
#include "libgraph/expr/assume.h"
#include "libgraph/plan/plan.h"

using namespace sg;

namespace {

double median(std::vector<double> list) {
  std::sort(list.begin(), list.end());
  return list.empty() ? 0 : list[list.size() / 2];
}

double milliseconds(std::chrono::steady_clock::time_point since) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - since).count();
}

void plan_program(const char* file, const Program& program, const SizeValues& values, int runs,
                  const PlanOptions& options) {
  std::vector<double> liveness_ms, plan_ms;
  Liveness live;
  MemoryPlan plan;
  for (int k = 0; k < runs; ++k) {
    auto start = std::chrono::steady_clock::now();
    live = compute_liveness(program, program.graph, values);
    liveness_ms.push_back(milliseconds(start));
    start = std::chrono::steady_clock::now();
    plan = plan_memory(live, options);
    plan_ms.push_back(milliseconds(start));
  }
  double ratio = plan.lower_bound_bytes == 0
                     ? 1
                     : static_cast<double>(plan.arena_bytes) / static_cast<double>(plan.lower_bound_bytes);
  std::printf(
      "%s\t%zu nodes\t%zu pieces\t%lld planned\t%lld bound\t%.5f\t%.1f ms liveness\t%.1f ms plan\t%zu unknown\n", file,
      program.graph.node_count(), live.storages.size(), static_cast<long long>(plan.arena_bytes),
      static_cast<long long>(plan.lower_bound_bytes), ratio, median(liveness_ms), median(plan_ms), plan.pooled.size());
}

int plan_file(const char* file, int runs, const PlanOptions& options) {
  std::ifstream in(file, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  Result<Job> job = read_binary(bytes, file);
  if (!job.ok()) {
    std::fprintf(stderr, "plan_job: %s\n", job.error().message.c_str());
    return 2;
  }
  auto assumed = assume_values(*job, infer_ranges(*job), Assumption());
  for (size_t i = 0; i < job->programs.size(); ++i)
    plan_program(
        file, *job->programs[i], [&](StrId s) { return assumed.ok() ? (*assumed)[i].value(s) : std::nullopt; }, runs,
        options);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  int runs = 1, code = 0;
  PlanOptions options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--runs") == 0 && i + 1 < argc) runs = std::max(1, std::atoi(argv[++i]));
    else if (std::strcmp(argv[i], "--work") == 0 && i + 1 < argc)
      options.packing.work = std::strtoull(argv[++i], nullptr, 10);
    else code = std::max(code, plan_file(argv[i], runs, options));
  }
  return code;
}
