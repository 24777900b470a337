// Programs: the other tools, their manuals, a Python with PyTorch.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <sstream>

#include "libgraph/base/escape.h"
#include "libgraph/base/human.h"
#include "libgraph/base/joined.h"
#include "tools/cli/cli_siblings.h"
#include "tools/commands.h"
#include "tools/doctor/findings.h"

namespace sg::doctor {
namespace {

std::string without_name(const std::string& version) {
  const size_t space = version.find(' ');
  return space == version.npos ? version : version.substr(space + 1);
}

std::string share_folder() {
  std::string bin = cli::folder_of_this();
  if (!bin.empty()) bin.pop_back();
  return bin.substr(0, bin.rfind('/')) + "/share/";
}

}  // namespace

Said ask(const std::string& command, int seconds) {
  Said out;
  const std::string whole = "timeout " + std::to_string(seconds) + " " + command + " 2>/dev/null </dev/null";
  FILE* pipe = ::popen(whole.c_str(), "r");
  if (pipe == nullptr) return out;
  char part[4096];
  for (size_t n; (n = std::fread(part, 1, sizeof part, pipe)) > 0;) out.text.append(part, n);
  const int status = ::pclose(pipe);
  out.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128;
  out.first_line = one_line(out.text.substr(0, out.text.find('\n')));
  return out;
}

Finding look_at_tools() {
  Finding out{"tools", State::ok, {}, {}, {}};
  const std::string bin = cli::folder_of_this();
  const std::string own = without_name(ask(shell_word(bin + "sg-doctor") + " --version", 20).first_line);
  std::vector<std::string> missing, other;
  size_t count = 0;
  for (std::string_view command : cli::kCommands) {
    if (cli::is_part_of_front(command)) continue;
    const std::string name = "sg-" + std::string(command);
    if (!cli::has_sibling(command)) missing.push_back(name);
    else if (without_name(ask(shell_word(bin + name) + " --version", 20).first_line) != own) other.push_back(name);
    ++count;
  }
  out.text = plural(count, "tool") + " in " + (bin.size() > 1 ? bin.substr(0, bin.size() - 1) : bin);
  out.facts = {{"folder", bin}, {"count", std::to_string(count)}};
  if (missing.empty() && other.empty()) return out;
  out.state = State::broken;
  if (!missing.empty()) out.text += "; missing: " + joined(missing, ", ");
  if (!other.empty()) out.text += "; of another version, or do not start: " + joined(other, ", ");
  out.remedy = "reinstall all of it";
  return out;
}

Finding look_at_manuals() {
  const std::string share = share_folder();
  std::vector<std::string> missing;
  for (const char* file : {"man/man1/stepgraph.1", "bash-completion/completions/stepgraph",
                           "zsh/site-functions/_stepgraph", "fish/vendor_completions.d/stepgraph.fish"})
    if (::access((share + file).c_str(), R_OK) != 0 && ::access((share + file + ".gz").c_str(), R_OK) != 0)
      missing.push_back(file);
  if (missing.empty())
    return {"manuals", State::ok, "manual pages and completions in " + share, {}, {{"folder", share}}};
  return {"manuals", State::absent, share + " has no " + joined(missing, ", "), "make install writes them", {}};
}

Finding look_at_torch() {
  constexpr const char* kProgram =
      "import sys\n"
      "try:\n"
      "  import torch\n"
      "except Exception as e:\n"
      "  print('no', type(e).__name__); sys.exit(1)\n"
      "def version(name):\n"
      "  try:\n"
      "    import importlib.metadata\n"
      "    return importlib.metadata.version(name)\n"
      "  except Exception:\n"
      "    return ''\n"
      "print(sys.executable)\n"
      "print(torch.__version__)\n"
      "print('cuda' if torch.cuda.is_available() else 'cpu')\n"
      "print(version('safetensors'))\n"
      "import importlib.util\n"
      "print(version('stepgraph-capture') or ('in PYTHONPATH' if importlib.util.find_spec('stepgraph_capture') else "
      "''))\n";
  const char* chosen = std::getenv("STEPGRAPH_PYTHON");
  const std::string python = chosen != nullptr && *chosen != '\0' ? chosen : "python3";
  const Said said = ask(shell_word(python) + " -c " + shell_word(kProgram), 120);
  if (said.code == 127)
    return {"torch",
            State::absent,
            "there is no " + one_line(python),
            "set STEPGRAPH_PYTHON to a Python that has PyTorch",
            {}};
  if (said.code == 124)
    return {"torch", State::broken, one_line(python) + " takes more than two minutes to import torch", {}, {}};
  if (said.code != 0)
    return {"torch",
            State::absent,
            one_line(python) + " has no PyTorch",
            "set STEPGRAPH_PYTHON to a Python that has it",
            {}};
  std::istringstream lines(said.text);
  std::string program, version, device, safetensors, capture;
  std::getline(lines, program), std::getline(lines, version), std::getline(lines, device);
  std::getline(lines, safetensors), std::getline(lines, capture);
  Finding out{"torch", State::ok, "PyTorch " + one_line(version) + " (" + device + ") in " + one_line(program), {}, {}};
  out.facts = {{"python", program},
               {"version", version},
               {"device", device},
               {"safetensors", safetensors},
               {"stepgraph-capture", capture}};
  if (safetensors.empty()) {
    out.state = State::absent;
    out.text += ", without safetensors";
    out.remedy = "pip install safetensors";
  } else if (capture.empty()) {
    out.text += "; stepgraph_capture is not installed there";
  }
  return out;
}

}  // namespace sg::doctor
