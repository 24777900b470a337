#include "librun/check/watch.h"

#include <algorithm>
#include <cmath>

#include "libgraph/base/nearest.h"
#include "libgraph/op.h"
#include "libgraph/op_pattern.h"
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

std::string index_text(const Tensor& t, int64_t index) {
  std::string out = "]";
  for (int axis = t.rank - 1; axis >= 0; --axis) {
    out = std::to_string(index % t.dim(axis)) + out;
    index /= t.dim(axis);
    if (axis > 0) out = ", " + out;
  }
  return "[" + out;
}

}  // namespace

void ObserverList::before(const Graph& graph, NodeId n) {
  for (Observer* o : list_) o->before(graph, n);
}

void ObserverList::ran(const Graph& graph, NodeId n, size_t steps) {
  for (Observer* o : list_) o->ran(graph, n, steps);
}

bool ObserverList::looks_at_results() const {
  return std::ranges::any_of(list_, [](const Observer* o) { return o->looks_at_results(); });
}

bool ObserverList::looks_at_views() const {
  return std::ranges::any_of(list_, [](const Observer* o) { return o->looks_at_views(); });
}

Status ObserverList::at_view(const Graph& graph, NodeId n, std::span<const Tensor> results) {
  for (Observer* observer : list_)
    if (observer->looks_at_views()) SG_TRY(observer->at_view(graph, n, results));
  return ok_status();
}

Status ObserverList::after(const Graph& graph, NodeId n, std::span<const Tensor> results) {
  for (Observer* o : list_) SG_TRY(o->after(graph, n, results));
  return ok_status();
}

void ObserverList::enter_body(const Graph& graph, NodeId n) {
  for (Observer* o : list_) o->enter_body(graph, n);
}

void ObserverList::leave_body() {
  for (Observer* o : list_) o->leave_body();
}

namespace {

// Ops that only move their operands' elements.
bool only_moves(const Graph& graph, NodeId n) {
  constexpr std::string_view kMovers[] = {"_to_copy",  "clone",         "lift_fresh_copy", "copy",  "cat",
                                          "stack",     "index",         "index_select",    "where", "gather",
                                          "repeat",    "expand_copy",   "slice_scatter",   "to",    "contiguous",
                                          "view_copy", "select_scatter"};
  const OpInfo* op = graph.op_info(n);
  if (op == nullptr) return false;
  if (op->has(kView) || op->has(kMayAlias)) return true;
  std::string_view name = op->name;
  name.remove_prefix(std::min(name.size(), name.find('.') + 1));
  return std::ranges::find(kMovers, name.substr(0, name.find('.'))) != std::end(kMovers);
}

// Whether an infinity in this value was intended by whoever provided the inputs. Weights are results of training.
bool is_given(const Graph& graph, ValueId v) {
  if (!graph.value(v).def.is_none()) return false;
  const auto& inputs = graph.inputs();
  const auto it = std::ranges::find(inputs, v, &Input::value);
  return it != inputs.end() && it->kind != InputKind::parameter && it->kind != InputKind::optimizer_state &&
         it->kind != InputKind::tangent;
}

}  // namespace

bool Watch::may_be_infinite(const Graph& graph, NodeId n) const {
  const Frame& frame = frames_.back();
  if (frame.from_outside) return true;
  bool found = false;
  const bool moves = frames_.size() == 1 && only_moves(graph, n);
  for (const Arg& arg : graph.node(n).args) {
    arg.walk([&](const Arg& a) {
      found |= a.is(ArgKind::floating) && std::isinf(a.as_float());
      found |= a.is(ArgKind::value) &&
               (frame.values.contains(a.as_value().index) || (moves && is_given(graph, a.as_value())));
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
    if (t.is_none() || !(is_floating(t.dtype) || is_complex(t.dtype))) continue;
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

Dump::Dump(std::vector<std::string> patterns) : patterns_(std::move(patterns)) {
  for (const std::string& text : patterns_)
    if (auto pattern = ModulePattern::parse(text); pattern.ok()) modules_.push_back(std::move(*pattern));
}

bool Dump::names_module_of(const Graph& graph, NodeId n) const {
  const StrId module = graph.node(n).module;
  return !module.is_none() &&
         std::ranges::any_of(modules_, [&](const ModulePattern& p) { return p.matches(graph.pool().strings[module]); });
}

Status Dump::after(const Graph& graph, NodeId n, std::span<const Tensor> results) {
  if (!has_settled_results(graph, n)) return ok_status();
  const bool in_module = names_module_of(graph, n);
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor& t = results[i];
    std::string name = name_of_result(graph, n, static_cast<uint32_t>(i));
    const bool is_named = std::ranges::any_of(
        patterns_, [&](const std::string& p) { return fits_stars(p, name) || p == graph.label(n); });
    if (t.is_none() || !(is_named || in_module)) continue;
    auto old = std::ranges::find(kept_, name, &TensorToWrite::name);
    size_t at = static_cast<size_t>(old - kept_.begin());
    if (old == kept_.end()) kept_.emplace_back(), memory_.emplace_back();
    memory_[at] = std::make_unique<std::byte[]>(static_cast<size_t>(t.bytes()));
    Tensor copy = make_tensor(memory_[at].get(), t.dtype, t.sizes());
    ThreadTeam alone(1);
    cpu::copy(alone, copy, t);
    kept_[at] = {name, t.dtype, {t.sizes().begin(), t.sizes().end()}, {}, memory_[at].get()};
  }
  return ok_status();
}

Result<OutputFile> Dump::stage(const std::string& path) const { return stage_tensors(path, kept_, {{}, true}); }

namespace {

bool matches_module(const Graph& graph, std::string_view text) {
  auto pattern = ModulePattern::parse(text);
  if (!pattern.ok()) return false;
  for (NodeId n : graph.nodes())
    if (const StrId module = graph.node(n).module; !module.is_none() && pattern->matches(graph.pool().strings[module]))
      return true;
  return false;
}

bool matches_some(const Graph& graph, std::string_view pattern) {
  for (NodeId n : graph.nodes()) {
    if (pattern == graph.label(n)) return true;
    for (uint32_t i = 0; i < graph.node(n).result_count; ++i)
      if (fits_stars(pattern, graph.name(graph.node(n).result(i)))) return true;
  }
  return false;
}

}  // namespace

Status check_dump_patterns(const Job& job, std::span<const std::string> patterns) {
  for (const std::string& pattern : patterns) {
    const std::string in_body = pattern.substr(pattern.rfind('/') + 1);  // npos + 1 = 0
    const bool is_found = std::ranges::any_of(job.programs, [&](const auto& program) {
      return matches_some(program->graph, pattern) || matches_module(program->graph, pattern) ||
             std::ranges::any_of(program->nested, [&](const auto& nested) {
               return matches_some(nested->graph, in_body) || matches_module(nested->graph, pattern);
             });
    });
    if (is_found) continue;
    Nearest nearest(pattern);
    for (const auto& program : job.programs)
      for (NodeId n : program->graph.nodes()) nearest.offer(program->graph.label(n));
    return Error{ErrorKind::cannot_apply,
                 "--nodes " + pattern + " matches no result and no module of the graph",
                 {},
                 nearest.hint()};
  }
  return ok_status();
}

}  // namespace sg
