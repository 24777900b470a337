#include "librun/values/constant_files.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <string_view>
#include <unordered_map>

#include "libgraph/base/output_file.h"
#include "libgraph/base/sha256.h"

namespace sg {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> tensor_files(const std::string& folder) {
  std::vector<std::string> out;
  std::error_code problem;
  for (fs::directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem))
    if (at->path().extension() == ".safetensors" && at->is_regular_file(problem)) out.push_back(at->path().string());
  std::ranges::sort(out);
  return out;
}

// The inputs that are still looked for.
class Wanted {
 public:
  Wanted(const Graph& graph, const InputMatch& matching) : graph_(graph) {
    for (size_t i = 0; i < graph.inputs().size(); ++i) {
      const Input& input = graph.inputs()[i];
      if (input.kind != InputKind::constant || !input.digest || matching.of(i) != nullptr) continue;
      const std::string_view digest = graph.pool().strings[input.digest];
      if (graph.is_used(input.value) && digest.starts_with("sha256:")) by_digest_[digest].push_back(i);
    }
  }
  bool empty() const { return by_digest_.empty(); }

  // Calls fn for each wanted input with this tensor's data, which is then no longer wanted.
  template <class Fn>
  void take(const StoredTensor& tensor, const Fn& fn) {
    if (!may_be(tensor)) return;  // most tensors are ruled out before their bytes are read
    const auto found = by_digest_.find(sha256_tag({static_cast<const char*>(tensor.data), tensor.bytes}));
    if (found == by_digest_.end()) return;
    for (size_t i : found->second)
      if (is_like(tensor, i)) fn(i);
    std::erase_if(found->second, [&](size_t i) { return is_like(tensor, i); });
    if (found->second.empty()) by_digest_.erase(found);
  }

 private:
  bool may_be(const StoredTensor& tensor) const {
    return std::ranges::any_of(by_digest_, [&](const auto& wanted) {
      return std::ranges::any_of(wanted.second, [&](size_t i) { return is_like(tensor, i); });
    });
  }
  bool is_like(const StoredTensor& tensor, size_t input) const {
    const Type& type = graph_.type(graph_.inputs()[input].value);
    return tensor.dtype == type.dtype && std::ranges::equal(tensor.shape, type.shape, [&](int64_t size, Expr e) {
             return graph_.pool().exprs.constant_value(e) == size;
           });
  }

  const Graph& graph_;
  std::unordered_map<std::string_view, std::vector<size_t>> by_digest_;
};

}  // namespace

Status find_constants(const Graph& graph, const std::string& place, InputMatch* matching,
                      std::vector<TensorFile>* files) {
  Wanted wanted(graph, *matching);
  if (wanted.empty()) return ok_status();
  std::error_code problem;  // an unreachable path is reported when it is opened
  const bool is_folder = fs::is_directory(place, problem);
  for (const std::string& name : is_folder ? tensor_files(place) : std::vector<std::string>{place}) {
    if (wanted.empty()) break;
    auto file = TensorFile::open(name, TensorFile::Access::copy_on_write);
    if (!file.ok() && is_folder) continue;
    if (!file.ok()) return std::move(file.error());
    bool holds_one = false;
    for (const StoredTensor& tensor : file->tensors())
      wanted.take(tensor, [&](size_t input) {
        matching->give(input, tensor, files->size());
        holds_one = true;
      });
    if (!holds_one) continue;
    keep_file(name, "holds constants of the graph");
    files->push_back(std::move(*file));
  }
  return ok_status();
}

}  // namespace sg
