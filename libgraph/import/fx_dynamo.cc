// Names AOTAutograd's inputs by Dynamo's graph.
#include <algorithm>
#include <charconv>
#include <map>
#include <set>

#include "libgraph/base/chars.h"
#include "libgraph/import/fx_lower.h"
#include "libgraph/import/fx_notes.h"

namespace sg {
namespace {

// The word in "['word']" at `at`, which is moved past it; empty if there is none.
std::string_view quoted_key(std::string_view source, size_t* at) {
  if (!source.substr(std::min(*at, source.size())).starts_with("['")) return {};
  size_t begin = *at + 2, end = source.find("']", begin);
  if (end == std::string_view::npos) return {};
  *at = end + 2;
  return source.substr(begin, end - begin);
}

// L['self']._modules['layers']._modules['0']._parameters['_w'] is the parameter layers.0._w. False: not a model tensor.
bool name_of_model(std::string_view source, Pool* pool, SourceInput* input) {
  constexpr std::pair<std::string_view, InputKind> kWords[] = {
      {"._modules", InputKind::user}, {"._parameters", InputKind::parameter}, {"._buffers", InputKind::buffer}};
  size_t at = std::string_view::npos;
  for (const auto& [word, kind] : kWords) at = std::min(at, source.find(std::string(word) + "['"));
  std::string fqn;
  InputKind found = InputKind::user;
  while (at < source.size() && found == InputKind::user) {
    auto part = std::ranges::find_if(kWords, [&](const auto& w) { return source.substr(at).starts_with(w.first); });
    if (part == std::end(kWords)) return false;
    at += part->first.size();
    std::string_view key = quoted_key(source, &at);
    if (key.empty()) return false;
    fqn += (fqn.empty() ? "" : ".") + std::string(key);
    found = part->second;
  }
  if (found == InputKind::user || at != source.size()) return false;
  input->input.kind = found;
  input->input.fqn = pool->str(fqn);
  return true;
}

// L['_x'] and L['kwargs']['_x'] are the user's _x. False: another kind of source.
bool name_of_user(std::string_view source, Pool* pool, SourceInput* input) {
  size_t at = 1;
  std::string_view name = source.starts_with("L[") ? quoted_key(source, &at) : std::string_view();
  if (name == "kwargs" && at != source.size()) name = quoted_key(source, &at);
  if (name.empty() || at != source.size()) return false;
  input->input.fqn = pool->str(name);
  return true;
}

// L_self_modules_layers_modules_0_parameters_weight_ is the parameter layers.0.weight; L_x_ and L_kwargs_x_ are the
// user's x.
void name_from_dynamo(std::string_view name, Pool* pool, SourceInput* input) {
  constexpr std::string_view kModules = "_modules_";
  while (!name.empty() && name.back() == '_') name.remove_suffix(1);
  for (auto [word, kind] : {std::pair<std::string_view, InputKind>{"_parameters_", InputKind::parameter},
                            {"_buffers_", InputKind::buffer}}) {
    size_t at = name.rfind(word);
    if (at == std::string_view::npos) continue;
    std::string fqn;
    std::string_view path = name.substr(0, at);
    for (size_t m = path.find(kModules); m != std::string_view::npos;) {
      size_t begin = m + kModules.size(), next = path.find(kModules, begin);
      fqn += std::string(path.substr(begin, next - begin)) + ".";
      m = next;
    }
    input->input.kind = kind;
    input->input.fqn = pool->str(fqn + std::string(name.substr(at + word.size())));
    return;
  }
  // L['kwargs']['input_ids'] is the caller's input_ids.
  for (std::string_view prefix : {"L_kwargs_", "L_"}) {
    if (!name.starts_with(prefix) || name.size() == prefix.size()) continue;
    input->input.fqn = pool->str(name.substr(prefix.size()));
    return;
  }
  if (name.starts_with("G_")) input->input.fqn = pool->str(name);  // a global of a Python module
}

// The zero-based index of a Dynamo input: 2 for "primals_3", 3 for "arg3_1".
std::optional<size_t> place_of(std::string_view name) {
  size_t first = 0, number = 0;
  if (name.starts_with("primals_")) name.remove_prefix(8), first = 1;
  else if (name.starts_with("arg") && name.ends_with("_1")) name = name.substr(3, name.size() - 5);
  else return std::nullopt;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number < first) return std::nullopt;
  return number - first;
}

bool same_type(const Type& a, const Type& b) {
  return a.kind == b.kind && (a.kind != TypeKind::tensor || (a.dtype == b.dtype && a.shape == b.shape));
}

// Matches inputs by descriptor; in versions without descriptors by number, if all input types agree with Dynamo's.
class DynamoNames {
 public:
  DynamoNames(const FxUnit& dynamo, const std::vector<FxSize>& sizes, Pool* pool, FxProgram* program, uint32_t root)
      : dynamo_(dynamo), params_(dynamo.file.modules[root].params), pool_(pool), program_(program) {
    find_sources(sizes);
  }

  void give() {
    std::vector<std::optional<size_t>> places = by_descriptor();
    if (std::ranges::all_of(program_->input_descriptors, &std::string::empty)) places = by_name();
    for (size_t i = 0; i < places.size(); ++i) {
      SourceInput& input = program_->source.graph.inputs[i];
      if (!places[i] || *places[i] >= params_.size() || input.input.kind != InputKind::user) continue;
      std::string_view name = params_[*places[i]].name;
      auto source = sources_.find(stripped(name));
      bool named = source != sources_.end() &&
                   (name_of_model(source->second, pool_, &input) || name_of_user(source->second, pool_, &input));
      if (!named) name_from_dynamo(name, pool_, &input);
    }
  }

 private:
  using Places = std::vector<std::optional<size_t>>;

  static std::string stripped(std::string_view name) {
    while (name.ends_with('_')) name.remove_suffix(1);
    return std::string(name);
  }

  // Indexes the sources by Dynamo's names. Of several with the same name, the first keeps it; others get _0, _1, ...
  void find_sources(const std::vector<FxSize>& sizes) {
    std::set<std::string_view> seen;
    std::map<std::string, size_t> uses;
    for (const FxSize& size : sizes) {
      if (!size.is_tensor() || !seen.insert(size.source).second) continue;
      std::string name = dynamo_name(size.source);
      size_t use = uses[name]++;
      sources_.emplace(use == 0 ? stripped(name) : name + "_" + std::to_string(use - 1), size.source);
    }
  }

  Places by_descriptor() const {
    constexpr std::string_view kPlain = "PlainAOTInput(idx=";
    Places out(program_->source.graph.inputs.size());
    for (size_t i = 0; i < out.size(); ++i) {
      const std::string& descriptor = program_->input_descriptors[i];
      if (descriptor.starts_with(kPlain)) out[i] = std::strtoull(descriptor.c_str() + kPlain.size(), nullptr, 10);
    }
    return out;
  }

  Places by_name() {
    const std::vector<SourceInput>& inputs = program_->source.graph.inputs;
    Places out(inputs.size());
    FxGaps gaps;
    ComputedSizes computed;
    FxTypes types(pool_, "cpu", &gaps, &computed);
    size_t named = 0;
    for (size_t i = 0; i < inputs.size(); ++i) {
      out[i] = place_of(pool_->strings[inputs[i].name]);
      if (!out[i]) continue;
      if (++named > params_.size() || *out[i] >= params_.size()) return Places(inputs.size());
      auto told = types.read(dynamo_.file, params_[*out[i]].annotation);
      if (!told.ok() || !same_type(pool_->types[told->type], pool_->types[inputs[i].type]))
        return Places(inputs.size());
    }
    return named == params_.size() ? out : Places(inputs.size());
  }

  const FxUnit& dynamo_;
  const std::vector<FxParam>& params_;
  std::map<std::string, std::string> sources_;
  Pool* pool_;
  FxProgram* program_;
};

}  // namespace

void name_inputs_from_dynamo(const FxUnit& dynamo, const std::vector<FxSize>& sizes, Pool* pool, FxProgram* program) {
  std::vector<uint32_t> roots = fx_roots(dynamo.file);
  if (roots.size() == 1) DynamoNames(dynamo, sizes, pool, program, roots[0]).give();
}

std::string dynamo_name(std::string_view source) {
  std::string out;
  for (char c : source)
    if (is_word(c) && c != '_') out += c;
    else if (!out.ends_with('_')) out += '_';
  return out;
}

namespace {

// Which compilation a log's line is of, and which attempt at it: "V1121 ... file.py:10] [0/0_1] [__aot_graphs] " is
// {"0/0", 1}. {"", 0} where the line has no such prefix.
std::pair<std::string_view, uint32_t> attempt_of(const FxText& text, size_t at) {
  const size_t end_before = text.whole.substr(0, at).rfind('\n');
  std::string_view prefix = text.whole.substr(0, at).substr(end_before == std::string_view::npos ? 0 : end_before + 1);
  const size_t begin = prefix.find("] [");
  if (begin == std::string_view::npos || begin + 3 >= prefix.size() || !is_digit(prefix[begin + 3])) return {};
  std::string_view id = prefix.substr(begin + 3);
  id = id.substr(0, id.find(']'));
  uint32_t attempt = 0;
  const size_t bar = id.find('_');
  if (bar != std::string_view::npos) std::from_chars(id.data() + bar + 1, id.data() + id.size(), attempt);
  return {id.substr(0, bar), attempt};
}

}  // namespace

std::vector<uint32_t> fx_roots(const FxFile& file) {
  std::vector<uint32_t> roots;
  for (uint32_t i = 0; i < file.modules.size(); ++i)
    if (file.modules[i].parent == kNoFx && file.modules[i].has_forward) roots.push_back(i);
  if (roots.size() < 2) return roots;
  std::map<std::string_view, uint32_t> last;
  for (uint32_t root : roots) {
    const auto [compile, attempt] = attempt_of(*file.text, file.modules[root].at);
    last[compile] = std::max(last[compile], attempt);
  }
  std::erase_if(roots, [&](uint32_t root) {
    const auto [compile, attempt] = attempt_of(*file.text, file.modules[root].at);
    return attempt != last[compile];
  });
  return roots;
}

}  // namespace sg
