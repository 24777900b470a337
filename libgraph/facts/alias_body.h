// What a call needs to know about the body it calls: see alias.h. Internal to the alias analysis.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "libgraph/facts/alias.h"

namespace sg {

template <class T>
void sort_unique(std::vector<T>* list) {
  std::sort(list->begin(), list->end());
  list->erase(std::unique(list->begin(), list->end()), list->end());
}

struct BodySummary {
  struct Place {
    StorageId storage;  // of the body; none = no storage
    uint32_t alias_class = 0;
    bool certain = true;
    bool written = false;  // inputs only
  };
  bool opaque = false;  // recursive, or nested too deep: nothing is known
  std::vector<Place> inputs, results;
  uint32_t effects = 0;
  bool writes_inputs = false;
  std::vector<GroupId> groups;  // launched on; ascending
  std::vector<StrId> binds;     // ascending
};

// Summaries of a program's nested graphs, each computed once and only when asked for.
class BodySummaries {
 public:
  BodySummaries(const Program& program, const AliasOptions& options)
      : program_(program), options_(options), summaries_(program.nested.size()), in_progress_(program.nested.size()) {}
  const BodySummary& of(NestedId body);

 private:
  static constexpr int kMaxDepth = 64;
  std::unique_ptr<BodySummary> summarize(const Graph& graph);

  const Program& program_;
  AliasOptions options_;
  std::vector<std::unique_ptr<BodySummary>> summaries_;  // by NestedId
  std::vector<bool> in_progress_;
  int depth_ = 0;
};

}  // namespace sg
