// Blocking of matrix products: row_limit rows of A are packed kDepth deep at a time, B by panels one tile wide. Each
// panel then runs over all the packed rows, tile by tile. Sums are kept in the result itself if its layout allows, else
// in scratch, kColumns wide. An engine (gemm_engine.h) packs and multiplies.
#include "librun/cpu/gemm.h"

#include <algorithm>
#include <vector>

#include "librun/backend.h"
#include "librun/cpu/gemm_complex.h"
#include "librun/cpu/gemm_engine.h"
#include "librun/cpu/gemm_plain.h"
#include "librun/cpu/gemm_small.h"
#include "librun/execute/memory_ranges.h"

namespace sg::cpu {
namespace {

constexpr int64_t kColumns = 1024;
constexpr int64_t kSmallWork = 1 << 17;  // multiply-adds for which a second thread is not worthwhile

template <class Engine>
struct Workspace {
  typename Engine::Packed* a;      // [Engine::packed_size]
  typename Engine::Packed* panel;  // [Engine::panel_size]
  typename Engine::Sum* self;      // [rows, tile columns]
  typename Engine::Sum* sums;      // [rows, sums_step]
  int64_t sums_step;               // not a multiple of 4096 bytes, so that rows do not compete for cache sets
};

// out = sums + self, if both are of T with contiguous rows: processes whole rows of the block.
template <class T>
bool finish_rows(const GemmBlock<T>& block, int64_t j, int64_t columns) {
  const GemmJob& job = *block.job;
  const bool plain = job.self.data && job.alpha == 1 && job.beta == 1 && job.self.dtype == kTileType<T> &&
                     job.out.dtype == kTileType<T> && job.self.column_step == 1 && job.out.column_step == 1;
  if (!plain) return false;
  for (int64_t i = 0; i < block.rows(); ++i) {
    const T* sums = block.sums + i * block.sums_step + (j - block.c0);
    const T* self = reinterpret_cast<const T*>(job.self.at(block.i0 + i, j).data);
    T* out = reinterpret_cast<T*>(const_cast<std::byte*>(job.out.at(block.i0 + i, j).data));
#pragma GCC ivdep  // `out` is `self` or apart from it
    for (int64_t c = 0; c < columns; ++c) out[c] = sums[c] + self[c];
  }
  return true;
}

// Converts the sums of one panel to results.
template <class T>
void finish_panel(const GemmBlock<T>& block, int64_t j, int64_t columns, T* self, int64_t self_step) {
  const GemmJob& job = *block.job;
  int64_t rows = block.rows();
  T* sums = block.sums + (j - block.c0);
  T alpha = static_cast<T>(job.alpha), beta = static_cast<T>(job.beta);
  if (alpha != 1)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t c = 0; c < columns; ++c) sums[i * block.sums_step + c] *= alpha;
  if (job.self.data) {
    pack_block(tile_kernels<T>(job.isa), job.self.at(block.i0, j), rows, columns, self, self_step);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t c = 0; c < columns; ++c) sums[i * block.sums_step + c] += beta * self[i * self_step + c];
  }
  if (!job.direct) store_block(sums, block.sums_step, job.out.at(block.i0, j), rows, columns);
}

// `parallel(count, fn(thread, begin, end))` runs over the threads that share these rows.
template <class Engine, class Parallel>
void run_rows(const GemmJob& job, const Engine& engine, int64_t i0, int64_t i1,
              const std::vector<Workspace<Engine>>& spaces, int first_space, const Parallel& parallel) {
  using T = typename Engine::Sum;
  const Workspace<Engine>& own = spaces[static_cast<size_t>(first_space)];
  const int64_t width = engine.columns();
  GemmBlock<T> block{&job, i0, i1, 0, 0, own.sums, own.sums_step};
  for (block.c0 = 0; block.c0 < job.n; block.c0 = block.c1) {
    block.c1 = job.direct ? job.n : std::min(block.c0 + kColumns, job.n);
    if (job.direct) {
      block.sums = reinterpret_cast<T*>(const_cast<std::byte*>(job.out.at(i0, 0).data));
      block.sums_step = job.out.row_step;
    }
    for (int64_t k = 0; k == 0 || k < job.k; k += Engine::kDepth) {
      GemmDepth depth{k, std::min(k + Engine::kDepth, job.k)};
      parallel(engine.row_groups(block.rows()),
               [&](int, int64_t begin, int64_t end) { engine.pack_rows(block, depth, begin, end, own.a); });
      int64_t panels = (block.c1 - block.c0 + width - 1) / width;
      parallel(panels, [&](int thread, int64_t begin, int64_t end) {
        const Workspace<Engine>& space = spaces[static_cast<size_t>(thread)];
        int64_t j = block.c0 + begin * width, last = std::min(block.c0 + end * width, block.c1);
        // While this thread works on its panels, each of the others takes as many.
        const int64_t then = last + (end - begin) * static_cast<int64_t>(spaces.size() - 1) * width;
        engine.multiply(block, depth, {j, last, then}, own.a, space.panel);
        if (depth.end < job.k || job.added || job.plain_self || job.rounded || finish_rows(block, j, last - j)) return;
        for (; j < last; j += width) finish_panel(block, j, std::min(width, last - j), space.self, width);
      });
    }
  }
}

bool is_same_view(const MatrixView& a, const MatrixView& b) {
  return a.data == b.data && a.dtype == b.dtype && a.row_step == b.row_step && a.column_step == b.column_step;
}

// A product, with everything common to its batch entries.
struct Plan {
  const Gemm* gemm;
  bool swapped;  // computed as out^T = b^T a^T, with the same bits
  int64_t m, n, k, batch;
  int64_t rows_step, blocks;  // of a task
  int64_t work() const { return m * n * std::max<int64_t>(k, 1); }
  // Tasks of about equal size and at most `limit` rows, in multiples of `grain`.
  void set_rows_step(int64_t limit, int64_t grain) {
    int64_t count = (m + limit - 1) / limit;
    rows_step = count > 0 ? ((m + count - 1) / count + grain - 1) / grain * grain : 0;
    blocks = rows_step > 0 ? (m + rows_step - 1) / rows_step : 0;
  }
};

template <class Engine>
GemmJob job_of(const Plan& plan, int64_t entry) {
  const Gemm& g = *plan.gemm;
  bool has_self = !g.self.is_none() && g.beta.to_double() != 0;
  GemmJob job{plan.m,
              plan.n,
              plan.k,
              matrix_of(g.a, entry),
              matrix_of(g.b, entry),
              matrix_of(g.out, entry),
              {},
              g.alpha.to_double(),
              g.beta.to_double(),
              g.isa};
  if (has_self) job.self = matrix_of(g.self, entry);
  if (plan.swapped) {
    std::swap(job.a, job.b);
    for (MatrixView* v : {&job.a, &job.b, &job.out, &job.self}) *v = v->transposed();
    job.swapped = true;
  }
  bool fits = dtype_bytes(g.out.dtype) == sizeof(typename Engine::Sum) && (job.out.column_step == 1 || plan.n == 1);
  job.added = fits && has_self && is_same_view(job.self, job.out) && job.alpha == 1 && job.beta == 1 &&
              job.k <= Engine::kAddedDepth;
  if (job.added) job.self = {};
  job.direct = fits && (job.added || !has_self || !share_memory(g.self, g.out));
  job.plain_self = Engine::kAddsSelf && job.direct && job.self.data && job.alpha == 1 && job.beta == 1 &&
                   job.self.dtype == job.out.dtype && job.self.column_step == 1;
  const auto is_rows_of_bf16 = [](const MatrixView& v) { return v.dtype == DType::bf16 && v.column_step == 1; };
  job.rounded = Engine::kRounds && is_rows_of_bf16(job.out) && job.alpha == 1 &&
                (!has_self || (is_rows_of_bf16(job.self) && job.beta == 1 &&
                               (is_same_view(job.self, job.out) || !share_memory(g.self, g.out))));
  return job;
}

template <class Engine>
Plan plan_of(const Gemm& g, const Engine& engine) {
  const int64_t width = engine.columns();
  Plan p{&g, false, g.out.dim(-2), g.out.dim(-1), g.a.dim(-1), 1, 0, 0};
  for (int axis = 0; axis + 2 < g.out.rank; ++axis) p.batch *= g.out.dim(axis);
  bool sideways = g.out.step(-1) != 1 && g.out.step(-2) == 1;
  bool narrow = p.n < width && p.m > p.n;
  p.swapped = p.n < width || p.m < width ? narrow : sideways;
  if (p.swapped) std::swap(p.m, p.n);
  if (p.m == 0 || p.n == 0) p.batch = 0;
  p.set_rows_step(engine.row_limit(p.k), engine.row_grain());
  return p;
}

template <class Engine>
class Run {
 public:
  Run(KernelCall& call, std::span<const Gemm> products, const Engine& engine) : call_(call), engine_(engine) {
    for (const Gemm& g : products) {
      const Plan plan = plan_of(g, engine_);
      if (plan.batch == 0) continue;  // no elements
      plans_.push_back(plan);
      work_ += plan.work() * plan.batch;
    }
    threads_ = work_ < kSmallWork ? 1 : call.team().size();
  }

  void run() {
    int64_t tasks = 0;
    for (const Plan& p : plans_) tasks += p.batch * p.blocks;
    bool alone = threads_ > 1 && tasks < 4 * threads_;
    if (alone)
      for (Plan& p : plans_)
        if (is_narrow(p)) p.set_rows_step(std::min(p.rows_step, few_rows(p)), engine_.row_grain());
    make_workspaces();
    if (!alone) return run_tasks(plans_);
    for (const Plan& p : plans_)
      if (is_narrow(p)) run_tasks({&p, 1});
      else run_together(p);
  }

 private:
  bool is_narrow(const Plan& p) const { return p.n < 8 * engine_.columns(); }

  // If there are few tasks with few panels, uses more tasks with fewer rows.
  int64_t few_rows(const Plan& p) const {
    return std::max<int64_t>(2 * engine_.row_tile(), (p.m + 4 * threads_ - 1) / (4 * threads_));
  }

  void make_workspaces() {
    int64_t rows = 0, depth = 0, sums_step = 0;
    bool self = false;
    for (const Plan& p : plans_) {
      GemmJob job = job_of<Engine>(p, 0);
      rows = std::max(rows, p.rows_step);
      depth = std::max(depth, std::min(p.k, Engine::kDepth));
      if (!job.direct) sums_step = std::max(sums_step, padded_columns(std::min(p.n, kColumns)) + 16);
      self |= job.self.data != nullptr;
    }
    using T = typename Engine::Sum;
    using Packed = typename Engine::Packed;
    for (int i = 0; i < threads_; ++i) {
      Scratch& scratch = call_.scratch();
      spaces_.push_back(
          {scratch.take<Packed>(engine_.packed_size(rows, depth)), scratch.take<Packed>(engine_.panel_size(depth)),
           self ? scratch.take<T>(rows * engine_.columns()) : nullptr, scratch.take<T>(rows * sums_step), sums_step});
    }
  }

  // Each task runs on one thread, with its own packed A.
  void run_tasks(std::span<const Plan> plans) {
    std::vector<int64_t> ends;
    int64_t tasks = 0, work = 0;
    for (const Plan& p : plans) {
      ends.push_back(tasks += p.batch * p.blocks);
      work += p.work() * p.batch;
    }
    if (tasks == 0) return;
    int64_t grain = threads_ == 1 ? tasks : std::max<int64_t>(1, kSmallWork / std::max<int64_t>(work / tasks, 1));
    call_.team().parallel_for_indexed(tasks, grain, [&](int thread, int64_t begin, int64_t end) {
      if (threads_ == 1) thread = 0;
      for (int64_t task = begin; task < end; ++task) {
        auto at = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), task) - ends.begin());
        const Plan& p = plans[at];
        int64_t index = task - (ends[at] - p.batch * p.blocks), i0 = index % p.blocks * p.rows_step;
        GemmJob job = job_of<Engine>(p, index / p.blocks);
        run_rows(job, engine_, i0, std::min(i0 + p.rows_step, p.m), spaces_, thread,
                 [&](int64_t count, const auto& fn) { fn(thread, 0, count); });
      }
    });
  }

  // All threads work on one block of rows: A is packed once, panels are distributed.
  void run_together(const Plan& p) {
    for (int64_t entry = 0; entry < p.batch; ++entry) {
      GemmJob job = job_of<Engine>(p, entry);
      for (int64_t i0 = 0; i0 < p.m; i0 += p.rows_step)
        run_rows(job, engine_, i0, std::min(i0 + p.rows_step, p.m), spaces_, 0, [&](int64_t count, const auto& fn) {
          call_.team().parallel_for_indexed(count, std::max<int64_t>(1, count / (6 * threads_)), fn);
        });
    }
  }

  KernelCall& call_;
  const Engine engine_;
  int threads_ = 1;
  int64_t work_ = 0;
  std::vector<Plan> plans_;
  std::vector<Workspace<Engine>> spaces_;
};

}  // namespace

void gemm(KernelCall& call, const Gemm& product) { gemm(call, std::span(&product, 1)); }

namespace {

// What multiplies a product of fast numerics. By the length of its sums alone, as bits may depend on nothing else: in
// short ones the omitted remainders of two f16 parts would matter, and multiply-adds are as fast.
Units units_of(const KernelCall& call, const Gemm& g) {
  Units units = Units::none;
  if (g.a.dtype == DType::f32) units = g.units;
  else if (g.a.dtype == DType::bf16 && g.units != Units::none && !call.ordered_sums) units = Units::whole;
  return units != Units::none && g.a.dim(-1) > short_sum(units) ? units : Units::none;
}

void gemm_fast(KernelCall& call, std::span<const Gemm> products) {
  const Gemm& first = products[0];
  const Units units = units_of(call, first);
  const auto is_like_first = [&](const Gemm& g) { return units_of(call, g) == units; };
  if (!std::all_of(products.begin(), products.end(), is_like_first)) {
    std::vector<Gemm> like_first, others;
    for (const Gemm& g : products) (is_like_first(g) ? like_first : others).push_back(g);
    gemm_fast(call, like_first);
    gemm_fast(call, others);
  } else if (units != Units::none) {
    Run(call, products, UnitEngine(units)).run();
  } else if (first.a.dtype == DType::bf16 && first.pairs) {
    Run(call, products, FmaEngine<Bf16Pair>(first.isa, false)).run();
  } else {
    Run(call, products, FmaEngine<float>(first.isa, false)).run();
  }
}

}  // namespace

void gemm(KernelCall& call, std::span<const Gemm> products) {
  if (products.empty()) return;
  if (Backend* backend = backend_of(call.context())) {
    for (const Gemm& product : products) backend->note(backend->multiply(call, product));
    return;
  }
  const Gemm& first = products[0];
  const DType dtype = first.a.dtype;
  const bool chain = call.numerics() == Numerics::strict;
  if (products.size() == 1 && is_small_product(first) && units_of(call, first) == Units::none) {
    gemm_small(call, first);
  } else if (!is_floating(dtype)) {
    for (const Gemm& g : products) is_complex_product(g) ? gemm_complex(call, g) : gemm_plain(call, g);
  } else if (dtype == DType::f64) {
    Run(call, products, FmaEngine<double>(first.isa, chain)).run();
  } else if (chain) {
    Run(call, products, FmaEngine<float>(first.isa, true)).run();
  } else {
    gemm_fast(call, products);
  }
}

}  // namespace sg::cpu
