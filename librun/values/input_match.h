// Matches tensors of files to graph inputs: by the input's name, or by its name in the model.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libgraph/base/diag.h"
#include "libgraph/data/safetensors.h"
#include "libgraph/graph.h"

namespace sg {

class InputMatch {
 public:
  // Findings go to `out`. may_spare: files may hold tensors that match no input.
  InputMatch(const Graph& graph, bool may_spare, Diagnostics* out);

  // `file_of` returns this number. Tensors of files with numbers below `first` are replaced; from there on, no input
  // may be given twice.
  void add(const TensorFile& file, size_t number, size_t first);
  void give(size_t input, const StoredTensor& tensor, size_t number) {
    stored_[input] = &tensor, file_[input] = number;
  }
  const StoredTensor* of(size_t input) const { return stored_[input]; }
  size_t file_of(size_t input) const { return file_[input]; }  // REQUIRES: of(input) is not null
  // The name in the model according to the file; empty = not recorded.
  static std::string_view told_fqn(const TensorFile& file, const std::string& name);

 private:
  static constexpr size_t kSeveral = SIZE_MAX - 1, kNone = SIZE_MAX;

  std::string_view fqn(size_t input) const;
  // Graphs of one model captured in different ways may name its inputs differently, and even reuse a name for another
  // input, so the name in the model takes precedence.
  size_t find(const std::string& name, std::string_view told, const Location& where);

  const Graph& graph_;
  Diagnostics* out_;
  bool may_spare_;
  std::unordered_map<std::string_view, size_t> by_name_, by_fqn_;
  std::vector<const StoredTensor*> stored_;
  std::vector<size_t> file_;
};

}  // namespace sg
