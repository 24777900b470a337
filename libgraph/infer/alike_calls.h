// Calls of one program that are alike: of one op, with the same literals, types of tensors and recorded results. That
// is all a rule looks at, so its verdict on one of them holds for the others; a step's layers, and its chunks, are
// mostly alike.
//
// Never alike   Calls that take a number from another node: rules look at what made it.
// Forgotten     Long calls, and new ones when there are many: a graph in which no two are alike costs little more.
#pragma once

#include <cstdint>
#include <vector>

#include "libgraph/base/flat_map.h"
#include "libgraph/graph.h"

namespace sg {

class AlikeCalls {
 public:
  // Whether a call like this one was added.
  bool contains_like(const Graph& graph, NodeId n);
  // Adds the call that was asked about last.
  void add_last();

 private:
  using Word = uint64_t;
  struct Span {
    size_t begin, size;
  };

  bool describe(const Graph& graph, const Node& node);
  bool describe(const Graph& graph, const Arg& arg);

  std::vector<Word> last_;  // the description of the call asked about last; empty = it is like no other
  uint64_t last_hash_ = 0;
  std::vector<Word> words_;  // the descriptions of those added, one after the other
  std::vector<Span> calls_;
  FlatIndex index_;
};

}  // namespace sg
