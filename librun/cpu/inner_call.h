// Ops composed of other ops: calls a kernel of the backend that runs the current call.
#pragma once

#include <utility>
#include <vector>

#include "librun/backend.h"

namespace sg::cpu {

inline ParamValue param_of(const Tensor& t) {
  ParamValue p;
  p.kind = ParamValue::Kind::tensor;
  p.tensor = t;
  return p;
}
inline ParamValue param_of(Scalar s) {
  ParamValue p;
  p.kind = ParamValue::Kind::scalar;
  p.scalar = s;
  return p;
}

// REQUIRES: the op has a kernel there, and these parameters; omitted parameters stay absent, regardless of defaults.
inline Status call_op(KernelCall& call, std::string_view op,
                      std::vector<std::pair<std::string_view, ParamValue>> params, std::vector<Tensor> results) {
  KernelCall inner(*find_op(op), &call.context());
  for (auto& [name, value] : params)
    inner.params()[static_cast<size_t>(inner.op().param_index(name))] = std::move(value);
  inner.ordered_sums = call.ordered_sums;
  inner.scalars.resize(results.size());
  inner.results = std::move(results);
  Backend* backend = backend_of(call.context());
  return (backend ? backend->find_kernel(inner.op()) : find_cpu_kernel(op))(inner);
}

}  // namespace sg::cpu
