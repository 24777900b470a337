// bench_all_reduce RANKS: all_reduce of f32 among ranks that are threads of this process. One line "BYTES MICROSECONDS"
// per size: the median over rounds of the slowest rank's time.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "librun/comm/comm_local.h"
#include "tests/support/collective_script.h"

using namespace sg;

namespace {

using Clock = std::chrono::steady_clock;

double time_once(Communicator& comm, std::vector<float>& in, std::vector<float>& out, int repeats) {
  int64_t count[] = {static_cast<int64_t>(in.size())};
  CollectiveCall call;
  call.kind = CollectiveKind::all_reduce;
  call.group = GroupId(0);
  call.input = make_tensor(reinterpret_cast<std::byte*>(in.data()), DType::f32, count);
  call.output = make_tensor(reinterpret_cast<std::byte*>(out.data()), DType::f32, count);
  call.label = "bench";
  auto start = Clock::now();
  for (int i = 0; i < repeats; ++i) {
    auto ticket = comm.launch(call);
    if (!ticket.ok() || !comm.wait(*ticket).ok()) std::exit(1);
  }
  return std::chrono::duration<double>(Clock::now() - start).count() / repeats;
}

}  // namespace

int main(int argc, char** argv) {
  auto world = static_cast<uint32_t>(argc > 1 ? std::atoi(argv[1]) : 2);
  constexpr int kRounds = 21;
  auto job = test::job_of(world);
  std::vector<size_t> sizes = {8, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20};
  std::vector<std::vector<std::vector<double>>> seconds(sizes.size(), std::vector(kRounds, std::vector<double>(world)));
  test::run_ranks(make_local_communicators(*job), [&](Communicator& comm) {
    for (size_t s = 0; s < sizes.size(); ++s) {
      std::vector<float> in(sizes[s] / 4, 1), out(sizes[s] / 4);
      int repeats = static_cast<int>(std::clamp<size_t>((8 << 20) / sizes[s], 2, 1000));
      for (int round = 0; round < kRounds; ++round)
        seconds[s][static_cast<size_t>(round)][comm.rank()] = time_once(comm, in, out, repeats);
    }
  });
  for (size_t s = 0; s < sizes.size(); ++s) {
    std::vector<double> slowest;
    for (const auto& round : seconds[s]) slowest.push_back(*std::max_element(round.begin(), round.end()));
    std::nth_element(slowest.begin(), slowest.begin() + kRounds / 2, slowest.end());
    std::printf("%zu %.3f\n", sizes[s], slowest[kRounds / 2] * 1e6);
  }
}
