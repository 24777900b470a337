#include "librun/check/watch.h"

#include <algorithm>
#include <cmath>

#include "libgraph/op.h"
#include "librun/cpu/fill.h"
#include "librun/element.h"

namespace sg {
namespace {

struct Found {
  int64_t nans = 0, infs = 0, first = -1;  // logical index of the first one
};

template <class Is, class T>
bool holds(const Is& is, T value) {
  if constexpr (is_complex_type<T>) return is(value.real()) || is(value.imag());
  else return is(value);
}

template <class T>
void look_at(T value, int64_t index, bool nan, bool inf, Found* found) {
  const bool is_nan = nan && holds([](auto x) { return std::isnan(x); }, value);
  const bool is_inf = inf && holds([](auto x) { return std::isinf(x); }, value);
  found->nans += is_nan;
  found->infs += is_inf;
  if ((is_nan || is_inf) && found->first < 0) found->first = index;
}

Found look(const Tensor& t, bool nan, bool inf) {
  Found found;
  cpu::RowWalker walk({&t});
  visit_stored(t.dtype, [&]<class T>() {
    walk.for_rows(0, walk.rows(), [&](const int64_t* offset, int64_t row) {
      const T* data = t.as<T>() + offset[0];
      for (int64_t i = 0; i < walk.length(); ++i) {
        int64_t index = row * walk.length() + i;
        if constexpr (is_complex_type<T>) {
          look_at(data[i * walk.step(0)], index, nan, inf, &found);
        } else if constexpr (!std::is_integral_v<T>) {
          look_at(static_cast<Compute<T>>(data[i * walk.step(0)]), index, nan, inf, &found);
        }
      }
    });
  });
  return found;
}

bool is_watched(const Tensor& t) { return !t.is_none() && (is_floating(t.dtype) || is_complex(t.dtype)); }

std::string index_text(const Tensor& t, int64_t index) {
  std::string out = "]";
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    out = std::to_string(index % t.dim(axis)) + out;
    index /= t.dim(axis);
    if (axis > 0) out = ", " + out;
  }
  return "[" + out;
}

// Weights are results of training, and so is what an optimizer keeps.
bool is_given_by_user(InputKind kind) {
  return kind != InputKind::parameter && kind != InputKind::optimizer_state && kind != InputKind::tangent;
}

}  // namespace

void Watch::begin_step(const Graph& graph, std::span<const Tensor> inputs) {
  frames_.assign(1, {});
  if (!inf_) return;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& input = graph.inputs()[i];
    if (is_given_by_user(input.kind) && is_watched(inputs[i]) && look(inputs[i], false, true).infs > 0)
      frames_[0].values.insert(input.value.index);
  }
}

// Views need no step of their own, so a mark is looked for where their memory was computed.
bool Watch::holds_intended(const Graph& graph, ValueId v) const {
  while (!frames_.back().values.contains(v.index)) {
    const NodeId def = graph.value(v).def;
    const OpInfo* op = def.is_none() ? nullptr : graph.op_info(def);
    if (op == nullptr || !(op->has(kView) || op->has(kMayAlias))) return false;
    const auto& args = graph.node(def).args;
    if (args.empty() || !args[0].is(ArgKind::value)) return false;
    v = args[0].as_value();
  }
  return true;
}

bool Watch::may_be_infinite(const Graph& graph, NodeId n) const {
  if (frames_.back().from_outside) return true;
  bool found = false;
  for (const Arg& arg : graph.node(n).args) {
    arg.walk([&](const Arg& a) {
      found |= a.is(ArgKind::floating) && std::isinf(a.as_float());
      found |= a.is(ArgKind::value) && holds_intended(graph, a.as_value());
    });
  }
  return found;
}

void Watch::enter_body(const Graph& graph, NodeId n) {
  Frame frame;
  frame.call = n;
  frame.from_outside = may_be_infinite(graph, n);
  frames_.push_back(std::move(frame));
}

void Watch::leave_body() {
  const Frame body = std::move(frames_.back());
  frames_.pop_back();
  // Results of the call may hold what its body made on purpose.
  if (body.from_outside || !body.values.empty()) frames_.back().calls.insert(body.call.index);
}

Status Watch::after(const Graph& graph, NodeId n, std::span<const Tensor> results) {
  if (!has_settled_results(graph, n)) return ok_status();
  Frame& frame = frames_.back();
  const bool excused = inf_ && (may_be_infinite(graph, n) || frame.calls.contains(n.index));
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor& t = results[i];
    if (!is_watched(t)) continue;
    Found found = look(t, nan_, inf_);
    const ValueId value = graph.node(n).result(static_cast<uint32_t>(i));
    if (excused && found.infs > 0) frame.values.insert(value.index);
    if (excused && found.nans > 0) found = look(t, true, false);
    if (found.first < 0 || (excused && found.nans == 0)) continue;
    std::string what = found.nans > 0 ? std::to_string(found.nans) + " NaN" : "";
    if (found.infs > 0) what += (what.empty() ? "" : " and ") + std::to_string(found.infs) + " infinite";
    return Error{ErrorKind::negative,
                 "%" + std::string(graph.name(value)) + " has " + what + " of " + std::to_string(t.elements()) +
                     " elements, the first at " + index_text(t, found.first),
                 {},
                 "--dump-nodes writes the values of its arguments"};
  }
  return ok_status();
}

Result<Watch> parse_watch(std::string_view words) {
  bool nan = false, inf = false;
  if (words.empty()) return option_error("watch", " is empty", "--watch nan,inf");
  while (!words.empty()) {
    size_t comma = std::min(words.find(','), words.size());
    std::string_view word = words.substr(0, comma);
    if (word == "nan") nan = true;
    else if (word == "inf") inf = true;
    else
      return Error{ErrorKind::usage,
                   "--watch looks for nan and inf, not for \"" + std::string(word) + "\"",
                   {},
                   "--watch nan,inf"};
    words.remove_prefix(std::min(comma + 1, words.size()));
  }
  return Watch(nan, inf);
}

}  // namespace sg
