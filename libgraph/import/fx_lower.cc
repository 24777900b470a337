#include "libgraph/import/fx_lower.h"

#include <algorithm>
#include <set>

#include "libgraph/import/fx_parse.h"
#include "libgraph/import/source_build.h"
#include "libgraph/json.h"

namespace sg {
namespace {

// What FX prints as signs, by the names of Python's operator module.
constexpr std::pair<std::string_view, std::string_view> kOperatorOfSign[] = {
    {"+", "add"},    {"-", "sub"},  {"*", "mul"},         {"//", "floordiv"}, {"/", "truediv"}, {"%", "mod"},
    {"**", "pow"},   {"==", "eq"},  {"!=", "ne"},         {"<", "lt"},        {"<=", "le"},     {">", "gt"},
    {">=", "ge"},    {"&", "and_"}, {"|", "or_"},         {"^", "xor"},       {"<<", "lshift"}, {">>", "rshift"},
    {"@", "matmul"}, {"is", "is_"}, {"is not", "is_not"}, {"and", "and"},     {"or", "or"}};
constexpr std::pair<std::string_view, std::string_view> kOperatorOfUnarySign[] = {
    {"-", "neg"}, {"+", "pos"}, {"~", "invert"}, {"not", "not_"}};

template <size_t N>
std::string operator_named(const std::pair<std::string_view, std::string_view> (&signs)[N], std::string_view sign) {
  for (const auto& [s, name] : signs)
    if (s == sign) return "python." + std::string(name);
  return "python." + std::string(sign);
}

// Arithmetic of Python on numbers, which graphs of operators hold too.
bool is_host_function(std::string_view callee) {
  return op_of_target(callee).starts_with("python.") || callee.starts_with("math.");
}

}  // namespace

// --- groups ---

// Of all groups together: names are short, and each may claim as many as a world has.
constexpr uint64_t kMaxMembers = 1 << 23;

GroupId FxGroups::of(std::string_view name, std::optional<int64_t> size) {
  auto it = by_name_.find(name);
  if (it == by_name_.end()) {
    it = by_name_.try_emplace(std::string(name), GroupId(static_cast<uint32_t>(sizes_.size()))).first;
    sizes_.emplace_back();
  }
  std::optional<int64_t>& known = sizes_[it->second.index];
  if (size) known = std::max(known.value_or(0), *size);
  return it->second;
}

int64_t FxGroups::largest() const {
  int64_t largest = 1;
  for (const auto& size : sizes_) largest = std::max(largest, size.value_or(1));
  return largest;
}

Status FxGroups::settle(uint32_t world, size_t programs, uint32_t named_ranks) {
  std::vector<std::string_view> names(sizes_.size());
  for (const auto& [name, id] : by_name_) names[id.index] = name;
  uint64_t members = 0;
  for (const auto& size : sizes_) members += static_cast<uint64_t>(std::max<int64_t>(1, size.value_or(world)));
  if (members > kMaxMembers)
    return Error{
        ErrorKind::unreadable,
        std::to_string(sizes_.size()) + " groups with " + std::to_string(members) + " members are beyond any job",
        {},
        {}};
  for (size_t g = 0; g < sizes_.size(); ++g) {
    uint32_t size = static_cast<uint32_t>(std::max<int64_t>(1, sizes_[g].value_or(world)));
    if (size != world && programs > 1)
      return Error{ErrorKind::unreadable,
                   "the group `" + std::string(names[g]) + "` holds " + std::to_string(size) + " of " +
                       std::to_string(world) + " ranks, and the text does not say which",
                   {},
                   "import the capture of each rank, which declares its groups"};
    Group group;
    group.axis = job_->pool->str(names[g]);
    GroupPart part;
    uint32_t first = named_ranks > size ? named_ranks - size : 0;
    for (uint32_t r = first; r < first + size; ++r) {
      part.ranks.push_back(r);
      if (r < named_ranks) part.aliases.push_back({r, group.axis});
    }
    group.parts.push_back(std::move(part));
    job_->groups.push_back(std::move(group));
  }
  return ok_status();
}

// --- one module ---

namespace {

// The nested graphs of a program, by the module that they come from.
struct FxNestedIndex {
  std::map<uint32_t, uint32_t> of_module;
  std::map<uint32_t, std::string> names;  // unique
};

// Each module below `root` keeps its own name, the outer ones first; where it is taken, behind those of the modules
// around it.
std::map<uint32_t, std::string> nested_names(const FxFile& file, uint32_t root) {
  std::map<uint32_t, uint32_t> depth{{root, 0}};
  std::vector<std::pair<uint32_t, uint32_t>> order;            // depth, module
  for (uint32_t m = root + 1; m < file.modules.size(); ++m) {  // a module stands before those inside it
    auto parent = depth.find(file.modules[m].parent);
    if (parent == depth.end()) continue;
    depth.emplace(m, parent->second + 1);
    order.emplace_back(parent->second + 1, m);
  }
  std::sort(order.begin(), order.end());
  std::map<uint32_t, std::string> names;
  std::set<std::string> taken;
  std::map<std::string, uint32_t> next_suffix;
  for (const auto& [unused, m] : order) {
    std::string name(file.modules[m].name);
    for (uint32_t p = file.modules[m].parent; taken.count(name) != 0 && p != root; p = file.modules[p].parent)
      name = std::string(file.modules[p].name) + "." + name;
    const std::string base = name;
    for (uint32_t& k = next_suffix[base]; !taken.insert(name).second;) name = base + "_" + std::to_string(++k);
    names.emplace(m, name);
  }
  return names;
}

class ModuleLowering {
 public:
  ModuleLowering(const FxLowering& lowering, FxUnit* unit, uint32_t unit_index, FxProgram* program,
                 FxNestedIndex* nested_index)
      : lowering_(lowering), unit_(unit), unit_index_(unit_index), program_(program), nested_index_(nested_index) {}

  Status read(uint32_t module, SourceGraph* graph, bool is_main) {
    module_ = module;
    graph_ = graph;
    is_main_ = is_main;
    const FxModule& m = unit_->file.modules[module];
    collect_declarations(m);
    for (const FxParam& p : m.params) inputs_.push_back({p.name, p.at, p.annotation, p.descriptor});
    for (const FxStatement& s : m.statements) {
      if (is_header(s)) SG_TRY(header(s));
    }
    for (const InputText& input : inputs_) SG_TRY(add_input(input));
    graph_->nodes.reserve(m.statements.size());
    for (const FxStatement& s : m.statements) SG_TRY(statement(s));
    mark_opaque_inputs();
    return ok_status();
  }

 private:
  struct InputText {
    std::string_view name;
    uint32_t at;
    uint32_t annotation = kNoFx;
    std::string_view descriptor;
  };
  struct Declared {
    uint32_t annotation;
    std::string_view descriptor;
  };

  const FxFile& file() const { return unit_->file; }
  Pool& pool() { return *lowering_.job->pool; }
  SourcePlace place(uint32_t at) const { return {at, unit_index_}; }
  Error error(uint32_t at, std::string message, std::string hint = {}) const {
    return unit_->text.error(at, std::move(message), std::move(hint));
  }
  const FxExpr* target(const FxStatement& s, uint32_t i = 0) const {
    return i < s.target_count ? &file().expr(file().targets[s.first_target + i]) : nullptr;
  }
  std::string_view callee_of(const FxStatement& s) const {
    if (s.value == kNoFx || file().expr(s.value).kind != FxKind::call) return {};
    const FxExpr& callee = file().child(file().expr(s.value), 0);
    return callee.kind == FxKind::name ? callee.text : std::string_view();
  }

  // primals_1: "f32[4]"  # PlainAOTInput(idx=0)
  void collect_declarations(const FxModule& m) {
    for (const FxStatement& s : m.statements)
      if (s.kind == FxStatementKind::declare)
        declared_.try_emplace(target(s)->text, {s.annotation, file().descriptor_of(file().targets[s.first_target])});
  }

  // Lines by which FX unpacks what the function was called with: the names on their left are the inputs.
  bool is_header(const FxStatement& s) const {
    if (s.kind != FxStatementKind::assign) return false;
    std::string_view callee = callee_of(s);
    return callee == "fx_pytree.tree_flatten_spec" || callee == "pytree.tree_leaves" ||
           callee == "self._in_shuffle_graph" || callee == "iter" || callee == "next";
  }

  Status header(const FxStatement& s) {
    std::string_view callee = callee_of(s);
    if (callee != "next") inputs_.clear();
    if (callee == "pytree.tree_leaves") leaf_count_ = s.target_count;
    if (callee == "iter") return ok_status();
    for (uint32_t i = 0; i < s.target_count; ++i) {
      const FxExpr& e = *target(s, i);
      if (e.kind != FxKind::name) return error(e.at, "expected a name");
      const Declared* declared = declared_.find(e.text);
      inputs_.push_back({e.text, e.at, declared ? declared->annotation : kNoFx,
                         declared ? declared->descriptor : std::string_view()});
    }
    return ok_status();
  }

  Status add_input(const InputText& text) {
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

  // An input without a type that no node uses is an object that is only passed on (a device mesh); one that is used, a
  // number that was not traced.
  void mark_opaque_inputs() {
    FlatMap<StrId, bool> used;
    for (const SourceNode& node : graph_->nodes)
      for (const SourceRef& ref : node.refs) used.try_emplace(ref.name, true);
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

  // --- statements ---

  Status statement(const FxStatement& s) {
    switch (s.kind) {
      case FxStatementKind::declare: return ok_status();
      case FxStatementKind::expression: return ok_status();  // args_list.clear(), a docstring
      case FxStatementKind::returns: return outputs(s);
      case FxStatementKind::change:
        return error(s.at,
                     "a change in place that Python makes: this graph was taken before its calls became operators",
                     "give a graph of AOTAutograd: aot_joint_graph, aot_forward_graph, aot_backward_graph");
      case FxStatementKind::assign: break;
    }
    if (is_header(s)) return ok_status();
    const FxExpr& value = file().expr(s.value);
    if (file().is_none(s.value)) return ok_status();  // ";  x = None" frees x
    if (s.target_count != 1 || target(s)->kind != FxKind::name || target(s)->text.find('.') != std::string_view::npos)
      return error(s.at, "expected one name on the left");
    std::string_view name = target(s)->text;
    if (value.kind == FxKind::name) return named(s, name, value);
    SourceNode node;
    node.place = place(target(s)->at);
    node.name = pool().str(name);
    SG_TRY(operation(value, &node));
    SG_TRY(set_result(s, &node));
    set_context(s, &node);
    names_.try_emplace(name, FxName{name});
    graph_->nodes.push_back(std::move(node));
    return ok_status();
  }

  // x = y, x = self.weight, x = y.shape
  Status named(const FxStatement& s, std::string_view name, const FxExpr& value) {
    if (value.text.starts_with("self.")) return attribute(s, name, value.text.substr(5));
    if (const FxName* known = names_.find(value.text)) {
      const FxName same = *known;  // the table may move while it grows
      names_.try_emplace(name, same);
      return ok_status();
    }
    size_t dot = value.text.find('.');
    const FxName* base = names_.find(value.text.substr(0, dot));
    if (dot == std::string_view::npos || base == nullptr || base->is_nested)
      return error(value.at, "no node or input is called `" + std::string(value.text.substr(0, 80)) + "`");
    SourceNode node;
    node.place = place(target(s)->at);
    node.name = pool().str(name);
    node.op = pool().str("attribute." + std::string(value.text.substr(dot + 1)));
    foreign("the attribute `" + std::string(value.text.substr(dot + 1)) + "`", value.at);
    node.args.push_back(Arg::value(ValueId(0)));
    node.refs.push_back({pool().str(base->canonical), place(value.at)});
    SG_TRY(set_result(s, &node));
    set_context(s, &node);
    names_.try_emplace(name, FxName{name});
    graph_->nodes.push_back(std::move(node));
    return ok_status();
  }

  uint32_t child_module(std::string_view path) const {
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

  // A nested graph, or a tensor that the module holds: an input of the kind constant.
  Status attribute(const FxStatement& s, std::string_view name, std::string_view path) {
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

  // The index of a nested graph, which is read when it is first met.
  Result<uint32_t> nested(uint32_t module) {
    auto known = nested_index_->of_module.find(module);
    if (known != nested_index_->of_module.end()) return known->second;
    uint32_t index = static_cast<uint32_t>(program_->source.nested.size());
    nested_index_->of_module.emplace(module, index);
    SourceNested empty;
    empty.place = place(file().modules[module].at);
    empty.name = pool().str(nested_index_->names.at(module));
    program_->source.nested.push_back(std::move(empty));
    SourceGraph graph;  // the list may move while it is filled
    SG_TRY(ModuleLowering(lowering_, unit_, unit_index_, program_, nested_index_).read(module, &graph, false));
    program_->source.nested[index].graph = std::move(graph);
    return index;
  }

  // --- operations ---

  void foreign(std::string what, uint32_t at) {
    if (program_->foreign_calls++ != 0) return;
    program_->first_foreign = std::move(what);
    program_->first_foreign_at = unit_->text.where(at);
  }

  Status operation(const FxExpr& value, SourceNode* node) {
    FxArgs args(lowering_, *unit_, names_, unit_index_, node);
    auto take = [&](std::string op) -> Status {  // all children are operands
      node->op = pool().str(op);
      for (uint32_t child : file().children_of(value)) {
        SG_ASSIGN(Arg a, args.arg(child));
        node->args.push_back(std::move(a));
      }
      return ok_status();
    };
    if (value.kind == FxKind::subscript) return take("python.getitem");
    if (value.kind == FxKind::binary) return take(operator_named(kOperatorOfSign, value.text));
    if (value.kind == FxKind::unary) return take(operator_named(kOperatorOfUnarySign, value.text));
    if (value.kind != FxKind::call) return error(value.at, "expected a call of an operator");
    const FxExpr& callee = file().child(value, 0);
    if (callee.kind != FxKind::name) return error(callee.at, "expected the name of an operator");
    return call(value, callee, &args, node);
  }

  Status call(const FxExpr& value, const FxExpr& callee, FxArgs* args, SourceNode* node) {
    std::string_view text = callee.text;
    size_t dot = text.find('.');
    const FxName* base = dot == std::string_view::npos ? nullptr : names_.find(text.substr(0, dot));
    std::string op;
    if (base != nullptr && !base->is_nested) {  // y.expand(2)
      op = "method." + std::string(text.substr(dot + 1));
      foreign("the method `" + std::string(text.substr(dot + 1)) + "`", callee.at);
      node->refs.push_back({pool().str(base->canonical), place(callee.at)});
      node->args.push_back(Arg::value(ValueId(0)));
    } else if (text.starts_with("self.")) {
      op = "module." + std::string(text.substr(5));
      uint32_t child = child_module(text.substr(5));
      if (child == kNoFx) foreign("the module `" + std::string(text.substr(5)) + "`", callee.at);
      if (child != kNoFx) {
        SG_ASSIGN(uint32_t index, nested(child));
        node->args.push_back(Arg::graph(NestedId(index)));
      }
    } else {
      op = op_of_target(text);
      if (text.starts_with("torch.ops.")) ++program_->operator_calls;
      else if (!is_host_function(text)) foreign("`" + std::string(text) + "`", callee.at);
    }
    node->op = pool().str(op);
    return args->read(value, 1, find_op(op));
  }

  Status set_result(const FxStatement& s, SourceNode* node) {
    SG_ASSIGN(FxType type, lowering_.types->read(file(), s.annotation));
    // What stands without a type is a tuple, or nothing, and what takes it apart has the types that texts give.
    bool lacks_layout = lowering_.gaps->strides != 0;
    node->results.is_guess = type.is_guess || (type.type == Pool::kUnknownType && lacks_layout);
    node->results.offset_is_guess = true;
    if (type.type == Pool::kUnknownType) {
      const OpInfo* info = find_op(pool().strings[node->op]);
      if (info == nullptr || info->returns_list || info->results.size() < 2) return ok_status();
      node->results.shape = SourceResults::Shape::tuple;  // those that nobody takes are results too
      node->results.types.resize(info->results.size(), Pool::kUnknownType);
      return ok_status();
    }
    node->results.shape = SourceResults::Shape::one;
    node->results.types.push_back(type.type);
    return ok_status();
  }

  void set_context(const FxStatement& s, SourceNode* node) {
    if (s.context == kNoFx) return;
    const FxContext& context = unit_->contexts[s.context];
    node->module = context.module;
    node->source = context.source;
    node->phase = context.is_backward ? Phase::backward : Phase::forward;
    node->meta = context.meta;
    node->seq = context.seq;
  }

  // --- outputs ---

  Status outputs(const FxStatement& s) {
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

  // Lists, tuples and dicts of outputs are flattened, as PyTorch does.
  Status output(uint32_t index) {
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

  const FxLowering& lowering_;
  FxUnit* unit_;
  uint32_t unit_index_;
  FxProgram* program_;
  FxNestedIndex* nested_index_;
  uint32_t module_ = 0;
  SourceGraph* graph_ = nullptr;
  bool is_main_ = false;
  uint32_t leaf_count_ = 0;
  std::vector<InputText> inputs_;
  FlatTextMap<Declared> declared_;
  FlatTextMap<FxName> names_;
  FlatTextMap<std::string_view> attributes_;
};

}  // namespace

Result<std::unique_ptr<FxUnit>> read_fx_unit(FxText text) {
  auto unit = std::make_unique<FxUnit>();
  unit->text = std::move(text);
  SG_ASSIGN(unit->file, parse_fx(unit->text));
  for (uint32_t i = 0; i < unit->file.modules.size(); ++i)
    unit->children.try_emplace({unit->file.modules[i].parent, unit->file.modules[i].name}, i);
  return unit;
}

Result<FxProgram> lower_fx_program(const FxLowering& lowering, FxUnit* unit, uint32_t module, uint32_t unit_index) {
  FxProgram program;
  // All comments first: what they hold grows the tree, in which lowering keeps places.
  for (size_t i = unit->contexts.size(); i < unit->file.comments.size(); ++i)
    unit->contexts.push_back(
        read_fx_comment(&unit->file, unit->file.comments[i], lowering.job->pool.get(), lowering.gaps));
  FxNestedIndex nested_index;
  nested_index.names = nested_names(unit->file, module);
  SourceGraph graph;
  SG_TRY(ModuleLowering(lowering, unit, unit_index, &program, &nested_index).read(module, &graph, true));
  program.source.graph = std::move(graph);
  return program;
}

}  // namespace sg
