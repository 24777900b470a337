#include <algorithm>
#include <cmath>
#include <complex>
#include <cstdio>
#include <cstring>
#include <memory>

#include "libgraph/composite/composite.h"
#include "libgraph/infer/check_types.h"
#include "libgraph/text/text.h"
#include "libgraph/verify/verify.h"
#include "librun/comm/comm_local.h"
#include "librun/element.h"
#include "librun/execute/unsupported.h"
#include "librun/rank_run.h"
#include "tests/conformance/vector.h"

namespace sg::test {
namespace {

// The data of a vector, taken piece by piece.
class Pieces {
 public:
  explicit Pieces(std::string_view data) : rest_(data) {}
  const char* take(int64_t bytes) {  // null if the vector is too short
    auto n = static_cast<size_t>(bytes);
    if (n > rest_.size()) return nullptr;
    const char* at = rest_.data();
    rest_.remove_prefix(n);
    return at;
  }

 private:
  std::string_view rest_;
};

std::string sizes_text(const Pool& pool, const std::vector<Expr>& list) {
  std::string out = "[";
  for (Expr e : list) out += (out.size() > 1 ? ", " : "") + pool.exprs.print(e);
  return out + "]";
}

std::string type_text(const Pool& pool, const Type& t) {
  if (t.kind != TypeKind::tensor) return "no tensor";
  return std::string(dtype_name(t.dtype)) + sizes_text(pool, t.shape) + " stride " + sizes_text(pool, t.stride) + " +" +
         pool.exprs.print(t.offset);
}

// The steps of a recurrence accumulate rounding errors, which depend on the order of the sums and so on the processor:
// PyTorch's own error, measured on one processor, may be small by luck.
double room_for(const Vector& v, double bound) {
  constexpr std::string_view kRecurrences[] = {"aten.rnn_", "aten.lstm.", "aten.gru."};
  auto begins = [&](std::string_view name) { return v.op.starts_with(name); };
  return v.dtype == "f32" && std::ranges::any_of(kRecurrences, begins) ? 4 * bound : bound;
}

// One run of one vector.
class VectorRun {
 public:
  VectorRun(const Vector& v, std::string_view text) : vector_(v), text_(text), pieces_(v.data) {}
  Outcome run(const Manner& manner);

 private:
  Outcome check_types();
  void lay_in_column_order();
  Outcome execute(const Manner& manner);
  Status read_inputs();
  Status give_inputs() { return run_->bind_inputs(inputs_, std::vector<Scalar>(inputs_.size())); }
  Status run_two_steps();
  Outcome check_results();
  Outcome check(const Check& check);
  Outcome compare_exact(const Check& check, const Tensor& got, const char* expected);
  Outcome compare_close(const Check& check, const Tensor& got, const char* expected, const char* delta);
  bool same_choice(int axis, const Tensor& got, const char* expected);
  const Graph& graph() const { return job_->programs[0]->graph; }
  Tensor input_tensor(const Type& type) const;

  const Vector& vector_;
  std::string_view text_;
  Pieces pieces_;
  std::optional<Job> job_;
  std::vector<std::unique_ptr<Communicator>> comms_;
  std::optional<RankRun> run_;
  std::vector<std::vector<std::byte>> memory_;  // of the inputs
  std::vector<Tensor> inputs_;
  std::vector<std::byte> first_input_;  // before the run, contiguous
};

Outcome VectorRun::run(const Manner& manner) {
  Diagnostics findings;
  auto job = parse_text(text_, "vector", &findings);
  if (!job.ok()) return {Fault::refused, "text: " + findings.as_error(ErrorKind::unreadable).message};
  job_.emplace(std::move(job).value());
  ImportTally tally;
  expand_composites(job_->programs[0].get(), false, &tally);
  if (Outcome types = check_types(); types.fault != Fault::none) return types;
  if (manner.column_order) lay_in_column_order();
  VerifyOptions options;
  options.types = false;  // checked more closely above
  verify(*job_, options, &findings);
  if (findings.has_errors()) return {Fault::refused, findings.as_error(ErrorKind::unreadable).message};
  return execute(manner);
}

Outcome VectorRun::check_types() {
  for (const TypeDisagreement& d : sg::check_types(*job_->programs[0])) {
    if (!d.reason.empty()) return {Fault::type, "rule: " + d.reason};
    return {Fault::type, "result " + std::to_string(d.result) + " inferred " + type_text(*job_->pool, d.inferred) +
                             ", PyTorch " + type_text(*job_->pool, d.recorded)};
  }
  return {};
}

// Results that another node takes stay as they are: a view of them may not be one then.
void VectorRun::lay_in_column_order() {
  Graph& graph = job_->programs[0]->graph;
  ExprPool& exprs = job_->pool->exprs;
  for (NodeId n : graph.nodes()) {
    if (!layout_is_free(graph, n)) continue;
    for (uint32_t i = 0; i < graph.node(n).result_count; ++i) {
      const ValueId result = graph.node(n).result(i);
      Type type = graph.type(result);
      if (type.kind != TypeKind::tensor || !graph.users(result).empty()) continue;
      Expr step = exprs.constant(1);
      for (size_t d = 0; d < type.shape.size(); ++d) {
        type.stride[d] = step;
        step = exprs.mul(step, exprs.max(exprs.constant(1), type.shape[d]));
      }
      graph.set_type(result, job_->pool->types.intern(std::move(type)));
    }
  }
}

Tensor VectorRun::input_tensor(const Type& type) const {
  Tensor t;
  t.dtype = type.dtype;
  t.rank = static_cast<int>(type.shape.size());
  for (size_t i = 0; i < type.shape.size(); ++i) {
    t.shape[i] = job_->pool->exprs.constant_value(type.shape[i]).value_or(0);
    t.stride[i] = job_->pool->exprs.constant_value(type.stride[i]).value_or(0);
  }
  return t;
}

Status VectorRun::read_inputs() {
  for (const Input& input : graph().inputs()) {
    const Type& type = graph().type(input.value);
    Tensor t = input_tensor(type);
    int64_t bytes = extent_bytes(t),
            before = job_->pool->exprs.constant_value(type.offset).value_or(0) * dtype_bytes(t.dtype);
    memory_.emplace_back(static_cast<size_t>(before + bytes) + 1);
    t.data = memory_.back().data() + before;
    const char* values = pieces_.take(bytes);
    if (!values) return Error{ErrorKind::unreadable, "the vector's data ends too early", {}, {}};
    std::memcpy(t.data, values, static_cast<size_t>(bytes));
    inputs_.push_back(t);
  }
  return ok_status();
}

// Checks the second step, run over spoiled results: a kernel must leave its call as it found it.
Status VectorRun::run_two_steps() {
  const std::vector<std::vector<std::byte>> given = memory_;
  SG_TRY(run_->run_step(0));
  for (const Output& output : graph().outputs())
    if (graph().type(output.value).kind == TypeKind::tensor)
      if (Tensor t = run_->tensor(output.value); t.elements() > 0)
        std::memset(t.data, 0xaa, static_cast<size_t>(extent_bytes(t)));
  for (size_t i = 0; i < given.size(); ++i) std::ranges::copy(given[i], memory_[i].begin());
  SG_TRY(give_inputs());  // a device has its own copies
  return run_->run_step(0);
}

Outcome VectorRun::execute(const Manner& manner) {
  comms_ = make_local_communicators(*job_);
  RankOptions options;
  options.threads = manner.threads;
  options.use_arena = manner.planned;
  options.backends = manner.backends;
  run_.emplace(*job_, 0, options, comms_[0].get());
  std::vector<Unsupported> unsupported;
  Status done = run_->prepare(&unsupported);
  if (!unsupported.empty() && manner.backends) return {Fault::no_kernel, unsupported[0].op};
  if (!unsupported.empty()) return {Fault::refused, unsupported[0].op + ": " + unsupported[0].reason};
  if (done.ok()) done = run_->reserve();
  if (done.ok()) done = read_inputs();
  if (done.ok()) done = give_inputs();
  if (done.ok()) done = run_two_steps();
  const bool lacks =
      !done.ok() && manner.backends && done.error().message.find("the CUDA backend") != std::string::npos;
  if (lacks)
    return {Fault::no_kernel, done.error().message};  // the op has a kernel, but not one for these types or options
  if (!done.ok()) return {Fault::refused, done.error().message};
  return check_results();
}

Outcome VectorRun::check_results() {
  for (const Check& c : vector_.checks)
    if (Outcome outcome = check(c); outcome.fault != Fault::none) {
      outcome.message = (c.of_input ? "input " : "result ") + std::to_string(c.index) + ": " + outcome.message;
      return outcome;
    }
  return {};
}

int64_t element_offset(const Tensor& t, int64_t element) {
  int64_t offset = 0;
  for (int i = t.rank - 1; i >= 0; --i) {
    offset += element % t.dim(i) * t.step(i);
    element /= t.dim(i);
  }
  return offset;
}

// Element `i` as numbers: real and, of complex types, imaginary part.
std::pair<double, double> number_at(DType dtype, const void* base, int64_t i) {
  return visit_stored(dtype, [&]<class T>() -> std::pair<double, double> {
    T value;
    std::memcpy(&value, static_cast<const char*>(base) + i * static_cast<int64_t>(sizeof(T)), sizeof(T));
    if constexpr (is_complex_type<T>) return {value.real(), value.imag()};
    else if constexpr (is_half_type<T> || is_eighth_type<T>) return {static_cast<float>(value), 0};
    else return {static_cast<double>(value), 0};
  });
}

std::string place(const Tensor& t, int64_t element) {
  std::string out;
  for (int i = t.rank - 1; i >= 0; --i) {
    out = std::to_string(element % t.dim(i)) + (out.empty() ? "" : ", ") + out;
    element /= t.dim(i);
  }
  return "[" + out + "]";
}

std::string number_text(std::pair<double, double> v) {
  char text[64];
  std::snprintf(text, sizeof text, v.second != 0 ? "%.9g%+.9gi" : "%.9g", v.first, v.second);
  return text;
}

Outcome VectorRun::check(const Check& c) {
  if (!c.of_input && c.index >= graph().outputs().size()) return {Fault::refused, "the vector names no output"};
  if (c.of_input && c.index >= inputs_.size()) return {Fault::refused, "the vector names no input"};
  if (c.rule == Check::Rule::any) return {};
  if (c.rule == Check::Rule::number) {
    double got = run_->number(graph().outputs()[c.index].value).to_double();
    bool equal = got == c.low || (std::isnan(got) && std::isnan(c.low));
    return equal ? Outcome{} : Outcome{Fault::value, number_text({got, 0}) + ", PyTorch " + number_text({c.low, 0})};
  }
  Tensor t = run_->tensor(c.of_input ? graph().inputs()[c.index].value : graph().outputs()[c.index].value);
  if (c.rule == Check::Rule::range || c.rule == Check::Rule::finite) {
    for (int64_t i = 0; i < t.elements(); ++i) {
      auto [re, im] = number_at(t.dtype, t.data, element_offset(t, i));
      bool right = c.rule == Check::Rule::finite ? std::isfinite(re) && std::isfinite(im) : re >= c.low && re <= c.high;
      if (!right) return {Fault::value, number_text({re, im}) + " at " + place(t, i) + " is no such random number"};
    }
    return {};
  }
  const char* expected = pieces_.take(t.bytes());
  int64_t parts = t.elements() * (t.dtype == DType::c64 || t.dtype == DType::c128 ? 2 : 1);
  const char* delta = c.has_delta ? pieces_.take(parts * 2) : nullptr;
  if (!expected || (c.has_delta && !delta)) return {Fault::value, "other sizes than PyTorch's"};
  return c.rule == Check::Rule::close ? compare_close(c, t, expected, delta) : compare_exact(c, t, expected);
}

Outcome VectorRun::compare_exact(const Check& c, const Tensor& got, const char* expected) {
  if (c.rule == Check::Rule::positions && same_choice(c.axis, got, expected)) return {};
  for (int64_t i = 0; i < got.elements(); ++i) {
    auto mine = number_at(got.dtype, got.data, element_offset(got, i)), theirs = number_at(got.dtype, expected, i);
    int64_t size = dtype_bytes(got.dtype);
    bool bits =
        std::memcmp(got.data + element_offset(got, i) * size, expected + i * size, static_cast<size_t>(size)) == 0;
    bool both_nan =
        (std::isnan(mine.first) || std::isnan(mine.second)) && (std::isnan(theirs.first) || std::isnan(theirs.second));
    if ((got.conjugate ? mine.first == theirs.first && mine.second == -theirs.second : bits) || both_nan) continue;
    return {Fault::value, number_text(mine) + " at " + place(got, i) + ", PyTorch " + number_text(theirs)};
  }
  return {};
}

// Whether both lists of positions pick equal elements of the first input, each at most once.
bool VectorRun::same_choice(int axis, const Tensor& got, const char* expected) {
  const Tensor& from = inputs_[0];
  if (axis >= std::max(from.rank, 1)) return false;
  bool kept = got.rank == from.rank;
  for (int64_t i = 0; i < got.elements(); ++i) {
    int64_t picks[2] = {static_cast<int64_t>(number_at(got.dtype, got.data, element_offset(got, i)).first),
                        static_cast<int64_t>(number_at(got.dtype, expected, i).first)};
    double values[2];
    for (int side = 0; side < 2; ++side) {
      int64_t rest = i, offset = 0;
      for (int d = from.rank - 1, g = got.rank - 1; d >= 0; --d) {
        int64_t at = 0;
        if (d != axis || kept) at = rest % got.dim(g), rest /= got.dim(g--);
        if (d == axis) at = picks[side];
        if (at < 0 || at >= from.dim(d)) return false;
        offset += at * from.step(d);
      }
      values[side] = number_at(from.dtype, from.data, offset).first;
    }
    if (values[0] != values[1] && !(std::isnan(values[0]) && std::isnan(values[1]))) return false;
  }
  return true;
}

// For each element, the sign or phase that turns its line to fit the expected one; 1 if nothing is turned.
std::vector<std::complex<double>> turns(const Check& c, const Tensor& got, const char* expected) {
  const auto count = static_cast<size_t>(got.elements());
  std::vector<std::complex<double>> out(count, 1);
  if (!c.is_turned || c.axis >= got.rank) return out;
  int64_t step = 1;
  for (int d = got.rank - 1; d > c.axis; --d) step *= got.dim(d);
  const int64_t length = got.dim(c.axis);
  auto numbers = [&](int64_t i) {
    auto mine = number_at(got.dtype, got.data, element_offset(got, i)), theirs = number_at(got.dtype, expected, i);
    return std::pair(std::complex<double>(mine.first, mine.second), std::complex<double>(theirs.first, theirs.second));
  };
  for (int64_t i = 0; i < got.elements(); ++i) {
    const int64_t first = i - i / step % length * step;
    std::complex<double> sum = 0;
    for (int64_t k = 0; k < length; ++k) {
      auto [mine, theirs] = numbers(first + k * step);
      sum += std::conj(mine) * theirs;
    }
    if (std::abs(sum) > 0) out[static_cast<size_t>(i)] = sum / std::abs(sum);
  }
  return out;
}

Outcome VectorRun::compare_close(const Check& c, const Tensor& got, const char* expected, const char* delta) {
  bool complex = got.dtype == DType::c64 || got.dtype == DType::c128;
  const double room = room_for(vector_, c.bound);
  auto close = [&](double mine, double theirs, int64_t part) {
    if (mine == theirs || (std::isnan(mine) && std::isnan(theirs))) return true;
    double off = delta ? number_at(DType::bf16, delta, part).first : 0;
    return std::abs(mine - (theirs + off)) <= room;
  };
  const std::vector<std::complex<double>> turn = turns(c, got, expected);
  for (int64_t i = 0; i < got.elements(); ++i) {
    auto mine = number_at(got.dtype, got.data, element_offset(got, i)), theirs = number_at(got.dtype, expected, i);
    if (got.conjugate) mine.second = -mine.second;
    if (c.is_turned) {
      const std::complex<double> turned = std::complex<double>(mine.first, mine.second) * turn[static_cast<size_t>(i)];
      mine = {turned.real(), turned.imag()};
    }
    bool fits = close(mine.first, theirs.first, complex ? 2 * i : i) &&
                (!complex || close(mine.second, theirs.second, 2 * i + 1));
    if (fits) continue;
    char bound[32];
    std::snprintf(bound, sizeof bound, "%.3g", room);
    return {Fault::value,
            number_text(mine) + " at " + place(got, i) + ", PyTorch " + number_text(theirs) + ", within " + bound};
  }
  return {};
}

}  // namespace

Outcome run_vector(const Vector& vector, const Manner& manner) {
  Outcome outcome = VectorRun(vector, vector.text).run(manner);
  if (outcome.fault != Fault::type || vector.eager_text.empty()) return outcome;
  Outcome eager = VectorRun(vector, vector.eager_text).run(manner);
  return eager.fault == Fault::type ? outcome : eager;
}

}  // namespace sg::test
