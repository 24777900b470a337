// --dump-nodes: results of a run, as a file.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "libgraph/data/safetensors.h"
#include "libgraph/modules/module_pattern.h"
#include "librun/execute/graph_run.h"

namespace sg {

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
  std::unordered_map<std::string, size_t> places_;  // of the names, in both
};

// A pattern that matches no result of the job, including bodies of calls, and no module is an error (usage).
Status check_dump_patterns(const Job& job, std::span<const std::string> patterns);

}  // namespace sg
