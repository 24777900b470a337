#include "tools/doctor/commands.h"

#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/base/json.h"
#include "libgraph/base/nearest.h"
#include "tools/cli/cli_write.h"
#include "tools/doctor/findings.h"

namespace sg::doctor {
namespace {

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

Result<std::vector<std::string>> needed(const cli::Args& args) {
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

std::string told(const std::vector<Finding>& findings, const cli::Tool& tool) {
  std::string out = cli::version_text(tool);
  for (const Finding& f : findings) {
    out += left_cell(name_of(f.state), 8) + left_cell(f.name, 11) + f.text + "\n";
    if (!f.remedy.empty()) out += std::string(19, ' ') + f.remedy + "\n";
  }
  return out;
}

std::string told_json(const std::vector<Finding>& findings) {
  JsonWriter json;
  json.begin_object().member("schema", "sg-doctor").member("version", 1).member("suite_version", cli::kVersion);
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

}  // namespace

Result<int> run_doctor(const cli::Args& args) {
  SG_ASSIGN(std::vector<std::string> need, needed(args));
  std::vector<Finding> findings;
  for (const Check& c : kChecks)
    if (c.name != "torch" || !args.has("no-torch")) findings.push_back(c.look());
  SG_TRY(cli::write_text(args, args.has("json") ? told_json(findings) : told(findings, args.tool())));
  int code = 0;
  for (const Finding& f : findings) {
    const bool is_needed = std::ranges::count(need, f.name) != 0;
    if (f.state == State::broken || (is_needed && f.state != State::ok)) code = 1;
    if (is_needed && f.state != State::ok)
      args.report().error({ErrorKind::negative, f.name + ": " + f.text, {}, f.remedy});
  }
  return code;
}

}  // namespace sg::doctor
