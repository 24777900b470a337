// Random well-typed jobs for property tests and benches: equal seeds give equal jobs on every machine.
//
// A job has whatever a real capture may hold: views and strides, in-place ops on fresh and on aliased storage, random
// ops, nested graphs, symbolic sizes and guards, collectives over several group families, one program for all ranks or
// several, and metadata of every kind. It is meant to pass the verifier: a finding is a bug here or there.
#pragma once

#include <cstddef>
#include <cstdint>

#include "libgraph/job.h"

namespace sg::test {

struct RandomJobOptions {
  size_t nodes = 60;    // of each program's main graph, about
  uint32_t world = 0;   // ranks; 0 = 1, 2, 4 or 8 as the seed says
  bool symbols = true;  // sizes of inputs, numbers that the data decides, guards
  bool in_place = true;
  bool undefined_memory = true;  // aten.empty: false where results are to be compared
  bool random_ops = true;
  bool nested = true;  // nested graphs and the ops that take them
  bool collectives = true;
  bool opaque_ops = true;   // ops that no table knows, with every kind of argument and result
  bool metadata = true;     // beyond phase, module and source
  bool odd_names = true;    // names with spaces, quotes, accents, words of the text form
  bool ranks_apart = true;  // allow several programs; false = one for all ranks
};

Job random_job(uint64_t seed, const RandomJobOptions& options = {});

}  // namespace sg::test
