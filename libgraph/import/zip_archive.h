// Reading a zip archive from memory, through libzip, with bounds on everything that an archive can claim.
//
// Entries  Names are unique, relative and stay within the archive ("..", "\\" and NUL are refused); stored or deflated,
//          never encrypted. Nothing is written to disk, and nothing is unpacked before it is asked for.
// Sizes    An entry may unpack to `free_bytes` whatever its packed size, beyond that only to `max_ratio` times that
//          size, and never to more than `max_bytes`; all entries together to `free_bytes` + `max_ratio` times the
//          archive.
// Errors   `unreadable`, with the archive's name and the entry as the path. Checksums are held against the data.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/result.h"

namespace sg {

struct ZipLimits {
  uint64_t max_entries = 1 << 20;
  uint64_t free_bytes = uint64_t{64} << 20;
  uint64_t max_ratio = 200;
  uint64_t max_bytes = uint64_t{64} << 30;
};

struct ZipEntry {
  std::string name;
  uint64_t index = 0;  // in the archive
  uint64_t bytes = 0;  // unpacked, as the archive claims
};

class ZipArchive {
 public:
  // `bytes` must outlive the archive; `name` is for messages.
  static Result<ZipArchive> open(std::string_view bytes, std::string name, const ZipLimits& limits = {});

  const std::string& name() const { return name_; }
  const std::vector<ZipEntry>& entries() const { return entries_; }  // sorted by name
  const ZipEntry* find(std::string_view name) const;                 // null = not there
  Result<std::string> read(const ZipEntry& entry) const;

 private:
  struct Handle;
  ZipArchive() = default;
  Result<ZipEntry> check_entry(uint64_t index, const ZipLimits& limits) const;
  Error error(std::string message, std::string entry = {}) const;

  std::string name_;
  std::shared_ptr<Handle> handle_;
  std::vector<ZipEntry> entries_;
};

}  // namespace sg
