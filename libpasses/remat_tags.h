// Which forward nodes a memory policy recomputes: written to the nodes' `recompute` tag. Internal to sg-remat.
#pragma once

#include <optional>

#include "libgraph/alias.h"
#include "libgraph/module_pattern.h"
#include "libgraph/recompute_tags.h"
#include "libpasses/remat.h"
#include "libpasses/remat_model.h"

namespace sg {

// What a --save item means.
class SaveSelectors {
 public:
  static Result<SaveSelectors> parse(const std::vector<std::string>& items);
  bool matches(const Graph& graph, NodeId n) const;

  // A selector that no node of the job fits is an error (cannot_apply).
  Status check_used(const Job& job) const;

 private:
  struct Item {
    std::string text, op;                 // no op = any
    std::optional<ModulePattern> module;  // none = any
  };
  static bool matches(const Item& item, const Graph& graph, NodeId n);
  std::vector<Item> items_;
};

struct RematTags {
  std::vector<NodeId> crossing;  // forward nodes that would be recomputed, had a later layer no use for them
  NodeId head;                   // from here on the forward is left alone; none = there is no such place
};

// Tags the forward nodes of a program's main graph; `tags` leaves those of the capture as they are. What crosses into a
// later layer is tagged `crossing`: must_save, or prefer_save where all is up to a search. Where it is not, what lies
// behind the last layer from its first product on (the head) has no tag, and a graph that has copies already keeps its
// prefer_save, and leaves alone what has no tag: so an earlier run said what it kept to lower the peak or as a layer's
// border, and what it took for the head, and a second run changes nothing.
RematTags tag_for_recompute(Program* program, RematPolicy policy, const SaveSelectors& save,
                            Recompute crossing = Recompute::must_save);

// Tags that say what was decided, of the forward nodes that were `open` (by position): those not recomputed are `kept`.
void write_decision(Graph* graph, const RematModel& model, const RematDecision& decision,
                    const std::vector<uint8_t>& open, Recompute kept);

}  // namespace sg
