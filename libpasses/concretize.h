// sg-concretize: replaces the symbolic sizes of the inputs by numbers.
//
// Sizes     those that `bind` names (a symbol, or one dimension of an input), and those that equalities of the graph
//           tie to them; without `bind`, all sizes, as captured. Values computed only from sizes
//           (int(height * 0.6)) become numbers too; data-dependent symbols stay.
// Replaced  everywhere: types, arguments, nested graphs, guards, metadata. In an expression with other symbols the rest
//           stays.
// Removed   declarations and guards that are settled, assertions that hold, size arithmetic that has become a number.
// Refused   a size outside its range, a guard or an assertion that does not hold (with its source line), a recorded
//           type that differs from what the op gives at these sizes, a tensor whose bytes exceed 63 bits.
// Ranks     each program uses its own symbols and capture; a name in `bind` applies to every program that has it.
// Results   bitwise equal to a run of the symbolic graph at these sizes.
// Limits    data-dependent symbols stay, and with them every size that contains one.
// Tests     golden/concretize, passes/run_passes.py, unit/pipeline_test.cc, unit/input_sizes_test.cc.
#pragma once

#include "libgraph/expr/size_binding.h"
#include "libpasses/pass.h"

namespace sg {

extern const PassInfo concretize_pass;

struct ConcretizeOptions {
  std::vector<SizeBinding> bindings;
};

Result<Change> concretize(Job* job, const ConcretizeOptions& options, PassContext& context);

}  // namespace sg
