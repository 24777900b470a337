// --compare: compares the results of one run with those of a run of a changed graph, node by node.
//
// Matching  By result name; a copy (remat, offload) is compared with what it copies; the pieces of a chunked value,
//           concatenated in the order of their chunk index, with the original, and if they differ by what lies along
//           an axis, in any order (items of a dispatch have a different order in each chunk); pieces that are sums over
//           chunks are added up. Integers that are none of this are counted as a chunk's own: positions in its
//           order. If one of them is wrong, the rows that it leads to differ. Values without a counterpart are
//           counted. Results inside calls have the name of the call as a prefix.
// Equality  Of bits, shape and dtype; of sums over chunks by the tolerance of --expect (expect.h), because a different
//           order of addition is intended. The first node that differs, in the changed graph's schedule, is where to
//           look: later differences follow from it.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "librun/expect.h"
#include "librun/graph_run.h"

namespace sg {

// Two 64-bit sums over the elements in logical order: equal for equal values, however they are laid out.
std::array<uint64_t, 2> digest_of(const Tensor& t);

// Two sums over what lies along an axis, slice by slice: equal for equal slices in any order.
std::array<uint64_t, 2> slice_digest_of(const Tensor& contiguous, int axis);

struct RecordedValue {
  DType dtype = DType::none;
  std::vector<int64_t> shape;
  std::array<uint64_t, 2> digest{};
  // By axis along which the changed graph may have it in chunks.
  std::vector<std::pair<int, std::array<uint64_t, 2>>> slices;
  std::unique_ptr<std::byte[]> memory;  // the elements, where the record keeps them
};

// Results that `changed` may have as sums over chunks, by name, with the sizes of a chunk (-1 = not known before the
// run): where those are the whole's, the record of the first run keeps the elements.
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

struct RunDifference {
  std::string name, original;     // in the changed graph, and in the first
  std::string op, module, place;  // of the changed graph's node; place: file:line
  uint64_t order = 0;             // in the schedule of the second run
  std::string what;               // "values", "shape [2, 3] instead of [3, 2]", "dtype f32 instead of bf16"
};

struct ComparisonReport {
  size_t equal = 0, copies_equal = 0, chunked_equal = 0, sums_close = 0, without_counterpart = 0;
  size_t reordered_equal = 0;              // chunks that together are the original but for the order along an axis
  size_t own_numbers = 0;                  // chunks of whole numbers that are not: positions in a chunk's own order
  std::vector<RunDifference> differences;  // by order
};

// The second run. `report` is complete after it.
class Comparison : public NamingObserver {
 public:
  // `narrowest`: by value of `graph`, the main one: precision.h.
  Comparison(const Record& first, const Graph& graph, std::vector<DType> narrowest, ExpectOptions tolerance)
      : first_(first), graph_(graph), narrowest_(std::move(narrowest)), tolerance_(std::move(tolerance)) {}
  // Forgets what was found: of several steps the last counts, as it does in the record.
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
    const int32_t* chunks = nullptr;  // of its region; none = not said
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
  std::unordered_map<std::string, int32_t> chunks_;   // by region: how many it has run in
};

}  // namespace sg
