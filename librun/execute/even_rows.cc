#include "librun/execute/even_rows.h"

#include <algorithm>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace sg {
namespace {

constexpr int64_t kEven = 64;        // two-byte elements: 128 bytes, which memory transfers at once
constexpr int64_t kLeastRow = 4096;  // padding shorter rows would cost relatively more

constexpr std::string_view kMakers[] = {"aten.mm.default", "sg.cross_entropy_backward"};
constexpr std::string_view kReaders[] = {"aten.mm.default", "sg.cross_entropy", "sg.cross_entropy_backward"};

bool is_one_of(std::string_view op, std::span<const std::string_view> names) {
  return std::ranges::find(names, op) != names.end();
}

// A new stride along one axis.
struct NewStep {
  ValueId value;
  size_t axis;
  int64_t step;
};

class UnevenRows {
 public:
  explicit UnevenRows(const Graph& graph) : graph_(graph) {}

  std::vector<NewStep> find() const {
    std::vector<NewStep> out;
    for (NodeId n : graph_.nodes())
      if (is_one_of(graph_.op_name(n), kMakers)) look_at(graph_.node(n).result(0), &out);
    return out;
  }

 private:
  std::optional<int64_t> number(Expr e) const { return graph_.pool().exprs.constant_value(e); }

  // The length of contiguous rows that begin at unaligned places; none for other tensors.
  std::optional<int64_t> uneven_length(const Type& type) const {
    if (type.kind != TypeKind::tensor || type.shape.size() != 2 || dtype_bytes(type.dtype) != 2) return std::nullopt;
    const auto length = number(type.shape[1]);
    const bool follows = type.stride.size() == 2 && type.stride[0] == type.shape[1] && number(type.stride[1]) == 1;
    return follows && length && *length >= kLeastRow && *length % kEven != 0 ? length : std::nullopt;
  }

  bool is_transpose(NodeId n) const { return graph_.op_name(n) == "aten.t.default"; }

  bool is_seen_by_products(ValueId v) const {
    bool fine = true;
    graph_.for_each_use(v, [&](const Use& use) {
      fine = fine && !use.user.is_none() && graph_.op_name(use.user) == "aten.mm.default";
    });
    return fine;
  }

  void look_at(ValueId v, std::vector<NewStep>* out) const {
    const auto length = uneven_length(graph_.type(v));
    if (!length) return;
    const int64_t step = (*length + kEven - 1) / kEven * kEven;
    std::vector<NewStep> steps = {{v, 0, step}};
    bool fine = true;
    graph_.for_each_use(v, [&](const Use& use) {
      if (!use.user.is_none() && is_transpose(use.user)) {
        const ValueId turned = graph_.node(use.user).result(0);
        fine = fine && is_seen_by_products(turned);
        steps.push_back({turned, 1, step});
      } else {
        fine = fine && !use.user.is_none() && is_one_of(graph_.op_name(use.user), kReaders);
      }
    });
    if (fine) out->insert(out->end(), steps.begin(), steps.end());
  }

  const Graph& graph_;
};

void set_steps(Graph* graph, const std::vector<NewStep>& steps) {
  Pool& pool = graph->pool();
  for (const NewStep& s : steps) {
    Type type = graph->type(s.value);
    type.stride[s.axis] = pool.exprs.constant(s.step);
    graph->set_type(s.value, pool.types.intern(std::move(type)));
  }
}

// All graphs of a job, in a fixed order.
template <class J>
auto graphs_of(J& job) {
  std::vector<decltype(&job.programs[0]->graph)> out;
  for (auto& program : job.programs) {
    out.push_back(&program->graph);
    for (auto& nested : program->nested) out.push_back(&nested->graph);
  }
  return out;
}

}  // namespace

std::unique_ptr<Job> with_even_rows(const Job& job) {
  std::vector<std::vector<NewStep>> steps;
  for (const Graph* graph : graphs_of(job)) steps.push_back(UnevenRows(*graph).find());
  if (std::ranges::all_of(steps, [](const auto& of_graph) { return of_graph.empty(); })) return nullptr;
  auto out = std::make_unique<Job>(job);
  const auto graphs = graphs_of(*out);
  for (size_t i = 0; i < graphs.size(); ++i) set_steps(graphs[i], steps[i]);
  return out;
}

}  // namespace sg
