#include "tools/cli/cli_targets.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <optional>

#include "libgraph/base/output_file.h"
#include "libgraph/data/safetensors.h"
#include "tools/cli/cli_input.h"
#include "tools/cli/cli_named_files.h"
#include "tools/cli/cli_write.h"

namespace sg::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostFiles = 1 << 14;  // looked at in a folder
constexpr std::string_view kRank = "{r}", kStep = "{step}";
const std::string kInput = "is the input";

bool is_pattern(std::string_view name) { return name.find(kRank) != name.npos || name.find(kStep) != name.npos; }

bool is_number_below(std::string_view digits, uint64_t end) {
  uint64_t number = 0;
  const auto [at, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  const bool is_written_so = digits.size() == 1 || !digits.starts_with('0');
  return problem == std::errc() && at == digits.data() + digits.size() && is_written_so && number < end;
}

std::string replaced(std::string text, std::string_view mark, std::string_view by) {
  for (size_t at = 0; (at = text.find(mark, at)) != text.npos; at += by.size()) text.replace(at, mark.size(), by);
  return text;
}

// Whether some rank and step make the pattern this name.
bool stands_for(const std::string& pattern, const std::string& name, uint64_t steps) {
  const size_t at = std::min(pattern.find(kRank), pattern.find(kStep));
  if (at == pattern.npos) return pattern == name;
  if (name.size() < at || name.compare(0, at, pattern, 0, at) != 0) return false;
  const bool is_step = pattern.compare(at, kStep.size(), kStep) == 0;
  for (size_t length = 1; at + length <= name.size(); ++length) {
    const std::string digits = name.substr(at, length);
    if (digits.find_first_not_of("0123456789") != digits.npos) return false;
    if (is_number_below(digits, is_step ? steps : UINT64_MAX) &&
        stands_for(replaced(pattern, is_step ? kStep : kRank, digits), name, steps))
      return true;
  }
  return false;
}

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
  std::vector<Target> out;
  if (const std::string output = output_of(args); output != "-") out.push_back({"--output", output});
  for (const Option& option : args.tool().options) {
    if (!option.written || !args.has(option.name)) continue;
    if (const std::string name = args.text(option.name); name != "-")
      out.push_back({"--" + std::string(option.name), name});
  }
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

// Where the file is or would be, through links.
std::string final_place(const std::string& file) {
  constexpr int kMostLinks = 40;  // as the system has it
  std::error_code problem;
  fs::path path = fs::absolute(file, problem);
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, problem) && !fs::exists(path, problem); ++i)
    path = path.parent_path() / fs::read_symlink(path, problem);
  path = fs::weakly_canonical(path, problem);
  return problem ? file : path.string();
}

std::string first_of(const std::string& pattern) { return replaced(replaced(pattern, kRank, "0"), kStep, "0"); }

// Whether two places are one file for some rank and step.
bool may_be_one(const std::string& a, const std::string& b) {
  return a == b || stands_for(a, first_of(b), UINT64_MAX) || stands_for(b, first_of(a), UINT64_MAX);
}

Error both_write(const std::string& a, const Target& b) {
  return {ErrorKind::usage, a + " and " + b.by + " would both write " + b.name, {}, {}};
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

std::vector<std::string> files_for(const std::string& name, uint64_t steps) {
  if (!is_pattern(name)) return {name};
  std::string shell;
  for (char c : name) shell += std::string_view("*?[\\").find(c) == std::string_view::npos ? "" : "\\", shell += c;
  shell = replaced(replaced(shell, kRank, "[0-9]*"), kStep, "[0-9]*");
  glob_t found{};
  std::vector<std::string> out = {name};  // a file may be called so
  if (::glob(shell.c_str(), GLOB_NOSORT, nullptr, &found) == 0)
    std::copy_if(found.gl_pathv, found.gl_pathv + found.gl_pathc, std::back_inserter(out),
                 [&](const char* file) { return stands_for(name, file, steps); });
  ::globfree(&found);
  return out;
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
