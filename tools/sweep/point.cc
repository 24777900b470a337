#include "tools/sweep/point.h"

#include <fcntl.h>
#include <simdjson.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "libgraph/base/json.h"
#include "tools/recipe/files.h"

namespace sg::sweep {
namespace {

std::string text_of(const simdjson::dom::element& object, const char* key) {
  std::string_view text;
  return object[key].get(text) == simdjson::SUCCESS ? std::string(text) : std::string();
}

std::optional<Point> point_of(const simdjson::dom::element& line) {
  Point out;
  int64_t version = 0;
  simdjson::dom::object values;
  if (text_of(line, "schema") != "sg-sweep-point" || line["version"].get(version) != simdjson::SUCCESS || version != 1)
    return {};
  if (line["values"].get(values) != simdjson::SUCCESS) return {};
  for (const auto& [name, value] : values) {
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS) return {};
    out.values.emplace_back(name, text);
  }
  out.key = text_of(line, "key");
  out.known = true;
  out.measured = text_of(line, "state") == "measured";
  if (!out.measured) {
    int64_t code = 70;
    if (line["exit"].get(code) != simdjson::SUCCESS) return {};
    out.failure = Error{
        error_kind_of(static_cast<uint64_t>(code)), text_of(line, "error"), {text_of(line, "place"), 0, 0, {}, {}}, {}};
    return out;
  }
  if (line["step_seconds"].get(out.step_seconds) != simdjson::SUCCESS) return {};
  if (line["peak_bytes"].get(out.peak_bytes) != simdjson::SUCCESS) return {};
  const bool is_possible = out.step_seconds >= 0 && out.peak_bytes >= 0 && out.peak_bytes < 0x1p63;
  return is_possible ? std::optional(std::move(out)) : std::nullopt;  // what is not is measured again
}

Error cannot_write(const std::string& path, int problem) {
  return {ErrorKind::missing, std::string("cannot write: ") + std::strerror(problem), {path, 0, 0, {}, {}}, {}};
}

// What the disk has no room for is told by the write of what is left, as an interrupted one is not.
Status write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return cannot_write(path, errno);
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return ok_status();
}

}  // namespace

bool Point::is_final() const {
  if (measured) return true;
  const ErrorKind kind = failure ? failure->kind : ErrorKind::internal;
  return kind == ErrorKind::cannot_apply || kind == ErrorKind::usage || kind == ErrorKind::negative;
}

std::string Point::name() const {
  std::string out;
  for (const auto& [axis, value] : values) out += (out.empty() ? "" : ",") + axis + "=" + value;
  return out.empty() ? "as it is" : out;
}

std::string point_json(const Point& point) {
  JsonWriter json;
  json.begin_object().member("schema", "sg-sweep-point").member("version", 1).key("values").begin_object();
  for (const auto& [axis, value] : point.values) json.member(axis, value);
  json.end_object().member("state", point.measured ? "measured" : point.failure ? "failed" : "planned");
  if (point.measured) {
    json.member("step_seconds", point.step_seconds).key("peak_bytes").count(point.peak_bytes);
  } else if (point.failure) {
    json.member("exit", static_cast<int>(point.failure->kind)).member("error", point.failure->message);
    json.member("place", print_location(point.failure->where));
  }
  return json.member("key", point.key).end_object().take();
}

Result<std::map<std::string, Point>> read_points(const std::string& file) {
  std::map<std::string, Point> out;
  struct stat is {};
  if (::stat(file.c_str(), &is) != 0) {
    if (errno == ENOENT) return out;
    return Error{ErrorKind::unreadable, std::string("cannot read: ") + std::strerror(errno), {file, 0, 0, {}, {}}, {}};
  }
  if (!S_ISREG(is.st_mode)) return out;  // a device
  SG_ASSIGN(std::string text, recipe::read_regular_file(file));
  constexpr std::string_view kFirst = R"({"schema":"sg-sweep-point")";  // of each line; a writer may have been killed
  if (!text.starts_with(kFirst.substr(0, text.size())))
    return Error{ErrorKind::usage,
                 file + " does not hold points of sg-sweep, and is left alone",
                 {},
                 "give --points a new file"};
  simdjson::dom::parser parser;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = text.find('\n', begin);
    if (end == text.npos) break;  // a writer was killed here
    simdjson::dom::element line;
    const bool is_json = parser.parse(text.data() + begin, end - begin, true).get(line) == simdjson::SUCCESS;
    std::optional<Point> point = is_json ? point_of(line) : std::nullopt;
    if (point) out[point->key] = std::move(*point);
    begin = end + 1;
  }
  return out;
}

// A last line without a newline was cut short: starts a new line for the next point.
Result<PointFile> PointFile::open(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return cannot_write(path, errno);
  PointFile out(path, fd);
  char last = '\n';
  const off_t size = ::lseek(fd, 0, SEEK_END);  // of a device: none
  if (size > 0 && ::pread(fd, &last, 1, size - 1) < 0) return cannot_write(path, errno);
  if (last != '\n') SG_TRY(write_all(fd, "\n", path));
  return out;
}

PointFile::~PointFile() {
  if (fd_ >= 0) ::close(fd_);
}

Status PointFile::add(const Point& point) {
  const std::string line = point_json(point) + "\n";
  SG_TRY(write_all(fd_, line, path_));
  if (::fsync(fd_) != 0 && errno != EINVAL && errno != EROFS) return cannot_write(path_, errno);
  return ok_status();
}

}  // namespace sg::sweep
