#include "tests/support/kernel_call.h"

#include <algorithm>

#include "librun/defaults.h"

namespace sg::test {

ParamValue ints(std::vector<int64_t> values) {
  ParamValue p;
  p.kind = ParamValue::Kind::list;
  for (int64_t v : values)
    p.items.emplace_back().kind = ParamValue::Kind::scalar, p.items.back().scalar = Scalar::integer(v);
  p.integers = std::move(values);
  return p;
}

ParamValue tensors(std::vector<Tensor> list) {
  ParamValue p;
  p.kind = ParamValue::Kind::list;
  for (const Tensor& t : list)
    p.items.emplace_back().kind = t.is_none() ? ParamValue::Kind::absent : ParamValue::Kind::tensor,
    p.items.back().tensor = t;
  p.tensors = std::move(list);
  return p;
}

namespace {

struct Manner {
  RandomStream stream;
  int threads;
  Numerics numerics;
  bool ordered_sums = false;
};

Status call_so(std::string_view op, std::vector<Argument> arguments, std::vector<Tensor> results,
               const Manner& manner) {
  const OpInfo* info = find_op(op);
  Kernel kernel = find_cpu_kernel(op);
  if (!info || !kernel) return Error{ErrorKind::cannot_apply, "no kernel for " + std::string(op)};
  ThreadTeam team(manner.threads);
  Scratch scratch;
  KernelContext context{&team, &scratch, manner.numerics};
  KernelCall c(*info, &context);
  for (size_t i = 0; i < info->params.size(); ++i) c.params()[i] = default_of(info->params[i]);
  for (Argument& a : arguments) c.params()[static_cast<size_t>(info->param_index(a.name))] = std::move(a.value);
  c.scalars.resize(results.size());
  c.results = std::move(results);
  c.ordered_sums = manner.ordered_sums;
  c.random = manner.stream;
  if (c.random.recorded == DType::none && !c.results.empty()) c.random.recorded = c.results[0].dtype;
  const std::vector<ParamValue> bound = c.params();
  Status status = kernel(c);
  // A run binds a call once and repeats it in every step, so a kernel must leave it unchanged.
  for (size_t i = 0; i < bound.size(); ++i)
    if (!same_view(c.params()[i].tensor, bound[i].tensor) ||
        !std::ranges::equal(c.params()[i].tensors, bound[i].tensors, same_view))
      return Error{ErrorKind::cannot_apply,
                   std::string(op) + " has changed its argument " + std::string(info->params[i].name)};
  return status;
}

}  // namespace

Status call(std::string_view op, std::vector<Argument> arguments, std::vector<Tensor> results, int threads,
            Numerics numerics) {
  return call_so(op, std::move(arguments), std::move(results), {{}, threads, numerics});
}

Status call_in_order(std::string_view op, std::vector<Argument> arguments, std::vector<Tensor> results, int threads) {
  return call_so(op, std::move(arguments), std::move(results), {{}, threads, Numerics::fast, true});
}

Status draw(std::string_view op, std::vector<Argument> arguments, std::vector<Tensor> results,
            const RandomStream& stream, int threads, Numerics numerics) {
  return call_so(op, std::move(arguments), std::move(results), {stream, threads, numerics});
}

}  // namespace sg::test
