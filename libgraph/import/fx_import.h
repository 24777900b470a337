// Import of the Python that FX prints: `print_readable()` in all its variants, `graph_module.code`, graphs in the
// output of tlparse and TORCH_LOGS, of torch 2.4 and later.
//
// What     Graphs of operators (torch.ops): joint, forward, backward, inference, what torch.export prints. A graph that
//          Dynamo prints, of functions and methods, is refused in one line. A text with a forward and its backward is
//          joined at what the one saves for the other.
// Left out What text cannot carry (strides without include_stride, offsets, hints and ranges of symbols, members of
//          groups, links from backward nodes to forward ones) is inferred, or made up where it must be, and said in one
//          note.
// Ranks    One text is rank 0 of its world, or with `spmd` stands for all ranks; several are the ranks in turn.
// Errors   The first malformed thing ends the import: file, line, column.
// Hostile  Linear in the text; nesting is bounded. The result is well-formed, and the verifier judges the rest.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libgraph/import/capture.h"
#include "libgraph/import/fx_syntax.h"

namespace sg {

// A symbol, a relation between symbols, or where a tensor among the inputs comes from, as PyTorch spells them.
struct FxSize {
  bool is_guard = false;
  std::string text;                 // "s77"; "Eq(s77, s27)"; "" of a tensor
  std::string hint, range, source;  // of a symbol: "3", "[2, int_oo]", "L['x'].size()[0]"; of a tensor its source alone

  bool is_tensor() const { return text.empty(); }
};

// The graphs of one rank's step.
struct FxStep {
  FxText graph;  // joint or alone; or the forward of `backward`
  std::optional<FxText> backward;
  std::optional<FxText> dynamo;  // the graph before AOTAutograd: it names the inputs
  uint32_t rank = 0;
  uint32_t ranks = 1;              // of the job, as far as is known: several where only one of them is imported
  std::vector<FxSize> sizes = {};  // what is known of the graph's symbols, and of others
};

Result<Job> import_fx(std::vector<CaptureFile> files, const ImportOptions& options, Diagnostics* notes);
// Each rank once, or one alone. The texts must outlive the call.
Result<Job> import_fx_steps(std::vector<FxStep> steps, const ImportOptions& options, Diagnostics* notes);

}  // namespace sg
