#include "tools/cli/cli_targets.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "libgraph/base/output_file.h"
#include "libgraph/data/safetensors.h"
#include "tools/cli/cli_input.h"
#include "tools/cli/cli_named_files.h"
#include "tools/cli/cli_patterns.h"
#include "tools/cli/cli_write.h"

namespace sg::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 1 << 14;  // looked at in a folder
const std::string kInput = "is the input";

// Steps that are not run are not read.
uint64_t steps_of(const Args& args) {
  const bool has_steps = std::ranges::any_of(args.tool().options, [](const Option& o) { return o.name == "steps"; });
  return has_steps ? args.natural("steps", 1) : UINT64_MAX;
}

// Graphs in it are no part of a capture, but what an earlier import wrote, and so are the weights beside them.
void keep_folder(const std::string& folder, const std::string& what) {
  std::error_code problem;
  size_t count = 0;
  for (fs::recursive_directory_iterator at(folder, problem), end; !problem && at != end && ++count < kMostFiles;
       at.increment(problem))
    if (const std::string file = at->path().string(); !file.ends_with(".sg") && !is_written_by_import(file))
      keep_file(file, what);
}

void keep_what_is_named(const Args& args) {
  const std::vector<std::string>& operands = args.operands();
  const bool is_command = !operands.empty() && std::ranges::count(args.tool().commands, operands[0]) != 0;
  for (size_t i = is_command ? 1 : 0; i < operands.size(); ++i) keep_read(operands[i], kInput);
  if (operands.empty() && args.tool().reads_stdin) keep_read("-", kInput);
  for (const Option& option : args.tool().options) {
    if (option.written) continue;
    for (const std::string& value : args.all(option.name))
      for (const std::string& name : files_named(option, value))
        for (const std::string& file : files_for(name, steps_of(args)))
          keep_file(file, "is given as --" + std::string(option.name));
  }
}

std::vector<Target> targets_of(const Args& args) {
  std::vector<Target> out = {{"--output", output_of(args)}};
  for (const Option& option : args.tool().options)
    if (option.written && args.has(option.name))
      out.push_back({"--" + std::string(option.name), args.text(option.name)});
  return out;
}

bool is_allowed(const Args& args, const Target& target, const KeptFile& kept) {
  return kept.what == kInput && target.by == "--output" && args.has("in-place");
}

Error would_replace(const Args& args, const Target& target, const KeptFile& kept) {
  if (kept.what != kInput || target.by != "--output")
    return {ErrorKind::usage, target.by + " would replace " + kept.name + ", which " + kept.what, {}, {}};
  const std::string hint = takes_in_place(args.tool()) ? "add --in-place to replace it" : "give it another name";
  return {ErrorKind::usage, "the output " + target.name + " is the input", {}, hint};
}

Error both_write(const std::string& a, const Target& b) {
  return {ErrorKind::usage, a + " and " + b.by + " would both write " + b.name, {}, {}};
}

bool is_no_file(const Target& target) { return is_standard_output(target.name); }

Status check_standard_output(const std::vector<Target>& targets) {
  const auto first = std::ranges::find_if(targets, is_no_file);
  if (first == targets.end()) return ok_status();
  const auto next = std::find_if(first + 1, targets.end(), is_no_file);
  if (next == targets.end()) return ok_status();
  Error error = both_write(first->by, {next->by, "standard output"});
  error.hint = "name a file for one of them";
  return error;
}

Status check_distinct(const std::vector<Target>& targets) {
  std::vector<std::string> places;
  std::map<std::pair<dev_t, ino_t>, std::string> by_id;
  for (const Target& target : targets) {
    const std::string place = final_place(target.name);
    for (size_t i = 0; i < places.size(); ++i)
      if (may_be_one(places[i], place)) return both_write(targets[i].by, target);
    places.push_back(place);
    for (const std::string& file : files_for(target.name)) {
      struct stat is {};
      if (::stat(file.c_str(), &is) != 0 || !S_ISREG(is.st_mode)) continue;
      const auto [at, is_new] = by_id.emplace(std::pair(is.st_dev, is.st_ino), target.by);
      if (!is_new && at->second != target.by) return both_write(at->second, target);
    }
  }
  return ok_status();
}

}  // namespace

bool takes_in_place(const Tool& tool) { return tool.writes == Writes::graph && tool.reads_graph; }

bool is_written_by_import(const std::string& file) {
  if (!file.ends_with(".safetensors")) return false;
  const Result<TensorFile> tensors = TensorFile::open(file);
  const auto says_so = [](const auto& entry) { return entry.first == kWrittenBy && entry.second == "sg-import"; };
  return tensors.ok() && std::ranges::any_of(tensors->metadata(), says_so);
}

void keep_read(const std::string& name, const std::string& what) {
  if (name == "-") return keep_file("/dev/stdin", what);
  if (is_folder(name)) return keep_folder(name, what);
  for (const std::string& file : files_for(name)) keep_file(file, what);
}

Status check_targets(const Args& args) {
  keep_what_is_named(args);
  return check_targets_again(args);
}

Status check_targets_again(const Args& args, const std::vector<Target>& more) {
  if (output_of(args) == "-") SG_TRY(check_not_kept("-"));
  std::vector<Target> targets = targets_of(args);
  targets.insert(targets.end(), more.begin(), more.end());
  SG_TRY(check_standard_output(targets));
  std::erase_if(targets, is_no_file);
  SG_TRY(check_distinct(targets));
  std::vector<std::string> allowed;
  for (const Target& target : targets)
    for (const std::string& file : files_for(target.name)) {
      const std::optional<KeptFile> kept = kept_file(file);
      if (!kept) continue;
      if (!is_allowed(args, target, *kept)) return would_replace(args, target, *kept);
      allowed.push_back(file);
    }
  for (const std::string& file : allowed) stop_keeping(file);
  return ok_status();
}

}  // namespace sg::cli
