#include "tools/cli_targets.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <optional>

#include "tools/cli_input.h"

namespace sg::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kWritten[] = {"output", "trace", "plot", "points"};  // options
constexpr uint32_t kMostRanks = 4096;                                           // looked for of a pattern
constexpr size_t kMostFiles = 1 << 14;                                          // looked at in a folder

using FileId = std::pair<dev_t, ino_t>;

struct Named {
  std::string by;    // "--trace", "the input"
  std::string name;  // as the user wrote it
  std::string file;

  // Through links; none for what is not there, and for devices, which may be read and written at once.
  std::optional<FileId> id() const {
    struct stat is {};
    if (::stat(file.c_str(), &is) != 0 || !S_ISREG(is.st_mode)) return std::nullopt;
    return FileId(is.st_dev, is.st_ino);
  }
};

// Graphs in it are no part of a capture, but what an earlier import wrote.
void add_folder(const std::string& by, const std::string& name, std::vector<Named>* out) {
  std::error_code problem;
  size_t count = 0;
  for (fs::recursive_directory_iterator at(name, problem), end; !problem && at != end && ++count < kMostFiles;
       at.increment(problem))
    if (at->path().extension() != ".sg") out->push_back({by, at->path().string(), at->path().string()});
}

// A name and the files that it stands for.
void add_files(const std::string& by, const std::string& name, std::vector<Named>* out) {
  std::error_code problem;
  if (is_rank_pattern(name)) {
    for (uint32_t rank = 0; rank < kMostRanks; ++rank)
      if (std::string file = file_of_rank(name, rank); fs::exists(file, problem)) out->push_back({by, file, file});
    out->push_back({by, name, name});
  } else if (fs::is_directory(name, problem)) {
    add_folder(by, name, out);
  } else {
    out->push_back({by, name, name == "-" ? "/dev/stdin" : name});
  }
}

// "auto" of "per-block|auto|per-module:FILE": a word of the option's own.
bool is_choice(const Option& option, std::string_view value) {
  for (size_t begin = 0; begin <= option.argument.size();) {
    const size_t end = std::min(option.argument.find('|', begin), option.argument.size());
    if (option.argument.substr(begin, end - begin) == value) return true;
    begin = end + 1;
  }
  return false;
}

bool is_written(std::string_view option) { return std::ranges::find(kWritten, option) != std::end(kWritten); }

// Of "overlap --machine m.yaml" and "per-module:plan.txt", the words that may be files.
void add_words(const std::string& by, const std::string& value, std::vector<Named>* out) {
  for (size_t begin = 0; begin <= value.size();) {
    const size_t end = std::min(value.find_first_of(" :=,", begin), value.size());
    const std::string word = value.substr(begin, end - begin);
    if (!word.empty()) out->push_back({by, word, word});
    begin = end + 1;
  }
}

std::vector<Named> files_read(const Args& args) {
  std::vector<Named> out;
  const std::vector<std::string>& operands = args.operands();
  const bool is_command = !operands.empty() && std::ranges::count(args.tool().commands, operands[0]) != 0;
  for (size_t i = is_command ? 1 : 0; i < operands.size(); ++i) add_files("the input", operands[i], &out);
  if (args.operands().empty() && args.tool().reads_stdin) add_files("the input", "-", &out);
  for (const Option& option : args.tool().options) {
    const bool names_files = option.argument.find("FILE") != std::string_view::npos || option.name == "pass";
    if (is_written(option.name) || !names_files) continue;
    for (const std::string& value : args.all(option.name)) {
      if (is_choice(option, value)) continue;
      add_words("--" + std::string(option.name), value, &out);
      out.push_back({"--" + std::string(option.name), value, value});
    }
  }
  return out;
}

std::vector<Named> files_written(const Args& args, const std::string& output) {
  std::vector<Named> out;
  if (output != "-") add_files("--output", output, &out);
  for (const Option& option : args.tool().options) {
    if (option.name == "output" || !is_written(option.name) || !args.has(option.name)) continue;
    if (const std::string name = args.text(option.name); name != "-")
      add_files("--" + std::string(option.name), name, &out);
  }
  return out;
}

}  // namespace

Status check_targets(const Args& args, const std::string& output) {
  const std::vector<Named> written = files_written(args, output), all_read = files_read(args);
  std::map<FileId, const Named*> read;
  for (const Named& source : all_read)
    if (const auto id = source.id()) read.emplace(*id, &source);
  const auto appended = output == "-" ? read.find(Named{{}, {}, "/dev/stdout"}.id().value_or(FileId())) : read.end();
  if (appended != read.end())
    return Error{
        ErrorKind::usage, "standard output is " + appended->second->name + ", which is read", {}, "write to -o FILE"};
  std::map<std::string, const Named*> by_name;
  std::map<FileId, const Named*> by_id;
  for (const Named& target : written) {
    const auto id = target.id();
    const Named* other = by_name.emplace(target.file, &target).first->second;
    if (id && other == &target) other = by_id.emplace(*id, &target).first->second;
    if (other->by != target.by)
      return Error{ErrorKind::usage, other->by + " and " + target.by + " would both write " + target.name};
    const auto found = id ? read.find(*id) : read.end();
    if (found == read.end()) continue;
    const Named& source = *found->second;
    const bool is_input = source.by == "the input";
    if (is_input && target.by == "--output" && args.has("in-place")) continue;
    if (is_input && target.by == "--output")
      return Error{ErrorKind::usage, "the output " + target.name + " is the input", {}, "add --in-place to replace it"};
    return Error{ErrorKind::usage, target.by + " would replace " + source.name + ", which " +
                                       (is_input ? std::string("is the input") : "is given as " + source.by)};
  }
  return ok_status();
}

}  // namespace sg::cli
