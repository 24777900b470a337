#include <algorithm>
#include <charconv>

#include "libgraph/export/python_writer.h"

namespace sg::python {

namespace {

constexpr int kMaxDepth = 90;  // nested brackets: Python's own limit is 200

constexpr std::string_view kLayouts[] = {"strided",    "sparse_coo", "sparse_csr", "sparse_csc",
                                         "sparse_bsr", "sparse_bsc", "jagged"};
constexpr std::string_view kMemoryFormats[] = {"contiguous_format", "preserve_format", "channels_last",
                                               "channels_last_3d"};

// Redirects calls of Python's min and max to the builder, as torch.fx cannot trace them.
std::string with_builder_calls(std::string code) {
  for (std::string_view name : {"max(", "min("})
    for (size_t at = code.find(name); at != code.npos; at = code.find(name, at + 2 + name.size()))
      code.insert(at, "g.");
  return code;
}

}  // namespace

std::string group_key(const Job& job, GroupId id) {
  const Group& group = job.groups[id.index];
  std::string out(job.pool->strings[group.axis]);
  if (group.ordinal) out += ":" + std::to_string(group.ordinal);
  return out;
}

std::string GraphWriter::symbol(StrId name) const {
  auto found = symbol_names_.find(name);
  return found == symbol_names_.end() ? std::string() : found->second;
}

std::string GraphWriter::keyword(const Arg& arg, int depth) {
  if (!arg.key()) return argument(arg, depth);
  std::string_view key = text(arg.key());
  if (is_identifier(key)) return std::string(key) + "=" + argument(arg, depth);
  return "**{" + string_literal(key) + ": " + argument(arg, depth) + "}";
}

std::string GraphWriter::argument(const Arg& arg, int depth) {
  if (depth > kMaxDepth) return fail("an argument nests deeper than Python reads");
  switch (arg.kind()) {
    case ArgKind::none: return "None";
    case ArgKind::boolean: return arg.as_bool() ? "True" : "False";
    case ArgKind::integer: return std::to_string(arg.as_int());
    case ArgKind::floating: return float_literal(arg.as_float());
    case ArgKind::complex: return "complex" + items(arg, '(', ')', depth);
    case ArgKind::string: return string_literal(text(arg.as_text()));
    case ArgKind::expr: return expression(arg.as_expr());
    case ArgKind::value: return stands_in_ ? stand_in(arg.as_value()) : identifier(arg.as_value());
    case ArgKind::dtype:
      return arg.as_dtype() == DType::none ? "None" : "torch." + std::string(torch_dtype_name(arg.as_dtype()));
    case ArgKind::list: return tuples_ ? items(arg, '(', ')', depth) : items(arg, '[', ']', depth);
    case ArgKind::slice: return "slice" + items(arg, '(', ')', depth);
    case ArgKind::dict: return items(arg, '{', '}', depth);
    case ArgKind::graph: return body_argument(arg.as_graph());
    case ArgKind::group: return group_argument(arg.as_group());
    default: return text_argument(arg);
  }
}

// A placeholder for an argument of a skipped draw that does not exist yet: a tensor of its shape and layout, or its
// number.
std::string GraphWriter::stand_in(ValueId v) {
  const Type& type = graph_->type(v);
  if (type.kind == TypeKind::integer && type.value) return expression(type.value);
  if (type.kind != TypeKind::tensor)
    return fail("it draws random numbers again, and what it takes cannot be stood in for",
                "keep it: sg-remat --save op=" + std::string(graph_->op_name(at_)));
  const auto sizes = [&](const std::vector<Expr>& list) {
    std::string out = "(";
    for (Expr e : list) out += expression(e) + ",", out += kBreak;
    if (!list.empty()) out.pop_back();
    return out + ")";
  };
  const std::string list[] = {sizes(type.shape), sizes(type.stride),
                              "torch." + std::string(torch_dtype_name(type.dtype)), string_literal(text(type.device))};
  std::string out = module_.fx ? "g.call(None, stand_in" : "stand_in(";
  for (const std::string& item : list) {
    if (out.back() != '(') out += ',', out += kBreak;
    out += item;
  }
  return out + ")";
}

std::string GraphWriter::items(const Arg& arg, char open, char close, int depth) {
  std::string out(1, open);
  for (const Arg& item : arg.items()) {
    if (out.size() > 1) out += ',', out += kBreak;
    if (arg.is(ArgKind::dict)) out += string_literal(text(item.key())) + ": ";
    out += argument(item, depth + 1);
  }
  if (arg.is(ArgKind::list) && tuples_ && arg.items().size() == 1) out += ',';
  return out + close;
}

// Sizes are printed in Python syntax; only renamed symbols need substitution.
std::string GraphWriter::expression(Expr e) {
  if (!e) return "None";
  ExprPool& exprs = graph_->pool().exprs;
  std::vector<StrId> symbols;
  exprs.collect_symbols(e, &symbols);
  bool is_renamed = std::any_of(symbols.begin(), symbols.end(), [&](StrId s) { return symbol(s) != text(s); });
  if (is_renamed)
    e = exprs.substitute(
        e, [&](StrId s) -> std::optional<Expr> { return exprs.symbol(symbol(s).empty() ? text(s) : symbol(s)); });
  std::string code = exprs.print(e);
  return module_.fx ? with_builder_calls(std::move(code)) : code;
}

std::string GraphWriter::body_argument(NestedId id) {
  const std::string& name = bodies_[id.index];
  const auto& sizes = symbols_.nested(id).parameters;
  if (module_.fx && !sizes.empty())
    return fail("a body that is passed to an op needs sizes that torch.fx cannot pass",
                "without --fx it can be exported");
  if (module_.fx) return "g.body(" + name + ")";
  if (sizes.empty()) return name;
  std::string out = "lambda *inputs: " + name + "(*inputs";
  for (StrId s : sizes) out += ", " + symbol(s);
  return out + ")";
}

std::string GraphWriter::group_argument(GroupId group) {
  module_.groups.insert(group.index);
  return "GROUP[" + string_literal(group_key(module_.job, group)) + "]";
}

std::string GraphWriter::name_of_torch(std::string_view name, std::span<const std::string_view> known,
                                       std::string_view what) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return "torch." + std::string(name);
  std::string quoted;
  append_comment(name, &quoted);
  return fail("PyTorch has no " + std::string(what) + " `" + quoted + "`");
}

std::string GraphWriter::text_argument(const Arg& arg) {
  std::string_view s = text(arg.as_text());
  switch (arg.kind()) {
    case ArgKind::device: return "torch.device(" + string_literal(s) + ")";
    case ArgKind::layout: return name_of_torch(s, kLayouts, "layout");
    case ArgKind::memory_format: return name_of_torch(s, kMemoryFormats, "memory format");
    case ArgKind::op: return function_of(s);
    default: break;
  }
  std::string quoted;
  append_comment(s, &quoted);
  return fail("an argument is " + std::string(arg.is(ArgKind::enumerator) ? "a value of an enum" : "opaque") + ", `" +
                  quoted + "`, which cannot be written as code",
              "the capture recorded only what it is called");
}

}  // namespace sg::python
