// The values that a node reads, in the order of its arguments; lists are walked.
#pragma once

#include "libgraph/graph.h"
#include "libgraph/op.h"

namespace sg {

template <class Fn>
void for_operands(const Graph& graph, NodeId n, const Fn& fn) {
  for (const Arg& arg : graph.node(n).args)
    arg.walk([&](const Arg& a) {
      if (a.is(ArgKind::value)) fn(a.as_value());
    });
}

// Whether the node asks its operands for their types alone, so that it does not need their memory.
inline bool asks_for_sizes(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  return op != nullptr && op->has(kSize);
}

// The operands whose memory the node needs.
template <class Fn>
void for_used_operands(const Graph& graph, NodeId n, const Fn& fn) {
  if (!asks_for_sizes(graph, n)) for_operands(graph, n, fn);
}

}  // namespace sg
