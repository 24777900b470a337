// What the rule files of the verifier share. Internal: verify.h is the interface.
//
// A rule is one function. The driver (verify.cc) sets the place (program, graph) and the rule's name, calls it, and
// runs the rules of scope `ids` first: when an index points nowhere, nothing else is looked at.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libgraph/expr/symbols.h"
#include "libgraph/facts/alias_body.h"
#include "libgraph/infer/check_types.h"
#include "libgraph/op.h"
#include "libgraph/verify/verify.h"

namespace sg {

// Marks indices as seen during one round without clearing in between: rounds are numbered.
class Stamps {
 public:
  // True the first time that `index` is seen in `round` (>= 1).
  bool first(uint32_t index, uint32_t round) {
    if (index >= marks_.size()) marks_.resize(index + size_t{1} + index / 2, 0);
    return marks_[index] != round && (marks_[index] = round, true);
  }

 private:
  std::vector<uint32_t> marks_;
};

class Check {
 public:
  Check(const Job& checked, const VerifyOptions& wanted, Diagnostics* findings)
      : job(checked), pool(*checked.pool), options(wanted), group_facts(checked.groups.size()), findings_(findings) {}

  const Job& job;
  Pool& pool;  // the rules intern expressions and types; nothing else changes
  const VerifyOptions& options;
  const Program* program = nullptr;  // set for rules of scope program and below
  const Graph* graph = nullptr;      // set for rules of scope graph and below
  uint32_t program_round = 0;        // numbers of the current program and graph, for Stamps
  uint32_t graph_round = 0;
  std::string_view rule;

  // A finding about the job or program, a node, an entry that is numbered where it stands ("input 3", "guard 0" of a
  // graph, "group 1" of the job), or a value.
  void fail(std::string message, std::string hint = {});
  void fail(NodeId n, std::string message, std::string hint = {});
  void fail_item(std::string_view kind, size_t index, std::string message, std::string hint = {});
  void fail(ValueId v, std::string message, std::string hint = {});
  size_t error_count() const { return findings_->error_count(); }
  // What a rule could not look at: no finding, but not silence either.
  void warn(std::string message, std::string hint = {}, std::string path = {});

  std::string_view str(StrId id) const { return pool.strings[id]; }
  std::string name(ValueId v) const { return "%" + std::string(graph->name(v)); }
  std::string label(NodeId n) const { return "%" + std::string(graph->label(n)); }
  const Symbol* symbol(StrId name) const { return program->find_symbol(name); }
  const std::vector<StrId>& symbols_of(TypeId t);  // each once
  const Facts& facts();                            // of the current program
  TypeChecker& type_checker();                     // of the current program
  const AliasAnalysis& aliases();                  // of the current graph
  bool in_main_graph() const { return graph == &program->graph; }

  void enter(const Program& p);  // prepares what `symbol` and the stamps need
  void enter(const Graph& g);
  void leave();                                                                     // back to the job as a whole
  bool found_in_rule(std::string_view name) const { return last_failed_ == name; }  // the latest finding was its

  Stamps names, types, type_scope, exprs, texts;       // what the rules have looked at; see their users
  struct GroupFacts {                                  // of a group, for the ranks of one program
    uint32_t round = 0;                                // program_round of these facts
    std::optional<uint32_t> outside;                   // a rank of the program that is not in the group
    std::optional<size_t> size;                        // ranks of the part, if all of the program's ranks agree
    std::vector<std::pair<uint32_t, size_t>> members;  // of all programs: rank, and size of its part; by rank
  };
  std::vector<GroupFacts> group_facts;  // by GroupId

  // Where the data symbols of the main graph are bound: by symbol, for the current program.
  std::unordered_map<StrId, NodeId, IdHash> bound_by;

 private:
  void add(std::string message, std::string path, std::string hint);
  std::string from_line(NodeId n) const;

  Diagnostics* findings_;
  std::string_view last_failed_;
  std::optional<Facts> facts_;  // built when first asked for, as is the next
  std::optional<TypeChecker> type_checker_;
  std::unique_ptr<BodySummaries> bodies_;  // what the analyses of a program's graphs share
  std::optional<AliasAnalysis> aliases_;
  std::vector<std::vector<StrId>> type_symbols_;
  std::vector<bool> type_symbols_known_;
};

// The arguments of a node by parameter of its op; null where none is given. Surplus and unknown ones are left out.
std::vector<const Arg*> args_by_param(const Pool& pool, const Node& node, const OpInfo& info);

// --- the rules, by file ---

// verify_ids.cc
void ids_of_pool(Check& c);
void ids_of_job(Check& c);
void ids_of_program(Check& c);
void ids_of_graph(Check& c);
void ids_of_node(Check& c, NodeId n);

// verify_job.cc
void check_world(Check& c);
void check_groups(Check& c);
void check_meshes(Check& c);
void check_provenance(Check& c);
void check_keys(Check& c);
void check_op_names(Check& c);
void check_nested(Check& c);
void check_node_keys(Check& c, NodeId n);

// verify_structure.cc
void check_results(Check& c, NodeId n);
void check_order(Check& c, NodeId n);
void check_names(Check& c);
void check_links(Check& c, NodeId n);
void check_inputs(Check& c);
void check_outputs(Check& c);
void check_metadata(Check& c, NodeId n);

// verify_symbols.cc
void check_symbols(Check& c);
void check_guards(Check& c);
void check_scope_of_ports(Check& c);
void check_scope(Check& c, NodeId n);
void check_binds(Check& c);
void check_symbol_order(Check& c, NodeId n);

// verify_arguments.cc
void check_args(Check& c, NodeId n);

// verify_types.cc
// Equal, or equal wherever the guards hold; what they leave open passes where it was so at capture, and a run asks
// again.
bool same_sizes(Check& c, const std::vector<Expr>& a, const std::vector<Expr>& b);
void check_input_types(Check& c);
void check_result_types(Check& c, NodeId n);
void check_inferred(Check& c, NodeId n);
void check_call(Check& c, NodeId n);

// verify_effects.cc
void check_extents(Check& c);
void check_writes(Check& c);
void check_waits(Check& c);
void check_random_streams(Check& c);
void check_random(Check& c, NodeId n);
void check_group_use(Check& c, NodeId n);

// verify_ranks.cc
void check_collective_order(Check& c);
void check_deadlock(Check& c);

}  // namespace sg
