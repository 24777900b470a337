// --compare: compares the results of one run with those of a run of a changed graph, node by node.
//
// Matching  By result name; a copy (remat, offload) is compared with its original; the pieces of a chunked value,
//           concatenated in the order of their chunk index, with the original, and if they differ by slices along an
//           axis, in any order (items of a dispatch have a different order in each chunk); pieces that are sums over
//           chunks are added up. Chunked integers that match in none of these ways are counted as own numbers:
//           positions in the chunk's order. If one of them is wrong, the rows that it points to differ. Values without
//           a counterpart are counted. Results inside calls have the name of the call as a prefix.
// Equality  Of bits, shape and dtype; for sums over chunks the tolerance of --expect (expect.h), because their order of
//           addition differs on purpose. The first node that differs, in the changed graph's schedule, is where to
//           look: later differences follow from it.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "librun/check/compare_report.h"
#include "librun/check/expect_report.h"
#include "librun/execute/graph_run.h"

namespace sg {

// Two 64-bit sums over the elements in logical order: equal for equal values, regardless of their layout.
std::array<uint64_t, 2> digest_of(const Tensor& t);

// Two sums over the slices along an axis: equal for equal slices in any order.
std::array<uint64_t, 2> slice_digest_of(const Tensor& contiguous, int axis);

struct RecordedValue {
  DType dtype = DType::none;
  std::vector<int64_t> shape;
  std::array<uint64_t, 2> digest{};
  // By axis along which the changed graph may chunk it.
  std::vector<std::pair<int, std::array<uint64_t, 2>>> slices;
  std::unique_ptr<std::byte[]> memory;  // the elements, if the record keeps them
};

// Results that `changed` may have as sums over chunks, by name, with the sizes of a chunk (-1 = not known before the
// run): if those equal the original's sizes, the first run's record keeps the elements.
using SummedResults = std::unordered_map<std::string, std::vector<int64_t>>;
SummedResults summed_in(const Graph& changed);

// The results of the first run, by name.
class Record : public NamingObserver {
 public:
  void keep(SummedResults names) { kept_ = std::move(names); }
  Status after(const Graph& graph, NodeId n, std::span<const Tensor> results) override;
  const RecordedValue* find(std::string_view name) const;

 private:
  bool keeps(const std::string& name, const Tensor& t) const;

  std::unordered_map<std::string, RecordedValue> values_;
  SummedResults kept_;
};

// The second run. `report` is complete when it ends.
class Comparison : public NamingObserver {
 public:
  // `narrowest`: by value of `graph`, the main one (precision.h).
  Comparison(const Record& first, const Graph& graph, std::vector<DType> narrowest, ExpectOptions tolerance)
      : first_(first), graph_(graph), narrowest_(std::move(narrowest)), tolerance_(std::move(tolerance)) {}
  // Discards what was found: with several steps the last one counts, as it does in the record.
  void restart() { order_ = 0, report_ = {}, chunked_.clear(), chunks_.clear(); }
  Status after(const Graph& graph, NodeId n, std::span<const Tensor> results) override;
  ComparisonReport report();

 private:
  struct Piece {
    int32_t index;
    Tensor tensor;  // contiguous, of `memory`
    std::unique_ptr<std::byte[]> memory;
  };
  struct Chunked {       // pieces of one value
    RunDifference site;  // of the first piece
    DType narrowest = DType::none;
    std::vector<Piece> pieces;
    const int32_t* chunks = nullptr;  // number of chunks of its region; null = unknown
  };
  RunDifference site(const Graph& graph, NodeId n, uint32_t result) const;
  void hold(const RunDifference& site, const RecordedValue& expected, const Tensor& t, size_t* counter);
  Chunked* keep_piece(const RunDifference& site, int32_t index, const Tensor& t, DType narrowest);
  bool is_whole(const Chunked& chunked) const;
  bool put_together(const Chunked& chunked, const RecordedValue& expected) const;
  bool has_same_slices(const Chunked& chunked, const RecordedValue& expected) const;
  bool adds_up(const Chunked& chunked, const RecordedValue& expected) const;

  const Record& first_;
  const Graph& graph_;
  std::vector<DType> narrowest_;
  ExpectOptions tolerance_;
  uint64_t order_ = 0;
  ComparisonReport report_;
  std::unordered_map<std::string, Chunked> chunked_;  // by original name
  std::unordered_map<std::string, int32_t> chunks_;   // by region: the number of chunks seen
};

}  // namespace sg
