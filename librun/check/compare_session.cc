#include "librun/check/compare_session.h"

#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/base/temp_folder.h"
#include "librun/check/compare.h"
#include "librun/check/compare_sizes.h"
#include "librun/check/value_choice.h"
#include "librun/comm/comm_local.h"

namespace sg {

Result<SessionReport> run_compared(const Job& first, std::span<const std::unique_ptr<Communicator>> comms,
                                   const Job& second, const SessionOptions& options) {
  if (first.world != second.world)
    return Error{ErrorKind::cannot_apply,
                 "one job has " + plural(first.world, "rank") + ", the other " + std::to_string(second.world)};
  SG_ASSIGN(CommonSizes sizes, find_common_sizes(first, second, options));
  SG_ASSIGN(const TempFolder folder, TempFolder::make("sg-run"));  // holds the first run's outputs
  std::vector<Record> records(first.world);
  for (uint32_t rank = 0; rank < first.world; ++rank) records[rank].keep(summed_in(second.program_of(rank)->graph));
  SessionOptions recorded = options;
  recorded.sum_order = std::max(sum_order_of(first), sum_order_of(second));
  recorded.record = &records;
  recorded.bindings = std::move(sizes.first);
  recorded.outputs = folder.file("rank{r}.safetensors");
  recorded.dump.clear(), recorded.dump_state.clear(), recorded.profile = false;
  SG_ASSIGN(SessionReport alone, run_session(first, comms, recorded));
  SG_TRY(alone.written.commit());
  if (!alone.passed()) return alone;  // not what `expect` says: there is nothing to compare with
  SessionOptions compared = options;
  compared.sum_order = recorded.sum_order;
  compared.compare_with = &records;
  compared.expect = recorded.outputs;
  compared.dump_inputs.clear();  // those of the first run: the second has the same
  compared.compared_to = &first;
  compared.bindings = std::move(sizes.second);
  return run_session(second, make_local_communicators(second), compared);
}

}  // namespace sg
