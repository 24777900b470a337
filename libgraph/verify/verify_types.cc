// Rules about types: valid types, results of ops, and arguments and results of calls.
#include <algorithm>
#include <optional>

#include "libgraph/base/human.h"
#include "libgraph/base/joined.h"
#include "libgraph/verify/verify_rules.h"

namespace sg {
namespace {

// Why a tensor type is invalid; empty if it is valid.
std::string tensor_fault(const Check& c, const Type& t) {
  if (t.dtype == DType::none) return "the tensor has no element type";
  if (t.shape.size() != t.stride.size())
    return plural(t.shape.size(), "size") + " and " + plural(t.stride.size(), "stride");
  auto bad = [&](Expr e) {
    std::optional<int64_t> n = c.pool.exprs.constant_value(e);
    return c.pool.exprs.is_invalid(e) || (n && *n < 0);
  };
  if (bad(t.offset)) return "the storage offset is negative or not a number";
  for (const auto& [what, list] : {std::pair("size ", &t.shape), std::pair("stride ", &t.stride)})
    for (size_t i = 0; i < list->size(); ++i) {
      if (!bad((*list)[i])) continue;
      const std::optional<int64_t> n = c.pool.exprs.constant_value((*list)[i]);
      return what + std::to_string(i) + (n ? " is negative: " + std::to_string(*n) : " is no number");
    }
  int64_t bytes = dtype_bytes(t.dtype);
  bool counted = true;
  for (Expr e : t.shape) {
    const std::optional<int64_t> n = c.pool.exprs.constant_value(e);
    if (n == 0) return {};
    if (n && counted) counted = !__builtin_mul_overflow(bytes, *n, &bytes);
  }
  return counted ? "" : "the tensor has more bytes than 64 bits can count";
}

std::string type_fault(const Check& c, const Type& t) {
  if (t.kind == TypeKind::tensor) return tensor_fault(c, t);
  if (!t.has_value || (t.kind != TypeKind::integer && t.kind != TypeKind::boolean)) return {};
  if (c.pool.exprs.is_invalid(t.value))
    return "its value is not a number: it overflows 64 bits, divides by zero or is too large";
  std::optional<int64_t> n = c.pool.exprs.constant_value(t.value);
  if (t.kind == TypeKind::boolean && n && *n != 0 && *n != 1) return "a truth value is 0 or 1";
  return {};
}

// Each type is checked once per job; lists through their elements.
void check_type(Check& c, TypeId t, ValueId v) {
  if (!c.types.first(t.index, 1)) return;
  const Type& type = c.pool.types[t];
  std::string fault = type_fault(c, type);
  if (!fault.empty()) c.fail(v, c.name(v) + ": " + fault);
  for (TypeId element : type.elements) check_type(c, element, v);
}

}  // namespace

void check_input_types(Check& c) {
  for (const Input& in : c.graph->inputs()) check_type(c, c.graph->value(in.value).type, in.value);
}

void check_result_types(Check& c, NodeId n) {
  const Node& node = c.graph->node(n);
  for (uint32_t i = 0; i < node.result_count; ++i) check_type(c, c.graph->value(node.result(i)).type, node.result(i));
}

// --- results of ops ---

namespace {

// Compares with numbers for the symbols. Unknown if a symbol has no number or an expression no value (division by 0).
template <typename NumberOf>
Answer agree(const ExprPool& exprs, Expr a, Expr b, NumberOf&& number_of) {
  auto x = exprs.evaluate(a, number_of), y = exprs.evaluate(b, number_of);
  if (!x || !y) return Answer::unknown;
  return x == y ? Answer::yes : Answer::no;
}

std::optional<int64_t> hint_of(const Check& c, StrId name) {
  const Symbol* symbol = c.symbol(name);
  return symbol ? symbol->hint : std::nullopt;
}

// Whether the sizes were equal at capture, if the source has values from then (hints). Text has none: there the sizes
// must be equal for several sample values within the symbols' ranges, up to what equality guards imply. Samples that
// make a tensor of `shape` empty are skipped, as they say nothing about its strides.
bool agree_at_capture(Check& c, Expr a, Expr b, const std::vector<Expr>& shape) {
  ExprPool& exprs = c.pool.exprs;
  Answer told = agree(exprs, a, b, [&](StrId name) { return hint_of(c, name); });
  if (told != Answer::unknown) return told == Answer::yes;
  constexpr int64_t kSteps[] = {0, 1, 6, 13, 62, 126, 253, 1022};  // above the minimum: odd, even, near powers of two
  a = c.facts().simplify(a, true), b = c.facts().simplify(b, true);
  std::vector<StrId> names;
  for (Expr e : {a, b}) exprs.collect_symbols(e, &names);
  size_t count = 0;
  for (size_t i = 0; i < std::size(kSteps); ++i) {
    auto sample = [&](StrId name) -> std::optional<int64_t> {  // symbols take different values
      const Symbol* symbol = c.symbol(name);
      if (!symbol || !symbol->min) return std::nullopt;
      auto position = static_cast<size_t>(std::find(names.begin(), names.end(), name) - names.begin());
      int64_t value = *symbol->min + kSteps[(i + 3 * position) % std::size(kSteps)];
      return symbol->max ? std::min(value, *symbol->max) : value;
    };
    if (std::ranges::any_of(shape, [&](Expr e) { return exprs.evaluate(e, sample).value_or(1) < 1; })) continue;
    Answer answer = agree(exprs, a, b, sample);
    if (answer == Answer::no) return false;
    count += answer == Answer::yes;
  }
  return count > 2;
}

// Equal, or equal wherever the guards hold: captures write 256 for u0 + u1 if a guard says so. What guards leave open
// passes if it held at capture: PyTorch derives s0//(s0//2) == 2 by means of its own. A run, which has numbers, checks
// again.
bool same_size(Check& c, Expr a, Expr b, const std::vector<Expr>& shape = {}) {
  if (a == b) return true;
  if (c.pool.exprs.is_constant(a) && c.pool.exprs.is_constant(b)) return false;
  Answer equal = c.facts().prove(Relation::eq, a, b);
  return equal == Answer::yes || (equal == Answer::unknown && agree_at_capture(c, a, b, shape));
}

}  // namespace

bool same_sizes(Check& c, const std::vector<Expr>& a, const std::vector<Expr>& b) {
  if (a == b) return true;
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!same_size(c, a[i], b[i])) return false;
  return true;
}

namespace {

// Replaces max(1, n) by n where n is a size of the tensor: strides matter only if no size is 0.
Expr without_guards(ExprPool& exprs, Expr stride, const std::vector<Expr>& shape) {
  if (exprs.is_constant(stride) || exprs.is_invalid(stride)) return stride;
  auto guarded = [&](const Factor& f) -> Expr {
    const Atom& atom = exprs.atom(f.atom);
    if (atom.kind != AtomKind::max || atom.operands.size() != 2) return Expr();
    for (int one : {0, 1})
      if (exprs.constant_value(atom.operands[static_cast<size_t>(one)]) == 1)
        return atom.operands[static_cast<size_t>(1 - one)];
    return Expr();
  };
  Expr out = stride;
  for (const Term& term : std::vector<Term>(exprs.terms(stride).begin(), exprs.terms(stride).end()))
    for (const Factor& f : term.factors) {
      Expr size = guarded(f);
      if (!size || std::find(shape.begin(), shape.end(), size) == shape.end()) continue;
      if (exprs.terms(stride).size() != 1) return stride;  // strides are products; anything else is not handled
      Expr rest = exprs.floordiv(out, exprs.pow(exprs.max(exprs.constant(1), size), f.power));
      out = exprs.mul(rest, exprs.pow(size, f.power));
    }
  return out;
}

bool same_stride(Check& c, Expr a, Expr b, const std::vector<Expr>& shape) {
  if (a == b) return true;
  return same_size(c, without_guards(c.pool.exprs, a, shape), without_guards(c.pool.exprs, b, shape), shape);
}

// Compares the strides that matter: not those of dimensions with one element (nor, as in PyTorch, with one at capture),
// and none of tensors without elements.
// REQUIRES: the shapes are the same
bool same_strides(Check& c, const Type& a, const Type& b) {
  if (a.stride.size() != b.stride.size() || a.shape.size() != a.stride.size()) return false;
  auto is_empty = [&](Expr size) { return c.pool.exprs.constant_value(size) == 0; };
  if (std::any_of(a.shape.begin(), a.shape.end(), is_empty)) return true;
  for (size_t i = 0; i < a.stride.size(); ++i) {
    bool single = c.pool.exprs.evaluate(a.shape[i], [&](StrId name) { return hint_of(c, name); }) == 1;
    if (!single && !same_stride(c, a.stride[i], b.stride[i], a.shape)) return false;
  }
  return true;
}

bool same_tensor(Check& c, const Type& a, const Type& b) {
  return a.dtype == b.dtype && a.device == b.device && same_sizes(c, a.shape, b.shape);
}

bool may_be(Check& c, const Type& recorded, const Type& inferred) {
  if (recorded.kind == TypeKind::unknown || inferred.kind == TypeKind::unknown) return true;
  if (recorded.kind != inferred.kind) return false;
  if (recorded.kind == TypeKind::list) {
    if (recorded.elements.size() != inferred.elements.size()) return false;
    for (size_t i = 0; i < recorded.elements.size(); ++i)
      if (!may_be(c, c.pool.types[recorded.elements[i]], c.pool.types[inferred.elements[i]])) return false;
    return true;
  }
  if (recorded.kind == TypeKind::tensor) return same_tensor(c, recorded, inferred);
  if (!recorded.has_value || !inferred.has_value || recorded.kind == TypeKind::opaque) return true;
  return recorded.kind == TypeKind::floating ? recorded == inferred : same_size(c, recorded.value, inferred.value);
}

std::string shape_text(const Check& c, const std::vector<Expr>& list) {
  return "[" + joined(list, ", ", [&](Expr e) { return c.pool.exprs.print(e); }) + "]";
}

// The first difference, in words.
std::string difference(Check& c, const Type& recorded, const Type& inferred) {
  if (recorded.kind != inferred.kind) return "another kind of type than the op gives";
  if (recorded.kind != TypeKind::tensor) return "another value than the op gives";
  if (recorded.dtype != inferred.dtype)
    return "recorded as " + std::string(dtype_name(recorded.dtype)) + ", but the op gives " +
           std::string(dtype_name(inferred.dtype));
  if (!same_sizes(c, recorded.shape, inferred.shape))
    return "recorded as " + shape_text(c, recorded.shape) + ", but the op gives " + shape_text(c, inferred.shape);
  if (!same_strides(c, recorded, inferred))
    return "recorded with strides " + shape_text(c, recorded.stride) + ", but the op gives " +
           shape_text(c, inferred.stride);
  if (recorded.offset != inferred.offset)
    return "recorded at offset " + c.pool.exprs.print(recorded.offset) + ", but the op gives " +
           c.pool.exprs.print(inferred.offset);
  return "recorded on " + std::string(c.str(recorded.device)) + ", but the op gives " +
         std::string(c.str(inferred.device));
}

bool takes_unknown_type(const Check& c, const Node& node) {
  bool unknown = false;
  for (const Arg& arg : node.args)
    arg.walk([&](const Arg& a) {
      unknown |= a.is(ArgKind::value) && c.graph->type(a.as_value()).kind == TypeKind::unknown;
    });
  return unknown;
}

bool same_place(Check& c, const Type& a, const Type& b) {
  if (a.kind != TypeKind::tensor || b.kind != TypeKind::tensor) return true;
  return same_size(c, a.offset, b.offset) && same_strides(c, a, b);
}

// Results of functional collectives are row-major or laid out like the input, depending on the version of PyTorch and
// on whether the graph was traced with fake tensors.
bool lies_in_rows(Check& c, NodeId n, const Type& recorded) {
  const OpInfo* op = c.graph->op_info(n);
  if (!op->has(kCollective) || op->has(kWait) || op->writes() || recorded.kind != TypeKind::tensor) return false;
  ExprPool& exprs = c.pool.exprs;
  Type rows = recorded;
  rows.stride.assign(rows.shape.size(), exprs.constant(1));
  for (size_t i = rows.shape.size(); i-- > 1;)
    rows.stride[i - 1] = exprs.mul(rows.stride[i], exprs.max(exprs.constant(1), rows.shape[i]));
  return exprs.constant_value(recorded.offset) == 0 && same_strides(c, recorded, rows);
}

}  // namespace

// The type checker finds types that differ at all; those that are equal by the guards, or known errors of the recorder,
// are not reported.
void check_inferred(Check& c, NodeId n) {
  std::vector<TypeDisagreement> found;
  c.type_checker().check(*c.graph, n, &found);
  const Node& node = c.graph->node(n);
  const OpInfo* op = c.graph->op_info(n);
  const bool is_reported = op != nullptr && op->returns_list && !node.is_tuple;  // by check_results
  for (const TypeDisagreement& d : found) {
    if (!d.reason.empty()) {
      // If an argument's type is unknown, its maker was reported or has no rule.
      if (!is_reported && !takes_unknown_type(c, node)) c.fail(n, d.reason, d.hint);
      continue;
    }
    const bool is_right =
        may_be(c, d.recorded, d.inferred) && (same_place(c, d.recorded, d.inferred) || lies_in_rows(c, n, d.recorded));
    if (d.exception || is_right) continue;
    c.fail(n, c.name(node.result(d.result)) + " is " + difference(c, d.recorded, d.inferred),
           "correct the type, or the arguments; types may be left out where the op gives them");
  }
}

// --- calls ---

void check_call(Check& c, NodeId n) {
  const OpInfo* info = c.graph->op_info(n);
  if (!info || info->name != "sg.call") return;
  const Node& node = c.graph->node(n);
  std::vector<const Arg*> args = args_by_param(c.pool, node, *info);
  if (args.size() < 2 || !args[0] || !args[0]->is(ArgKind::graph) || !args[1] || !args[1]->is(ArgKind::list)) return;
  const Nested& body = *c.program->nested[args[0]->as_graph().index];
  const ArgList& operands = args[1]->items();
  std::string name = "\"" + std::string(c.str(body.name)) + "\"";
  if (operands.size() != body.graph.inputs().size())
    return c.fail(n, plural(operands.size(), "argument") + " for " + name + ", which takes " +
                         std::to_string(body.graph.inputs().size()));
  for (size_t i = 0; i < operands.size(); ++i) {
    const Type& wanted = body.graph.type(body.graph.inputs()[i].value);
    if (!operands[i].is(ArgKind::value)) {
      if (wanted.kind == TypeKind::tensor)
        c.fail(n, "argument " + std::to_string(i) + " of " + name + " is not a tensor");
      continue;
    }
    const Type& given = c.graph->type(operands[i].as_value());
    bool same_steps =
        given.kind != TypeKind::tensor || wanted.kind != TypeKind::tensor || same_strides(c, given, wanted);
    if (!may_be(c, given, wanted) || !same_steps)
      c.fail(n, "argument " + std::to_string(i) + " of " + name + ": " + c.name(operands[i].as_value()) + " is " +
                    difference(c, given, wanted));
  }
  if (node.result_count != body.graph.outputs().size())
    c.fail(n, plural(node.result_count, "result") + " of " + name + ", which gives " +
                  std::to_string(body.graph.outputs().size()));
}

}  // namespace sg
