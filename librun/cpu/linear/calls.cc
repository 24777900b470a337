#include "librun/cpu/linear/calls.h"

namespace sg::cpu::linear {
namespace {

std::string reason(std::string_view api, int32_t info) {
  const std::string number = std::to_string(info);
  auto is_of = [&](std::string_view word) { return api.find(word) != std::string_view::npos; };
  if (is_of("inv"))
    return "The diagonal element " + number +
           " is zero, the inversion could not be completed because the input matrix is singular.";
  if (is_of("solve")) return "The solver failed because the input matrix is singular.";
  if (is_of("cholesky"))
    return "The factorization could not be completed because the input is not positive-definite (the leading minor of "
           "order " +
           number + " is not positive-definite).";
  if (is_of("lu_factor"))
    return "U[" + number + "," + number + "] is zero and using it on lu_solve would result in a division by zero.";
  if (is_of("svd")) return "The algorithm failed to converge because the input matrix contained non-finite values.";
  if (is_of("eig"))
    return "The algorithm failed to converge because the input matrix is ill-conditioned or has too many repeated "
           "eigenvalues.";
  return "the decomposition failed (code " + number + ").";
}

}  // namespace

std::vector<int64_t> matrices_of(std::span<const int64_t> from, std::span<const int64_t> to) {
  int64_t count = 1;
  for (int64_t n : to) count *= n;
  std::vector<int64_t> out(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    int64_t rest = i, index = 0, step = 1;
    for (size_t d = 0; d < to.size(); ++d) {  // starting with the last axis
      const int64_t at = rest % to[to.size() - 1 - d];
      rest /= to[to.size() - 1 - d];
      if (d >= from.size()) continue;
      const int64_t size = from[from.size() - 1 - d];
      index += (size == 1 ? 0 : at) * step;
      step *= size;
    }
    out[static_cast<size_t>(i)] = index;
  }
  return out;
}

Status check_infos(const KernelCall& call, std::string_view api, std::span<const int32_t> infos, bool is_matrix) {
  for (size_t i = 0; i < infos.size(); ++i) {
    if (infos[i] == 0) continue;
    const std::string batch = is_matrix ? "" : "(Batch element " + std::to_string(i) + "): ";
    return call.fail(std::string(api) + ": " + batch + reason(api, infos[i]));
  }
  return ok_status();
}

Status read_pivots(KernelCall& call, const Tensor& t, int64_t rows, int32_t** out) {
  const Tensor given = contiguous(call, t);
  *out = call.scratch().take<int32_t>(given.elements());
  for (int64_t i = 0; i < given.elements(); ++i) {
    const int32_t p = given.as<int32_t>()[i];
    if (p < 1 || p > rows) return call.fail("pivot " + std::to_string(p) + " is not a row of " + std::to_string(rows));
    (*out)[i] = p - 1;
  }
  return ok_status();
}

bool gives_nothing(const KernelCall& call) {
  return std::ranges::all_of(call.results, [](const Tensor& t) { return t.is_none() || t.elements() == 0; });
}

Tensor adjoint_of(const Tensor& t) {
  Tensor out = swap_axes(t, t.rank - 2, t.rank - 1);
  if (is_complex(t.dtype)) out.conjugate = !out.conjugate;
  return out;
}

}  // namespace sg::cpu::linear
