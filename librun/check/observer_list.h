// Several observers of one run.
#pragma once

#include <span>
#include <vector>

#include "librun/execute/graph_run.h"

namespace sg {

// Combines several observers, called in order.
class ObserverList : public Observer {
 public:
  void add(Observer* observer) { list_.push_back(observer); }
  bool empty() const { return list_.empty(); }
  void before(const Graph& graph, NodeId n) override;
  void ran(const Graph& graph, NodeId n, size_t steps) override;
  bool looks_at_results() const override;
  bool looks_at_views() const override;
  Status at_view(const Graph& graph, NodeId n, std::span<const Tensor> results) override;
  Status after(const Graph& graph, NodeId n, std::span<const Tensor> results) override;
  void enter_body(const Graph& graph, NodeId n) override;
  void leave_body() override;

 private:
  std::vector<Observer*> list_;
};

}  // namespace sg
