#include "libgraph/base/output_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <mutex>
#include <string_view>
#include <utility>

#include "libgraph/base/temp_folder.h"

namespace sg {

// Records live as long as the process: the signal handler may walk the list at any moment.
struct OutputFile::Pending {
  // From `placed` on the file may have its place already; `placed_over`: an older one is kept beside it.
  enum State : uint8_t { done, written, placed, placed_over };
  std::string path, target, older;
  std::atomic<State> state{done};
  Pending* next = nullptr;
  static std::atomic<Pending*> head;

  static Pending* add(std::string path, std::string target, std::string older) {
    auto* p = new Pending{std::move(path), std::move(target), std::move(older), {}, head.load()};
    while (!head.compare_exchange_weak(p->next, p)) {
    }
    return p;
  }

  // Undoes everything written. Async-signal-safe.
  void take_back() {
    const State was = state.exchange(done);
    if (was == done) return;
    const bool is_in_place = ::unlink(path.c_str()) != 0;
    if (was == placed && is_in_place) ::unlink(target.c_str());
    if (was != placed_over) return;
    ::rename(older.c_str(), target.c_str());
    ::unlink(older.c_str());  // two names of one file are left alone by rename
  }
};

std::atomic<OutputFile::Pending*> OutputFile::Pending::head{nullptr};

namespace {

// Why one could not be made, as errno has it; 0 if all are there. It matters only if the file cannot be opened then.
int make_folders_of(const std::string& path) {
  int why = 0;
  for (size_t i = path.find('/', 1); i != std::string::npos; i = path.find('/', i + 1))
    if (::mkdir(path.substr(0, i).c_str(), 0777) != 0 && errno != EEXIST && why == 0) why = errno;
  return why;
}

// Where the file is, or would be: a link may lead to one that is not there yet.
std::string resolve_links(const std::string& path, int depth = 0) {
  constexpr int kDeepest = 40;  // as the system has it
  if (char* real = ::realpath(path.c_str(), nullptr)) {
    std::string out = real;
    std::free(real);
    return out;
  }
  char to[4096];
  const ssize_t length = depth < kDeepest ? ::readlink(path.c_str(), to, sizeof to) : -1;
  if (length <= 0 || static_cast<size_t>(length) == sizeof to) return path;
  const std::string target(to, static_cast<size_t>(length));
  return resolve_links(target[0] == '/' ? target : path.substr(0, path.rfind('/') + 1) + target, depth + 1);
}

// What no other output of this process is called. What an earlier process of the same number left is passed over.
std::string own_name(std::string_view file) {
  static std::atomic<uint64_t> outputs{0};
  constexpr size_t kLongest = 100;
  return std::to_string(::getpid()) + "-" + std::to_string(outputs.fetch_add(1)) + "-" +
         std::string(file.substr(0, kLongest));
}

// The mode of the file being replaced, or what open(2) would give a new file.
mode_t mode_for(const std::string& target) {
  struct stat info;
  if (::stat(target.c_str(), &info) == 0) return info.st_mode & 07777;
  static const mode_t kMask = [] {  // once: reading it sets it to 0 for a moment, for all threads
    mode_t mask = ::umask(0);
    ::umask(mask);
    return mask;
  }();
  return 0666 & ~kMask;
}

bool is_regular_file(const std::string& path) {
  struct stat info;
  return !path.empty() && ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool exists_and_is_no_regular_file(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode);
}

using FileId = std::pair<dev_t, ino_t>;

struct KeptFiles {
  std::mutex lock;
  std::map<FileId, KeptFile> by_id;
};

KeptFiles& kept_files() {
  static KeptFiles all;
  return all;
}

std::optional<FileId> file_id_of(const std::string& path) {
  struct stat is {};
  const int failed = is_standard_output(path) ? ::fstat(STDOUT_FILENO, &is) : ::stat(path.c_str(), &is);
  if (failed != 0 || !S_ISREG(is.st_mode)) return std::nullopt;
  return FileId(is.st_dev, is.st_ino);
}

}  // namespace

bool is_standard_output(const std::string& path) {
  constexpr std::string_view kNames[] = {"-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"};
  return std::ranges::find(kNames, path) != std::end(kNames);
}

Error OutputFile::failed(std::string_view what) const {
  std::string name = is_standard_output(path_) ? "<stdout>" : path_;
  std::string reason = std::strerror(errno);                                        // before anything else sets it
  const std::string hint = is_regular_file(target_) ? "nothing was replaced" : "";  // there is an older file
  return {ErrorKind::missing, std::string(what) + ": " + reason, {name}, hint};
}

Result<OutputFile> OutputFile::open(const std::string& path, bool make_folders) {
  OutputFile out;
  out.path_ = path;
  SG_TRY(check_not_kept(path));
  if (is_standard_output(path)) {  // not closed itself: the next output of this process may be the same
    out.fd_ = ::fcntl(STDOUT_FILENO, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
    if (out.fd_ < 0) return out.failed("cannot write");
    return out;
  }
  const int no_folder = make_folders ? make_folders_of(path) : 0;
  if (exists_and_is_no_regular_file(path)) {  // before links are resolved: that of /dev/fd/1 to a pipe leads nowhere
    out.fd_ = ::open(path.c_str(), O_WRONLY | O_CLOEXEC);
    if (out.fd_ < 0) return out.failed("cannot write");
    return out;
  }
  out.target_ = resolve_links(path);
  size_t name = out.target_.rfind('/') + 1;  // 0 if there is no folder
  const std::string folder = out.target_.substr(0, name);
  std::string own, temporary;
  do {
    own = own_name(std::string_view(out.target_).substr(name));
    temporary = folder + ".sg-tmp-" + own;
    out.fd_ = ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  } while (out.fd_ < 0 && errno == EEXIST);
  if (out.fd_ < 0 && errno == ENOENT && no_folder != 0) errno = no_folder;
  if (out.fd_ < 0) return out.failed("cannot write");
  out.pending_ = Pending::add(temporary, out.target_, folder + ".sg-old-" + own);
  out.pending_->state.store(Pending::written);
  if (::fchmod(out.fd_, mode_for(out.target_)) != 0) return out.failed("cannot set the mode");
  return out;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      pending_(other.pending_),
      fd_(other.fd_),
      reader_left_(other.reader_left_) {
  other.pending_ = nullptr;
  other.fd_ = -1;
}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (pending_ != nullptr) pending_->take_back();
}

Status OutputFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      reader_left_ = errno == EPIPE;
      return failed("cannot write");
    }
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return ok_status();
}

Status OutputFile::close(bool durable) {
  if (durable && pending_ != nullptr && fd_ >= 0 && ::fsync(fd_) != 0) return failed("cannot write");
  int fd = fd_;
  fd_ = -1;
  if (fd >= 0 && ::close(fd) != 0) return failed("cannot write");
  return ok_status();
}

Status OutputFile::commit() {
  if (pending_ == nullptr) return ok_status();
  if (::rename(pending_->path.c_str(), target_.c_str()) != 0) return failed("cannot put the file in its place");
  pending_->state.store(Pending::done);
  return ok_status();
}

// The older file gets a second name (a hard link), so that the first name always refers to one of the two. On file
// systems without hard links it is moved instead.
Status OutputFile::place() {
  if (pending_ == nullptr) return ok_status();
  const char *target = target_.c_str(), *older = pending_->older.c_str();
  if (exists_and_is_no_regular_file(target_)) {
    errno = EISDIR;
    return failed("cannot put the file in its place");
  }
  const bool is_new = ::access(target, F_OK) != 0;
  pending_->state.store(is_new ? Pending::placed : Pending::placed_over);  // before a signal finds it half done
  const bool has_older = is_new || ::link(target, older) == 0 || ::rename(target, older) == 0;
  if (has_older && ::rename(pending_->path.c_str(), target) == 0) return ok_status();
  Error error = failed("cannot put the file in its place");
  pending_->take_back();
  return error;
}

void OutputFile::keep() {
  if (pending_ == nullptr) return;
  if (pending_->state.exchange(Pending::done) == Pending::placed_over) ::unlink(pending_->older.c_str());
}

void OutputSet::add(OutputFile file) { files_.push_back(std::move(file)); }

void OutputSet::add(OutputSet files) {
  std::move(files.files_.begin(), files.files_.end(), std::back_inserter(files_));
  reader_left_ |= files.reader_left_;
}

Status OutputSet::stage(const std::string& path, std::string_view bytes, bool make_folders) {
  SG_ASSIGN(OutputFile file, OutputFile::open(path, make_folders));
  Status written = file.write(bytes);
  reader_left_ |= file.reader_left();
  if (!written.ok() && !file.reader_left()) return written;
  SG_TRY(file.close());
  add(std::move(file));
  return ok_status();
}

Status OutputSet::place() {
  for (OutputFile& file : files_)
    if (Status placed = file.place(); !placed.ok()) {
      files_.clear();
      return placed;
    }
  return ok_status();
}

void OutputSet::keep() {
  for (OutputFile& file : files_) file.keep();
  files_.clear();
}

Status OutputSet::commit() {
  const bool is_one = files_.size() == 1;  // an older file needs no second name
  SG_TRY(is_one ? files_[0].commit() : place());
  keep();
  return ok_status();
}

void keep_file(const std::string& name, const std::string& what) {
  const std::optional<FileId> id = file_id_of(name);
  if (!id) return;
  std::lock_guard guard(kept_files().lock);
  kept_files().by_id.try_emplace(*id, KeptFile{name, what});
}

void stop_keeping(const std::string& name) {
  const std::optional<FileId> id = file_id_of(name);
  std::lock_guard guard(kept_files().lock);
  if (id) kept_files().by_id.erase(*id);
}

// The system may give the identity of a file that is gone to another: the name still has to lead to it.
std::optional<KeptFile> kept_file(const std::string& path) {
  const std::optional<FileId> id = file_id_of(path);
  if (!id) return std::nullopt;
  std::lock_guard guard(kept_files().lock);
  const auto at = kept_files().by_id.find(*id);
  if (at == kept_files().by_id.end() || file_id_of(at->second.name) != id) return std::nullopt;
  return at->second;
}

Status check_not_kept(const std::string& path) {
  const std::optional<KeptFile> kept = kept_file(path);
  if (!kept) return ok_status();
  if (is_standard_output(path))
    return Error{ErrorKind::usage, "standard output is " + kept->name + ", which is read", {}, "write to -o FILE"};
  return Error{ErrorKind::usage, path + " would replace " + kept->name + ", which " + kept->what};
}

void remove_pending_outputs() {
  for (OutputFile::Pending* p = OutputFile::Pending::head.load(); p != nullptr; p = p->next) p->take_back();
  remove_pending_folders();
}

}  // namespace sg
