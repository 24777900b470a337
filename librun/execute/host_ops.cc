#include "librun/execute/host_ops.h"

#include <string>
#include <vector>

#include "libgraph/python_number.h"

namespace sg {
namespace {

// "3 and 0"; more than two are not listed.
std::string describe(const std::vector<Scalar>& given) {
  auto one = [](Scalar s) { return s.is_integral() ? std::to_string(s.i) : std::to_string(s.re); };
  if (given.size() == 1) return one(given[0]);
  return given.size() == 2 ? one(given[0]) + " and " + one(given[1]) : "these";
}

Result<Scalar> size_of(const KernelCall& call, std::string_view op) {
  const Tensor& self = call.tensor("self");
  if (op == "sym_numel.default") return Scalar::integer(self.elements());
  if (call.op().param_index("dim") < 0) return call.fail("no rule computes " + std::string(op));
  int axis = wrap_axis(call.integer("dim"), self.rank);
  if (axis < 0 || axis >= self.rank) return call.fail("axis " + std::to_string(call.integer("dim")) + " is not there");
  return Scalar::integer(op == "sym_size.int" ? self.dim(axis) : self.step(axis));
}

}  // namespace

Result<Scalar> run_host_op(const KernelCall& call) {
  const OpInfo& op = call.op();
  std::string_view name = op.name;
  if (name.starts_with("aten.sym_") && op.param_index("self") >= 0) return size_of(call, name.substr(5));
  if (!name.starts_with("python.")) return call.fail("no rule computes " + std::string(name));
  std::vector<Scalar> given;
  for (const auto& param : op.params) {
    const ParamValue& value = call.param(param.name);
    if (value.kind == ParamValue::Kind::list)
      for (const ParamValue& item : value.items) given.push_back(item.scalar);
    else if (value.kind != ParamValue::Kind::absent) given.push_back(value.scalar);
  }
  if (auto out = python_number(name.substr(7), given)) return *out;
  return call.fail(std::string(name) + " of " + describe(given) + " is not a number (overflow, or a division by zero)");
}

}  // namespace sg
