#include <algorithm>
#include <cassert>
#include <unordered_set>

#include "libgraph/base/chars.h"
#include "libgraph/base/joined.h"
#include "libgraph/export/python_writer.h"
#include "libgraph/op.h"

namespace sg::python {

namespace {

bool is_plain(std::string_view code) { return std::ranges::all_of(code, is_dotted_word); }

std::string in_parentheses(const std::string& code) { return is_plain(code) ? code : "(" + code + ")"; }

constexpr char kComma[] = {',', kBreak, '\0'};

// Of a view that PyTorch makes by changing its operand (t_, squeeze_), the one that leaves it alone: in a graph the
// operand stays what it was.
std::string without_writing(std::string_view name) {
  if (name == "aten.transpose_.default") return "aten.transpose.int";
  std::string out(name);
  if (const size_t at = out.find("_."); at != out.npos) out.erase(at, 1);
  return out;
}

}  // namespace

// `function(arguments)`, or the same as a node of a torch.fx graph.
std::string GraphWriter::call(NodeId n, std::string_view function, std::span<const std::string> arguments) const {
  std::string list = joined(arguments, kComma);
  if (!module_.fx) return std::string(function) + "(" + list + ")";
  std::string out = "g.call(" + string_literal(graph_->label(n)) + ",";
  out += kBreak, out += function;
  if (!list.empty()) out += ',', out += kBreak, out += list;
  return out + ")";
}

std::string GraphWriter::call_of(NodeId n) {
  std::string_view name = graph_->op_name(n);
  if (name == "sg.call") return body_call(n);
  if (const SizeOp* op = find_size_op(name)) return size_call(n, *op);
  return torch_call(n);
}

std::string GraphWriter::size_call(NodeId n, const SizeOp& op) {
  const Node& node = graph_->node(n);
  std::vector<std::string> list;
  for (const Arg& arg : node.args) {
    if (arg.key())
      return fail("`" + std::string(op.name) + "` has keyword arguments, which Python's own does not take");
    list.push_back(argument(arg));
  }
  if (auto count = static_cast<int>(list.size()); count < op.arity || count > op.arity + op.optional)
    return fail("`" + std::string(op.name) + "` has " + std::to_string(list.size()) + " arguments instead of " +
                std::to_string(op.arity));
  if (module_.fx) return call(n, op.function, list);
  switch (op.spelling) {
    case Spelling::infix: return in_parentheses(list[0]) + " " + std::string(op.text) + " " + in_parentheses(list[1]);
    case Spelling::prefix: return std::string(op.text) + in_parentheses(list[0]);
    case Spelling::index: return in_parentheses(list[0]) + "[" + list[1] + "]";
    case Spelling::call: break;
  }
  return call(n, op.text, list);
}

std::string GraphWriter::body_call(NodeId n) {
  std::string body;
  std::vector<std::string> list;
  for (const Arg& arg : graph_->node(n).args) {
    if (arg.is(ArgKind::graph)) {
      body = bodies_[arg.as_graph().index];
      for (StrId s : symbols_.nested(arg.as_graph()).parameters) list.push_back(symbol(s));
    } else if (arg.is(ArgKind::list)) {
      std::vector<std::string> values;
      for (const Arg& item : arg.items()) values.push_back(argument(item));
      list.insert(list.begin(), values.begin(), values.end());
    }
  }
  if (body.empty()) return fail("`sg.call` names no nested graph");
  if (!module_.fx) return call(n, body, list);
  std::string out = "g.call_body(" + string_literal(graph_->label(n)) + ",";
  out += kBreak, out += body;
  if (!list.empty()) out += ',', out += kBreak, out += joined(list, kComma);
  return out + ")";
}

std::string GraphWriter::torch_call(NodeId n) {
  std::string_view name = graph_->op_name(n);
  const OpInfo* op = graph_->op_info(n);
  const bool is_written_view = op != nullptr && op->has(kView) && op->writes();
  std::string function = is_written_view ? function_of(without_writing(name)) : function_of(name);
  tuples_ = name.starts_with("higher_order.");
  std::vector<std::string> list;
  for (const Arg& arg : graph_->node(n).args) list.push_back(keyword(arg));
  tuples_ = false;
  if (auto place = draws_.places.find(n); place != draws_.places.end() && place->second.is_again) {
    list.insert(list.begin(), {draw_name(place->second.draw), function});
    function = "draw_again";
  }
  return error_ ? std::string() : call(n, function, list);
}

std::string GraphWriter::draw_name(uint32_t draw) {
  if (draw_names_[draw].empty()) draw_names_[draw] = scope_.claim("draw_" + std::to_string(draw + 1));
  return draw_names_[draw];
}

// Before the node draws: accounts for skipped draws, and saves the generator state if the draw is repeated later.
void GraphWriter::draws_before(NodeId n) {
  const auto place = draws_.places.find(n);
  if (place == draws_.places.end()) return;
  auto state = [&](uint32_t draw, const std::string& arguments) {
    const std::string name = draw_name(draw);
    line(name + " = " + (module_.fx ? "g.call(" + string_literal(name) + ", " : "") + arguments + ")");
  };
  for (const DrawPlan::Skipped& skipped : place->second.skipped) state(skipped.draw, skipped_draw(skipped));
  if (place->second.is_kept) state(place->second.draw, module_.fx ? "random_state" : "random_state(");
}

std::string GraphWriter::skipped_draw(const DrawPlan::Skipped& skipped) {
  at_ = skipped.node;
  stands_in_ = true;
  std::vector<std::string> list = {function_of(graph_->op_name(skipped.node))};
  for (const Arg& arg : graph_->node(skipped.node).args) list.push_back(keyword(arg));
  stands_in_ = false;
  return std::string(module_.fx ? "skip_draw, " : "skip_draw(") + joined(list, kComma);
}

std::string GraphWriter::function_of(std::string_view op_name) {
  if (const HelperOp* helper = find_helper_op(op_name)) {
    module_.helpers.insert(helper->source);
    if (!helper->function.empty()) return std::string(helper->function);
  }
  QualifiedOp op;
  if (!split_op_name(op_name, &op)) {
    std::string quoted;
    append_comment(op_name, &quoted);
    return fail("PyTorch has no name for the op `" + quoted + "`",
                "ops are called by their name under torch.ops: namespace.name.overload");
  }
  auto space = module_.space_names.find(op.space);
  assert(space != module_.space_names.end());
  module_.spaces.insert(*space);
  return space->second + "." + std::string(op.rest);
}

// The call, assigned to the names of its results. Unused results become `_`; if none is used there is no assignment.
std::string GraphWriter::assigned(NodeId n, std::string call) {
  const Node& node = graph_->node(n);
  bool is_tuple = node.is_tuple || node.result_count > 1, any = false;
  std::string targets, names;
  for (uint32_t i = 0; i < node.result_count; ++i) {
    ValueId v = node.result(i);
    bool is_wanted = is_wanted_[v.index];
    any |= is_wanted;
    if (i) targets += ',', targets += kBreak;
    targets += is_wanted ? identifier(v) : "_";
    names += ',', names += kBreak, names += is_wanted ? string_literal(graph_->name(v)) : "None";
  }
  if (!any) return call;
  constexpr size_t kBareTargets = 80;
  if (node.result_count == 1 && is_tuple) targets = "(" + targets + ",)";
  else if (targets.size() > kBareTargets) targets = "(" + targets + ")";
  if (module_.fx && is_tuple) call = "g.items(" + call + names + ")";
  return targets + " = " + call;
}

// The values that are last used here, to be deleted as the memory plan frees them. Inputs belong to the caller.
std::vector<std::string> GraphWriter::dead_after(NodeId n) const {
  std::vector<std::string> dead;
  if (module_.fx) return dead;
  std::unordered_set<ValueId, IdHash> seen;
  for (const Arg& top : graph_->node(n).args)
    top.walk([&](const Arg& arg) {
      if (!arg.is(ArgKind::value)) return;
      ValueId v = arg.as_value();
      TypeKind kind = graph_->type(v).kind;
      bool is_number = kind == TypeKind::integer || kind == TypeKind::floating || kind == TypeKind::boolean;
      bool dies = !is_number && last_use_[v.index] == n && !graph_->value(v).def.is_none();
      if (dies && seen.insert(v).second) dead.push_back(identifier(v));
    });
  return dead;
}

// One node: the call, its `del` on the same line if it fits, and the types as a comment.
void GraphWriter::statement(const std::string& code, const std::vector<std::string>& dead, std::string_view types) {
  constexpr size_t kWidest = 60;
  const std::string names = joined(dead, ", ");
  if (dead.empty()) return line(code, types);
  if (names.size() <= kWidest) return line(code + ";  del " + names, types);
  line(code, types);
  line("del (" + joined(dead, kComma) + ")");
}

}  // namespace sg::python
