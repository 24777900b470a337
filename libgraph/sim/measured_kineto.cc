// PyTorch profiler traces: which kernels ran for which op, and how much communication ran with no other kernel.
#include <algorithm>
#include <set>
#include <unordered_map>

#include "libgraph/sim/measured_parts.h"

namespace sg {
namespace {

constexpr std::string_view kCopies = "copy";

// "aten::mm" -> a row of the op table with that name and any overload.
const OpInfo* op_named(std::string_view name) {
  static const auto kByBase = [] {
    std::unordered_map<std::string, const OpInfo*> out;
    for (const OpInfo& op : all_ops()) out.try_emplace(std::string(op.name.substr(0, op.name.rfind('.'))), &op);
    return out;
  }();
  size_t colons = name.find("::");
  if (colons == std::string_view::npos) return nullptr;
  std::string base = std::string(name.substr(0, colons)) + "." + std::string(name.substr(colons + 2));
  auto it = kByBase.find(base);
  return it == kByBase.end() ? nullptr : it->second;
}

// Inner ops of composite ones, which appear only in profiles: matched by a part of the name, for backward ones by its
// end.
struct Inner {
  std::string_view part, kind;
};
constexpr Inner kInner[] = {{"_attention_backward", "attention_backward"},
                            {"_attention_forward", "attention"},
                            {"convolution", "convolution"},
                            {"conv_depthwise", "convolution"}};

void add_op(MeasuredStep* out, std::string_view name, double us) {
  const OpInfo* op = op_named(name);
  for (const Inner& inner : kInner) {
    if (op || !name.starts_with("aten::") || name.find(inner.part) == std::string_view::npos) continue;
    MeasuredStep::Part& part = out->compute[std::string(inner.kind)];
    part.us += us, ++part.count;
    return;
  }
  add_compute(out, op, name, us);
}

// "ncclDevKernel_AllGather_RING_LL(...)" -> "all_gather"; empty for other kernels.
std::string_view collective_of(std::string_view kernel) {
  if (!kernel.starts_with("nccl")) return {};
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {"AllGather", "all_gather"}, {"ReduceScatter", "reduce_scatter"}, {"AllReduce", "all_reduce"},
      {"Broadcast", "broadcast"},  {"SendRecv", "all_to_all"},          {"AllToAll", "all_to_all"}};
  for (const auto& [word, kind] : kWords)
    if (kernel.find(word) != std::string_view::npos) return kind;
  return "other collectives";
}

struct Span {
  double begin, end;
};

// Sorts spans and merges overlapping ones.
std::vector<Span> without_overlaps(std::vector<Span> spans) {
  std::ranges::sort(spans, {}, &Span::begin);
  std::vector<Span> out;
  for (const Span& s : spans) {
    if (!out.empty() && s.begin <= out.back().end) out.back().end = std::max(out.back().end, s.end);
    else out.push_back(s);
  }
  return out;
}

// The length of the parts of `s` outside all `busy` spans.
double outside(const Span& s, const std::vector<Span>& busy) {
  double left = s.end - s.begin;
  for (auto b = std::ranges::lower_bound(busy, s.begin, {}, &Span::end); b != busy.end() && b->begin < s.end; ++b)
    left -= std::max(0.0, std::min(s.end, b->end) - std::max(s.begin, b->begin));
  return std::max(0.0, left);
}

class Kineto {
 public:
  explicit Kineto(const std::vector<TraceEvent>& events) : events_(events) { out_.source = "PyTorch"; }

  MeasuredStep measure() {
    find_steps();
    bool has_kernels = false;
    for (const TraceEvent& e : events_) has_kernels |= is_device(e) && e.begin_us >= begin_us_;
    if (has_kernels) add_kernels();
    else add_cpu_ops();
    divide(&out_, static_cast<double>(out_.steps * out_.ranks));
    return std::move(out_);
  }

 private:
  static bool is_device(const TraceEvent& e) {
    return e.category == "kernel" || e.category == "gpu_memcpy" || e.category == "gpu_memset";
  }

  // Finds steps by ProfilerStep#N; without such marks the whole trace is one step.
  void find_steps() {
    std::set<std::string_view> names;
    double first = 0, last = 0;
    for (const TraceEvent& e : events_) {
      bool marks = e.category == "user_annotation" && e.name.starts_with("ProfilerStep#");
      if (!marks) continue;
      first = names.empty() ? e.begin_us : std::min(first, e.begin_us);
      last = std::max(last, e.end_us());
      names.insert(e.name);
    }
    if (names.empty()) {
      bool any = false;
      for (const TraceEvent& e : events_) {
        if (!is_device(e) && e.category != "cpu_op") continue;
        first = any ? std::min(first, e.begin_us) : e.begin_us;
        last = std::max(last, e.end_us());
        any = true;
      }
    }
    out_.steps = std::max<size_t>(names.size(), 1);
    out_.begin_us = begin_us_ = first;
    out_.step_us = (last - first) / static_cast<double>(out_.steps);
  }

  void add_kernels() {
    std::unordered_map<int64_t, std::string_view> op_of, op_of_launch;  // by external id; by correlation
    for (const TraceEvent& e : events_)
      if (auto id = e.number("External id"); id && e.category == "cpu_op") op_of.emplace(*id, e.name);
    for (const TraceEvent& e : events_) {
      auto id = e.number("External id"), correlation = e.number("correlation");
      if (!id || !correlation || is_device(e)) continue;
      if (auto op = op_of.find(*id); op != op_of.end()) op_of_launch.emplace(*correlation, op->second);
    }
    std::map<int64_t, std::vector<Span>> busy;  // by device
    std::set<int64_t> devices;
    for (const TraceEvent& e : events_) {
      if (!is_device(e) || e.begin_us < begin_us_) continue;
      devices.insert(e.process);
      if (e.category == "kernel" && collective_of(e.name).empty()) busy[e.process].push_back({e.begin_us, e.end_us()});
    }
    for (auto& [device, spans] : busy) spans = without_overlaps(std::move(spans));
    for (const TraceEvent& e : events_)
      if (is_device(e) && e.begin_us >= begin_us_) add_kernel(e, op_of, op_of_launch, busy[e.process]);
    out_.ranks = std::max<size_t>(devices.size(), 1);
  }

  void add_kernel(const TraceEvent& e, const std::unordered_map<int64_t, std::string_view>& op_of,
                  const std::unordered_map<int64_t, std::string_view>& op_of_launch, const std::vector<Span>& busy) {
    bool to_or_from_host = e.category == "gpu_memcpy" && e.name.find("DtoD") == std::string_view::npos;
    std::string_view moved = to_or_from_host          ? kCopies
                             : e.category == "kernel" ? collective_of(e.name)
                                                      : std::string_view();
    if (!moved.empty()) {
      MeasuredStep::Part &way = out_.under_way[std::string(moved)], &exposed = out_.exposed[std::string(moved)];
      way.us += e.length_us, ++way.count;
      exposed.us += outside({e.begin_us, e.end_us()}, busy), ++exposed.count;
      return;
    }
    auto find = [](const auto& map, std::optional<int64_t> id) {
      auto it = id ? map.find(*id) : map.end();
      return it == map.end() ? std::string_view() : it->second;
    };
    std::string_view op = find(op_of, e.number("External id"));
    if (op.empty()) op = find(op_of_launch, e.number("correlation"));
    if (op.empty()) out_.unknown_us[std::string(e.name.substr(0, e.name.find('(')))] += e.length_us;
    else add_op(&out_, op, e.length_us);
  }

  void add_cpu_ops() {
    std::vector<TraceEvent> ops;
    for (const TraceEvent& e : events_)
      if (e.category == "cpu_op" && e.begin_us >= begin_us_) ops.push_back(e);
    std::vector<double> own = own_times(&ops);
    for (size_t i = 0; i < ops.size(); ++i) add_op(&out_, ops[i].name, own[i]);
  }

  const std::vector<TraceEvent>& events_;
  MeasuredStep out_;
  double begin_us_ = 0;
};

}  // namespace

MeasuredStep measure_kineto(const std::vector<TraceEvent>& events) { return Kineto(events).measure(); }

}  // namespace sg
