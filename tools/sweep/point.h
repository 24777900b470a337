// A point of a sweep: values for the axes, and what came of them; and the file that keeps points.
//
// File      JSON lines, one a point, added and brought to the disk when the point is known: a sweep that is killed has
//           lost what was under way. A last line without an end, or one that is no point, is left alone and counts as
//           not there.
// Key       what a point depends on: inputs by content, stages and options, the program, how it is scored. A point in
//           the file stands for one that is asked for when the keys are equal, whatever it is called.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libgraph/base/result.h"

namespace sg::sweep {

struct Point {
  std::vector<std::pair<std::string, std::string>> values;  // "chunks", "4"; in the order of the axes
  std::string key;
  bool measured = false;  // else `failure` says why not
  bool known = false;     // it was in the file
  double step_seconds = 0, peak_bytes = 0;
  std::optional<Error> failure;

  // Measured, or failed as it always will: the pass cannot do what was asked (exit 4), or not with this value (2), or
  // a check does not hold (1). Memory, devices and our bugs may be better another time.
  bool is_final() const;
  std::string name() const;  // "chunks=4,policy=full"; "as it is" without axes
  bool on_front = false;     // nothing is both faster and smaller (front.h)
};

std::string point_json(const Point& point);  // one line, without its end

// Those of the file, by key: the last one counts. A file that is not there has none.
Result<std::map<std::string, Point>> read_points(const std::string& file);

class PointFile {
 public:
  static Result<PointFile> open(const std::string& path);  // to add to
  PointFile(PointFile&& other) noexcept : path_(std::move(other.path_)), fd_(other.fd_) { other.fd_ = -1; }
  PointFile& operator=(PointFile&&) = delete;
  ~PointFile();
  Status add(const Point& point);

 private:
  PointFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::string path_;
  int fd_;
};

}  // namespace sg::sweep
