// Which tensor of the files is which input of a graph: by the input's name, or by what the model calls it.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libgraph/diag.h"
#include "libgraph/graph.h"
#include "libgraph/safetensors.h"

namespace sg {

class InputMatch {
 public:
  // Findings go to `out`. may_spare: files may hold what no input is called.
  InputMatch(const Graph& graph, bool may_spare, Diagnostics* out);

  void add(const TensorFile& file, size_t number);  // the number is what `file_of` gives
  void give(size_t input, const StoredTensor& tensor, size_t number) {
    stored_[input] = &tensor, file_[input] = number;
  }
  const StoredTensor* of(size_t input) const { return stored_[input]; }
  size_t file_of(size_t input) const { return file_[input]; }  // REQUIRES: of(input) is not null

 private:
  static constexpr size_t kSeveral = SIZE_MAX - 1, kNone = SIZE_MAX;

  std::string_view fqn(size_t input) const;
  // What the file says that the model calls it; empty = nothing.
  static std::string_view told_fqn(const TensorFile& file, const std::string& name);
  // Graphs of one model by different ways have different names for its inputs, and may have one name for two of them:
  // what the model calls the tensor counts.
  size_t find(const std::string& name, std::string_view told, const Location& where);

  const Graph& graph_;
  Diagnostics* out_;
  bool may_spare_;
  std::unordered_map<std::string_view, size_t> by_name_, by_fqn_;
  std::vector<const StoredTensor*> stored_;
  std::vector<size_t> file_;
};

}  // namespace sg
