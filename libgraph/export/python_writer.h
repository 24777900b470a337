// GraphWriter: one graph as a Python function, or as a function that builds a torch.fx.GraphModule of it. Private to
// export_python.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "libgraph/base/result.h"
#include "libgraph/export/python_draws.h"
#include "libgraph/export/python_ops.h"
#include "libgraph/export/python_symbols.h"
#include "libgraph/export/python_words.h"
#include "libgraph/job.h"

namespace sg::python {

// What all functions of a module share, and what its head has to provide for them.
struct Module {
  const Job& job;
  bool fx = false;
  Scope scope;                                                  // names of the module itself
  std::map<std::string, std::string, std::less<>> space_names;  // namespace of torch.ops -> the variable that holds it
  std::map<std::string, std::string, std::less<>> spaces;       // those that calls use
  std::set<std::string_view> helpers;                           // sources of HelperOps
  std::set<uint32_t> groups;                                    // GroupIds that nodes talk in
  bool draws_random = false;
};

// "ep", "ep:1": what a group family is called in the tables.
std::string group_key(const Job& job, GroupId group);

class GraphWriter {
 public:
  // `bodies`: the functions of the program's nested graphs, by NestedId
  GraphWriter(Module* module, const Program& program, const SymbolPlan& symbols, std::span<const std::string> bodies)
      : module_(*module), program_(program), symbols_(symbols), bodies_(bodies) {}

  struct What {
    std::string name;  // of the function
    std::string doc;
    bool is_flex = false;  // score and mask functions: a single output as it is, several as a list, not a tuple
  };
  Status write(const Graph& graph, const GraphSymbols& symbols, const What& what, std::string* out);

  // A function from inputs by name to the strides of those that are not contiguous; empty when all are.
  std::string strides_function(const std::string& name);

 private:
  // --- python_writer.cc: the function ---
  void learn(const Graph& graph);
  void head(const GraphSymbols& symbols, const What& what);
  void parameters(const GraphSymbols& symbols);
  void node(const GraphSymbols& symbols, NodeId n);
  void context(const Node& node);
  void define(const SymbolSource& source);
  void lay_out(ValueId v);
  std::string types_of(const Node& node) const;
  void returns(const What& what);
  void line(std::string_view code, std::string_view comment = {}) { append_line(4, code, comment, out_); }

  // --- python_writer_conditions.cc: what the step was captured for ---
  void plan_conditions();
  void check_inputs();
  void check_conditions();
  std::string place() const;

  // --- python_writer_calls.cc: one node ---
  std::string call_of(NodeId n);
  std::string size_call(NodeId n, const SizeOp& op);
  std::string body_call(NodeId n);
  std::string torch_call(NodeId n);
  void draws_before(NodeId n);
  std::string draw_name(uint32_t draw);
  std::string skipped_draw(const DrawPlan::Skipped& skipped);
  std::string function_of(std::string_view op_name);
  std::string assigned(NodeId n, std::string call);
  std::vector<std::string> dead_after(NodeId n) const;
  void statement(const std::string& code, const std::vector<std::string>& dead, std::string_view types);
  std::string call(NodeId n, std::string_view function, std::span<const std::string> arguments) const;

  // --- python_writer_args.cc ---
  std::string argument(const Arg& arg, int depth = 0);
  std::string stand_in(ValueId v);
  std::string keyword(const Arg& arg, int depth = 0);
  std::string items(const Arg& arg, char open, char close, int depth);
  std::string expression(Expr e);
  std::string text_argument(const Arg& arg);
  std::string body_argument(NestedId id);
  std::string name_of_torch(std::string_view name, std::span<const std::string_view> known, std::string_view what);
  std::string group_argument(GroupId group);
  std::string symbol(StrId name) const;

  std::string fail(std::string message, std::string hint = {});  // keeps the first error; returns ""
  const std::string& identifier(ValueId v) const { return names_[v.index]; }
  std::string_view text(StrId id) const { return module_.job.pool->strings[id]; }

  Module& module_;
  const Program& program_;
  const SymbolPlan& symbols_;
  std::span<const std::string> bodies_;

  const Graph* graph_ = nullptr;
  Scope scope_;
  std::string* out_ = nullptr;
  std::vector<std::string> names_;  // by ValueId
  std::unordered_map<StrId, std::string, IdHash> symbol_names_;
  std::unordered_set<StrId, IdHash> defined_;  // symbols that the code so far has
  std::vector<NodeId> last_use_;               // by ValueId; none = never, or an output
  std::vector<uint8_t> is_wanted_;             // by ValueId: used, or a symbol is read from it
  std::vector<uint8_t> is_laid_out_;           // by ValueId: python_layout.h
  struct Condition {
    Guard guard;
    std::vector<StrId> symbols;  // by number
  };
  std::vector<Condition> unchecked_;     // guards and ranges of which some symbol is not known yet
  DrawPlan draws_;                       // of the main graph
  std::vector<std::string> draw_names_;  // by draw; empty = nobody has asked
  bool stands_in_ = false;               // values are not there yet
  bool tuples_ = false;                  // lists are written as tuples: higher-order ops insist
  NodeId at_;
  Phase phase_ = Phase::forward;
  StrId block_;
  SourceId source_;
  bool in_block_ = false;
  std::optional<Error> error_;
};

}  // namespace sg::python
