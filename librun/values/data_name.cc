#include "librun/values/data_name.h"

#include <unistd.h>

#include <filesystem>

#include "libgraph/base/human.h"

namespace sg {
namespace {

bool has(std::string_view pattern, std::string_view mark) { return pattern.find(mark) != std::string_view::npos; }

bool exists(const std::string& path) { return ::access(path.c_str(), F_OK) == 0; }

// Empty if the file's folder exists.
std::string hint_of_folder(const std::string& file) {
  const std::string folder = std::filesystem::path(file).parent_path().string();
  return folder.empty() || exists(folder) ? "" : "there is no folder `" + folder + "`";
}

}  // namespace

std::string data_file_name(std::string_view pattern, uint32_t rank, uint64_t step) {
  std::string out;
  for (size_t i = 0; i < pattern.size();) {
    std::string_view rest = pattern.substr(i);
    if (rest.starts_with("{r}")) {
      out += std::to_string(rank);
      i += 3;
    } else if (rest.starts_with("{step}")) {
      out += std::to_string(step);
      i += 6;
    } else {
      out += pattern[i++];
    }
  }
  return out;
}

std::string recorded_beside(std::string_view inputs) {
  return std::filesystem::path(inputs).replace_filename("expected.safetensors").string();
}

bool has_step(std::string_view pattern) { return has(pattern, "{step}"); }

Status check_input_files(std::string_view pattern, uint32_t world, std::string_view option) {
  if (!has(pattern, "{r}")) return ok_status();  // reading it reports errors
  std::string missing, first_missing;
  uint32_t count = 0;
  for (uint32_t rank = 0; rank < world; ++rank) {
    std::string name = data_file_name(pattern, rank, 0);
    if (exists(name)) continue;
    if (count++ == 0) first_missing = name;
    if (count <= 8) missing += (count == 1 ? "" : ", ") + std::to_string(rank);
  }
  if (count > 8) missing += ", ... (" + std::to_string(count) + ")";
  if (count != 0) {
    const std::string whose =
        count == world ? "any of " + plural(world, "rank") : "rank " + missing + " of " + std::to_string(world);
    return Error{ErrorKind::unreadable,
                 std::string(option) + ": no file for " + whose,
                 {first_missing},
                 hint_of_folder(first_missing)};
  }
  std::string beyond = data_file_name(pattern, world, 0);
  if (exists(beyond))
    return Error{ErrorKind::unreadable,
                 std::string(option) + ": a file for rank " + std::to_string(world) + ", but the job has " +
                     plural(world, "rank"),
                 {beyond},
                 "these files belong to a job of more ranks"};
  return ok_status();
}

Status check_output_pattern(std::string_view pattern, uint32_t world, uint64_t steps, std::string_view option) {
  auto refuse = [&](std::string_view mark, std::string_view what) {
    return Error{
        ErrorKind::usage,
        std::string(option) + " " + std::string(pattern) + ": " + std::string(what) + " would write the same file",
        {},
        "put " + std::string(mark) + " into the name"};
  };
  if (world > 1 && !has(pattern, "{r}")) return refuse("{r}", std::to_string(world) + " ranks");
  if (steps > 1 && !has(pattern, "{step}")) return refuse("{step}", std::to_string(steps) + " steps");
  return ok_status();
}

}  // namespace sg
