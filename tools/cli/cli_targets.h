// Files that a command would write: none may be one that it reads, and no two may be the same.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/cli.h"

namespace sg::cli {

// A file that a command writes.
struct Target {
  std::string by;    // "--trace"
  std::string name;  // may have {r} and {step}
};

// Whether --in-place goes with the tool: what it reads and what it writes are graphs.
bool takes_in_place(const Tool& tool);

// Refuses an output that would replace an input: an operand, a file that a pattern of ranks or steps or a folder stands
// for, standard input, a file named in an option (a machine, a profile, a plan); through links, too. Nor may standard
// output be such a file: `sg-clean step.sg >> step.sg`. The input itself may be replaced with --in-place. Keeps these
// files (libgraph/base/output_file.h), so that they are safe to the end.
Status check_targets(const Args& args);

// Keeps a file that is read, or those that a pattern or a folder stands for. `what` completes "NAME, which ...".
void keep_read(const std::string& name, const std::string& what);

// Once more, when more is known: of files kept since, and with what else the command writes.
Status check_targets_again(const Args& args, const std::vector<Target>& more = {});

inline constexpr std::string_view kWrittenBy = "written_by";  // in the metadata of the weights that an import writes
bool is_written_by_import(const std::string& file);

}  // namespace sg::cli
