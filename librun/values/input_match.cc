#include "librun/values/input_match.h"

#include <algorithm>

#include "libgraph/base/nearest.h"
#include "librun/values/run_state.h"

namespace sg {

InputMatch::InputMatch(const Graph& graph, bool may_spare, Diagnostics* out)
    : graph_(graph),
      out_(out),
      may_spare_(may_spare),
      stored_(graph.inputs().size(), nullptr),
      file_(graph.inputs().size()) {
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const Input& input = graph.inputs()[i];
    if (input.kind == InputKind::opaque) continue;
    by_name_.emplace(graph.name(input.value), i);
    if (input.fqn.is_none()) continue;
    auto [it, is_new] = by_fqn_.emplace(graph.pool().strings[input.fqn], i);
    if (!is_new) it->second = kSeveral;
  }
}

void InputMatch::add(const TensorFile& file, size_t number, size_t first) {
  for (const StoredTensor& tensor : file.tensors()) {
    if (is_kept_by_optimizer(file, tensor.name)) continue;
    Location where{file.name()};
    where.offset = tensor.offset;
    size_t i = find(tensor.name, told_fqn(file, tensor.name), where);
    if (i >= kSeveral) continue;
    if (stored_[i] != nullptr && file_[i] >= first)
      out_->error(
          "inputs", "`" + stored_[i]->name + "` and `" + tensor.name + "` are the same graph input", where,
          file_[i] == number
              ? "the file names inputs of another graph"
              : "each input is given once, but for files with {step} in their names, which go before others; what "
                "another run left goes before --inputs: --state FILE");
    stored_[i] = &tensor;
    file_[i] = number;
  }
}

std::string_view InputMatch::fqn(size_t input) const {
  const StrId id = graph_.inputs()[input].fqn;
  return id ? graph_.pool().strings[id] : std::string_view();
}

std::string_view InputMatch::told_fqn(const TensorFile& file, const std::string& name) {
  const std::string key = "fqn." + name;
  const auto& all = file.metadata();
  auto found = std::ranges::lower_bound(all, key, {}, &std::pair<std::string, std::string>::first);
  return found != all.end() && found->first == key ? std::string_view(found->second) : std::string_view();
}

size_t InputMatch::find(const std::string& name, std::string_view told, const Location& where) {
  const auto named = by_name_.find(name);
  const auto meant = told.empty() ? by_fqn_.end() : by_fqn_.find(told);
  if (named != by_name_.end() && (meant == by_fqn_.end() || fqn(named->second) == told)) return named->second;
  const auto it = meant != by_fqn_.end() ? meant : by_fqn_.find(name);
  if (it == by_fqn_.end() && may_spare_) return kNone;
  if (it == by_fqn_.end()) {
    Nearest nearest(name);
    for (const Input& input : graph_.inputs()) {
      if (out_->full()) break;  // further findings would only be counted
      if (input.kind == InputKind::opaque) continue;
      nearest.offer(graph_.name(input.value));
      if (input.fqn) nearest.offer(graph_.pool().strings[input.fqn]);
    }
    out_->error("inputs", "the graph has no input `" + name + "`", where, nearest.hint());
    return kNone;
  }
  if (it->second == kSeveral)
    out_->error("inputs", "several graph inputs are called `" + name + "`", where, "use the name of the graph input");
  return it->second;
}

}  // namespace sg
