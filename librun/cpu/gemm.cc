// The blocks: rows of A are packed row_limit by kDepth at a time, B by panels one tile wide. Every panel then runs over all the
// packed rows, tile by tile. Sums lie in the result itself when its layout allows, else in scratch, kColumns wide.
#include "librun/cpu/gemm.h"

#include <algorithm>
#include <vector>

#include "librun/cpu/gemm_block.h"
#include "librun/cpu/gemm_plain.h"

namespace sg::cpu {
namespace {

constexpr int64_t kDepth = 3 * kSumBlock;
constexpr int64_t kPackedBytes = 1100 << 10;      // of packed A: about half of a usual L2
constexpr int64_t kColumns = 1024;
constexpr int64_t kSumsStep = kColumns + 16;      // not a multiple of 4096 bytes: rows would compete for cache sets
constexpr int64_t kSmallWork = 1 << 17;           // multiply-adds not worth a second thread

// Rows of A that are packed at a time.
template <class T>
int64_t row_limit(int64_t k) {
  int64_t blocks = std::clamp<int64_t>((k + kSumBlock - 1) / kSumBlock, 1, kDepth / kSumBlock);
  return kPackedBytes / (blocks * kPackedRow * static_cast<int64_t>(sizeof(T)));
}

// One product of two matrices.
struct Job {
  int64_t m = 0, n = 0, k = 0;
  MatrixView a, b, out, self;          // self.data null: none
  double alpha = 1, beta = 0;
  bool chain = false;
  bool direct = false;                 // sums may lie in `out`
};

template <class T>
struct Workspace {
  T* a;          // [kDepth / kSumBlock, rows, kPackedRow]
  T* panel;      // [kPanelSize]
  T* self;       // [rows, tile columns]
  T* sums;       // [rows, kSumsStep]
};

// Rows [i0, i1) and columns [c0, c1) of a job, with where its sums are.
template <class T>
struct Block {
  const Job* job;
  const TileKernels<T>* kernels;
  int64_t i0, i1, c0, c1;
  T* a;
  T* sums;
  int64_t sums_step;
  int64_t rows() const { return i1 - i0; }
};

struct Depth { int64_t begin, end; };

template <class T>
void pack_rows(const Block<T>& block, Depth depth, int64_t begin, int64_t end) {
  T* to = block.a + begin * kPackedRow;
  for (int64_t k = depth.begin; k < depth.end; k += kSumBlock, to += block.rows() * kPackedRow)
    pack_block(*block.kernels, block.job->a.at(block.i0 + begin, k), end - begin, std::min(kSumBlock, depth.end - k), to, kPackedRow);
}

// Columns from j of the block: sums over `depth`.
template <class T>
void multiply_panels(const Block<T>& block, Depth depth, int64_t j, int64_t columns, T* panel) {
  const Job& job = *block.job;
  TileStart start = depth.begin == 0 ? TileStart::zero : job.chain ? TileStart::chain : TileStart::add;
  TileStart later = job.chain ? TileStart::chain : TileStart::add;
  multiply_packed(*block.kernels, block.a, block.rows(), job.b.at(depth.begin, j), columns, depth.end - depth.begin, {start, later},
                  block.sums + (j - block.c0), block.sums_step, !job.direct, panel);
}

// From sums to results, one panel.
template <class T>
void finish_panel(const Block<T>& block, int64_t j, T* self) {
  const Job& job = *block.job;
  int64_t width = block.kernels->columns, columns = std::min(width, block.c1 - j), rows = block.rows();
  T* sums = block.sums + (j - block.c0);
  T alpha = static_cast<T>(job.alpha), beta = static_cast<T>(job.beta);
  if (alpha != 1)
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t c = 0; c < columns; ++c) sums[i * block.sums_step + c] *= alpha;
  if (job.self.data) {
    pack_block(*block.kernels, job.self.at(block.i0, j), rows, columns, self, width);
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t c = 0; c < columns; ++c) sums[i * block.sums_step + c] += beta * self[i * width + c];
  }
  if (!job.direct) store_block(sums, block.sums_step, job.out.at(block.i0, j), rows, columns);
}

// `parallel(count, fn(thread, begin, end))` runs over the threads that work on these rows together.
template <class T, class Parallel>
void run_rows(const Job& job, const TileKernels<T>& kernels, int64_t i0, int64_t i1, const std::vector<Workspace<T>>& spaces,
              int first_space, const Parallel& parallel) {
  const Workspace<T>& own = spaces[static_cast<size_t>(first_space)];
  Block<T> block{&job, &kernels, i0, i1, 0, 0, own.a, own.sums, kSumsStep};
  for (block.c0 = 0; block.c0 < job.n; block.c0 = block.c1) {
    block.c1 = job.direct ? job.n : std::min(block.c0 + kColumns, job.n);
    if (job.direct) {
      block.sums = reinterpret_cast<T*>(const_cast<std::byte*>(job.out.at(i0, 0).data));
      block.sums_step = job.out.row_step;
    }
    for (int64_t k = 0; k == 0 || k < job.k; k += kDepth) {
      Depth depth{k, std::min(k + kDepth, job.k)};
      parallel(block.rows(), [&](int, int64_t begin, int64_t end) { pack_rows(block, depth, begin, end); });
      int64_t panels = (block.c1 - block.c0 + kernels.columns - 1) / kernels.columns;
      parallel(panels, [&](int thread, int64_t begin, int64_t end) {
        const Workspace<T>& space = spaces[static_cast<size_t>(thread)];
        int64_t j = block.c0 + begin * kernels.columns, last = std::min(block.c0 + end * kernels.columns, block.c1);
        multiply_panels(block, depth, j, last - j, space.panel);
        for (; depth.end == job.k && j < last; j += kernels.columns) finish_panel(block, j, space.self);
      });
    }
  }
}

bool overlap(const Tensor& a, const Tensor& b) {
  return a.data < b.data + extent_bytes(b) && b.data < a.data + extent_bytes(a);
}

// A product with what is the same for all its batch entries.
struct Plan {
  const Gemm* gemm;
  bool swapped;                        // computed as out^T = b^T a^T: the bits are the same
  int64_t m, n, k, batch;
  int64_t rows_step, blocks;           // of a task
  int64_t first_task;
  int64_t work() const { return m * n * std::max<int64_t>(k, 1); }
};

template <class T>
Job job_of(const Plan& plan, int64_t entry, bool chain) {
  const Gemm& g = *plan.gemm;
  bool has_self = !g.self.is_none() && g.beta.to_double() != 0;
  Job job{plan.m, plan.n, plan.k, matrix_of(g.a, entry), matrix_of(g.b, entry), matrix_of(g.out, entry), {},
          g.alpha.to_double(), g.beta.to_double(), chain};
  if (has_self) job.self = matrix_of(g.self, entry);
  if (plan.swapped) {
    std::swap(job.a, job.b);
    for (MatrixView* v : {&job.a, &job.b, &job.out, &job.self}) *v = v->transposed();
  }
  job.direct = dtype_bytes(g.out.dtype) == sizeof(T) && (job.out.column_step == 1 || plan.n == 1) && !(has_self && overlap(g.self, g.out));
  return job;
}

template <class T>
Plan plan_of(const Gemm& g, const TileKernels<T>& kernels) {
  Plan p{&g, false, g.out.dim(-2), g.out.dim(-1), g.a.dim(-1), 1, 0, 0, 0};
  for (int axis = 0; axis + 2 < g.out.rank; ++axis) p.batch *= g.out.dim(axis);
  bool sideways = g.out.step(-1) != 1 && g.out.step(-2) == 1;
  bool narrow = p.n < kernels.columns && p.m > p.n;
  p.swapped = p.n < kernels.columns || p.m < kernels.columns ? narrow : sideways;
  if (p.swapped) std::swap(p.m, p.n);
  int64_t limit = row_limit<T>(p.k);
  p.blocks = (p.m + limit - 1) / limit;
  if (p.m == 0 || p.n == 0) p.batch = 0;
  p.rows_step = p.blocks > 0 ? (p.m + p.blocks - 1) / p.blocks : 0;
  return p;
}

template <class T>
class Run {
 public:
  Run(KernelCall& call, std::span<const Gemm> products)
      : call_(call), kernels_(tile_kernels<T>(products[0].isa)), chain_(call.numerics() == Numerics::strict) {
    for (const Gemm& g : products) {
      plans_.push_back(plan_of<T>(g, kernels_));
      work_ += plans_.back().work() * plans_.back().batch;
    }
    threads_ = work_ < kSmallWork ? 1 : call.team().size();
  }

  void run() {
    int64_t tasks = 0;
    for (const Plan& p : plans_) tasks += p.batch * p.blocks;
    bool alone = threads_ > 1 && tasks < 4 * threads_;
    if (alone)
      for (Plan& p : plans_)
        if (p.n < 8 * kernels_.columns) split_rows(p);
    make_workspaces();
    if (!alone) return run_tasks(plans_);
    for (const Plan& p : plans_)
      if (p.n < 8 * kernels_.columns) run_tasks({&p, 1});
      else run_together(p);
  }

 private:
  // Few tasks of few panels: more of them, with fewer rows.
  void split_rows(Plan& p) const {
    int64_t step = std::max<int64_t>(2 * kernels_.rows, (p.m + 4 * threads_ - 1) / (4 * threads_));
    p.rows_step = std::min(p.rows_step, step);
    if (p.rows_step > 0) p.blocks = (p.m + p.rows_step - 1) / p.rows_step;
  }

  void make_workspaces() {
    int64_t rows = 0, depth = 0;
    bool sums = false, self = false;
    for (const Plan& p : plans_) {
      if (p.batch == 0) continue;
      Job job = job_of<T>(p, 0, chain_);
      rows = std::max(rows, p.rows_step);
      depth = std::max(depth, std::min(p.k, kDepth));
      sums |= !job.direct;
      self |= job.self.data != nullptr;
    }
    int64_t blocks = (depth + kSumBlock - 1) / kSumBlock;
    for (int i = 0; i < threads_; ++i) {
      Scratch& scratch = call_.scratch();
      spaces_.push_back({scratch.take<T>(blocks * rows * kPackedRow), scratch.take<T>(kPanelSize),
                         self ? scratch.take<T>(rows * kernels_.columns) : nullptr, sums ? scratch.take<T>(rows * kSumsStep) : nullptr});
    }
  }

  // Every task by one thread, with a packed A of its own.
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
        Job job = job_of<T>(p, index / p.blocks, chain_);
        run_rows(job, kernels_, i0, std::min(i0 + p.rows_step, p.m), spaces_, thread,
                 [&](int64_t count, const auto& fn) { fn(thread, 0, count); });
      }
    });
  }

  // All threads on one block of rows: A is packed once, panels are handed out.
  void run_together(const Plan& p) {
    for (int64_t entry = 0; entry < p.batch; ++entry) {
      Job job = job_of<T>(p, entry, chain_);
      for (int64_t i0 = 0; i0 < p.m; i0 += p.rows_step)
        run_rows(job, kernels_, i0, std::min(i0 + p.rows_step, p.m), spaces_, 0, [&](int64_t count, const auto& fn) {
          call_.team().parallel_for_indexed(count, std::max<int64_t>(1, count / (6 * threads_)), fn);
        });
    }
  }

  KernelCall& call_;
  const TileKernels<T>& kernels_;
  bool chain_;
  int threads_ = 1;
  int64_t work_ = 0;
  std::vector<Plan> plans_;
  std::vector<Workspace<T>> spaces_;
};

}  // namespace

void gemm(KernelCall& call, const Gemm& product) { gemm(call, std::span(&product, 1)); }

void gemm(KernelCall& call, std::span<const Gemm> products) {
  if (products.empty()) return;
  DType dtype = products[0].a.dtype;
  if (!is_floating(dtype)) {
    for (const Gemm& g : products) gemm_plain(call, g);
  } else if (dtype == DType::f64) {
    Run<double>(call, products).run();
  } else {
    Run<float>(call, products).run();
  }
}

}  // namespace sg::cpu
