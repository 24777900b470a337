#include "libpasses/overlap/overlap_job.h"

#include "libpasses/agreement.h"

namespace sg::overlap_parts {
namespace {

std::string wrong_order(const Job& job, const Program& program, const Precedence& precedence, const Order& order) {
  if (order.size() != precedence.size()) return "an order leaves nodes out";
  const auto pair = precedence.violated(order);
  if (!pair) return {};
  for (const Constraint& c : precedence.facts().constraints_into(precedence.node(pair->second)))
    if (c.before == precedence.node(pair->first)) return explain(job, program.graph, precedence.node(pair->second), c);
  return "two nodes change places that must not";
}

// Set only to what is not said: a copy that leaves non_blocking out blocks.
void set_non_blocking(Graph* graph, NodeId n, bool value) {
  std::vector<Arg> args;
  const StrId key = graph->pool().strings.intern("non_blocking");
  for (const Arg& arg : graph->node(n).args)
    if (arg.key() != key) args.push_back(arg);
  if (value) args.push_back(Arg::boolean(true).set_key(key));
  graph->set_args(n, std::move(args));
}

}  // namespace

Result<Job> reordered(const Job& job, const JobOrder& orders) {
  Job out(job);
  for (size_t p = 0; p < job.programs.size(); ++p) {
    const Precedence& precedence = orders.precedence(p);
    if (const std::string why = wrong_order(job, *job.programs[p], precedence, orders.by_program[p]); !why.empty())
      return Error{ErrorKind::internal, "sg-overlap made an invalid order: " + why};
    apply_order(&out.programs[p]->graph, precedence, orders.by_program[p]);
  }
  return out;
}

Status run_reference(Job* job, const OverlapOptions& options, PassContext& context, const Measure* measure,
                     JobOrder* orders, Verdict* out) {
  std::vector<Error>* refused = context.best_effort ? &orders->refused : nullptr;
  for (auto& program : job->programs) {
    orders->own.push_back(std::make_unique<Precedence>(*program, program->graph, OrderScope::job));
    SG_ASSIGN(ReferenceOrder reference, reference_order(*program, *orders->own.back(), refused));
    orders->by_program.push_back(reference.order);
    orders->references.push_back(std::move(reference));
  }
  SG_ASSIGN(Job next, reordered(*job, *orders));
  if (options.dense_fsdp) {
    SG_ASSIGN(orders->dense, schedule_dense(&next, refused));
  }
  if (const std::string parted = disagreement(*job, &next, context.threads); !parted.empty()) {
    context.notes->warning("overlap", "ranks would not agree on their collectives: " + parted);
    out->why = "ranks would not agree on their collectives";
    return ok_status();
  }
  for (size_t p = 0; p < job->programs.size(); ++p) {
    Graph& graph = next.programs[p]->graph;
    for (const auto& [place, value] : orders->references[p].copies)
      set_non_blocking(&graph, orders->precedence(p).node(place), value);
    for (uint32_t place : orders->references[p].exchange_waits) {
      NodeMeta meta = graph.meta(orders->precedence(p).node(place));
      meta.ep_step = EpStep::token_exchange_wait;
      graph.set_meta(orders->precedence(p).node(place), std::move(meta));
    }
  }
  if (measure) {
    SG_ASSIGN(out->after, measure->figures(next));
  }
  *job = std::move(next);
  out->kept = true;
  return ok_status();
}

}  // namespace sg::overlap_parts
