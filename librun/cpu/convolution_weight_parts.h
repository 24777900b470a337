// A weight's gradient in parts, one a task: channels of the input and of the output, of one group.
#pragma once

#include "librun/cpu/convolution.h"
#include "librun/thread_team.h"

namespace sg::cpu {

struct WeightPart {
  int64_t group;
  int64_t input, inputs;    // channels of the input: the first, and how many
  int64_t output, outputs;  // of the output
};

// How many channels a part has on one side.
struct PartSide {
  int64_t channels;         // at most
  int64_t whole = 1;        // no more channels than this are not cut
  int64_t multiple = 1;     // what is cut is a multiple of this
  int64_t per_channel = 1;  // the length of a side is that of its channels

  bool can_be_cut() const { return channels > whole; }
  int64_t length() const { return channels * per_channel; }
};

struct PartSides {
  PartSide inputs, outputs;
  bool cuts_inputs_alone = true;  // also where outputs are not cut any more
};

class WeightParts {
 public:
  // As many parts as threads, or enough that an incomplete last round does not matter. Each part packs its operands, so
  // the longer side is cut.
  WeightParts(const ConvolutionGeometry& g, PartSides sides, int64_t threads);

  int64_t count() const;
  int64_t inputs() const { return sides_.inputs.channels; }  // of a part, at most
  int64_t outputs() const { return sides_.outputs.channels; }

  template <class Fn>  // (thread, part)
  void run(ThreadTeam& team, const Fn& fn) const {
    team.parallel_for_indexed(count(), 1, [&](int thread, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) fn(thread, at(i));
    });
  }

 private:
  bool cut();  // false: no side can be
  WeightPart at(int64_t i) const;

  const ConvolutionGeometry& g_;
  PartSides sides_;
};

}  // namespace sg::cpu
