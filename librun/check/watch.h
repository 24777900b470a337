// --watch: the first node of a run that produces a NaN or an infinity.
#pragma once

#include <map>
#include <span>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "libgraph/facts/alias.h"
#include "librun/execute/graph_run.h"

namespace sg {

// Ends the run (negative) at that node. Intended infinities do not count, nor what is computed from them: literals of
// the graph such as the -inf of a mask, and those in inputs other than weights (a mask that the step is given, or keeps
// in a buffer). The result of a collective is checked after its wait; memory that an op leaves undefined (aten.empty)
// is not checked.
class Watch : public Observer {
 public:
  struct For {
    bool nan = false, inf = false;
  };
  Watch(const Program& program, For what) : program_(program), for_(what) {}
  // `inputs`: by graph input, in the host's memory, with the values that this step begins with.
  void begin_step(const Graph& graph, std::span<const Tensor> inputs);
  Status after(const Graph& graph, NodeId n, std::span<const Tensor> results) override;
  void enter_body(const Graph& graph, NodeId n) override;
  void leave_body() override;

 private:
  // Where the graph, or a called body, holds an intended infinity: by memory, which views and writes share.
  struct Frame {
    std::unordered_set<uint32_t> classes;  // of AliasAnalysis
    std::unordered_set<uint32_t> calls;    // calls whose bodies produced one
    NodeId call;                           // the call that runs this body
    bool from_outside = false;             // an argument of the call holds one: all values in it may
  };
  const AliasAnalysis& alias_of(const Graph& graph);
  void mark(const Graph& graph, ValueId v);
  bool may_be_infinite(const Graph& graph, NodeId n);

  const Program& program_;
  For for_;
  std::map<const Graph*, AliasAnalysis> alias_;
  std::vector<Frame> frames_{1};
};

Result<Watch::For> parse_watch(std::string_view words);  // "nan", "inf", "nan,inf"

}  // namespace sg
