#include "tools/run_comm.h"

namespace sg::cli {

uint32_t ranks_here(Communicators comms) { return static_cast<uint32_t>(comms[0]->in_sight().size()); }

Result<RunAnswer> gather_answer(Communicators comms, std::string text, bool passed) {
  if (comms.size() == comms[0]->world()) return RunAnswer{std::move(text), true, passed};
  SG_ASSIGN(std::vector<std::string> texts, comms[0]->exchange((passed ? "+" : "-") + text));
  RunAnswer all{"", comms[0]->rank() == 0, true};
  for (const std::string& t : texts) {
    all.passed = all.passed && t.starts_with('+');
    if (all.writes) all.text += t.substr(1);
  }
  return all;
}

Result<int> failed_run(Communicators comms, Error error) {
  comms[0]->abort(error);
  if (comms[0]->speaks_of_failure()) return error;
  return static_cast<int>(error.kind);
}

}  // namespace sg::cli
