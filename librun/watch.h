// Observers of a run: --watch, --dump-nodes. Both see every result as its node made it.
#pragma once

#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "libgraph/module_pattern.h"
#include "libgraph/safetensors.h"
#include "librun/graph_run.h"

namespace sg {

// Several observers as one, in order.
class ObserverList : public Observer {
 public:
  void add(Observer* observer) { list_.push_back(observer); }
  bool empty() const { return list_.empty(); }
  void before(const Graph& graph, NodeId n) override;
  void ran(const Graph& graph, NodeId n, size_t steps) override;
  bool looks_at_results() const override;
  Status after(const Graph& graph, NodeId n, std::span<const Tensor> results) override;
  void enter_body(const Graph& graph, NodeId n) override;
  void leave_body() override;

 private:
  std::vector<Observer*> list_;
};

// Ends the run (negative) at the first node that gives a NaN or an infinity. An infinity that was put there on purpose
// is none, nor is what is made of it: a literal of the graph such as the -inf of a mask, and what an input that is no
// parameter brings along (a constant, a mask in a buffer), as far as nodes only copy and move it. What a collective
// gives is looked at when it has been waited for; memory that an op leaves undefined (aten.empty) is not looked at.
class Watch : public Observer {
 public:
  Watch(bool nan, bool inf) : nan_(nan), inf_(inf) {}
  Status after(const Graph& graph, NodeId n, std::span<const Tensor> results) override;
  void enter_body(const Graph& graph, NodeId n) override;
  void leave_body() override;

 private:
  // The values of the graph, or of the body of a call, that hold an infinity on purpose.
  struct Frame {
    std::unordered_set<uint32_t> values;
    std::unordered_set<uint32_t> calls;  // whose bodies made one
    NodeId call;                         // whose body this is
    bool from_outside = false;           // an argument of the call holds one: everything in it may
  };
  bool may_be_infinite(const Graph& graph, NodeId n) const;

  bool nan_, inf_;
  std::vector<Frame> frames_{1};
};

Result<Watch> parse_watch(std::string_view words);  // "nan", "inf", "nan,inf"

// Keeps copies of some results for a file: those whose names match one of the patterns (* = any text), and those of the
// modules that one of them names (module_pattern.h). A module's nodes include the backward ones that belong to it.
class Dump : public NamingObserver {
 public:
  explicit Dump(std::vector<std::string> patterns);
  Status after(const Graph& graph, NodeId n, std::span<const Tensor> results) override;
  Result<OutputFile> stage(const std::string& path) const;

 private:
  bool names_module_of(const Graph& graph, NodeId n) const;

  std::vector<std::string> patterns_;
  std::vector<ModulePattern> modules_;  // those of them that can be patterns of modules
  std::vector<TensorToWrite> kept_;     // the last value of each name
  std::vector<std::unique_ptr<std::byte[]>> memory_;
};

// A pattern that fits no result of the job, bodies of calls included, and no module is an error (usage).
Status check_dump_patterns(const Job& job, std::span<const std::string> patterns);

// Whether `name` fits `pattern`, in which * stands for any text.
bool matches_name(std::string_view pattern, std::string_view name);

}  // namespace sg
