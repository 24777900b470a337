// The cache: graphs by what they were made from, so that a stage whose input, options and tool are as before is not run
// again.
//
// Whole     An entry is written aside and renamed; a killed runner leaves no broken one. What is read is verified by
//           its seal, and an entry that does not hold is removed and made again.
// Shared    by any number of runners. A cache that cannot be written (full, read-only) costs time and no result.
// Size      `trim` removes what was used longest ago beyond the limit.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sg::recipe {

class Cache {
 public:
  // An empty folder = no cache: nothing is found and nothing kept.
  Cache(std::string folder, uint64_t limit_bytes) : folder_(std::move(folder)), limit_bytes_(limit_bytes) {}

  // $STEPGRAPH_CACHE, else stepgraph/ in $XDG_CACHE_HOME or ~/.cache; empty when there is no such place.
  static std::string usual_folder();

  std::optional<std::string> graph(const std::string& key);  // sealed bytes
  void put_graph(const std::string& key, std::string_view sealed);
  bool has_passed(const std::string& key);  // a check that held
  void put_passed(const std::string& key);
  std::optional<std::string> last(const std::string& name);  // what a step's key was made of when it last ran
  void put_last(const std::string& name, std::string_view text);
  void trim();

 private:
  std::string path(const std::string& key, std::string_view ending) const;
  std::optional<std::string> read(const std::string& path);
  void write(const std::string& path, std::string_view bytes);

  std::string folder_;
  uint64_t limit_bytes_;
};

}  // namespace sg::recipe
