// sg-doctor: which parts of Stepgraph work on this machine.
#include "libgraph/human.h"
#include "libgraph/json.h"
#include "libgraph/nearest.h"
#include "tools/cli_job.h"
#include "tools/doctor/findings.h"

using namespace sg;
using namespace sg::cli;
using namespace sg::doctor;

namespace {

constexpr Option kOptions[] = {
    {"need",
     'n',
     "tools|processor|memory|cache|manuals|mpi|cuda|nccl|torch,...",
     "exit 1 unless these are present",
     {},
     true},
    {"no-torch", 0, {}, "do not look for a Python with PyTorch (importing it takes seconds)"},
};

struct Check {
  std::string_view name;
  Finding (*look)();
};
constexpr Check kChecks[] = {{"tools", look_at_tools}, {"processor", look_at_processor}, {"memory", look_at_memory},
                             {"cache", look_at_cache}, {"manuals", look_at_manuals},     {"mpi", look_at_mpi},
                             {"cuda", look_at_cuda},   {"nccl", look_at_nccl},           {"torch", look_at_torch}};

std::string_view name_of(State state) {
  return state == State::ok ? "ok" : state == State::absent ? "absent" : "broken";
}

Result<std::vector<std::string>> needed(const Args& args) {
  std::vector<std::string> out;
  for (const std::string& list : args.all("need"))
    for (size_t begin = 0; begin <= list.size();) {
      const size_t end = std::min(list.find(',', begin), list.size());
      out.push_back(list.substr(begin, end - begin));
      begin = end + 1;
    }
  for (const std::string& name : out) {
    Nearest nearest(name);
    bool is_known = false;
    for (const Check& c : kChecks) nearest.offer(c.name), is_known |= c.name == name;
    if (!is_known) return Error{ErrorKind::usage, "there is no check `" + name + "`", {}, nearest.hint()};
    if (name == "torch" && args.has("no-torch"))
      return Error{ErrorKind::usage, "--no-torch skips a check that --need asks for", {}, {}};
  }
  return out;
}

std::string told(const std::vector<Finding>& findings, const Tool& tool) {
  std::string out = version_text(tool);
  for (const Finding& f : findings) {
    out += left_cell(name_of(f.state), 8) + left_cell(f.name, 11) + f.text + "\n";
    if (!f.remedy.empty()) out += std::string(19, ' ') + f.remedy + "\n";
  }
  return out;
}

std::string told_json(const std::vector<Finding>& findings) {
  JsonWriter json;
  json.begin_object().member("schema", "sg-doctor").member("version", 1).member("suite_version", kVersion);
  json.key("findings").begin_array();
  for (const Finding& f : findings) {
    json.begin_object().member("name", f.name).member("state", name_of(f.state)).member("text", f.text);
    json.member("remedy", f.remedy).key("facts").begin_array();
    for (const auto& [name, value] : f.facts)
      json.begin_object().member("name", name).member("value", value).end_object();
    json.end_array().end_object();
  }
  return json.end_array().end_object().take() + "\n";
}

Result<int> run(const Args& args) {
  SG_ASSIGN(std::vector<std::string> need, needed(args));
  std::vector<Finding> findings;
  for (const Check& c : kChecks)
    if (c.name != "torch" || !args.has("no-torch")) findings.push_back(c.look());
  SG_TRY(write_text(args, args.has("json") ? told_json(findings) : told(findings, args.tool())));
  int code = 0;
  for (const Finding& f : findings) {
    const bool is_needed = std::ranges::count(need, f.name) != 0;
    if (f.state == State::broken || (is_needed && f.state != State::ok)) code = 1;
    if (is_needed && f.state != State::ok)
      args.report().error({ErrorKind::negative, f.name + ": " + f.text, {}, f.remedy});
  }
  return code;
}

constexpr Tool kTool = {
    .name = "sg-doctor",
    .summary = "report which parts of Stepgraph work on this machine",
    .operands = "",
    .details =
        "Checks the tools, processor, memory, cache, manuals, MPI, CUDA, NCCL and PyTorch; changes nothing.\n"
        "Exit 1 when something that should work does not, or when something that --need names is missing.",
    .max_operands = 0,
    .reads_stdin = false,
    .options = kOptions,
    .examples = {{"stepgraph doctor --no-torch", "what this machine has, without the slow search for PyTorch"},
                 {"stepgraph doctor --no-torch --need tools,processor --json -o doctor.json",
                  "a JSON report for a script; exit 1 if one of the two is missing"}},
    .run = run,
};

}  // namespace

int main(int argc, char** argv) { return cli::main(kTool, argc, argv); }
