// What Dynamo's graph tells of the inputs of AOTAutograd's, which come in the same order.
#include <algorithm>
#include <charconv>

#include "libgraph/import/fx_lower.h"
#include "libgraph/import/fx_notes.h"

namespace sg {
namespace {

bool starts_with(std::string_view s, std::string_view part) { return s.substr(0, part.size()) == part; }

// L_self_modules_layers_modules_0_parameters_weight_ is the parameter layers.0.weight; L_x_ and L_kwargs_x_ are the user's x.
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
  // L['kwargs']['input_ids'] is what the caller calls input_ids.
  for (std::string_view prefix : {"L_kwargs_", "L_"}) {
    if (!starts_with(name, prefix) || name.size() == prefix.size()) continue;
    input->input.fqn = pool->str(name.substr(prefix.size()));
    return;
  }
}

// 3 for "primals_3", and for "arg3_1": which of Dynamo's inputs it is, from 0 on.
std::optional<size_t> place_of(std::string_view name) {
  size_t first = 0, number = 0;
  if (starts_with(name, "primals_")) name.remove_prefix(8), first = 1;
  else if (starts_with(name, "arg") && name.ends_with("_1")) name = name.substr(3, name.size() - 5);
  else return std::nullopt;
  auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error != std::errc() || end != name.data() + name.size() || number < first) return std::nullopt;
  return number - first;
}

bool same_type(const Type& a, const Type& b) {
  return a.kind == b.kind && (a.kind != TypeKind::tensor || (a.dtype == b.dtype && a.shape == b.shape));
}

// By descriptor; in versions that write none, by place, where all inputs are of the types that Dynamo tells.
class DynamoNames {
 public:
  DynamoNames(const FxUnit& dynamo, const std::vector<FxParam>& params, Pool* pool, FxProgram* program)
      : dynamo_(dynamo), params_(params), pool_(pool), program_(program) {}

  void give() {
    std::vector<std::optional<size_t>> places = by_descriptor();
    if (std::ranges::all_of(program_->input_descriptors, &std::string::empty)) places = by_name();
    for (size_t i = 0; i < places.size(); ++i) {
      SourceInput& input = program_->source.graph.inputs[i];
      if (places[i] && *places[i] < params_.size() && input.input.kind == InputKind::user)
        name_from_dynamo(params_[*places[i]].name, pool_, &input);
    }
  }

 private:
  using Places = std::vector<std::optional<size_t>>;

  Places by_descriptor() const {
    constexpr std::string_view kPlain = "PlainAOTInput(idx=";
    Places out(program_->source.graph.inputs.size());
    for (size_t i = 0; i < out.size(); ++i) {
      const std::string& descriptor = program_->input_descriptors[i];
      if (starts_with(descriptor, kPlain)) out[i] = std::strtoull(descriptor.c_str() + kPlain.size(), nullptr, 10);
    }
    return out;
  }

  Places by_name() {
    const std::vector<SourceInput>& inputs = program_->source.graph.inputs;
    Places out(inputs.size());
    FxGaps gaps;
    FxTypes types(pool_, "cpu", &gaps);
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
  Pool* pool_;
  FxProgram* program_;
};

}  // namespace

void name_inputs_from_dynamo(const FxUnit& dynamo, Pool* pool, FxProgram* program) {
  std::vector<uint32_t> roots = fx_roots(dynamo.file);
  if (roots.size() == 1) DynamoNames(dynamo, dynamo.file.modules[roots[0]].params, pool, program).give();
}

std::vector<uint32_t> fx_roots(const FxFile& file) {
  std::vector<uint32_t> roots;
  for (uint32_t i = 0; i < file.modules.size(); ++i)
    if (file.modules[i].parent == kNoFx && file.modules[i].has_forward) roots.push_back(i);
  return roots;
}

}  // namespace sg
