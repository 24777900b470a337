#include "libgraph/composite/composite_forms.h"

#include <algorithm>
#include <string>

namespace sg {
namespace {

bool is_number(const Arg& a) { return a.is(ArgKind::integer) || a.is(ArgKind::floating) || a.is(ArgKind::boolean); }

std::string_view without_space(const OpInfo& op) { return op.name.substr(op.name.find('.') + 1); }

bool is_mask(const Graph& graph, const Arg& a) {
  if (!a.is(ArgKind::value)) return false;
  const Type& t = graph.type(a.as_value());
  return t.kind == TypeKind::tensor && (t.dtype == DType::boolean || t.dtype == DType::u8);
}

// Candidate overloads without `out` for an overload with it: PyTorch's naming is not quite regular.
std::vector<std::string> plain_overloads(std::string_view overload) {
  if (overload == "out") return {"default", "Tensor", "dim", "other", "ScalarOpt_dim"};
  if (overload.ends_with("_out")) {
    const std::string of(overload.substr(0, overload.size() - 4));
    return {of, "dim_" + of, "ScalarOpt_dim_" + of, "default"};
  }
  if (overload.starts_with("out_"))
    return {"Tensor_" + std::string(overload.substr(4)), std::string(overload.substr(4))};
  return {};
}

// The overloads that a `_foreach_` overload may call per element, by the kinds of its arguments; the first that exists
// counts.
std::vector<std::string_view> single_overloads(std::string_view overload) {
  if (overload == "List") return {"Tensor", "default", "Tensor_Tensor"};
  if (overload == "Scalar" || overload == "ScalarList") return {"Scalar", "Tensor_Scalar", "default", "Tensor"};
  if (overload == "ScalarAndTensor") return {"Scalar"};
  if (overload == "Tensor") return {"Tensor"};
  return {"default"};
}

// The items of a list argument, one per element; null for any other argument, which all elements share.
const ArgList* places_of(const Arg& a) { return a.is(ArgKind::list) ? &a.items() : nullptr; }

}  // namespace

std::vector<std::string> names_out_of_place(std::string_view op) {
  const size_t dot = op.rfind('.');
  if (!op.starts_with("aten.") || dot == std::string_view::npos || !op.substr(0, dot).ends_with('_') || find_op(op))
    return {};
  const std::string name(op.substr(0, dot - 1)), overload(op.substr(dot + 1));
  return {name + "." + overload, name + ".Tensor_" + overload};
}

bool gives_new_tensor(const OpInfo& op) {
  return op.results.size() == 1 && !op.returns_list && op.results[0].alias == 0 && !op.params.empty() &&
         op.params[0].kind == ParamKind::tensor && op.params[0].alias == 0;
}

const OpInfo* written_in_place(std::string_view op) {
  for (const std::string& name : names_out_of_place(op))
    if (const OpInfo* found = find_op(name); found && gives_new_tensor(*found)) return found;
  return nullptr;
}

const OpInfo* done_to_each(std::string_view op) {
  constexpr std::string_view kPrefix = "aten._foreach_";
  const size_t dot = op.rfind('.');
  if (!op.starts_with(kPrefix) || dot == std::string_view::npos || dot < kPrefix.size()) return nullptr;
  std::string name(op.substr(kPrefix.size(), dot - kPrefix.size()));
  const std::string_view overload = op.substr(dot + 1);
  const bool in_place = name.ends_with("_");
  if (in_place) name.pop_back();
  if (name == "norm") name = "linalg_vector_norm";
  if (overload.starts_with("Scalar") && (name == "maximum" || name == "minimum"))  // no overload for numbers
    name = name == "maximum" ? "clamp_min" : "clamp_max";
  for (std::string_view dot_or_mark : {in_place ? "_." : ".", "."})  // without an in-place form, a copy follows
    for (std::string_view single : single_overloads(overload)) {
      const OpInfo* found = find_op("aten." + name + std::string(dot_or_mark) + std::string(single));
      if (!found || found->results.size() != 1 || found->returns_list || found->params.empty()) continue;
      // pow.Scalar is a number raised to a tensor: not what is done to each tensor.
      if (overload != "ScalarAndTensor" && found->params[0].kind != ParamKind::tensor) continue;
      return found;
    }
  return nullptr;
}

bool is_profiler_mark(std::string_view op) { return op.starts_with("profiler._record_function_"); }

const OpInfo* written_by_out(std::string_view op) { return written_by_out(op, 0); }

const OpInfo* written_by_out(std::string_view op, size_t given) {
  const size_t dot = op.rfind('.');
  if (!op.starts_with("aten.") || dot == std::string_view::npos || op.find("out", dot) == std::string_view::npos)
    return nullptr;
  if (find_op(op)) return nullptr;
  for (const std::string& overload : plain_overloads(op.substr(dot + 1))) {
    const OpInfo* found = find_op(std::string(op.substr(0, dot + 1)) + overload);
    if (!found || !found->has(kPure) || found->has(kView)) continue;
    const auto places = std::ranges::count_if(found->params, [](const Param& p) { return !p.keyword_only; });
    if (given > static_cast<size_t>(places)) continue;
    if (found->results.size() == 1 && !found->returns_list) return found;
  }
  return nullptr;
}

bool has_numbers_only(const Graph& graph, NodeId n) {
  const Node& node = graph.node(n);
  if (node.args.empty() || !is_number(node.args[0])) return false;
  const OpInfo* op = graph.op_info(n);
  if (!op || !op->has(kPointwise) || op->params.empty() || op->params[0].kind != ParamKind::tensor) return false;
  for (const Arg& arg : node.args)
    if (arg.is(ArgKind::value) && graph.type(arg.as_value()).kind == TypeKind::tensor) return false;
  return true;
}

bool has_mask_index(const Graph& graph, NodeId n) {
  const Node& node = graph.node(n);
  if (graph.op_name(n) != "aten.index.Tensor" || node.args.size() != 2 || !node.args[1].is(ArgKind::list)) return false;
  for (const Arg& a : node.args[1].items())
    if (is_mask(graph, a)) return true;
  return false;
}

bool is_waited_within(const Graph& graph, NodeId n) {
  if (graph.op_name(n) != "_dtensor.shard_dim_alltoall.default" || graph.node(n).result_count != 1) return false;
  const std::vector<NodeId> users = graph.users(graph.node(n).result(0));
  return std::none_of(users.begin(), users.end(), [&](NodeId user) {
    const OpInfo* op = graph.op_info(user);
    return op && op->has(kWait);
  });
}

namespace composite {

void out_form(CompositeCall& c, const Graph& graph, NodeId n) {
  const std::vector<Arg>& given = graph.node(n).args;
  const auto positional = std::ranges::count_if(given, [](const Arg& a) { return !a.key(); });
  const OpInfo* op = written_by_out(graph.op_name(n), static_cast<size_t>(positional));
  PartArgs args;
  ValueId out;
  for (const Arg& arg : std::vector<Arg>(graph.node(n).args)) {
    if (!arg.key() || graph.pool().strings[arg.key()] != "out") args.push_back(arg);
    else if (arg.is(ArgKind::value)) out = arg.as_value();
  }
  if (op == nullptr || out.is_none()) return c.fail("`out` is not a tensor");
  ValueId made = c.make(without_space(*op), std::move(args));
  if (c.failed()) return;
  if (c.type(out).kind != TypeKind::tensor || c.type(out).shape != c.type(made).shape)
    return c.fail("`out` has another size, and PyTorch would resize it");
  c.give(c.make("copy_", {out, made}));
}

void in_place_form(CompositeCall& c, const Graph& graph, NodeId n) {
  const OpInfo* op = written_in_place(graph.op_name(n));
  const std::vector<Arg> given = graph.node(n).args;
  if (op == nullptr || given.empty()) return c.fail("has no tensor to write");
  c.give(c.make(without_space(*op), PartArgs(given.begin(), given.end())));
  c.write_to(given[0]);
}

void foreach_form(CompositeCall& c, const Graph& graph, NodeId n) {
  const OpInfo* op = done_to_each(graph.op_name(n));
  const std::vector<Arg> given = graph.node(n).args;
  const uint32_t results = graph.node(n).result_count;
  const bool in_place = graph.op_name(n).find("_.") != std::string_view::npos;
  auto list = std::find_if(given.begin(), given.end(), [](const Arg& a) { return places_of(a) != nullptr; });
  if (op == nullptr || list == given.end()) return c.fail("has no list of tensors");
  const size_t places = places_of(*list)->size();
  for (size_t place = 0; place < places && !c.failed(); ++place) {
    PartArgs args;
    for (size_t i = 0; i < given.size(); ++i) {
      const ArgList* items = places_of(given[i]);
      if (items && items->size() != places) return c.fail("its lists have unequal lengths");
      PartArg arg(items ? (*items)[place] : given[i]);
      if (given[i].key()) arg.arg.set_key(given[i].key());
      else if (i < op->params.size() && op->params[i].keyword_only) arg = c.key(op->params[i].name, std::move(arg));
      args.push_back(std::move(arg));
    }
    const Arg self = args[0].arg;
    ValueId made = c.make(without_space(*op), std::move(args));
    if (in_place && !op->writes()) made = c.make("copy_", {self, made});
    if (place < results) c.give(made);
  }
}

void waited_form(CompositeCall& c, const Graph& graph, NodeId n) {
  const std::vector<Arg> given = graph.node(n).args;
  const Type recorded = graph.type(graph.node(n).result(0));
  ValueId launched = c.make_found(std::string(graph.op_name(n)), PartArgs(given.begin(), given.end()), recorded);
  c.give(c.make("_c10d_functional.wait_tensor.default", {launched}));
}

void numbers_form(CompositeCall& c, const Graph& graph, NodeId n) {
  const std::vector<Arg> given = graph.node(n).args;
  const Type recorded = graph.node(n).result_count == 1 ? graph.type(graph.node(n).result(0)) : Type();
  DType dtype = given[0].is(ArgKind::integer)   ? DType::i64
                : given[0].is(ArgKind::boolean) ? DType::boolean
                                                : DType::f32;
  if (given[0].is(ArgKind::floating) && recorded.kind == TypeKind::tensor && is_floating(recorded.dtype))
    dtype = recorded.dtype;
  PartArgs args(given.begin(), given.end());
  args[0] = c.make("full", {ArgList(), given[0], c.key("dtype", dtype)});
  c.give(c.make(without_space(*graph.op_info(n)), std::move(args)));
}

void mask_form(CompositeCall& c, const Graph& graph, NodeId n) {
  const ArgList indices = graph.node(n).args[1].items();
  const Type recorded = graph.node(n).result_count == 1 ? graph.type(graph.node(n).result(0)) : Type();
  ArgList plain;
  size_t masks = 0, at = 0;
  for (const Arg& index : indices) {
    if (!is_mask(graph, index)) {
      if (!index.is(ArgKind::none)) return c.fail("an index beside a mask");
      plain.push_back(index);
      continue;
    }
    at = plain.size();
    if (++masks > 1) return c.fail("more than one mask");
    const ValueId mask = index.as_value();
    if (recorded.kind != TypeKind::tensor || at >= recorded.shape.size())
      return c.fail("the number of elements that the mask picks has no symbol");
    const Expr count = recorded.shape[at];
    Type found = recorded;
    found.dtype = DType::i64, found.offset = c.exprs().constant(0);
    found.shape = {count, c.exprs().constant(c.rank(mask))};
    found.stride = {c.exprs().constant(1), count};
    const ValueId places = c.make_found("nonzero", {mask}, std::move(found));
    for (int axis = 0; axis < c.rank(mask); ++axis)
      plain.push_back(PartArg(c.make("select.int", {places, 1, axis})).arg);
  }
  c.give(c.make("index.Tensor", {graph.node(n).args[0], plain}));
}

}  // namespace composite
}  // namespace sg
