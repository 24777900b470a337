#include "tools/recipe/files.h"

#include <dirent.h>
#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <string_view>

#include "libgraph/base/whole_file.h"
#include "tools/cli/cli_input.h"

namespace sg::recipe {
namespace {

constexpr size_t kMostEntries = 100'000;  // that a pattern is held against: `/*/*/*` would walk the disk

thread_local size_t entries_left = 0;  // of the search under way; glob passes nothing on to its functions

dirent* next_entry(void* folder) {
  if (entries_left == 0 || --entries_left == 0) return nullptr;
  return ::readdir(static_cast<DIR*>(folder));
}

}  // namespace

Result<std::string> read_regular_file(const std::string& path) {
  struct stat info;
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))  // reading could block or never end
    return Error{ErrorKind::unreadable,
                 "not a regular file",
                 {path, 0, 0, {}, {}},
                 "recipes read their files more than once: write it to a file"};
  return read_whole_file(path, SIZE_MAX);
}

Result<std::vector<std::string>> matching_files(const std::string& pattern) {
  std::error_code problem;
  const bool is_name = pattern.find_first_of("*?[") == std::string::npos || std::filesystem::exists(pattern, problem);
  if (is_name) return std::vector<std::string>{pattern};
  glob_t found{};
  found.gl_opendir = [](const char* folder) -> void* { return ::opendir(folder); };
  found.gl_readdir = next_entry;
  found.gl_closedir = [](void* folder) { ::closedir(static_cast<DIR*>(folder)); };
  found.gl_stat = [](const char* path, struct stat* info) { return ::stat(path, info); };
  found.gl_lstat = [](const char* path, struct stat* info) { return ::lstat(path, info); };
  entries_left = kMostEntries;
  std::vector<std::string> out;
  if (::glob(pattern.c_str(), GLOB_NOSORT | GLOB_ALTDIRFUNC, nullptr, &found) == 0)
    out.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  ::globfree(&found);
  if (entries_left == 0)
    return Error{ErrorKind::unreadable,
                 "more than " + std::to_string(kMostEntries) + " names are looked at for " + pattern,
                 {},
                 "name the folder"};
  auto before = [](const std::string& a, const std::string& b) { return ::strverscmp(a.c_str(), b.c_str()) < 0; };
  std::ranges::sort(out, before);
  return out;
}

Result<std::vector<std::string>> files_named(const std::string& name) {
  constexpr std::string_view kStep = "{step}";
  const bool has_steps = name.find(kStep) != std::string::npos;
  std::vector<std::string> all;
  for (uint64_t step = 0; step == 0 || has_steps; ++step) {
    std::string of_step = name;
    for (size_t at; (at = of_step.find(kStep)) != std::string::npos;)
      of_step.replace(at, kStep.size(), std::to_string(step));
    Result<std::vector<std::string>> files = cli::files_of(of_step);
    std::error_code missing;
    if (files.ok() && !std::filesystem::exists((*files)[0], missing))
      files = Error{ErrorKind::unreadable, "no such file: " + (*files)[0], {}, {}};
    if (!files.ok() && step > 0) break;
    if (!files.ok()) return files.error();
    all.insert(all.end(), files->begin(), files->end());
  }
  return all;
}

}  // namespace sg::recipe
