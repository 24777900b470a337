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

const AliasAnalysis& Watch::alias_of(const Graph& graph) {
  return alias_.try_emplace(&graph, program_, graph).first->second;
}

void Watch::mark(const Graph& graph, ValueId v) {
  const AliasAnalysis& alias = alias_of(graph);
  if (const StorageId s = alias.storage_of(v)) frames_.back().classes.insert(alias.storage(s).alias_class);
}

void Watch::begin_step(const Graph& graph, std::span<const Tensor> inputs) {
  frames_.assign(1, {});
  if (!for_.inf) return;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Input& input = graph.inputs()[i];
    if (is_given_by_user(input.kind) && is_watched(inputs[i]) && look(inputs[i], false, true).infs > 0)
      mark(graph, input.value);
  }
}

bool Watch::may_be_infinite(const Graph& graph, NodeId n) {
  const Frame& frame = frames_.back();
  if (frame.from_outside) return true;
  const AliasAnalysis& alias = alias_of(graph);
  bool found = false;
  for (const Arg& arg : graph.node(n).args) {
    arg.walk([&](const Arg& a) {
      found |= a.is(ArgKind::floating) && std::isinf(a.as_float());
      if (!a.is(ArgKind::value)) return;
      const StorageId s = alias.storage_of(a.as_value());
      found |= s && frame.classes.contains(alias.storage(s).alias_class);
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
  if (body.from_outside || !body.classes.empty()) frames_.back().calls.insert(body.call.index);
}

Status Watch::after(const Graph& graph, NodeId n, std::span<const Tensor> results) {
  const bool excused = for_.inf && (may_be_infinite(graph, n) || frames_.back().calls.contains(n.index));
  const bool is_settled = has_settled_results(graph, n);
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor& t = results[i];
    const ValueId value = graph.node(n).result(static_cast<uint32_t>(i));
    if (!is_settled && excused) mark(graph, value);  // its wait shows what it received
    if (!is_settled || !is_watched(t)) continue;
    Found found = look(t, for_.nan, for_.inf);
    if (excused && found.infs > 0) mark(graph, value);
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

Result<Watch::For> parse_watch(std::string_view words) {
  Watch::For out;
  if (words.empty()) return option_error("watch", " is empty", "--watch nan,inf");
  while (!words.empty()) {
    size_t comma = std::min(words.find(','), words.size());
    std::string_view word = words.substr(0, comma);
    if (word == "nan") out.nan = true;
    else if (word == "inf") out.inf = true;
    else
      return Error{ErrorKind::usage,
                   "--watch looks for nan and inf, not for \"" + std::string(word) + "\"",
                   {},
                   "--watch nan,inf"};
    words.remove_prefix(std::min(comma + 1, words.size()));
  }
  return out;
}

}  // namespace sg
