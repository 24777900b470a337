// Assertions about a graph: `peak < 70GiB`, `exposed_comm < 5%`, `nodes < 200k`, `no op=aten.copy_`, `op=aten.mm <=
// 40`.
//
// Metrics   nodes inputs outputs flops peak lower_bound input_bytes collectives comm_bytes: as sg-stat counts them;
//           step_time compute_time exposed_comm host_wait: as sg-sim says for the recipe's machine
// Units     KiB MiB GiB TiB, kB MB GB TB; k M G T; %; us ms s. Plain numbers are counts and bytes.
//           A time has to say its unit and a share %; a bound of another kind than its metric's is a mistake
// Unknown   What a size without a number, or an op of unknown cost, keeps from being counted does not hold, and says
//           so.
// Ranks     of several programs each has to hold.
#pragma once

#include <string>
#include <vector>

#include "libgraph/job.h"
#include "tools/recipe/recipe.h"

namespace sg::recipe {

enum class Relation : uint8_t { less, at_most, equal, not_equal, at_least, more };

struct Assertion {
  Word word;               // as written
  std::string metric, op;  // op: of `op=NAME`, as op_is_called (libgraph/op_pattern.h) takes it
  Relation relation = Relation::equal;
  double bound = 0;
  bool about_time = false;  // needs a machine
};

Result<Assertion> parse_assertion(const Word& word);

// Those that do not hold, each a line with what is the case: "peak < 70GiB: it is 71.2 GiB".
Result<std::vector<std::string>> failing_assertions(const Job& job, const std::vector<Assertion>& assertions,
                                                    const std::string& machine);

}  // namespace sg::recipe
