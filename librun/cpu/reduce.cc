#include "librun/cpu/reduce.h"

#include <numeric>

namespace sg::cpu {
namespace {

using Axis = ReducePlan::Axis;

// Merges adjacent axes that continue each other, and drops axes of size 1; at least one axis remains.
std::vector<Axis> joined(const std::vector<Axis>& axes) {
  std::vector<Axis> out;
  for (const Axis& axis : axes) {
    if (axis.size == 1) continue;
    if (!out.empty() && out.back().in == axis.in * axis.size && out.back().out == axis.out * axis.size)
      out.back() = {out.back().size * axis.size, axis.in, axis.out};
    else out.push_back(axis);
  }
  if (out.empty()) out.push_back({1, 0, 0});
  return out;
}

int64_t elements(const std::vector<Axis>& axes) {
  return std::accumulate(axes.begin(), axes.end(), int64_t{1}, [](int64_t n, const Axis& a) { return n * a.size; });
}

}  // namespace

std::vector<int> reduced_axes(const KernelCall& call, const Tensor& self) {
  return call.op().param_index("dim") >= 0 ? call.axes("dim", self.rank) : std::vector<int>();
}

ReducePlan plan_reduction(const Tensor& self, const Tensor& out, const std::vector<int>& axes) {
  std::vector<bool> reduced(static_cast<size_t>(self.rank), axes.empty());
  for (int axis : axes)
    if (self.rank > 0) reduced[static_cast<size_t>(axis)] = true;
  // By stride, outermost first; equal strides (expanded axes) stay in logical order.
  std::vector<int> order(static_cast<size_t>(self.rank)), out_axis(order);
  std::iota(order.begin(), order.end(), 0);
  int next = 0;
  for (int i = 0; i < self.rank; ++i)
    out_axis[static_cast<size_t>(i)] = out.rank == self.rank ? i : reduced[static_cast<size_t>(i)] ? -1 : next++;
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return self.step(a) > self.step(b); });
  ReducePlan plan;
  bool innermost_reduced = false;
  for (int axis : order) {
    auto a = static_cast<size_t>(axis);
    if (self.dim(axis) != 1 && self.step(axis) != 0) innermost_reduced = reduced[a];
    if (reduced[a]) plan.reduced.push_back({self.dim(axis), self.step(axis), 0});
    else plan.kept.push_back({self.dim(axis), self.step(axis), out.step(out_axis[a])});
  }
  plan.kept = joined(plan.kept);
  plan.reduced = joined(plan.reduced);
  plan.outputs = elements(plan.kept);
  plan.count = elements(plan.reduced);
  plan.rows = innermost_reduced || plan.outputs == 1;
  plan.per_block = plan.rows ? kReduceRun : kReduceColumnRows;
  plan.blocks = std::max<int64_t>(1, (plan.count + plan.per_block - 1) / plan.per_block);
  return plan;
}

OuterOffset outer_offset(const std::vector<Axis>& axes, int64_t position) {
  OuterOffset offset;
  for (size_t i = axes.size() - 1; i-- > 0;) {
    int64_t index = position % axes[i].size;
    offset.in += index * axes[i].in;
    offset.out += index * axes[i].out;
    position /= axes[i].size;
  }
  return offset;
}

namespace {

// A running reduction: outputs are grouped in lines along the innermost kept axis, and lines in tiles.
template <class Acc>
class Reduction {
 public:
  Reduction(const ReducePlan& plan, const Tensor& self, const Reducer<Acc>& reducer, const double* centers,
            const Finish<Acc>& finish)
      : plan_(plan), self_(self), reducer_(reducer), centers_(centers), finish_(finish), kept_(plan.kept.back()) {
    tile_ = plan.rows ? std::clamp<int64_t>(kPieceElements / std::max<int64_t>(plan.count, 1), 1, kReduceTile)
                      : kReduceTile;
    tiles_ = (kept_.size + tile_ - 1) / tile_;
    lines_ = plan.outputs / kept_.size;
  }

  void run(KernelCall& call) {
    int64_t work = std::max<int64_t>(1, std::min(tile_, kept_.size) * std::min(plan_.per_block, plan_.count));
    if (plan_.blocks > 1) partial_ = call.scratch().template take<Acc>(plan_.blocks * plan_.outputs);
    call.team().parallel_for(lines_ * tiles_ * plan_.blocks, std::max<int64_t>(1, kPieceElements / work),
                             [&](int64_t begin, int64_t end) {
                               for (int64_t unit = begin; unit < end; ++unit)
                                 reduce_tile(tile_at(unit / plan_.blocks), unit % plan_.blocks);
                             });
    if (!partial_) return;
    int64_t grain = std::max<int64_t>(1, kPieceElements / (tile_ * plan_.blocks));
    call.team().parallel_for(lines_ * tiles_, grain, [&](int64_t begin, int64_t end) {
      for (int64_t unit = begin; unit < end; ++unit) merge_tile(tile_at(unit));
    });
  }

 private:
  struct Tile {
    int64_t line, first, width, output;
  };

  Tile tile_at(int64_t unit) const {
    int64_t line = unit / tiles_, first = unit % tiles_ * tile_;
    return {line, first, std::min(tile_, kept_.size - first), line * kept_.size + first};
  }

  void reduce_tile(const Tile& t, int64_t block) const {
    Acc held[kReduceTile];
    Acc* acc = partial_ ? partial_ + block * plan_.outputs + t.output : held;
    std::fill_n(acc, t.width, reducer_.start(reducer_.op));
    reduce_block(t, block, acc);
    if (!partial_) give(t, acc);
  }

  // Reduces the block's range of positions over the reduced axes (outer times inner).
  void reduce_block(const Tile& t, int64_t block, Acc* acc) const {
    const ReducePlan::Axis& run = plan_.reduced.back();
    auto bytes = static_cast<int64_t>(reducer_.element_bytes);
    const double* centers = centers_ ? centers_ + t.output : nullptr;
    const std::byte* line = self_.data + (outer_offset(plan_.kept, t.line).in + t.first * kept_.in) * bytes;
    int64_t begin = block * plan_.per_block, end = std::min(plan_.count, begin + plan_.per_block);
    while (begin < end) {
      int64_t inner = begin % run.size, n = std::min(run.size - inner, end - begin);
      const std::byte* x = line + (outer_offset(plan_.reduced, begin / run.size).in + inner * run.in) * bytes;
      if (!plan_.rows) reducer_.columns(reducer_.op, x, n, run.in, t.width, kept_.in, centers, acc);
      for (int64_t j = 0; plan_.rows && j < t.width; ++j)
        acc[j] =
            reducer_.merge(reducer_.op, acc[j],
                           reducer_.run(reducer_.op, x + j * kept_.in * bytes, n, run.in, centers ? centers[j] : 0));
      begin += n;
    }
  }

  // Merges the blocks' results pairwise into the first.
  void merge_tile(const Tile& t) const {
    for (int64_t step = 1; step < plan_.blocks; step *= 2) {
      for (int64_t b = 0; b + step < plan_.blocks; b += 2 * step) {
        Acc *into = partial_ + b * plan_.outputs + t.output, *from = partial_ + (b + step) * plan_.outputs + t.output;
        for (int64_t j = 0; j < t.width; ++j) into[j] = reducer_.merge(reducer_.op, into[j], from[j]);
      }
    }
    give(t, partial_ + t.output);
  }

  void give(const Tile& t, const Acc* acc) const {
    finish_(acc, t.width, t.output, outer_offset(plan_.kept, t.line).out + t.first * kept_.out, kept_.out);
  }

  const ReducePlan& plan_;
  const Tensor& self_;
  const Reducer<Acc>& reducer_;
  const double* centers_;
  const Finish<Acc>& finish_;
  ReducePlan::Axis kept_;
  int64_t tile_, tiles_, lines_;
  Acc* partial_ = nullptr;
};

}  // namespace

template <class Acc>
void run_reduction(KernelCall& call, const ReducePlan& plan, const Tensor& self, const Reducer<Acc>& reducer,
                   const double* centers, const Finish<Acc>& finish) {
  if (plan.outputs > 0) Reduction<Acc>(plan, self, reducer, centers, finish).run(call);
}

template void run_reduction(KernelCall&, const ReducePlan&, const Tensor&, const Reducer<double>&, const double*,
                            const Finish<double>&);
template void run_reduction(KernelCall&, const ReducePlan&, const Tensor&, const Reducer<float>&, const double*,
                            const Finish<float>&);
template void run_reduction(KernelCall&, const ReducePlan&, const Tensor&, const Reducer<int64_t>&, const double*,
                            const Finish<int64_t>&);
template void run_reduction(KernelCall&, const ReducePlan&, const Tensor&, const Reducer<uint64_t>&, const double*,
                            const Finish<uint64_t>&);
template void run_reduction(KernelCall&, const ReducePlan&, const Tensor&, const Reducer<C128>&, const double*,
                            const Finish<C128>&);

template <class Acc>
Put<Acc> put_as(DType dtype) {
  return visit_dtype(dtype, []<class T>() -> Put<Acc> {
    return [](std::byte* data, int64_t offset, Acc value) {
      T& to = reinterpret_cast<T*>(data)[offset];
      if constexpr (is_complex_type<T>) {
        using Real = typename T::value_type;
        std::complex<double> both;
        if constexpr (std::is_same_v<Acc, uint64_t>) both = static_cast<double>(static_cast<int64_t>(value));
        else if constexpr (std::is_same_v<Acc, int64_t>) both = static_cast<double>(value);
        else both = value;
        to = T(static_cast<Real>(both.real()), static_cast<Real>(both.imag()));
      } else if constexpr (is_complex_type<Acc>) {
        to = static_cast<T>(static_cast<Compute<T>>(value.real()));
      } else if constexpr (std::is_same_v<Acc, uint64_t>) {
        to = static_cast<T>(static_cast<Compute<T>>(static_cast<int64_t>(value)));
      } else {
        to = static_cast<T>(static_cast<Compute<T>>(value));
      }
    };
  });
}

template Put<double> put_as(DType);
template Put<C128> put_as(DType);
template Put<int64_t> put_as(DType);
template Put<uint64_t> put_as(DType);

}  // namespace sg::cpu
