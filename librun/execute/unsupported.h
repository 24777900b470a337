// What of a graph cannot run: found before anything runs, all of it at once, each kind of node with its first place.
#pragma once

#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "libgraph/base/result.h"
#include "libgraph/graph.h"

namespace sg {

// Reasons that have a remedy of their own.
inline constexpr std::string_view kNoRow = "not in the op table";
inline constexpr std::string_view kNoType = "a result without a type";

struct Unsupported {
  std::string op;             // "input" where an input cannot be in a run
  std::string reason;         // "no kernel"
  std::string first;          // "%x, train.py:12"; empty of an input
  size_t count = 0;           // nodes
  bool binds_symbol = false;  // the op's result has a size that only the data decides
};

// Adds what one graph, or a nested one, cannot run to a list.
class UnsupportedList {
 public:
  UnsupportedList(const Graph& graph, std::vector<Unsupported>* out) : graph_(graph), out_(*out) {}
  void add(NodeId n, const std::string& reason);
  void add_input(const std::string& reason);

 private:
  Unsupported& kind(std::string_view op, const std::string& reason);

  const Graph& graph_;
  std::vector<Unsupported>& out_;
  std::map<std::pair<std::string, std::string>, size_t> index_;  // by op and reason
};

// The error about them, with what the model's author can do about the first. REQUIRES: not empty
Error refusal_of(std::span<const Unsupported> list);

}  // namespace sg
