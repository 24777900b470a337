// A folder of our own for the time of a run, gone with all in it: when its owner goes, and when a signal ends the
// program (remove_pending_outputs). It lies under $TMPDIR, else /tmp. Different folders may belong to different
// threads.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "libgraph/base/result.h"

namespace sg {

class TempFolder {
 public:
  static Result<TempFolder> make(std::string_view program);  // "sg-recipe": .../sg-recipe-a1B2c3
  TempFolder(TempFolder&& other) noexcept : pending_(std::exchange(other.pending_, nullptr)) {}
  TempFolder& operator=(TempFolder&&) = delete;
  ~TempFolder();
  const std::string& path() const;
  std::string file(const std::string& name) const { return path() + "/" + name; }

 private:
  friend void remove_pending_folders();
  struct Pending;  // one folder, known to remove_pending_folders
  explicit TempFolder(Pending* pending) : pending_(pending) {}
  Pending* pending_;
};

// Who still writes into such folders is ended by `end`, which remove_pending_folders calls first. Async-signal-safe.
void end_writers_by(void (*end)());

// For signal handlers of programs: removes all folders that are there, but not folders within. Async-signal-safe.
void remove_pending_folders();

}  // namespace sg
