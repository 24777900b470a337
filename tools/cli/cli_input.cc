// Reads bytes: files, streams, rank patterns.
#include "tools/cli/cli_input.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <optional>

#include "libgraph/base/large_pages.h"
#include "libgraph/binary/seal.h"

namespace sg::cli {
namespace {

constexpr size_t kMaxInputBytes = size_t{8} << 30;  // the text of the largest binary (2 GiB) fits
constexpr size_t kFirstRead = size_t{1} << 16;      // enough to detect the format
constexpr std::string_view kPlaceholder = "{r}";

Error unreadable(const std::string& name, std::string message, std::string hint = {}) {
  return {ErrorKind::unreadable, std::move(message), {name}, std::move(hint)};
}

Error too_large(const std::string& name, size_t most) {
  return unreadable(name, "the input is larger than " + std::to_string(most >> 30) + " GiB, the most that is read");
}

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ > STDERR_FILENO) ::close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

// Reads until `data` holds `limit` bytes or the stream ends. True at the end of the stream.
Result<bool> read_up_to(int fd, const std::string& name, size_t limit, std::string* data) {
  size_t used = data->size();
  size_t step = kFirstRead;
  while (used < limit) {
    size_t size = used + step;
    if (size > data->capacity() && used < data->capacity() && used > 0)
      size = data->capacity();  // the room for a known length
    if (data->size() < size) data->resize(std::min(limit, size));
    ssize_t n = ::read(fd, data->data() + used, data->size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return unreadable(name, std::string("cannot read: ") + std::strerror(errno));
    used += static_cast<size_t>(n);
    if (n == 0) {
      data->resize(used);
      return true;
    }
    step = std::max(kFirstRead, used / 2);  // grow by half: linear time for streams of unknown length
  }
  data->resize(used);
  return false;
}

// What the two ends of a binary file tell: a large one that was cut is not read for that.
Status check_binary(int fd, const Bytes& head, uint64_t bytes) {
  char trailer[kTrailerBytes];
  const uint64_t at = bytes - kTrailerBytes;
  if (::pread(fd, trailer, sizeof trailer, static_cast<off_t>(at)) != static_cast<ssize_t>(sizeof trailer))
    return ok_status();  // it has become shorter; whoever reads it says so
  return check_ends(head.data, {trailer, sizeof trailer}, bytes, head.name);
}

Result<int> open_input(const std::string& operand) {
  if (operand == "-") return STDIN_FILENO;
  int fd = ::open(operand.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd >= 0) return fd;
  if (errno == ENOENT) return unreadable(operand, "no such file");
  return unreadable(operand, std::string("cannot open: ") + std::strerror(errno));
}

// Skips blanks and comments, as the text form allows before its first word.
std::string_view first_word(std::string_view s) {
  for (;;) {
    size_t i = s.find_first_not_of(" \t\r\n");
    if (i == std::string_view::npos) return {};
    s.remove_prefix(i);
    if (s[0] != '#') break;
    size_t end = s.find('\n');
    if (end == std::string_view::npos) return {};
    s.remove_prefix(end);
  }
  return s.substr(0, s.find_first_of(" \t\r\n"));
}

// The rank that a folder entry has in `part`, one component of a pattern: 3 for "rank3" in "rank{r}".
std::optional<uint32_t> rank_in(std::string_view part, std::string_view entry) {
  size_t at = part.find(kPlaceholder);
  size_t digits_end = entry.find_first_not_of("0123456789", std::min(at, entry.size()));
  if (at >= entry.size() || digits_end == at) return std::nullopt;
  std::string_view digits = entry.substr(at, digits_end == std::string_view::npos ? digits_end : digits_end - at);
  uint32_t rank = 0;
  auto [end, problem] = std::from_chars(digits.data(), digits.data() + digits.size(), rank);
  if (problem != std::errc() || file_of_rank(part, rank) != entry) return std::nullopt;
  return rank;
}

// The ranks whose files exist, sorted.
Result<std::vector<uint32_t>> ranks_present(const std::string& pattern) {
  size_t at = pattern.find(kPlaceholder);
  size_t begin = pattern.rfind('/', at) == std::string::npos ? 0 : pattern.rfind('/', at) + 1;
  std::string folder = begin == 0 ? "." : pattern.substr(0, begin);
  std::string part = pattern.substr(begin, pattern.find('/', at) - begin);
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return unreadable(pattern, "cannot open the folder " + folder + ": " + std::strerror(errno));
  std::vector<uint32_t> ranks;
  while (const dirent* entry = ::readdir(dir)) {
    std::optional<uint32_t> rank = rank_in(part, entry->d_name);
    struct stat info;
    if (rank && ::stat(file_of_rank(pattern, *rank).c_str(), &info) == 0) ranks.push_back(*rank);
  }
  ::closedir(dir);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

}  // namespace

Form form_of(std::string_view bytes) {
  if (bytes.empty()) return Form::empty;
  if (looks_binary(bytes)) return Form::binary;
  if (bytes.starts_with("\x1f\x8b")) return Form::gzip;
  if (bytes.starts_with("PK\x03\x04")) return Form::zip;
  std::string_view word = first_word(bytes);
  if (word == "sg") return Form::text;
  return !word.empty() && word[0] == '{' ? Form::json : Form::other;
}

Result<Bytes> read_bytes(const std::string& operand, const std::function<bool(std::string_view)>& wants) {
  Bytes out{operand == "-" ? "<stdin>" : operand, {}, Form::empty};
  SG_ASSIGN(int fd, open_input(operand));
  Descriptor closer(fd);
  struct stat info;
  if (::fstat(fd, &info) != 0) return unreadable(out.name, std::string("cannot read: ") + std::strerror(errno));
  if (S_ISDIR(info.st_mode))
    return unreadable(out.name, "this is a folder, not a file",
                      "name the file in it, or a rank pattern such as 'rank{r}.sg'");
  SG_ASSIGN(bool ended, read_up_to(fd, out.name, kFirstRead, &out.data));
  if (out.data.starts_with("\xEF\xBB\xBF")) out.data.erase(0, 3);  // what editors mark UTF-8 by
  out.form = form_of(out.data);
  if (out.form == Form::empty)
    return unreadable(out.name, "the input is empty",
                      operand == "-" ? "the program before it in the pipe has probably failed; see its message" : "");
  if (ended || (out.form == Form::other && (!wants || !wants(out.data)))) return out;
  if ((out.form == Form::text || out.form == Form::json) && out.data.find('\0') != out.data.npos)
    return out;  // its reader stops there
  const uint64_t bytes = S_ISREG(info.st_mode) && info.st_size > 0 ? static_cast<uint64_t>(info.st_size) : 0;
  if (out.form == Form::binary && bytes > kFirstRead && operand != "-") SG_TRY(check_binary(fd, out, bytes));
  const size_t most = out.form == Form::binary ? kMaxBinaryBytes : kMaxInputBytes;
  if (bytes > most) return too_large(out.name, most);
  if (bytes > 0) out.data.reserve(static_cast<size_t>(bytes) + kFirstRead);
  advise_large_pages(out.data.data(), out.data.capacity());
  SG_ASSIGN(ended, read_up_to(fd, out.name, most + 1, &out.data));
  if (!ended) return too_large(out.name, most);
  return out;
}

bool is_folder(const std::string& operand) {
  struct stat info;
  return operand != "-" && ::stat(operand.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

bool is_plain_file(const std::string& path) {
  struct stat info;
  return ::stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool is_link(const std::string& path) {
  struct stat info;
  return ::lstat(path.c_str(), &info) == 0 && S_ISLNK(info.st_mode);
}

Result<std::vector<std::string>> entries_of(const std::string& folder) {
  DIR* dir = ::opendir(folder.c_str());
  if (dir == nullptr) return unreadable(folder, std::string("cannot open the folder: ") + std::strerror(errno));
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir)) {
    std::string_view name = entry->d_name;
    if (name != "." && name != "..") names.emplace_back(name);
  }
  ::closedir(dir);
  std::sort(names.begin(), names.end());
  return names;
}

bool is_rank_pattern(std::string_view operand) { return operand.find(kPlaceholder) != std::string_view::npos; }

std::string file_of_rank(std::string_view pattern, uint32_t rank) {
  std::string out(pattern);
  std::string number = std::to_string(rank);
  for (size_t at = 0; (at = out.find(kPlaceholder, at)) != std::string::npos; at += number.size())
    out.replace(at, kPlaceholder.size(), number);
  return out;
}

Result<std::vector<std::string>> files_of(const std::string& operand, Diagnostics* left_out) {
  if (!is_rank_pattern(operand)) return std::vector<std::string>{operand};
  SG_ASSIGN(std::vector<uint32_t> ranks, ranks_present(operand));
  if (ranks.empty()) return unreadable(operand, "no file matches this rank pattern");
  std::vector<std::string> files;
  uint32_t next = 0;
  for (uint32_t rank : ranks) {
    if (rank != next) {
      Error gap =
          unreadable(file_of_rank(operand, next),
                     "rank " + std::to_string(next) + " is missing, rank " + std::to_string(ranks.back()) + " is there",
                     "a rank pattern needs every rank from 0 on");
      if (left_out == nullptr) return gap;
      left_out->warning("left-out",
                        "no file of rank " + std::to_string(next) +
                            (rank - next > 1 ? " to " + std::to_string(rank - 1) : "") + "; left out",
                        gap.where);
    }
    next = rank + 1;
    files.push_back(file_of_rank(operand, rank));
  }
  return files;
}

void leave_out(const Error& why, Diagnostics* said) {
  said->warning("left-out", why.message + "; the file is left out", why.where, why.hint);
}

}  // namespace sg::cli
