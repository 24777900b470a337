// sg-probe: a tool that fails on purpose, for run_cli_tests.py: the failures that no real tool can be made to show.
//
//     sg-probe throw | bad-alloc | bug | half -o FILE      (half: writes half of FILE, says so, and waits to be killed)
#include <unistd.h>

#include <new>
#include <stdexcept>

#include "libgraph/base/output_file.h"
#include "tools/cli/cli_write.h"

using namespace sg;
using namespace sg::cli;

namespace {

Result<int> run(const Args& args) {
  const std::string& what = args.input();
  if (what == "throw") throw std::logic_error("thrown on purpose");
  if (what == "bad-alloc") throw std::bad_alloc();
  if (what == "bug") return Error{ErrorKind::internal, "returned on purpose", {}, {}};
  SG_ASSIGN(OutputFile file, OutputFile::open(output_of(args)));
  SG_TRY(file.write("half"));
  args.report().line("half written");
  for (;;) ::pause();
}

constexpr Tool kTool = {
    .name = "sg-probe",
    .summary = "fail on purpose",
    .operands = "WHAT",
    .details = "",
    .reads_stdin = false,
    .examples = {{"sg-probe throw", "an exception"}, {"sg-probe bug", "an internal error"}},
    .run = run,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
