#include "libgraph/import/fx_module.h"

#include <algorithm>

#include "libgraph/import/source_build.h"

namespace sg {
namespace {

// Operators that FX prints as symbols, by their names in Python's operator module.
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

// Python arithmetic on numbers, which graphs of operators may contain.
bool is_host_function(std::string_view callee) {
  return op_of_target(callee).starts_with("python.") || callee.starts_with("math.");
}

}  // namespace

Status FxModuleLowering::read(uint32_t module, SourceGraph* graph, bool is_main) {
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

Status FxModuleLowering::statement(const FxStatement& s) {
  switch (s.kind) {
    case FxStatementKind::declare: return ok_status();
    case FxStatementKind::expression: return ok_status();  // args_list.clear(), a docstring
    case FxStatementKind::returns: return outputs(s);
    case FxStatementKind::change:
      return error(s.at, "a change in place that Python makes: this graph was taken before its calls became operators",
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
  if (is_token_again(name, value)) return ok_status();
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
Status FxModuleLowering::named(const FxStatement& s, std::string_view name, const FxExpr& value) {
  if (value.text.starts_with("self.")) return attribute(s, name, value.text.substr(5));
  if (const FxName* known = names_.find(value.text)) {
    const FxName same = *known;  // the table may reallocate as it grows
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

void FxModuleLowering::foreign(std::string what, uint32_t at) {
  if (program_->foreign_calls++ != 0) return;
  program_->first_foreign = std::move(what);
  program_->first_foreign_at = unit_->text.where(at);
}

Status FxModuleLowering::operation(const FxExpr& value, SourceNode* node) {
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

Status FxModuleLowering::call(const FxExpr& value, const FxExpr& callee, FxArgs* args, SourceNode* node) {
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
  SG_TRY(args->read(value, 1, find_op(op)));
  call_body(&op, &node->args);
  node->op = pool().str(op);
  if (op == "higher_order.with_effects") assert_without_token(node);
  return ok_status();
}

// with_effects(token, op, arguments...) runs the op in the order that tokens give and returns the token with the op's
// results. An assertion keeps its place without one: it becomes the op itself.
void FxModuleLowering::assert_without_token(SourceNode* node) {
  std::vector<Arg>& args = node->args;
  if (args.size() < 2 || !args[0].is(ArgKind::value) || !args[1].is(ArgKind::op)) return;
  const StrId token = node->refs[0].name;
  const auto is_token = [&](const SourceInput& input) { return input.name == token; };
  if (is_main_ && std::ranges::any_of(graph_->inputs, is_token)) program_->tokens.insert(token);
  const OpInfo* info = find_op(pool().strings[args[1].as_text()]);
  if (info == nullptr || !info->has(kAssert)) return;
  effects_.try_emplace(pool().strings[node->name], pool().strings[token]);
  node->op = args[1].as_text();
  args.erase(args.begin(), args.begin() + 2);
  node->refs.erase(node->refs.begin());
  for (Arg& arg : args)
    arg.walk_mutable([](Arg& a) {
      if (a.is(ArgKind::value)) a.set_value(ValueId(a.as_value().index - 1));
    });
}

// getitem = with_effects[0], of an assertion: the token that it was given.
bool FxModuleLowering::is_token_again(std::string_view name, const FxExpr& value) {
  if (value.kind != FxKind::subscript || file().child(value, 1).text != "0") return false;
  const std::string_view* token = effects_.find(file().child(value, 0).text);
  if (token == nullptr) return false;
  names_.try_emplace(name, FxName{*token});
  return true;
}

Status FxModuleLowering::set_result(const FxStatement& s, SourceNode* node) {
  SG_ASSIGN(FxType type, lowering_.types->read(file(), s.annotation));
  // A value printed without a type is a tuple or nothing; the getitems that take it apart have types as precise as the
  // text's.
  bool lacks_layout = lowering_.gaps->strides != 0;
  node->results.is_guess = type.is_guess || (type.type == Pool::kUnknownType && lacks_layout);
  node->results.offset_is_guess = true;
  if (type.type == Pool::kUnknownType) {
    if (pool().strings[node->op] == "sg.call") {
      const SourceGraph& body = program_->source.nested[node->args[0].as_graph().index].graph;
      node->results.shape = SourceResults::Shape::tuple;
      node->results.types.resize(body.outputs.size(), Pool::kUnknownType);
      return ok_status();
    }
    const OpInfo* info = find_op(pool().strings[node->op]);
    if (info == nullptr || info->returns_list || info->results.size() < 2) return ok_status();
    node->results.shape = SourceResults::Shape::tuple;  // unused results count too
    node->results.types.resize(info->results.size(), Pool::kUnknownType);
    return ok_status();
  }
  node->results.shape = SourceResults::Shape::one;
  node->results.types.push_back(type.type);
  return ok_status();
}

void FxModuleLowering::set_context(const FxStatement& s, SourceNode* node) {
  if (s.context == kNoFx) return;
  const FxContext& context = unit_->contexts[s.context];
  node->module = context.module;
  node->source = context.source;
  node->phase = context.is_backward ? Phase::backward : Phase::forward;
  node->meta = context.meta;
  node->seq = context.seq;
}

}  // namespace sg
