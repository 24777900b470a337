// Output files: whole or not at all.
//
// A regular file is written beside its final place and renamed when complete: a run that fails or is killed leaves the
// old file as it was. Devices, pipes and standard output are written directly. Every write and close is checked. Files
// that belong together, of several ranks say, are put in their places first, and kept when all of them are there.
// Different files may be written by different threads.
//
// Files that the command reads are kept: no output of this process replaces them or is appended to them. They are known
// by their identity, so that links and other spellings are the same file. Whoever knows that a file is read says so.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/result.h"

namespace sg {

// "-", and the names that the system has for it.
bool is_standard_output(const std::string& path);

class OutputFile {
 public:
  // Creates missing folders of the path when `make_folders`. A file that the command reads
  // is refused: usage.
  static Result<OutputFile> open(const std::string& path, bool make_folders = false);
  OutputFile(OutputFile&& other) noexcept;
  OutputFile& operator=(OutputFile&&) = delete;
  ~OutputFile();  // takes back what was not committed, or placed and not kept

  Status write(std::string_view bytes);
  bool reader_left() const { return reader_left_; }  // writing has failed because nobody reads the pipe any more
  // All bytes have reached the system (the disk, when `durable`); the final name still shows the old file.
  Status close(bool durable = false);
  Status commit();  // puts the file in its place. REQUIRES: close() succeeded
  Status place();   // the same for the time being: taken back unless keep() follows
  void keep();

 private:
  friend void remove_pending_outputs();
  struct Pending;  // one temporary file, known to remove_pending_outputs
  OutputFile() = default;
  Error failed(std::string_view what) const;

  std::string path_;            // as the user named it
  std::string target_;          // symbolic links resolved
  Pending* pending_ = nullptr;  // null for direct output
  int fd_ = -1;
  bool reader_left_ = false;
};

// The files of one command, which get their places together, or none of them does. What cannot be put aside (pipes,
// devices, standard output) is written when it is opened: so open and write all, then place. A reader of a pipe that
// has enough (`| head`) fails nothing: the files still get their places.
class OutputSet {
 public:
  OutputSet() = default;
  OutputSet(OutputSet&&) = default;
  OutputSet& operator=(OutputSet&&) = default;

  void add(OutputFile file);  // REQUIRES: close() succeeded
  void add(OutputSet files);
  // Opens the file, writes all of `bytes` and closes it.
  Status stage(const std::string& path, std::string_view bytes, bool make_folders = false);

  bool empty() const { return files_.empty(); }
  bool reader_left() const { return reader_left_; }

  Status place();  // all, for the time being: taken back unless keep() follows
  void keep();
  Status commit();  // both

 private:
  std::vector<OutputFile> files_;
  bool reader_left_ = false;
};

struct KeptFile {
  std::string name;  // as it was read
  std::string what;  // completes "NAME, which ...": "is the input"
};

// Does nothing for what is not there, and for devices and pipes, which may be read and written at once. Who comes first
// says what the file is. These four may be called by several threads.
void keep_file(const std::string& name, const std::string& what);
void stop_keeping(const std::string& name);

// The kept file that writing to `path` would change.
std::optional<KeptFile> kept_file(const std::string& path);

// A usage error if there is one.
Status check_not_kept(const std::string& path);

// For signal handlers of programs: takes back all outputs not yet committed, and removes all that TempFolder has made.
// Async-signal-safe.
void remove_pending_outputs();

}  // namespace sg
