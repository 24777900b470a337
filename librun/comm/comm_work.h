// The work of a collective among threads, cut into pieces that any member may run in any order.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "librun/comm/comm.h"

namespace sg {

// Reused from one collective to the next, with its memory.
class CollectiveWork {
 public:
  // `calls` by group rank; they must match (check_match) and remain unchanged until all pieces have run.
  void prepare(std::span<const CollectiveCall> calls);
  int64_t pieces() const { return pieces_; }
  int64_t bytes() const { return bytes_; }  // roughly those read and written
  void run(int64_t piece) const;            // call once per piece; thread-safe for different pieces

 private:
  // `count` units are read from each of the inputs and written to each of the outputs.
  struct Segment {
    size_t first_input, inputs, first_output, outputs;
    int64_t count, first_piece;
  };
  void prepare_segments(std::span<const CollectiveCall> calls);
  void begin_segment() { open_ = {inputs_.size(), 0, outputs_.size(), 0, 0, pieces_}; }
  void add_input(const std::byte* p) { inputs_.push_back(p), ++open_.inputs; }
  void add_output(std::byte* p) { outputs_.push_back(p), ++open_.outputs; }
  void end_segment(int64_t count);
  void copy(const std::byte* from, std::byte* to, int64_t count);

  std::vector<Segment> segments_;
  std::vector<const std::byte*> inputs_;
  std::vector<std::byte*> outputs_;
  Segment open_{};
  bool reduces_ = false;
  Reduction reduction_;
  DType dtype_ = DType::none;
  int64_t unit_ = 1;  // bytes of an element
  int64_t pieces_ = 0, bytes_ = 0, units_a_piece_ = 1;
};

}  // namespace sg
