// Sorted rows, and ops based on them: from calls to kernels.
//
// A row that fits a block is sorted by that block and written straight to the results. Longer rows go through tiles and
// rounds of merges, as many rows at a time as there is memory for their items. This also applies if there are enough
// rows for all blocks, because a round reads its neighbours from device memory once, regardless of the length.
#include <algorithm>
#include <array>
#include <cstdlib>

#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/order.h"
#include "librun/cuda/kernels/sort.h"
#include "librun/work/shapes.h"

namespace sg::cuda {
namespace {

// Items at a time: two rounds of them take 256 MiB. SG_CUDA_SORT_ITEMS overrides it, for tests.
int64_t items_at_a_time() {
  const char* given = std::getenv("SG_CUDA_SORT_ITEMS");
  const int64_t count = given ? std::atoll(given) : 0;
  return count > 0 ? count : int64_t{8} << 20;
}

int64_t pieces_of(int64_t whole, int64_t part) { return (whole + part - 1) / part; }

// Sorts the rows of a tensor along its last axis into `Results`.
class RowSort {
 public:
  struct Results {
    Tensor values, indices;    // with the axis last; none if not wanted
    int64_t* order = nullptr;  // [rows, length]
  };

  RowSort(KernelCall& call, const Tensor& from, bool descending)
      : call_(call), rows_(from.elements() / std::max<int64_t>(1, from.dim(-1))), length_(from.dim(-1)) {
    keys_.from = row_view(from);
    keys_.descending = descending;
  }

  // Stores the first `kept` of each row.
  void into(const Results& results, int64_t kept) {
    if (rows_ == 0 || length_ == 0 || kept == 0) return;
    kept_ = kept;
    results_.from = keys_.from;
    results_.length = length_;
    results_.order = results.order;
    if (!results.values.is_none()) results_.values = row_view(results.values);
    if (!results.indices.is_none()) results_.indices = row_view(results.indices);
    const int64_t tiles = pieces_of(length_, kSortTile);
    const int64_t items = tiles * std::min(kSortTile, kept);  // per row, after the first round
    rows_at_a_time_ = tiles == 1 ? kMostRows : std::clamp<int64_t>(items_at_a_time() / items, 1, rows_);
    for (first_row_ = 0; first_row_ < rows_; first_row_ += rows_at_a_time_) sort_some();
  }

 private:
  static constexpr int64_t kMostRows = 1 << 24;  // per launch, one block each

  void sort_some() {
    const SortItem* items = nullptr;  // initially the rows themselves
    int64_t left = length_, run = 0;
    // If few are kept, the rest is sorted with fewer tiles; if most are kept, their runs are merged.
    do {
      items = sort_tiles_of(items, &left, &run);
    } while (items && 2 * kept_ <= kSortTile);
    while (items) items = merge_runs_of(items, &left, &run);
  }

  // Each row has `left` items left, in sorted runs of `run`. Null: they have been written to the results.
  const SortItem* sort_tiles_of(const SortItem* items, int64_t* left, int64_t* run) {
    SortTilesArgs args;
    args.keys = keys_;
    args.items = items;
    args.first_row = first_row_;
    args.length = *left;
    args.of_lane = static_cast<int32_t>(std::min<int64_t>(pieces_of(*left, kLanes), kMostOfLane));
    const int64_t size = int64_t{kLanes} * args.of_lane;
    args.tiles = pieces_of(*left, size);
    args.kept = *run = std::min(size, kept_);
    *left = (args.tiles - 1) * *run + std::min(*run, *left - (args.tiles - 1) * size);
    args.to = round_to(args.tiles == 1, items, *left);
    device_of(call_).launch("sort_tiles", rows_now() * args.tiles, args);
    return args.to.items;
  }

  const SortItem* merge_runs_of(const SortItem* items, int64_t* left, int64_t* run) {
    MergeRunsArgs args;
    args.items = items;
    args.first_row = first_row_;
    args.length = *left;
    args.run = *run;
    args.kept = std::min(2 * *run, kept_);
    args.pairs = pieces_of(*left, 2 * *run);
    args.parts = pieces_of(args.kept, kSortTile);
    *left = (args.pairs - 1) * args.kept + std::min(args.kept, *left - (args.pairs - 1) * 2 * *run);
    *run = args.kept;
    args.to = round_to(args.pairs == 1, items, *left);
    device_of(call_).launch("merge_runs", rows_now() * args.pairs * args.parts, args);
    return args.to.items;
  }

  SortedTo round_to(bool is_last, const SortItem* from, int64_t row_items) {
    SortedTo to = results_;
    if (is_last) return to;
    SortItem*& items = from && space_[0] == from ? space_[1] : space_[0];
    // No later round needs more than the first one present.
    if (!items)
      items = reinterpret_cast<SortItem*>(
          backend_of(call_).scratch(DType::i64, std::array<int64_t, 3>{rows_at_a_time_, row_items, 2}).data);
    to.items = items;
    to.row_items = row_items;
    return to;
  }

  int64_t rows_now() const { return std::min(rows_at_a_time_, rows_ - first_row_); }

  KernelCall& call_;
  SortKeys keys_;
  int64_t rows_, length_, kept_ = 0, rows_at_a_time_ = 1, first_row_ = 0;
  SortedTo results_;
  std::array<SortItem*, 2> space_{};
};

Status sort_with(KernelCall& call, const Tensor& values, const Tensor& indices, bool descending, int64_t kept = -1) {
  if (is_complex(call.tensor("self").dtype)) return run_by_host(call);
  const int64_t axis = call.integer("dim");
  const Tensor from = axis_last(call.tensor("self"), axis);
  RowSort::Results results;
  if (!values.is_none()) results.values = axis_last(values, axis);
  if (!indices.is_none()) results.indices = axis_last(indices, axis);
  RowSort(call, from, descending).into(results, kept < 0 ? from.dim(-1) : kept);
  return ok_status();
}

Status sort(KernelCall& call) { return sort_with(call, call.result(0), call.result(1), call.flag("descending")); }
Status argsort(KernelCall& call) { return sort_with(call, {}, call.result(0), call.flag("descending")); }
Status topk(KernelCall& call) {
  const int64_t k = call.integer("k"), n = axis_last(call.tensor("self"), call.integer("dim")).dim(-1);
  if (k < 0 || k > n)
    return call.fail("the largest " + std::to_string(k) + " of " + std::to_string(n) + " elements do not exist");
  const bool number = call.tensor("self").rank == 0;  // it is there for k = 0, too
  return sort_with(call, call.result(0), call.result(1), call.flag("largest"), number ? 1 : k);
}

// --- one element of each row ---

Status pick_of_rows(KernelCall& call, const Tensor& self, int64_t axis, const Tensor& values, const Tensor& indices,
                    bool is_mode) {
  const Tensor from = axis_last(self, axis);
  const Tensor order = backend_of(call).scratch(DType::i64, from.sizes());
  RowSort(call, from, false).into({.order = order.as<int64_t>()}, from.dim(-1));
  PickArgs args;
  args.order = order.as<int64_t>();
  args.from = row_view(from);
  args.values = element_view(values);
  if (!indices.is_none()) args.indices = element_view(indices);
  args.rows = from.elements() / from.dim(-1);
  args.length = from.dim(-1);
  args.is_mode = is_mode;
  args.ignores_nan = call.op().name.starts_with("aten.nanmedian");
  device_of(call).launch("pick_of_sorted", blocks_for(args.rows), args);
  return ok_status();
}

Status median(KernelCall& call) {
  const Tensor all = in_rows(call, call.tensor("self"));
  if (all.elements() == 0 || is_complex(all.dtype)) return run_by_host(call);
  return pick_of_rows(call, make_tensor(all.data, all.dtype, std::array{all.elements()}), 0, call.result(), {}, false);
}

template <bool is_mode>
Status pick_along(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  const int64_t axis = call.integer("dim");
  if (is_complex(self.dtype) || self.elements() == 0) return run_by_host(call);
  auto kept = [&](const Tensor& result) {
    return result.rank == self.rank && self.rank > 0 ? drop_axis(result, wrap_axis(axis, self.rank)) : result;
  };
  return pick_of_rows(call, self, axis, kept(call.result(0)), kept(call.result(1)), is_mode);
}

constexpr KernelRow kSortRows[] = {
    {"aten.sort.default", sort},
    {"aten.sort.stable", sort},
    {"aten.argsort.default", argsort},
    {"aten.argsort.stable", argsort},
    {"aten.topk.default", topk},
    {"aten.median.default", median},
    {"aten.nanmedian.default", median},
    {"aten.median.dim", pick_along<false>},
    {"aten.nanmedian.dim", pick_along<false>},
    {"aten.mode.default", pick_along<true>},
};

}  // namespace

void sort_line(KernelCall& call, const Tensor& values, const Tensor& sorted, const Tensor& order) {
  const size_t mark = backend_of(call).scratch_mark();
  RowSort(call, values, false).into({.values = sorted, .indices = {}, .order = order.as<int64_t>()}, values.dim(0));
  backend_of(call).give_back_scratch(mark);
}

std::span<const KernelRow> sort_kernels() { return kSortRows; }

}  // namespace sg::cuda
