#include "librun/check/expect.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "libgraph/op.h"
#include "libgraph/shape_text.h"
#include "librun/check/precision.h"
#include "librun/check/value_choice.h"
#include "librun/element.h"

namespace sg {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct Tolerance {
  double rtol, atol;
  bool is_relative_to_largest;  // atol is relative to the largest expected magnitude
  bool takes_rounding;          // the file's own error may widen the tolerance
};

Tolerance tolerance_for(DType narrowest, const ExpectOptions& options) {
  const int bits = significand_bits(narrowest);
  Tolerance t{1e-4, 1e-5, false, !options.rtol && !options.atol};
  if (bits == 53) t = {1e-7, 1e-7, false, false};
  if (bits != 0 && bits <= 11) t = {1.6e-2, 1e-2, true, t.takes_rounding};
  if (options.rtol) t.rtol = *options.rtol;
  if (options.atol) t.atol = *options.atol, t.is_relative_to_largest = false;
  return t;
}

// Reads elements in row-major order, in pieces, as doubles (two per complex number) or integers.
template <class Out>
class Elements {
 public:
  Elements(const std::byte* data, DType dtype, std::span<const int64_t> shape, std::span<const int64_t> stride,
           bool conjugate)
      : data_(data), dtype_(dtype), shape_(shape), stride_(stride), conjugate_(conjugate) {}

  // Reads the next `n` elements; a piece must not extend beyond the innermost axis.
  void read(int64_t n, Out* out) {
    const int64_t step = shape_.empty() ? 1 : stride_.back();
    visit_stored(dtype_, [&]<class T>() { read_as<T>(n, step, out); });
    advance(n);
  }

 private:
  template <class T>
  void read_as(int64_t n, int64_t step, Out* out) const {
    const std::byte* at = data_ + place_ * static_cast<int64_t>(sizeof(T));
    for (int64_t i = 0; i < n; ++i, at += step * static_cast<int64_t>(sizeof(T))) {
      std::conditional_t<std::is_same_v<T, bool>, uint8_t, T> value;  // a file's bool may be any byte
      std::memcpy(&value, at, sizeof(T));
      if constexpr (std::is_same_v<T, bool>) {
        *out++ = static_cast<Out>(value != 0);
      } else if constexpr (is_complex_type<T>) {
        *out++ = static_cast<Out>(value.real());
        *out++ = static_cast<Out>(conjugate_ ? -value.imag() : value.imag());
      } else if constexpr (is_half_type<T> || is_eighth_type<T>) {
        *out++ = static_cast<Out>(static_cast<float>(value));
      } else {
        *out++ = static_cast<Out>(value);
      }
    }
  }

  void advance(int64_t n) {
    if (shape_.empty()) return;
    size_t d = shape_.size() - 1;
    place_ += n * stride_[d];
    index_[d] += n;
    while (index_[d] == shape_[d]) {
      place_ -= index_[d] * stride_[d];
      index_[d] = 0;
      if (d-- == 0) return;
      ++index_[d];
      place_ += stride_[d];
    }
  }

  const std::byte* data_;
  DType dtype_;
  std::span<const int64_t> shape_, stride_;
  bool conjugate_;
  int64_t place_ = 0;
  std::array<int64_t, kMaxRank> index_{};
};

std::vector<int64_t> index_of(int64_t element, std::span<const int64_t> shape) {
  std::vector<int64_t> out(shape.size());
  for (size_t d = shape.size(); d-- > 0; element /= shape[d]) out[d] = element % shape[d];
  return out;
}

// Reads both sides in matching pieces: `fn(first element, count, value, expected)`.
template <class Number, class Fn>
void for_pieces(const Tensor& value, const StoredTensor& expected, const Fn& fn) {
  constexpr int64_t kPiece = 1024;
  const Tensor other = make_tensor(nullptr, expected.dtype, expected.shape);
  Elements<Number> a(value.data, value.dtype, value.sizes(), value.strides(), value.conjugate);
  Elements<Number> b(static_cast<const std::byte*>(expected.data), expected.dtype, other.sizes(), other.strides(),
                     false);
  std::array<Number, 2 * kPiece> x, y;
  const int64_t row = value.rank == 0 ? 1 : value.dim(-1), total = value.elements();
  for (int64_t first = 0; first < total;) {
    const int64_t n = std::min(kPiece, row - first % row);
    a.read(n, x.data());
    b.read(n, y.data());
    fn(first, n, x.data(), y.data());
    first += n;
  }
}

struct Worst {
  int64_t element = -1;
  double value = 0, expected = 0;
};

void note(ExpectRow* row, Worst* worst, int64_t element, double value, double expected, double in_tolerances) {
  if (in_tolerances > 1) ++row->beyond;
  if (worst->element >= 0 && !(in_tolerances > row->worst)) return;
  row->worst = in_tolerances;
  *worst = {element, value, expected};
}

void tell_where(const Worst& worst, const Tensor& value, ExpectRow* row) {
  if (worst.element < 0) return;
  row->where = index_of(worst.element, value.sizes());
  row->value_there = worst.value;
  row->expected_there = worst.expected;
}

void compare_floats(const Tensor& value, const StoredTensor& expected, Tolerance tolerance, ExpectRow* row) {
  const int parts = is_complex(value.dtype) ? 2 : 1;
  double largest = 0;
  for_pieces<double>(value, expected, [&](int64_t, int64_t n, const double*, const double* y) {
    for (int64_t i = 0; i < n * parts; ++i)
      if (std::isfinite(y[i])) largest = std::max(largest, std::fabs(y[i]));
  });
  row->rtol = tolerance.rtol;
  row->atol = tolerance.is_relative_to_largest ? tolerance.atol * largest : tolerance.atol;
  if (!tolerance.takes_rounding) row->rounding = 0;
  Worst worst;
  bool needs_rounding = false;
  auto one = [&](int64_t element, double x, double y) {
    double error = std::fabs(x - y);
    if (x == y || (std::isnan(x) && std::isnan(y))) error = 0;
    if (std::isnan(error)) error = kInfinity;
    row->max_abs = std::max(row->max_abs, error);
    if (error != 0)
      row->max_rel = std::max(row->max_rel, y == 0 ? kInfinity : std::isfinite(y) ? error / std::fabs(y) : kInfinity);
    const double magnitude = std::isfinite(y) ? std::fabs(y) : 0;
    const double plain = row->atol + row->rtol * magnitude, allowed = std::max(plain, kRoundings * row->rounding);
    needs_rounding |= error > plain;
    note(row, &worst, element, x, y, error == 0 ? 0 : allowed == 0 ? kInfinity : error / allowed);
  };
  for_pieces<double>(value, expected, [&](int64_t first, int64_t n, const double* x, const double* y) {
    for (int64_t i = 0; i < n * parts; ++i) one(first + i / parts, x[i], y[i]);
  });
  row->only_rounding = needs_rounding && row->passed() && kRoundings * row->rounding >= largest;
  tell_where(worst, value, row);
}

void compare_integers(const Tensor& value, const StoredTensor& expected, ExpectRow* row) {
  Worst worst;
  for_pieces<int64_t>(value, expected, [&](int64_t first, int64_t n, const int64_t* x, const int64_t* y) {
    for (int64_t i = 0; i < n; ++i) {
      const double a = static_cast<double>(x[i]), b = static_cast<double>(y[i]);
      const double error = x[i] == y[i] ? 0 : std::max(std::fabs(a - b), 1.0);
      row->max_abs = std::max(row->max_abs, error);
      if (error != 0) row->max_rel = std::max(row->max_rel, b == 0 ? kInfinity : error / std::fabs(b));
      note(row, &worst, first + i, a, b, error == 0 ? 0 : 1 + error);
    }
  });
  tell_where(worst, value, row);
}

// -0.0 and 0.0 differ, NaNs do not; all other values differ exactly if their bits do.
void compare_bits(const Tensor& value, const StoredTensor& expected, ExpectRow* row) {
  const int parts = is_complex(value.dtype) ? 2 : 1;
  Worst worst;
  for_pieces<double>(value, expected, [&](int64_t first, int64_t n, const double* x, const double* y) {
    for (int64_t i = 0; i < n * parts; ++i) {
      const bool same = std::isnan(x[i]) ? std::isnan(y[i]) : x[i] == y[i] && std::signbit(x[i]) == std::signbit(y[i]);
      const double error = std::isnan(x[i] - y[i]) ? (same ? 0 : kInfinity) : std::fabs(x[i] - y[i]);
      row->max_abs = std::max(row->max_abs, error);
      if (error != 0) row->max_rel = std::max(row->max_rel, y[i] == 0 ? kInfinity : error / std::fabs(y[i]));
      note(row, &worst, first + i / parts, x[i], y[i], same ? 0 : 2 + error);
    }
  });
  tell_where(worst, value, row);
}

bool is_only_nan(const Tensor& value, const StoredTensor& expected) {
  const int parts = is_complex(value.dtype) ? 2 : 1;
  bool is = true;
  for_pieces<double>(value, expected, [&](int64_t, int64_t n, const double* x, const double*) {
    is = is && std::all_of(x, x + n * parts, [](double v) { return std::isnan(v); });
  });
  return is;
}

// A number as a tensor without dimensions, stored in `memory`.
Tensor tensor_of(Scalar s, std::array<std::byte, 8>* memory) {
  DType dtype = s.kind == Scalar::Kind::floating  ? DType::f64
                : s.kind == Scalar::Kind::boolean ? DType::boolean
                                                  : DType::i64;
  if (s.is_integral()) std::memcpy(memory->data(), &s.i, 8);
  else std::memcpy(memory->data(), &s.re, 8);
  return make_tensor(memory->data(), dtype, {});
}

DType recorded_dtype(const Type& type) {
  switch (type.kind) {
    case TypeKind::tensor: return type.dtype;
    case TypeKind::floating: return DType::f64;
    case TypeKind::boolean: return DType::boolean;
    default: return DType::i64;
  }
}

// The error that the file records for its own value; 0 = none.
Result<double> rounding_of(const TensorFile& file, const std::string& name) {
  const std::string key = "rounding." + name;
  const auto& all = file.metadata();
  auto found = std::ranges::lower_bound(all, key, {}, &std::pair<std::string, std::string>::first);
  if (found == all.end() || found->first != key) return 0.0;
  const char *begin = found->second.data(), *end = begin + found->second.size();
  double value = 0;
  auto [stop, error] = std::from_chars(begin, end, value);
  if (error == std::errc() && stop == end && value >= 0 && std::isfinite(value)) return value;
  return Error{ErrorKind::unreadable, "metadata '" + key + "' is not a number of 0 or more", {file.name()}, {}};
}

bool worse(const ExpectRow& a, const ExpectRow& b) {
  if (a.problem.empty() != b.problem.empty()) return !a.problem.empty();
  if (a.passed() != b.passed()) return !a.passed();
  if (a.worst != b.worst) return a.worst > b.worst;
  return a.name < b.name;
}

}  // namespace

void compare_tensor(const Tensor& value, const StoredTensor& expected, const ExpectOptions& options, ExpectRow* row) {
  if (!std::equal(value.sizes().begin(), value.sizes().end(), expected.shape.begin(), expected.shape.end())) {
    row->problem =
        "is " + type_text(value.dtype, value.sizes()) + ", expected " + type_text(expected.dtype, expected.shape);
    return;
  }
  row->count = value.elements();
  const bool floats = is_floating(value.dtype) || is_complex(value.dtype);
  if (!floats) compare_integers(value, expected, row);
  else if (options.bitwise) compare_bits(value, expected, row);
  else compare_floats(value, expected, tolerance_for(row->narrowest, options), row);
  row->only_nan =
      floats && row->passed() && row->count > 0 && std::isnan(row->expected_there) && is_only_nan(value, expected);
}

Result<Expectation> Expectation::open(const Program& program, const AliasAnalysis& alias, const std::string& file,
                                      const ExpectOptions& options) {
  SG_ASSIGN(TensorFile stored, TensorFile::open(file));
  if (stored.tensors().empty())
    return Error{ErrorKind::unreadable, "no tensor to compare the outputs with", {file}, {}};
  Expectation out(std::move(stored), program.graph, options);
  const std::vector<DType> narrowest = narrowest_floats(program, alias);
  const std::vector<NodeId> choices = choices_behind(program.graph, alias);
  std::vector<bool> is_named(program.graph.value_id_limit());
  for (const StoredTensor& expected : out.file_.tensors()) {
    std::string name = expected.name;
    if (options.counterparts && name.starts_with("out")) {
      auto there = options.counterparts->find(name);
      name = there == options.counterparts->end() ? std::string() : there->second;
    }
    auto value = find_named_value(program.graph, name);
    if (!value.ok() && options.counterparts) {
      ++out.without_counterpart_;
      continue;
    }
    if (!value.ok()) {
      value.error().where.file = file;
      value.error().where.offset = expected.offset;
      return std::move(value.error());
    }
    is_named[value->value.index] = true;
    DType recorded = recorded_dtype(program.graph.type(value->value));
    SG_ASSIGN(double rounding, rounding_of(out.file_, expected.name));
    out.items_.push_back(
        {*value, &expected, recorded, narrowest[value->value.index], rounding, choices[value->value.index]});
  }
  if (out.items_.empty())
    return Error{
        ErrorKind::cannot_apply, "the graphs have no output in common", {}, "sg-diff shows what each of them returns"};
  for (const NamedValue& value : named_values(program.graph, alias))
    if (!is_named[value.value.index]) ++out.not_compared_;
  for (NodeId n : program.graph.nodes())
    if (out.draws_random_.empty() && draws_random(program.graph, n)) out.draws_random_ = program.graph.label(n);
  return out;
}

ExpectReport Expectation::compare(const RunValues& values) const {
  ExpectReport out;
  out.not_compared = not_compared_;
  out.without_counterpart = without_counterpart_;
  out.draws_random = draws_random_;
  for (const Item& item : items_) {
    ExpectRow row;
    row.name = item.expected->name;
    row.title = item.value.title;
    row.narrowest = item.narrowest;
    row.rounding = item.rounding;
    std::array<std::byte, 8> memory{};
    const bool is_tensor = graph_->type(item.value.value).kind == TypeKind::tensor;
    const Tensor value =
        is_tensor ? values.tensor(item.value.value) : tensor_of(values.number(item.value.value), &memory);
    const DType expected = item.expected->dtype;
    const bool same_kind =
        is_floating(value.dtype) == is_floating(expected) && is_complex(value.dtype) == is_complex(expected);
    if (value.is_none()) row.problem = "has no value";
    else if (!(is_held(expected) || expected == DType::u64) || !same_kind ||
             (expected != value.dtype && (options_.bitwise || (expected != item.recorded && expected != DType::f64))))
      row.problem =
          "is " + type_text(value.dtype, value.sizes()) + ", expected " + type_text(expected, item.expected->shape);
    else compare_tensor(value, *item.expected, options_, &row);
    out.in_double |= value.dtype == DType::f64 && item.recorded != DType::f64;
    if (!row.passed()) ++out.failed;
    if (!row.passed() && row.rounding > 0 && item.choice && out.chooses.empty())
      out.chooses = graph_->label(item.choice);
    out.rows.push_back(std::move(row));
  }
  std::sort(out.rows.begin(), out.rows.end(), worse);
  return out;
}

}  // namespace sg
