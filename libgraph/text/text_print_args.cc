#include "libgraph/names.h"
#include "libgraph/text/text_printer.h"

namespace sg::text {

void TextPrinter::arguments(const Program& program, const Graph& graph, const Node& node) {
  for (size_t i = 0; i < node.args.size(); ++i) {
    const Arg& arg = node.args[i];
    if (i) put(", ");
    if (arg.key()) word(arg.key()), put('=');
    argument(program, graph, arg);
  }
}

void TextPrinter::argument(const Program& program, const Graph& graph, const Arg& arg) {
  switch (arg.kind()) {
    case ArgKind::none: return put("none");
    case ArgKind::boolean: return put(arg.as_bool() ? "true" : "false");
    case ArgKind::integer: return number(arg.as_int());
    case ArgKind::floating: return append_float(arg.as_float(), &out_);
    case ArgKind::complex: return items(program, graph, arg, "complex(", ')');
    case ArgKind::string: return append_quoted(text_of(arg.as_text()), &out_);
    case ArgKind::expr: return expression_argument(arg);
    case ArgKind::value: return value_name(graph.name(arg.as_value()));
    case ArgKind::dtype:
      if (arg.as_dtype() == DType::none) put("dtype:");
      return put(dtype_name(arg.as_dtype()));
    case ArgKind::list: return items(program, graph, arg, "[", ']');
    case ArgKind::slice: return items(program, graph, arg, "slice(", ')');
    case ArgKind::dict: return items(program, graph, arg, "{", '}');
    case ArgKind::graph:
      put("graph:");
      return arg.as_graph().index < program.nested.size() ? word(program.nested[arg.as_graph().index]->name) : put('?');
    case ArgKind::group: return group_name(arg.as_group());
    default: return text_argument(arg);
  }
}

void TextPrinter::items(const Program& program, const Graph& graph, const Arg& arg, std::string_view begin, char end) {
  put(begin);
  bool is_first = true;
  for (const Arg& item : arg.items()) {
    if (!is_first) put(", ");
    is_first = false;
    if (arg.is(ArgKind::dict)) word(item.key()), put(": ");
    argument(program, graph, item);
  }
  put(end);
}

// A bare expression must not read as a number, a word with a meaning of its own, or a device.
void TextPrinter::expression_argument(const Arg& arg) {
  Expr e = arg.as_expr();
  std::string text = captured([&] { expr(e); });
  size_t begin = text.starts_with('-') ? 1 : 0, end = begin;
  while (end < text.size() && is_word_char(text[end])) ++end;
  std::string_view first = std::string_view(text).substr(begin, end - begin), key = text_of(arg.key());
  bool wrap = (e && pool_.exprs.is_constant(e)) || is_argument_word(first) || key == "device" || key == "layout" ||
              key == "memory_format";
  if (wrap) put("expr(");
  put(text);
  if (wrap) put(')');
}

// The keywords dtype, device, layout and memory_format imply the kind: `device=cpu`.
void TextPrinter::text_argument(const Arg& arg) {
  std::string_view kind = name_of(arg.kind()), s = text_of(arg.as_text());
  bool may_be_bare = arg.is(ArgKind::device) || arg.is(ArgKind::layout) || arg.is(ArgKind::memory_format);
  bool is_bare = may_be_bare && is_plain<is_device_char>(s);
  bool kind_is_clear =
      is_bare && !is_digit(s[0]) && text_of(arg.key()) == kind && !is_argument_word(s.substr(0, s.find(':')));
  if (!kind_is_clear) put(kind), put(':');
  if (is_bare) put(s);
  else append_quoted(s, &out_);
}

void TextPrinter::op_name(OpId op) {
  if (ops_.size() <= op.index) ops_.resize(pool_.ops.size());
  std::string& text = ops_[op.index];
  if (text.empty()) {
    std::string_view name = pool_.op_name(op), shorter = name;
    if (name.ends_with(".default")) shorter.remove_suffix(8);
    text = captured([&] {
      if (!is_plain<is_word_char>(name) || is_digit(name[0])) append_quoted(name, &out_);
      else if (shorter.size() < name.size() && gets_default_overload(shorter)) put(shorter);
      else if (gets_default_overload(name)) append_quoted(name, &out_);
      else put(name);
    });
  }
  put(text);
}

void TextPrinter::group_name(GroupId group) {
  put('@');
  if (group.index >= job_.groups.size()) return put('?');
  const Group& g = job_.groups[group.index];
  plain_or_quoted<is_axis_char>(text_of(g.axis));
  if (g.ordinal) put(':'), number(g.ordinal);
}

}  // namespace sg::text
