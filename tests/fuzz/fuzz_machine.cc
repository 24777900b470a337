// Any bytes give a machine's YAML or an error with a place; what is read can be written and read again as the same
// machine.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "libgraph/sim/machine.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  if (bytes.find('/') != std::string_view::npos) return 0;  // a base in another folder is another file
  auto machine = sg::parse_machine(bytes, "fuzz");
  if (!machine.ok()) {
    if (machine.error().message.empty() || machine.error().where.file.empty()) std::abort();
    return 0;
  }
  machine->name = "read", machine->about = "a word";  // these are written unquoted
  auto again = sg::parse_machine(sg::machine_yaml(*machine), "written");
  if (!again.ok()) std::abort();
  for (const sg::MachineKey& key : sg::machine_keys())
    if (key.field(*again) != key.field(*machine)) std::abort();
  return 0;
}
