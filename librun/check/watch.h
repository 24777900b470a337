// Observers of a run: --watch, --dump-nodes. Both receive every result as its node computes it.
#pragma once

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "libgraph/data/safetensors.h"
#include "libgraph/modules/module_pattern.h"
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

// Ends the run (negative) at the first node that produces a NaN or an infinity. Intended infinities do not count:
// literals of the graph such as the -inf of a mask, and those in inputs other than parameters (a constant, a mask in a
// buffer), as long as nodes only copy and move them. The result of a collective is checked after its wait; memory that
// an op leaves undefined (aten.empty) is not checked.
class Watch : public Observer {
 public:
  Watch(bool nan, bool inf) : nan_(nan), inf_(inf) {}
  Status after(const Graph& graph, NodeId n, std::span<const Tensor> results) override;
  void enter_body(const Graph& graph, NodeId n) override;
  void leave_body() override;

 private:
  // The values of the graph, or of a called body, that hold an intended infinity.
  struct Frame {
    std::unordered_set<uint32_t> values;
    std::unordered_set<uint32_t> calls;  // calls whose bodies produced one
    NodeId call;                         // the call that runs this body
    bool from_outside = false;           // an argument of the call holds one: all values in it may
  };
  bool may_be_infinite(const Graph& graph, NodeId n) const;

  bool nan_, inf_;
  std::vector<Frame> frames_{1};
};

Result<Watch> parse_watch(std::string_view words);  // "nan", "inf", "nan,inf"

// Keeps copies of some results for a file: those whose names match one of the patterns (* = any text), and those of
// modules that match one (module_pattern.h). A module's nodes include its backward nodes.
class Dump : public NamingObserver {
 public:
  explicit Dump(std::vector<std::string> patterns);
  Status after(const Graph& graph, NodeId n, std::span<const Tensor> results) override;
  bool looks_at_views() const override { return true; }
  Status at_view(const Graph& graph, NodeId n, std::span<const Tensor> results) override {
    return after(graph, n, results);
  }
  Result<OutputFile> stage(const std::string& path) const;

 private:
  bool names_module_of(const Graph& graph, NodeId n) const;

  std::vector<std::string> patterns_;
  std::vector<ModulePattern> modules_;  // the patterns that can be module patterns
  std::vector<TensorToWrite> kept_;     // the last value of each name
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

// A pattern that matches no result of the job, including bodies of calls, and no module is an error (usage).
Status check_dump_patterns(const Job& job, std::span<const std::string> patterns);

}  // namespace sg
