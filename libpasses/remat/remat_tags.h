// Which forward nodes a memory policy recomputes: written to the nodes' `recompute` tag. Internal to sg-remat.
#pragma once

#include <optional>

#include "libgraph/alias.h"
#include "libgraph/expr/assume.h"
#include "libgraph/module_pattern.h"
#include "libgraph/recompute_tags.h"
#include "libpasses/remat/remat.h"
#include "libpasses/remat/remat_model.h"

namespace sg {

// What the items of --save or of --recompute mean: PATTERN, PATTERN:OP or op=OP, then maybe ",size>=SIZE" or
// ",size<SIZE" (of all that a node gives), which may also stand alone.
class ValueSelectors {
 public:
  // `option`: for messages.
  static Result<ValueSelectors> parse(std::string_view option, const std::vector<std::string>& items);
  bool matches(const Graph& graph, NodeId n, const SizeValues& sizes) const;

  // A selector that no node of the job fits is an error (cannot_apply). `values`: by program.
  Status check_used(const Job& job, const std::vector<SymbolValues>& values) const;

 private:
  struct Item {
    std::string text, op;                 // no op = any
    std::optional<ModulePattern> module;  // none = any
    std::optional<int64_t> least_bytes, below_bytes;
  };
  static Result<Item> parse_item(std::string_view option, const std::string& text);
  static bool matches(const Item& item, const Graph& graph, NodeId n, const SizeValues& sizes);
  std::string option_;
  std::vector<Item> items_;
};

// What is asked for besides the policy: where both fit, a value is saved.
struct RematSelectors {
  ValueSelectors save, recompute;
};

// What these policies keep of a graph's ops, whatever layers and selectors say.
bool is_kept_by_default(const Graph& graph, NodeId n);
bool is_kept_by_full(const Graph& graph, NodeId n);

struct RematTags {
  std::vector<NodeId> crossing;  // forward nodes that would be recomputed, had a later layer no use for them
  NodeId head;                   // from here on the forward is left alone; none = there is no such place
  std::vector<NodeId> unshards;  // before it: what gathers parameters that only the head reads, left alone at first
};

// Tags the forward nodes of a program's main graph; `tags` leaves those of the capture as they are. What crosses into a
// later layer is tagged `crossing`: must_save, or prefer_save where all is up to a search. Where it is not, what lies
// behind the last layer from its first product on (the head) has no tag, nor has the gather of its parameters (their
// backward comes at once, and would gather them again), and a graph that has copies already keeps its
// prefer_save, and leaves alone what has no tag: so an earlier run said what it kept to lower the peak or as a layer's
// border, and what it took for the head, and a second run changes nothing.
RematTags tag_for_recompute(Program* program, RematPolicy policy, const RematSelectors& selectors,
                            const SizeValues& sizes, Recompute crossing = Recompute::must_save);

// Tags that say what was decided, of the forward nodes that were `open` (by position): those not recomputed are `kept`.
void write_decision(Graph* graph, const RematModel& model, const RematDecision& decision,
                    const std::vector<uint8_t>& open, Recompute kept);

}  // namespace sg
