#include "tools/recipe/cache.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "libgraph/base/output_file.h"
#include "libgraph/base/sha256.h"
#include "libgraph/binary/seal.h"
#include "tools/recipe/files.h"

namespace sg::recipe {
namespace {

namespace fs = std::filesystem;

constexpr double kKeptShare = 0.9;  // of the limit, after trimming: leaves room for the next run

}  // namespace

std::string Cache::usual_folder() {
  auto variable = [](const char* name) {
    const char* v = std::getenv(name);
    return std::string(v ? v : "");
  };
  if (std::string own = variable("STEPGRAPH_CACHE"); !own.empty()) return own;
  if (std::string xdg = variable("XDG_CACHE_HOME"); !xdg.empty()) return xdg + "/stepgraph";
  std::string home = variable("HOME");
  return home.empty() ? "" : home + "/.cache/stepgraph";
}

std::string Cache::path(const std::string& key, std::string_view ending) const {
  return folder_ + "/v1/" + key.substr(0, 2) + "/" + key.substr(2) + std::string(ending);
}

std::optional<std::string> Cache::read(const std::string& path) {
  if (folder_.empty()) return std::nullopt;
  Result<std::string> bytes = read_regular_file(path);
  if (!bytes.ok()) return std::nullopt;
  std::error_code ignored;  // the time of use only determines the order of removal
  fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
  return std::move(*bytes);
}

// Failures are ignored: without the entry, the next run is just slower.
void Cache::write(const std::string& path, std::string_view bytes) {
  if (folder_.empty()) return;
  Result<OutputFile> file = OutputFile::open(path, true);
  if (file.ok() && file->write(bytes).ok() && file->close().ok()) (void)file->commit().ok();
}

std::optional<std::string> Cache::graph(const std::string& key) {
  std::string file = path(key, ".sg");
  std::optional<std::string> bytes = read(file);
  if (!bytes || unseal(*bytes, file).ok()) return bytes;
  std::error_code ignored;  // another runner may have repaired it
  fs::remove(file, ignored);
  return std::nullopt;
}

void Cache::put_graph(const std::string& key, std::string_view sealed) { write(path(key, ".sg"), sealed); }
bool Cache::has_passed(const std::string& key) { return read(path(key, ".ok")) == "passed " + key + "\n"; }
void Cache::put_passed(const std::string& key) { write(path(key, ".ok"), "passed " + key + "\n"); }
std::optional<std::string> Cache::last(const std::string& name) { return read(path(hex(sha256(name)), ".last")); }
void Cache::put_last(const std::string& name, std::string_view text) { write(path(hex(sha256(name)), ".last"), text); }

void Cache::trim() {
  struct Entry {
    fs::file_time_type used;
    uint64_t bytes;
    fs::path path;
  };
  if (folder_.empty()) return;
  std::vector<Entry> entries;
  uint64_t total = 0;
  std::error_code problem;
  for (fs::recursive_directory_iterator at(folder_ + "/v1", problem), end; !problem && at != end;
       at.increment(problem)) {
    std::error_code gone;  // another runner may trim too
    if (!at->is_regular_file(gone) || gone) continue;
    Entry e{at->last_write_time(gone), at->file_size(gone), at->path()};
    if (gone) continue;
    total += e.bytes;
    entries.push_back(std::move(e));
  }
  if (total <= limit_bytes_) return;
  std::ranges::sort(entries, {}, &Entry::used);
  for (const Entry& e : entries) {
    if (static_cast<double>(total) <= kKeptShare * static_cast<double>(limit_bytes_)) return;
    std::error_code gone;
    fs::remove(e.path, gone);
    total -= e.bytes;
  }
}

}  // namespace sg::recipe
