// Rules about arguments: what an op accepts by its schema.
#include "libgraph/verify/verify_rules.h"

namespace sg {
namespace {

std::string_view kind_word(ParamKind k) {
  constexpr std::string_view kWords[] = {
      "a tensor", "a list of tensors", "a number", "an integer",      "a list of integers",
      "a number", "a truth value",     "a string", "an element type", "a layout",
      "a device", "a memory format",   "a group",  "a nested graph",  "anything"};
  return kWords[static_cast<size_t>(k)];
}

// Whether a value may be passed for a parameter, by the kind of its type.
bool value_fits(TypeKind t, ParamKind k) {
  bool number = t == TypeKind::integer || t == TypeKind::floating || t == TypeKind::boolean;
  switch (k) {
    case ParamKind::tensor:
    case ParamKind::scalar: return t == TypeKind::tensor || number;  // numbers are wrapped
    case ParamKind::tensor_list: return t == TypeKind::list;
    case ParamKind::integer:
    case ParamKind::boolean: return t == TypeKind::integer || t == TypeKind::boolean;
    case ParamKind::integer_list: return t == TypeKind::list || t == TypeKind::integer;
    case ParamKind::floating: return number;
    default: return false;
  }
}

bool arg_fits(const Check& c, const Arg& a, ParamKind k, bool optional);

bool items_fit(const Check& c, const Arg& a, ParamKind k) {
  for (const Arg& item : a.items())
    if (!arg_fits(c, item, k, k == ParamKind::tensor)) return false;  // lists of optional tensors may contain None
  return true;
}

bool arg_fits(const Check& c, const Arg& a, ParamKind k, bool optional) {
  if (k == ParamKind::any) return true;
  if (a.is(ArgKind::none)) return optional;
  if (a.is(ArgKind::value)) {
    TypeKind t = c.graph->type(a.as_value()).kind;
    return t == TypeKind::unknown || t == TypeKind::opaque || value_fits(t, k);
  }
  if (a.is(ArgKind::opaque)) return k != ParamKind::group;  // nothing is known about it
  bool integer = a.is(ArgKind::integer) || a.is(ArgKind::expr);
  bool number = integer || a.is(ArgKind::floating) || a.is(ArgKind::boolean);
  switch (k) {
    case ParamKind::tensor:
    case ParamKind::scalar: return number || a.is(ArgKind::complex);
    case ParamKind::tensor_list: return a.is(ArgKind::list) && items_fit(c, a, ParamKind::tensor);
    case ParamKind::integer: return integer || a.is(ArgKind::boolean);
    case ParamKind::integer_list: return integer || (a.is(ArgKind::list) && items_fit(c, a, ParamKind::integer));
    case ParamKind::floating: return number;
    case ParamKind::boolean: return a.is(ArgKind::boolean) || a.is(ArgKind::integer);
    case ParamKind::string: return a.is(ArgKind::string);
    case ParamKind::dtype: return a.is(ArgKind::dtype);
    case ParamKind::layout: return a.is(ArgKind::layout);
    case ParamKind::device: return a.is(ArgKind::device);
    case ParamKind::memory_format: return a.is(ArgKind::memory_format);
    case ParamKind::group: return a.is(ArgKind::group);
    case ParamKind::graph: return a.is(ArgKind::graph);
    case ParamKind::any: return true;
  }
  return false;
}

std::string schema_hint(const OpInfo& info) { return "the op is " + std::string(info.name) + std::string(info.schema); }

// Maps parameters to arguments; reports arguments that match no parameter.
std::vector<const Arg*> match_args(Check& c, NodeId n, const OpInfo& info, bool* fine) {
  const Node& node = c.graph->node(n);
  std::vector<const Arg*> given(info.params.size());
  size_t position = 0;
  auto fail = [&](std::string message) {
    *fine = false;
    c.fail(n, std::move(message), schema_hint(info));
  };
  for (const Arg& arg : node.args) {
    size_t index = position;
    if (arg.key()) {
      int found = info.param_index(c.str(arg.key()));
      if (found < 0) {
        fail("the op has no argument \"" + std::string(c.str(arg.key())) + "\"");
        continue;
      }
      index = static_cast<size_t>(found);
    } else if (position >= given.size() || info.params[position].keyword_only) {
      fail("more arguments than the op takes by position");
      break;
    } else {
      ++position;
    }
    if (given[index]) fail("argument \"" + std::string(info.params[index].name) + "\" is given twice");
    given[index] = &arg;
  }
  return given;
}

}  // namespace

void check_args(Check& c, NodeId n) {
  const Node& node = c.graph->node(n);
  bool keys_begun = false;
  for (const Arg& arg : node.args) {
    if (keys_begun && !arg.key()) c.fail(n, "an argument by position follows one by name");
    keys_begun |= bool(arg.key());
  }
  const OpInfo* info = c.graph->op_info(n);
  if (!info) return;
  bool fine = true;
  std::vector<const Arg*> given = match_args(c, n, *info, &fine);
  for (size_t i = 0; i < given.size() && fine; ++i) {
    const Param& p = info->params[i];
    if (!given[i] && !p.optional && !p.has_default)
      c.fail(n, "argument \"" + std::string(p.name) + "\" is missing", schema_hint(*info));
    if (!given[i]) continue;
    bool none_by_default = p.has_default && p.default_text == "None";
    if (!arg_fits(c, *given[i], p.kind, p.optional || none_by_default))
      c.fail(n, "argument \"" + std::string(p.name) + "\" is not " + std::string(kind_word(p.kind)),
             schema_hint(*info));
    if (p.kind == ParamKind::group || p.kind == ParamKind::any) continue;
    given[i]->walk([&](const Arg& a) {
      if (a.is(ArgKind::group))
        c.fail(n, "a group stands where \"" + std::string(p.name) + "\" belongs", schema_hint(*info));
    });
  }
}

}  // namespace sg
