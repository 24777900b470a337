#include "librun/check/observer_list.h"

#include <algorithm>

namespace sg {

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

}  // namespace sg
