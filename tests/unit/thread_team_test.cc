#include <catch2/catch.hpp>

#include <atomic>
#include <chrono>
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

// So what it wrote in one loop is in its cache in the next.
TEST_CASE("a thread begins with its own part, and takes from others' ends") {
  ThreadTeam team(2);
  std::atomic<int> first_of_worker{-1};
  team.parallel_for_indexed(4, 1, [&](int thread, int64_t begin, int64_t) {
    int none = -1;
    if (thread == 1) first_of_worker.compare_exchange_strong(none, static_cast<int>(begin));
    const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (thread == 0 && first_of_worker < 0 && std::chrono::steady_clock::now() < late) {
    }
  });
  CHECK(first_of_worker == 2);

  std::vector<std::atomic<int>> thread_of(8);
  std::atomic<int> of_worker{0};
  team.parallel_for_indexed(8, 1, [&](int thread, int64_t begin, int64_t) {
    thread_of[static_cast<size_t>(begin)] = thread;
    const auto late = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    if (thread == 1) ++of_worker;
    while (begin == 0 && of_worker < 7 && std::chrono::steady_clock::now() < late) {
    }
  });
  CHECK(thread_of[0] == 0);
  for (size_t i = 1; i < 8; ++i) CHECK(thread_of[i] == 1);  // while the caller is blocked in its first piece
}
