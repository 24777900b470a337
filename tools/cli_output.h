// Output of the tools: whole or not at all.
//
// A regular file is written beside its final place and renamed when complete: a run that fails or is killed leaves the
// old file as it was. Devices, pipes and standard output are written directly. Every write and close is checked.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libgraph/result.h"

namespace sg::cli {

// Removes temporary files on SIGINT, SIGTERM and SIGHUP, then dies of the signal. Broken pipes end the program quietly.
void install_signal_handlers();

class OutputFile {
 public:
  // "-" is standard output. Creates missing folders of the path when `make_folders`.
  static Result<OutputFile> open(const std::string& path, bool make_folders = false);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();                       // removes what was not committed

  Status write(std::string_view bytes);
  Status close();                      // all bytes have reached the system; the final name still shows the old file
  Status commit();                     // puts the file in its place. REQUIRES: close() succeeded

 private:
  friend void install_signal_handlers();
  struct Pending;                      // one temporary file, known to the signal handler
  OutputFile() = default;
  Error failed(std::string_view what) const;

  std::string path_;                   // as the user named it
  std::string target_;                 // symbolic links resolved
  Pending* pending_ = nullptr;         // null for direct output
  int fd_ = -1;
};

// Opens what the caller left closed of descriptors 0 to 2, so that no file of ours lands there.
void guard_standard_streams();

bool is_same_file(const std::string& a, const std::string& b);   // through links; false when one does not exist

}  // namespace sg::cli
