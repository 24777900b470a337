#include "libgraph/plan/allocation.h"

#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/names.h"
#include "libgraph/plan/caching_allocator.h"

namespace sg {
namespace {

// Bytes allocated while each node runs, and after it.
struct Course {
  std::vector<int64_t> during, behind;
};

Course exact_course(const Liveness& live) {
  Course out{live.live_bytes, std::vector<int64_t>(live.schedule.size())};
  for (const LiveStorage& s : live.storages) {
    if (s.is_host) continue;
    out.behind[s.first_position] += s.bytes;
    if (!s.is_output) out.behind[s.last_position] -= s.bytes;
  }
  for (size_t i = 1; i < out.behind.size(); ++i) out.behind[i] += out.behind[i - 1];
  return out;
}

// Runs one graph on the allocator, node by node. The results of a body become those of the call.
class Blocks {
 public:
  Blocks(const Liveness& outermost, CachingAllocator* allocator) : outermost_(outermost), allocator_(*allocator) {}

  Course run() {
    Course out;
    run_graph(outermost_, {}, &out);
    return out;
  }

 private:
  static constexpr CachingAllocator::Block kNone = 0xFFFFFFFFu;
  using Held = std::vector<CachingAllocator::Block>;  // indexed like Liveness::storages

  bool needs_block(const LiveStorage& s) const { return !s.is_host && s.bytes_known && s.bytes > 0; }

  // Runs a graph; returns the blocks of `results`, storages that outlive it.
  Held run_graph(const Liveness& live, const std::vector<StorageId>& results, Course* course) {
    std::vector<std::vector<uint32_t>> ends(live.schedule.size());
    for (uint32_t i = 0; i < live.storages.size(); ++i)
      if (std::ranges::count(results, live.storages[i].storage) == 0) ends[live.storages[i].last_position].push_back(i);
    Held held(live.storages.size(), kNone);
    size_t next = 0, call = 0;
    for (uint32_t at = 0; at < live.schedule.size(); ++at) {
      if (call < live.calls.size() && live.calls[call].position == at) run_body(live, live.calls[call++], &held);
      for (; next < live.storages.size() && live.storages[next].first_position == at; ++next)
        if (needs_block(live.storages[next]) && held[next] == kNone)
          held[next] = allocator_.allocate(live.storages[next].bytes);
      if (course != nullptr) course->during.push_back(std::max(allocator_.allocated_bytes(), body_peak_));
      body_peak_ = course != nullptr ? 0 : std::max(body_peak_, allocator_.allocated_bytes());
      // Outputs of the step are kept.
      for (uint32_t i : ends[at])
        if (held[i] != kNone && !(course != nullptr && live.storages[i].is_output))
          allocator_.free(held[i]), held[i] = kNone;
      if (course != nullptr) course->behind.push_back(allocator_.allocated_bytes());
    }
    Held out;
    for (StorageId s : results) out.push_back(held[live.index_of[s.index]]);
    return out;
  }

  void run_body(const Liveness& live, const CallSite& call, Held* held) {
    std::vector<StorageId> results;
    for (const CallSite::Result& r : call.results) results.push_back(r.in_body);  // distinct storages of the body
    const Held blocks = run_graph(*outermost_.bodies[call.body.index], results, nullptr);
    for (size_t i = 0; i < blocks.size(); ++i) (*held)[live.index_of[call.results[i].storage.index]] = blocks[i];
  }

  const Liveness& outermost_;
  CachingAllocator& allocator_;
  int64_t body_peak_ = 0;  // peak of the bodies since the last node of the outermost graph
};

std::vector<PhaseSpan> timeline_of(const Graph& graph, const Liveness& live, const Course& course) {
  std::vector<PhaseSpan> out;
  for (size_t i = 0; i < live.schedule.size(); ++i) {
    const NodeId n = live.schedule[i];
    const std::string_view phase = name_of(graph.node(n).phase);
    if (out.empty() || out.back().phase != phase) {
      out.push_back(
          {std::string(phase), std::string(graph.label(n)), {}, {}, 0, i == 0 ? 0 : course.behind[i - 1], 0, 0});
      out.back().peak_bytes = -1;
    }
    PhaseSpan& span = out.back();
    span.last = graph.label(n);
    ++span.nodes;
    if (course.during[i] > span.peak_bytes) span.peak_bytes = course.during[i], span.peak_node = graph.label(n);
    span.end_bytes = course.behind[i];
  }
  return out;
}

// Keeps sums well below 63 bits: a graph of a valid job may contain any size.
bool is_countable(const Liveness& live) {
  double sum = 0;
  for (const LiveStorage& s : live.storages) sum += static_cast<double>(s.bytes);
  for (const auto& body : live.bodies)
    if (body != nullptr)
      for (const LiveStorage& s : body->storages) sum += static_cast<double>(s.bytes);
  return sum < 0x1p60;
}

std::string_view allocator_name(AllocatorKind kind) { return kind == AllocatorKind::exact ? "exact" : "cuda-caching"; }

std::string bytes_text(int64_t bytes) { return human_bytes(static_cast<double>(bytes)); }

}  // namespace

std::optional<AllocatorKind> allocator_named(std::string_view name) {
  if (name == "exact") return AllocatorKind::exact;
  if (name == "cuda-caching") return AllocatorKind::cuda_caching;
  return std::nullopt;
}

AllocationReport allocate_step(const Program& program, const Liveness& liveness, AllocatorKind kind) {
  AllocationReport out;
  out.kind = kind;
  if (!is_countable(liveness)) {
    out.allocated_bytes = out.reserved_bytes = INT64_MAX;
    return out;
  }
  CachingAllocator allocator;
  const bool is_exact = kind == AllocatorKind::exact;
  const Course course = is_exact ? exact_course(liveness) : Blocks(liveness, &allocator).run();
  out.allocated_bytes = is_exact ? liveness.lower_bound_bytes : allocator.most_allocated_bytes();
  out.reserved_bytes = is_exact ? out.allocated_bytes : allocator.reserved_bytes();
  out.segments = allocator.segment_count();
  out.timeline = timeline_of(program.graph, liveness, course);
  return out;
}

std::string print_allocation(const AllocationReport& report) {
  std::string out = "  allocator " + std::string(allocator_name(report.kind)) + ": " +
                    bytes_text(report.allocated_bytes) + " allocated at once";
  if (report.kind == AllocatorKind::cuda_caching)
    out += ", " + bytes_text(report.reserved_bytes) + " reserved in " + plural(report.segments, "segment");
  out += "\n";
  for (const PhaseSpan& s : report.timeline)
    out += "    " + s.phase + " %" + s.first + " .. %" + s.last + " (" + plural(s.nodes, "node") +
           "): " + bytes_text(s.begin_bytes) + ", at most " + bytes_text(s.peak_bytes) + " at %" + s.peak_node +
           ", then " + bytes_text(s.end_bytes) + "\n";
  return out;
}

void write_allocation(const AllocationReport& report, JsonWriter* json) {
  json->begin_object().member("name", allocator_name(report.kind)).member("allocated_bytes", report.allocated_bytes);
  json->member("reserved_bytes", report.reserved_bytes)
      .member("segments", report.segments)
      .key("timeline")
      .begin_array();
  for (const PhaseSpan& s : report.timeline) {
    json->begin_object()
        .member("phase", s.phase)
        .member("first", s.first)
        .member("last", s.last)
        .member("nodes", s.nodes);
    json->member("begin_bytes", s.begin_bytes).member("peak_bytes", s.peak_bytes).member("peak_node", s.peak_node);
    json->member("end_bytes", s.end_bytes).end_object();
  }
  json->end_array().end_object();
}

}  // namespace sg
