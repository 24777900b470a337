#include "librun/execute/arguments.h"

#include <string>

#include "librun/defaults.h"

namespace sg {
namespace {

class Reader {
 public:
  Reader(const Graph& graph, const ValueTable& values, const Bindings& bindings)
      : graph_(graph), pool_(graph.pool()), values_(values), bindings_(bindings) {}

  Status read(const Arg& arg, ParamValue* out) const {
    *out = {};
    switch (arg.kind()) {
      case ArgKind::none: return ok_status();
      case ArgKind::boolean: return number(Scalar::boolean(arg.as_bool()), out);
      case ArgKind::integer: return number(Scalar::integer(arg.as_int()), out);
      case ArgKind::floating: return number(Scalar::floating(arg.as_float()), out);
      case ArgKind::complex: return number(Scalar::complex(arg.items()[0].as_float(), arg.items()[1].as_float()), out);
      case ArgKind::expr: return read_expr(arg.as_expr(), out);
      case ArgKind::value: return read_value(arg.as_value(), out);
      case ArgKind::dtype: out->kind = ParamValue::Kind::dtype, out->dtype = arg.as_dtype(); return ok_status();
      case ArgKind::graph: out->kind = ParamValue::Kind::graph, out->graph = arg.as_graph(); return ok_status();
      case ArgKind::group: out->kind = ParamValue::Kind::group, out->group = arg.as_group(); return ok_status();
      case ArgKind::list:
      case ArgKind::slice:
      case ArgKind::dict: return read_list(arg, out);
      default: out->kind = ParamValue::Kind::text, out->text = pool_.strings[arg.as_text()]; return ok_status();
    }
  }

 private:
  static Status number(Scalar s, ParamValue* out) {
    out->kind = ParamValue::Kind::scalar;
    out->scalar = s;
    return ok_status();
  }

  Status read_expr(Expr e, ParamValue* out) const {
    auto v = bindings_.value(e);
    if (!v) return Error{ErrorKind::cannot_apply, "the size " + pool_.exprs.print(e) + " has no value here"};
    return number(Scalar::integer(*v), out);
  }

  Status read_value(ValueId v, ParamValue* out) const {
    const Type& type = graph_.type(v);
    switch (type.kind) {
      case TypeKind::tensor:
        out->kind = ParamValue::Kind::tensor;
        out->tensor = values_.tensors[v.index];
        return ok_status();
      case TypeKind::integer:
      case TypeKind::boolean:
      case TypeKind::floating: return number(values_.scalars[v.index], out);
      case TypeKind::none: return ok_status();
      case TypeKind::opaque:
        out->kind = ParamValue::Kind::text, out->text = pool_.strings[type.text];
        return ok_status();
      default:
        return Error{ErrorKind::cannot_apply,
                     "argument %" + std::string(graph_.name(v)) + " is a list, which no kernel takes",
                     {},
                     "sg-import folds python.getitem; capture again"};
    }
  }

  Status read_list(const Arg& arg, ParamValue* out) const {
    out->kind = ParamValue::Kind::list;
    bool integers = true, tensors = true;
    for (const Arg& item : arg.items()) {
      ParamValue value;
      SG_TRY(read(item, &value));
      integers &= value.kind == ParamValue::Kind::scalar;
      tensors &= value.kind == ParamValue::Kind::tensor || value.kind == ParamValue::Kind::absent;
      out->items.push_back(std::move(value));
    }
    for (const ParamValue& item : out->items) {
      if (integers) out->integers.push_back(item.scalar.to_int());
      if (tensors) out->tensors.push_back(item.tensor);
    }
    return ok_status();
  }

  const Graph& graph_;
  const Pool& pool_;
  const ValueTable& values_;
  const Bindings& bindings_;
};

// `int[1] dim` given as a number becomes a list of one.
void as_list(ParamValue* p) {
  ParamValue list;
  list.kind = ParamValue::Kind::list;
  list.integers.push_back(p->scalar.to_int());
  list.items.push_back(std::move(*p));
  *p = std::move(list);
}

// Whether the argument fits the schema; kernels do not check again. A number may replace a tensor, as pointwise kernels
// accept both.
bool fits(const Param& p, const ParamValue& v) {
  using Kind = ParamValue::Kind;
  if (v.kind == Kind::absent) return p.optional || p.has_default || p.kind == ParamKind::any;
  switch (p.kind) {
    case ParamKind::tensor: return (v.kind == Kind::tensor && !v.tensor.is_none()) || v.kind == Kind::scalar;
    case ParamKind::tensor_list: return v.kind == Kind::list && v.tensors.size() == v.items.size();
    case ParamKind::integer_list: return v.kind == Kind::list && v.integers.size() == v.items.size();
    case ParamKind::scalar:
    case ParamKind::integer:
    case ParamKind::floating:
    case ParamKind::boolean: return v.kind == Kind::scalar;
    default: return true;
  }
}

}  // namespace

Status read_arguments(const Graph& graph, NodeId n, const ValueTable& values, const Bindings& bindings,
                      KernelCall* call) {
  const OpInfo& op = call->op();
  Reader reader(graph, values, bindings);
  std::vector<bool> given(op.params.size());
  const std::vector<Arg>& args = graph.node(n).args;
  for (size_t i = 0; i < args.size(); ++i) {
    int index = args[i].key().is_none() ? static_cast<int>(i) : op.param_index(graph.pool().strings[args[i].key()]);
    auto at = static_cast<size_t>(index);
    if (index < 0 || at >= op.params.size())
      return Error{ErrorKind::cannot_apply,
                   std::string(op.name) + " has no parameter for argument " + std::to_string(i + 1)};
    ParamValue& out = call->params()[at];
    SG_TRY(reader.read(args[i], &out));
    if (op.params[at].kind == ParamKind::integer_list && out.kind == ParamValue::Kind::scalar) as_list(&out);
    if (!fits(op.params[at], out))
      return Error{ErrorKind::cannot_apply,
                   "argument '" + std::string(op.params[at].name) + "' is nothing that can be computed with"};
    given[at] = true;
  }
  for (size_t i = 0; i < given.size(); ++i)
    if (!given[i]) call->params()[i] = default_of(op.params[i]);
  return ok_status();
}

}  // namespace sg
