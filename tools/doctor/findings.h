// What `stepgraph doctor` looks at, a function each. Nothing is changed; what hangs is ended after a while.
//
// ok       it is there and works
// absent   it is not there, and only what needs it does without
// broken   it is there, or should be, and does not work: that is exit 1
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace sg::doctor {

enum class State : uint8_t { ok, absent, broken };

struct Finding {
  std::string name;  // "mpi": what --need takes
  State state = State::ok;
  std::string text;                                        // one line
  std::string remedy;                                      // what to do when it is not ok; may be empty
  std::vector<std::pair<std::string, std::string>> facts;  // for --json: "version", "4.1.4"
};

Finding look_at_tools();      // all of them there, of this version
Finding look_at_processor();  // cores, instruction sets of the kernels
Finding look_at_memory();
Finding look_at_cache();    // sg-recipe's: is there room, may it be written
Finding look_at_manuals();  // man pages and completions beside the tools
Finding look_at_mpi();      // the plugin, mpirun
Finding look_at_cuda();     // the plugin, the driver, its devices, cuBLASLt
Finding look_at_nccl();
Finding look_at_torch();  // a Python with PyTorch, for tools/capture and exported modules

// What a shell command prints, ended after `seconds`; `code` is its exit code, 127 = there is none such.
struct Said {
  int code = 127;
  std::string text, first_line;
};
Said ask(const std::string& command, int seconds);

}  // namespace sg::doctor
