#include "librun/report_bytes.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <type_traits>

namespace sg {
namespace {

template <class T>
concept Plain = std::is_arithmetic_v<T> || std::is_enum_v<T>;

// What is written of a record, in one place for both ways: `go` takes each field.
template <class Record, class Target>
concept Is = std::is_same_v<std::remove_const_t<Record>, Target>;

void each_field(Is<ExpectRow> auto& r, auto&& go) {
  go(r.name), go(r.title), go(r.problem), go(r.narrowest), go(r.rtol), go(r.atol), go(r.rounding), go(r.count);
  go(r.beyond), go(r.max_abs), go(r.max_rel), go(r.worst), go(r.where), go(r.value_there), go(r.expected_there);
  go(r.only_nan), go(r.only_rounding);
}

void each_field(Is<ExpectReport> auto& r, auto&& go) {
  go(r.rows), go(r.failed), go(r.not_compared), go(r.without_counterpart), go(r.in_double), go(r.draws_random);
  go(r.chooses), go(r.recorded);
}

void each_field(Is<RunDifference> auto& r, auto&& go) {
  go(r.name), go(r.original), go(r.op), go(r.module), go(r.place), go(r.order), go(r.what);
}

void each_field(Is<ComparisonReport> auto& r, auto&& go) {
  go(r.equal), go(r.copies_equal), go(r.chunked_equal), go(r.sums_close), go(r.without_counterpart);
  go(r.reordered_equal), go(r.own_numbers), go(r.differences);
}

void each_field(Is<StepNumbers> auto& r, auto&& go) { go(r.name), go(r.steps); }

void each_field(Is<RankReport> auto& r, auto&& go) {
  go(r.rank), go(r.losses), go(r.numbers), go(r.expected), go(r.comparison), go(r.input_bytes), go(r.arena_bytes);
  go(r.pool_bytes), go(r.host_bytes), go(r.tokens), go(r.explained);
}

void each_field(Is<SessionReport> auto& r, auto&& go) { go(r.ranks), go(r.step_seconds), go(r.first_step); }

class ReportWriter {
 public:
  template <Plain T>
  void put(T v) {
    bytes_.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  void put(const std::string& text) { put(text.size()), bytes_ += text; }
  template <class T>
  void put(const std::vector<T>& list) {
    put(list.size());
    for (const T& item : list) put(item);
  }
  template <class A, class B>
  void put(const std::pair<A, B>& pair) {
    put(pair.first), put(pair.second);
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class T>
  requires std::is_aggregate_v<T>
  void put(const T& record) {
    each_field(record, [&](const auto& field) { put(field); });
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class ReportReader {
 public:
  explicit ReportReader(std::string_view bytes) : left_(bytes) {}
  bool is_whole() const { return ok_ && left_.empty(); }

  template <Plain T>
  void get(T& v) {
    if (left_.size() < sizeof v) return fail();
    std::memcpy(&v, left_.data(), sizeof v);
    left_.remove_prefix(sizeof v);
  }
  void get(bool& v) {
    uint8_t byte = 0;
    get(byte);
    v = byte != 0;
  }
  void get(std::string& text) {
    text = left_.substr(0, length());
    left_.remove_prefix(text.size());
  }
  template <class T>
  void get(std::vector<T>& list) {
    list.resize(length());
    for (T& item : list) get(item);
  }
  template <class A, class B>
  void get(std::pair<A, B>& pair) {
    get(pair.first), get(pair.second);
  }
  template <class T>
  void get(std::optional<T>& value) {
    bool has_value = false;
    get(has_value);
    if (has_value) get(value.emplace());
  }
  template <class T>
  requires std::is_aggregate_v<T>
  void get(T& record) {
    each_field(record, [&](auto& field) { get(field); });
  }

 private:
  std::string_view left_;
  bool ok_ = true;

  void fail() { ok_ = false, left_ = {}; }
  // Every item has a byte or more.
  size_t length() {
    size_t n = 0;
    get(n);
    if (n > left_.size()) fail(), n = 0;
    return n;
  }
};

}  // namespace

std::string report_bytes(const SessionReport& report) {
  ReportWriter writer;
  writer.put(report);
  return writer.take();
}

Result<SessionReport> report_of_bytes(std::string_view bytes) {
  SessionReport report;
  ReportReader reader(bytes);
  reader.get(report);
  if (reader.is_whole()) return report;
  return Error{ErrorKind::rank_failed,
               "another process sent a report that cannot be read",
               {},
               "start the same version of sg-run on all hosts"};
}

SessionReport joined_reports(std::vector<SessionReport> parts) {
  SessionReport all;
  for (SessionReport& part : parts) {
    std::ranges::move(part.ranks, std::back_inserter(all.ranks));
    all.first_step = part.first_step;
    all.step_seconds.resize(std::max(all.step_seconds.size(), part.step_seconds.size()));
    for (size_t i = 0; i < part.step_seconds.size(); ++i)
      all.step_seconds[i] = std::max(all.step_seconds[i], part.step_seconds[i]);
  }
  std::ranges::sort(all.ranks, {}, &RankReport::rank);
  return all;
}

}  // namespace sg
