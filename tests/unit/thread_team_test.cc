#include <catch2/catch.hpp>

#include <atomic>
#include <vector>

#include "librun/thread_team.h"

using namespace sg;

TEST_CASE("every index is run once, whatever the pieces") {
  for (int threads : {1, 2, 4}) {
    ThreadTeam team(threads);
    for (int64_t count : {0, 1, 7, 1000})
      for (int64_t grain : {1, 3, 1000}) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(count));
        team.parallel_for(count, grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        });
        for (auto& h : hits) CHECK(h == 1);
      }
  }
}

TEST_CASE("many small jobs, one after the other") {
  ThreadTeam team(3);
  int64_t total = 0;
  for (int round = 0; round < 5000; ++round) {
    std::atomic<int64_t> sum{0};
    team.parallel_for(8, 1, [&](int64_t begin, int64_t end) { sum += end - begin; });
    total += sum;
  }
  CHECK(total == 40000);
}
