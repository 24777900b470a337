#include "tools/cli/cli_patterns.h"

#include <glob.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <iterator>

namespace sg::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kRank = "{r}", kStep = "{step}";

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

std::string first_of(const std::string& pattern) { return replaced(replaced(pattern, kRank, "0"), kStep, "0"); }

}  // namespace

bool is_pattern(std::string_view name) { return name.find(kRank) != name.npos || name.find(kStep) != name.npos; }

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

std::string final_place(const std::string& file) {
  constexpr int kMostLinks = 40;  // as the system has it
  std::error_code problem;
  fs::path path = fs::absolute(file, problem);
  for (int i = 0; i < kMostLinks && fs::is_symlink(path, problem) && !fs::exists(path, problem); ++i)
    path = path.parent_path() / fs::read_symlink(path, problem);
  path = fs::weakly_canonical(path, problem);
  return problem ? file : path.string();
}

bool may_be_one(const std::string& a, const std::string& b) {
  return a == b || stands_for(a, first_of(b), UINT64_MAX) || stands_for(b, first_of(a), UINT64_MAX);
}

}  // namespace sg::cli
