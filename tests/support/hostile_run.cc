#include "tests/support/hostile_run.h"

#include <new>

#include "libgraph/expr/sizes.h"
#include "libgraph/infer/infer.h"
#include "libgraph/verify/verify.h"
#include "librun/comm/comm_local.h"
#include "librun/session.h"

namespace sg::test {
namespace {

constexpr int64_t kMostElements = 1 << 14, kMostInputElements = 1 << 18;
constexpr uint32_t kMostRanks = 4;

// Elements of a tensor type, symbols replaced by their hints; a large number if that is not a small one.
int64_t elements_of(const Program& program, const Pool& pool, const Type& t) {
  int64_t count = 1;
  for (Expr e : t.shape) {
    auto size = evaluate_size(pool, e, [&](StrId name) -> std::optional<int64_t> {
      const Symbol* s = program.find_symbol(name);
      return s != nullptr && s->hint ? *s->hint : 64;
    });
    if (!size || *size < 0 || *size > kMostElements) return kMostElements + 1;
    count = std::min(count * *size, kMostElements + 1);
  }
  return count;
}

bool is_small(const Program& program, const Graph& graph) {
  const Pool& pool = graph.pool();
  int64_t inputs = 0;
  for (uint32_t v = 0; v < graph.value_id_limit(); ++v) {
    const Type& t = graph.type(ValueId(v));
    if (t.kind != TypeKind::tensor) continue;
    int64_t n = elements_of(program, pool, t);
    if (n > kMostElements) return false;
    if (graph.value(ValueId(v)).def.is_none()) inputs += n;
    for (Expr stride : t.stride)
      if (pool.exprs.constant_value(stride).value_or(0) > kMostElements) return false;
    if (pool.exprs.constant_value(t.offset).value_or(0) > kMostElements) return false;
  }
  return inputs <= kMostInputElements;
}

bool is_small(const Job& job) {
  if (job.world > kMostRanks) return false;
  for (const auto& program : job.programs) {
    if (!is_small(*program, program->graph)) return false;
    for (const auto& nested : program->nested)
      if (!is_small(*program, nested->graph)) return false;
  }
  return true;
}

}  // namespace

HostileReport run_hostile(Job& job, uint64_t seed, bool use_arena) {
  for (auto& program : job.programs) infer_missing_types(*program);
  Diagnostics findings;
  verify(job, {}, &findings);
  for (const Diagnostic& d : findings.list())
    if (d.severity == Severity::error) return {HostileOutcome::refused, d.message};
  if (!is_small(job)) return {HostileOutcome::too_large, {}};
  SessionOptions options;
  options.init_seed = seed;
  options.rank.memory_limit = int64_t{64} << 20;
  options.rank.use_arena = use_arena;
  auto comms = make_local_communicators(job);
  try {
    auto report = run_session(job, comms, options);
    if (report.ok()) return {HostileOutcome::ran, {}};
    const Error& error = report.error();
    return {HostileOutcome::failed, error.message, error.kind == ErrorKind::internal || error.message.empty()};
  } catch (const std::bad_alloc&) {
    return {HostileOutcome::failed, "no memory"};  // the tools report this with exit code 5
  }
}

}  // namespace sg::test
