// Inputs, attributes and outputs of an FX module.
#include "libgraph/import/fx_module.h"

#include "libgraph/base/flat_set.h"

namespace sg {

// primals_1: "f32[4]"  # PlainAOTInput(idx=0)
void FxModuleLowering::collect_declarations(const FxModule& m) {
  for (const FxStatement& s : m.statements)
    if (s.kind == FxStatementKind::declare)
      declared_.try_emplace(target(s)->text, {s.annotation, file().descriptor_of(file().targets[s.first_target])});
}

// Lines in which FX unpacks the function's arguments: the names on their left are the inputs.
bool FxModuleLowering::is_header(const FxStatement& s) const {
  if (s.kind != FxStatementKind::assign) return false;
  std::string_view callee = callee_of(s);
  return callee == "fx_pytree.tree_flatten_spec" || callee == "pytree.tree_leaves" ||
         callee == "self._in_shuffle_graph" || callee == "iter" || callee == "next";
}

Status FxModuleLowering::header(const FxStatement& s) {
  std::string_view callee = callee_of(s);
  if (callee != "next") inputs_.clear();
  if (callee == "pytree.tree_leaves") leaf_count_ = s.target_count;
  if (callee == "iter") return ok_status();
  for (uint32_t i = 0; i < s.target_count; ++i) {
    const FxExpr& e = *target(s, i);
    if (e.kind != FxKind::name) return error(e.at, "expected a name");
    const Declared* declared = declared_.find(e.text);
    inputs_.push_back(
        {e.text, e.at, declared ? declared->annotation : kNoFx, declared ? declared->descriptor : std::string_view()});
  }
  return ok_status();
}

Status FxModuleLowering::add_input(const InputText& text) {
  SourceInput input;
  input.place = place(text.at);
  input.name = pool().str(text.name);
  SG_ASSIGN(FxType type, lowering_.types->read(file(), text.annotation));
  input.type = type.type;
  names_.try_emplace(text.name, FxName{text.name});
  graph_->inputs.push_back(std::move(input));
  if (is_main_) program_->input_descriptors.emplace_back(text.descriptor);
  return ok_status();
}

// An untyped input that no node uses is an object that is only passed on (a device mesh); one that is used is an
// untraced number.
void FxModuleLowering::mark_opaque_inputs() {
  FlatSet<StrId> used;
  for (const SourceNode& node : graph_->nodes)
    for (const SourceRef& ref : node.refs) used.insert(ref.name);
  for (SourceInput& input : graph_->inputs) {
    if (input.type != Pool::kUnknownType) continue;
    ++lowering_.gaps->untyped_inputs;
    Type type;
    bool is_used = used.contains(input.name);
    type.kind = is_used ? TypeKind::unknown : TypeKind::opaque;
    if (is_used) continue;
    type.text = pool().str("object");
    input.type = pool().types.intern(std::move(type));
    input.input.kind = InputKind::opaque;
  }
}

uint32_t FxModuleLowering::child_module(std::string_view path) const {
  uint32_t at = module_;
  while (!path.empty()) {
    std::string_view part = path.substr(0, path.find('.'));
    path.remove_prefix(std::min(path.size(), part.size() + 1));
    auto found = unit_->children.find({at, part});
    if (found == unit_->children.end()) return kNoFx;
    at = found->second;
  }
  return at;
}

// A nested graph, or a tensor held by the module: an input of kind constant.
Status FxModuleLowering::attribute(const FxStatement& s, std::string_view name, std::string_view path) {
  uint32_t child = child_module(path);
  if (child != kNoFx) {
    SG_ASSIGN(uint32_t index, nested(child));
    names_.try_emplace(name, FxName{name, true, index});
    return ok_status();
  }
  if (const std::string_view* known = attributes_.find(path)) {
    names_.try_emplace(name, FxName{*known});
    return ok_status();
  }
  SourceInput input;
  input.place = place(target(s)->at);
  input.name = pool().str(name);
  input.input.kind = InputKind::constant;
  input.input.fqn = pool().str(path);
  SG_ASSIGN(FxType type, lowering_.types->read(file(), s.annotation));
  input.type = type.type;
  graph_->inputs.push_back(std::move(input));
  if (is_main_) program_->input_descriptors.emplace_back();
  attributes_.try_emplace(path, name);
  names_.try_emplace(name, FxName{name});
  return ok_status();
}

// The index of a nested graph, which is read on first use.
Result<uint32_t> FxModuleLowering::nested(uint32_t module) {
  auto known = nested_index_->of_module.find(module);
  if (known != nested_index_->of_module.end()) return known->second;
  uint32_t index = static_cast<uint32_t>(program_->source.nested.size());
  nested_index_->of_module.emplace(module, index);
  SourceNested empty;
  empty.place = place(file().modules[module].at);
  empty.name = pool().str(nested_index_->names.at(module));
  program_->source.nested.push_back(std::move(empty));
  SourceGraph graph;  // separate, as the list may reallocate while it is filled
  SG_TRY(FxModuleLowering(lowering_, unit_, unit_index_, program_, nested_index_).read(module, &graph, false));
  program_->source.nested[index].graph = std::move(graph);
  return index;
}

// --- outputs ---

Status FxModuleLowering::outputs(const FxStatement& s) {
  const FxExpr* value = &file().expr(s.value);
  uint32_t skip = 0, index = s.value;
  auto callee_is = [&](std::string_view name) {
    return value->kind == FxKind::call && file().child(*value, 0).text == name && value->count >= 2;
  };
  if (callee_is("pytree.tree_unflatten")) {
    index = file().children[value->first + 1];
    value = &file().expr(index);
  }
  if (callee_is("self._out_shuffle_graph")) skip = leaf_count_ + 1;
  if (skip == 0) return output(index);
  for (uint32_t i = skip; i < value->count; ++i) SG_TRY(output(file().children[value->first + i]));
  return ok_status();
}

// Lists, tuples and dicts of outputs are flattened, as in PyTorch.
Status FxModuleLowering::output(uint32_t index) {
  const FxExpr& e = file().expr(index);
  if (e.kind == FxKind::list || e.kind == FxKind::tuple) {
    for (uint32_t child : file().children_of(e)) SG_TRY(output(child));
    return ok_status();
  }
  if (e.kind == FxKind::dict) {
    for (uint32_t i = 1; i < e.count; i += 2) SG_TRY(output(file().children[e.first + i]));
    return ok_status();
  }
  SourceOutput out;
  const FxName* known = e.kind == FxKind::name ? names_.find(e.text) : nullptr;
  bool is_literal = e.kind != FxKind::name || e.text == "True" || e.text == "False";
  if (file().is_none(index) || is_literal) {
    out.output.kind = OutputKind::none;
    if (is_literal) out.output.extra.push_back({pool().str("literal"), pool().str(fx_json(file(), index))});
  } else {
    out.value = {pool().str(known ? known->canonical : e.text), place(e.at)};
  }
  graph_->outputs.push_back(std::move(out));
  if (is_main_) program_->output_descriptors.emplace_back(file().descriptor_of(index));
  return ok_status();
}

}  // namespace sg
