#include "libgraph/facts/computed_number.h"

#include <algorithm>
#include <string_view>
#include <vector>

#include "libgraph/op.h"
#include "libgraph/python_number.h"

namespace sg {
namespace {

using NumberOf = std::function<std::optional<Scalar>(ValueId)>;

std::optional<Scalar> number_in(const Arg& arg, const NumberOf& number_of) {
  if (arg.is(ArgKind::integer)) return Scalar::integer(arg.as_int());
  if (arg.is(ArgKind::boolean)) return Scalar::boolean(arg.as_bool());
  if (arg.is(ArgKind::floating)) return Scalar::floating(arg.as_float());
  return arg.is(ArgKind::value) ? number_of(arg.as_value()) : std::nullopt;
}

}  // namespace

std::optional<Scalar> computed_number(const Graph& graph, NodeId n, const NumberOf& number_of) {
  constexpr std::string_view kPython = "python.";
  const std::string_view name = graph.op_name(n);
  const OpInfo* op = graph.op_info(n);
  if (op == nullptr || !op->has(kSize) || !name.starts_with(kPython)) return std::nullopt;
  std::vector<Scalar> given;
  bool all = true;
  const auto take = [&](const Arg& a) {
    if (auto number = number_in(a, number_of)) given.push_back(*number);
    else all = false;
  };
  for (const Param& param : op->params) {
    const Arg* arg = argument(graph.node(n), *op, graph.pool().strings, param.name);
    if (arg == nullptr || arg->is(ArgKind::none)) continue;
    if (arg->is(ArgKind::list)) std::ranges::for_each(arg->items(), take);
    else take(*arg);
  }
  return all ? python_number(name.substr(kPython.size()), given) : std::nullopt;
}

}  // namespace sg
