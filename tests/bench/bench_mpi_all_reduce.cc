// bench_mpi_all_reduce: MPI_Allreduce of f32, measured as bench_all_reduce measures Stepgraph's all_reduce.
#include <mpi.h>

#include <algorithm>
#include <cstdio>
#include <vector>

int main(int argc, char** argv) {
  constexpr int kRounds = 21;
  MPI_Init(&argc, &argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  for (size_t bytes :
       {size_t{8}, size_t{4 << 10}, size_t{32 << 10}, size_t{256 << 10}, size_t{2 << 20}, size_t{16 << 20}}) {
    std::vector<float> in(bytes / 4, 1), out(bytes / 4);
    int repeats = static_cast<int>(std::clamp<size_t>((8 << 20) / bytes, 2, 1000));
    std::vector<double> slowest;
    for (int round = 0; round < kRounds; ++round) {
      MPI_Barrier(MPI_COMM_WORLD);
      double start = MPI_Wtime();
      for (int i = 0; i < repeats; ++i)
        MPI_Allreduce(in.data(), out.data(), static_cast<int>(in.size()), MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
      double mine = (MPI_Wtime() - start) / repeats, most = 0;
      MPI_Allreduce(&mine, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
      slowest.push_back(most);
    }
    std::nth_element(slowest.begin(), slowest.begin() + kRounds / 2, slowest.end());
    if (rank == 0) std::printf("%zu %.3f\n", bytes, slowest[kRounds / 2] * 1e6);
  }
  MPI_Finalize();
}
