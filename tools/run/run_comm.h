// sg-run when the ranks are processes: one of them writes the report and speaks of failures.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "librun/comm/comm.h"
#include "librun/session.h"
#include "tools/cli/cli.h"

namespace sg::cli {

using Communicators = std::span<const std::unique_ptr<Communicator>>;

// Those that --comm asks for, slowed down as --link and --chaos say.
Result<std::vector<std::unique_ptr<Communicator>>> open_communicators(const Args& args, const Job& job);

// Ranks that share this machine's cores with those of this process, these included.
uint32_t ranks_here(Communicators comms);

// Open MPI cannot join processes that torchrun started (RANK, WORLD_SIZE). Instead, on one host, the first of them
// becomes an mpirun of them all, and the others have nothing left to do: their exit code. None where the run goes on
// here.
Result<std::optional<int>> follow_launcher(std::string_view comm);

// A launcher's processes each read the graph, and cannot share standard input.
Status check_input_of_processes(const Args& args);

struct RunAnswer {
  SessionReport report;  // of all ranks; empty where another process writes it
  bool writes = true;
  bool passed = true;  // on all ranks
};

// Brings what all processes found to the first: it reports as if all ranks were threads of its own.
Result<RunAnswer> gather_answer(Communicators comms, SessionReport report);

// Until all processes are here: each has placed its files.
Status wait_for_all(Communicators comms);

// What a failed run returns: the error where this process speaks of it, else its exit code.
Result<int> failed_run(Communicators comms, Error error);

}  // namespace sg::cli
