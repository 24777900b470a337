#include "librun/values/run_state.h"

#include <algorithm>

#include "libgraph/base/read_number.h"
#include "librun/values/input_match.h"

namespace sg {
namespace {

constexpr std::string_view kPrefix = "optimizer.";
constexpr uint64_t kMost = 1'000'000'000;  // steps and updates

const std::string* find_entry(const TensorFile& file, std::string_view key) {
  const auto& all = file.metadata();
  const auto found = std::ranges::lower_bound(all, key, {}, [](const auto& m) { return std::string_view(m.first); });
  return found != all.end() && found->first == key ? &found->second : nullptr;
}

Status read_count(const TensorFile& file, std::string_view key, uint64_t* out) {
  const std::string* text = find_entry(file, key);
  if (text == nullptr || (read_number(*text, out) && *out <= kMost)) return ok_status();
  return Error{ErrorKind::unreadable,
               "the metadata has `" + std::string(key) + "`: \"" + *text + "\", which is not a number of steps",
               {file.name()},
               "--dump-state wrote no such file; without that entry it begins with step 0"};
}

}  // namespace

void add_run_state(const Graph& graph, const RunState& state, std::vector<TensorToWrite>* tensors,
                   WriteOptions* options) {
  options->metadata.emplace_back("step", std::to_string(state.step));
  if (state.optimizer.empty()) return;
  options->metadata.emplace_back("optimizer", state.optimizer);
  options->metadata.emplace_back("optimizer.updates", std::to_string(state.updates));
  for (const KeptTensor& kept : state.kept) {
    const Input& input = graph.inputs()[kept.input];
    const Tensor& t = kept.value;
    std::string name = std::string(kPrefix) + std::string(kept.name) + "." + std::string(graph.name(input.value));
    if (input.fqn) options->metadata.emplace_back("fqn." + name, graph.pool().strings.str(input.fqn));
    tensors->push_back({std::move(name), t.dtype, {t.sizes().begin(), t.sizes().end()}, {}, t.data});
  }
}

bool is_kept_by_optimizer(const TensorFile& file, std::string_view tensor) {
  return tensor.starts_with(kPrefix) && find_entry(file, "optimizer.updates") != nullptr;
}

Result<LeftState> LeftState::open(const std::string& path) {
  SG_ASSIGN(TensorFile file, TensorFile::open(path));
  LeftState out(std::move(file));
  SG_TRY(read_count(out.file_, "step", &out.step_));
  SG_TRY(read_count(out.file_, "optimizer.updates", &out.updates_));
  if (const std::string* kind = find_entry(out.file_, "optimizer")) out.optimizer_ = *kind;
  for (const StoredTensor& tensor : out.file_.tensors()) {
    if (!is_kept_by_optimizer(out.file_, tensor.name)) continue;
    const std::string name = tensor.name.substr(kPrefix.size());
    const std::string kept = name.substr(0, name.find('.'));
    out.by_name_.emplace(name, &tensor);
    const std::string_view fqn = InputMatch::told_fqn(out.file_, tensor.name);
    if (fqn.empty()) continue;
    const auto [at, is_new] = out.by_fqn_.emplace(kept + "." + std::string(fqn), &tensor);
    if (!is_new) at->second = nullptr;
  }
  return out;
}

bool LeftState::has(std::string_view kept) const {
  const std::string first = std::string(kept) + ".";
  const auto at = by_name_.lower_bound(first);
  return at != by_name_.end() && at->first.starts_with(first);
}

const StoredTensor* LeftState::find(const Graph& graph, size_t input, std::string_view kept) const {
  const Input& of = graph.inputs()[input];
  const std::string_view fqn = of.fqn ? graph.pool().strings[of.fqn] : std::string_view();
  const auto named = by_name_.find(std::string(kept) + "." + std::string(graph.name(of.value)));
  if (named != by_name_.end()) {
    const std::string_view told = InputMatch::told_fqn(file_, named->second->name);
    if (told.empty() || told == fqn) return named->second;
  }
  const auto meant = fqn.empty() ? by_fqn_.end() : by_fqn_.find(std::string(kept) + "." + std::string(fqn));
  return meant != by_fqn_.end() ? meant->second : nullptr;
}

}  // namespace sg
