// The values that a node reads, in the order of its arguments; lists are walked.
#pragma once

#include "libgraph/graph.h"

namespace sg {

template <class Fn>
void for_operands(const Graph& graph, NodeId n, const Fn& fn) {
  for (const Arg& arg : graph.node(n).args)
    arg.walk([&](const Arg& a) {
      if (a.is(ArgKind::value)) fn(a.as_value());
    });
}

}  // namespace sg
