// What the stages of load_inputs (inputs.cc) share: the graph's inputs, the tensors of files that were matched to them,
// and the values so far.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "libgraph/base/diag.h"
#include "libgraph/data/safetensors.h"
#include "libgraph/job.h"
#include "librun/values/input_match.h"
#include "librun/values/inputs.h"

namespace sg {

struct InputLoad {
  InputLoad(const Job& of_job, const Program& of_rank, const InputSource& from);
  InputLoad(const InputLoad&) = delete;

  const Job& job;
  const Program& program;
  const Graph& graph;
  const InputSource& source;
  Diagnostics findings;
  InputMatch matching;
  InputSet out;

  size_t count() const { return graph.inputs().size(); }
  const Input& input(size_t i) const { return graph.inputs()[i]; }
  const Type& type(size_t i) const { return graph.type(input(i).value); }
  // The file's tensor for it; null = none.
  const StoredTensor* stored(size_t i) const { return matching.of(i); }
  // Whether a run needs a value for it that the graph does not hold.
  bool needs_value(size_t i) const;
  // The bytes of a constant that is stored in the graph.
  std::optional<std::string> held(size_t i) const;

  // For messages.
  std::string title(size_t i) const { return input_title(graph, input(i)); }
  std::string recorded(size_t i) const;   // "f32[s0 = 4, 8]": its type, with the sizes that are known
  std::string only_file() const;          // where to look for what is missing; empty if there are several
  std::string file_name(size_t i) const;  // that has it, or only_file()
  Location at(size_t i) const;            // REQUIRES: stored(i) is not null
};

bool is_number(const Type& type);
// The number of an input that is one; none if the file has another type. REQUIRES: t has one element
std::optional<Scalar> number_in(const StoredTensor& t, const Type& type);

// Stages, in this order once files are matched. Each reports all that is wrong in one error.

Status check_missing(const InputLoad& load);
// Sizes that are given and those of the files first, then what follows from them, then the captured ones; and whether
// the files' types, shapes and numbers are the graph's.
Status bind_sizes(InputLoad* load);

}  // namespace sg
