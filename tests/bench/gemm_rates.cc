// GFLOP/s of matrix products, next to the peak of the machine's multiply-add units, and to oneDNN if the build found
// it; of f32, and of bf16 with matrix units and in the order of k.
//
//   build/bin/gemm_rates [THREADS]...     default: 1 2
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <type_traits>
#include <vector>

#include "libgraph/op.h"
#include "librun/cpu/gemm.h"
#include "librun/execute/memory.h"
#ifdef SG_BENCH_ONEDNN
#include <dnnl.h>
#include <omp.h>
#endif

using namespace sg;

namespace {

double seconds_of(const std::function<void()>& work) {  // the median of several runs
  work();
  std::vector<double> times;
  double total = 0;
  while (times.size() < 5 || (total < 0.3 && times.size() < 101)) {
    auto start = std::chrono::steady_clock::now();
    work();
    times.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    total += times.back();
  }
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
  return times[times.size() / 2];
}

constexpr int kChains = 12;
constexpr int64_t kSteps = 1 << 20;
volatile float g_sink;

__attribute__((target("avx512f"))) void fma_avx512() {
  __m512 sum[kChains], x = _mm512_set1_ps(0.5f);
  for (auto& s : sum) s = x;
  for (int64_t i = 0; i < kSteps; ++i)
#pragma GCC unroll 12
    for (auto& s : sum) s = _mm512_fmadd_ps(s, x, x);
  for (auto& s : sum) g_sink = _mm512_cvtss_f32(s);
}

__attribute__((target("avx2,fma"))) void fma_avx2() {
  __m256 sum[kChains], x = _mm256_set1_ps(0.5f);
  for (auto& s : sum) s = x;
  for (int64_t i = 0; i < kSteps; ++i)
#pragma GCC unroll 12
    for (auto& s : sum) s = _mm256_fmadd_ps(s, x, x);
  for (auto& s : sum) g_sink = _mm256_cvtss_f32(s);
}

double fma_rate(ThreadTeam& team) {
  bool wide = cpu::best_isa() == cpu::Isa::avx512;
  if (cpu::best_isa() == cpu::Isa::plain) return 0;
  double seconds = seconds_of([&] {
    team.parallel_for(team.size(), 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) wide ? fma_avx512() : fma_avx2();
    });
  });
  return 2e-9 * kChains * (wide ? 16 : 8) * kSteps * team.size() / seconds;
}

struct Shape {
  int64_t m, n, k;
  bool a_transposed, b_transposed;
};

// The products of a training step of GPT-2 at 256 tokens (x W^T, dy W, dy^T x), square ones, and thin ones.
constexpr Shape kShapes[] = {
    {256, 256, 256, false, false},    {512, 512, 512, false, false},  {1024, 1024, 1024, false, false},
    {2048, 2048, 2048, false, false}, {256, 2304, 768, false, false}, {256, 768, 3072, false, false},
    {256, 3072, 768, false, false},   {256, 768, 3072, false, true},  {256, 3072, 768, false, true},
    {768, 3072, 256, true, false},    {3072, 768, 256, true, false},  {256, 50304, 768, false, true},
    {256, 768, 50304, false, false},  {50304, 768, 256, true, false}, {1, 3072, 768, false, true},
    {1, 3072, 768, false, false},     {4, 3072, 768, false, true},    {64, 64, 64, false, false},
};

struct Operands {  // in memory as runs have it: in large pages where the system gives them
  Arena a, b, c;
  Tensor ta, tb, tc;
};

float* numbers(Arena& memory) { return reinterpret_cast<float*>(memory.data()); }

template <class T>
Tensor matrix(Arena& memory, int64_t rows, int64_t columns, bool transposed) {
  memory = Arena::reserve(rows * columns * static_cast<int64_t>(sizeof(T))).value();
  std::minstd_rand random(7);
  std::generate_n(reinterpret_cast<T*>(memory.data()), rows * columns,
                  [&] { return T(static_cast<float>(random() % 2001) / 1000 - 1); });
  int64_t shape[] = {transposed ? columns : rows, transposed ? rows : columns};
  Tensor t = make_tensor(memory.data(), std::is_same_v<T, BF16> ? DType::bf16 : DType::f32, shape);
  return transposed ? swap_axes(t, 0, 1) : t;
}

template <class T>
Operands operands(const Shape& s) {
  Operands o;
  o.ta = matrix<T>(o.a, s.m, s.k, s.a_transposed);
  o.tb = matrix<T>(o.b, s.k, s.n, s.b_transposed);
  o.tc = matrix<T>(o.c, s.m, s.n, false);
  return o;
}

double rate(const Shape& s, const std::function<void()>& work) {
  return 2e-9 * static_cast<double>(s.m * s.n) * static_cast<double>(s.k) / seconds_of(work);
}

double our_rate(const Shape& s, const Operands& o, ThreadTeam& team, Numerics numerics, bool units = true) {
  Scratch scratch;
  KernelContext context{&team, &scratch, numerics};
  KernelCall call(*find_op("aten.mm.default"), &context);
  return rate(s, [&] {
    cpu::Gemm product{o.tc, o.ta, o.tb};
    if (!units) product.units = cpu::Units::none;
    cpu::gemm(call, product);
    scratch.reset();
  });
}

#ifdef SG_BENCH_ONEDNN
double onednn_rate(const Shape& s, Operands& o, int threads) {
  omp_set_num_threads(threads);
  return rate(s, [&] {
    dnnl_sgemm(s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N', s.m, s.n, s.k, 1, numbers(o.a),
               s.a_transposed ? s.m : s.k, numbers(o.b), s.b_transposed ? s.k : s.n, 0, numbers(o.c), s.n);
  });
}
#else
double onednn_rate(const Shape&, Operands&, int) { return 0; }
#endif

void measure(int threads) {
  ThreadTeam team(threads);
  double floor = fma_rate(team);
  std::printf("%d threads: multiply-adds alone %.0f GFLOP/s\n%-26s %8s %8s %8s %8s %8s %8s\n", threads, floor,
              "M x N x K", "fast", "strict", "oneDNN", "fast/FMA", "bf16", "in order");
  for (const Shape& s : kShapes) {
    Operands o = operands<float>(s);
    const Operands halves = operands<BF16>(s);
    char name[64];
    std::snprintf(name, sizeof(name), "%ldx%ldx%ld %c%c", long(s.m), long(s.n), long(s.k), s.a_transposed ? 'T' : 'N',
                  s.b_transposed ? 'T' : 'N');
    double fast = our_rate(s, o, team, Numerics::fast), strict = our_rate(s, o, team, Numerics::strict);
    std::printf("%-26s %8.1f %8.1f %8.1f %7.0f%% %8.1f %8.1f\n", name, fast, strict, onednn_rate(s, o, threads),
                100 * fast / floor, our_rate(s, halves, team, Numerics::fast),
                our_rate(s, halves, team, Numerics::fast, false));
    std::fflush(stdout);
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<int> counts;
  for (int i = 1; i < argc; ++i) counts.push_back(std::max(1, std::atoi(argv[i])));
  if (counts.empty()) counts = {1, 2};
  for (int threads : counts) measure(threads);
}
