// The generator itself: equal seeds give equal jobs, the options take effect, and every feature occurs.
#include "tests/support/random_job.h"

#include <catch2/catch.hpp>
#include <set>
#include <string>

namespace sg {
namespace {

struct Seen {
  std::set<std::string> ops;
  std::set<ArgKind> args;
  std::set<InputKind> inputs;
  std::set<OutputKind> outputs;
  std::set<TypeKind> types;
  size_t nodes = 0, programs = 0, nested = 0, symbols = 0, guards = 0, groups = 0, tuples = 0, forwards = 0;
};

void collect(const Graph& graph, Seen* seen) {
  for (const Input& in : graph.inputs()) seen->inputs.insert(in.kind), seen->types.insert(graph.type(in.value).kind);
  for (const Output& out : graph.outputs()) seen->outputs.insert(out.kind);
  for (NodeId n : graph.nodes()) {
    const Node& node = graph.node(n);
    seen->ops.insert(std::string(graph.op_name(n)));
    seen->tuples += node.is_tuple, seen->forwards += bool(node.forward), ++seen->nodes;
    for (uint32_t i = 0; i < node.result_count; ++i) seen->types.insert(graph.type(node.result(i)).kind);
    for (const Arg& arg : node.args) arg.walk([&](const Arg& a) { seen->args.insert(a.kind()); });
  }
}

void collect(const Job& job, Seen* seen) {
  seen->groups += job.groups.size();
  for (const auto& program : job.programs) {
    ++seen->programs;
    seen->symbols += program->symbols.size(), seen->guards += program->guards.size();
    seen->nested += program->nested.size();
    collect(program->graph, seen);
    for (const auto& nested : program->nested) collect(nested->graph, seen);
  }
}

}  // namespace

TEST_CASE("random jobs hold everything that a graph may hold") {
  Seen seen;
  for (uint64_t seed = 0; seed < 200; ++seed) collect(test::random_job(seed), &seen);
  CHECK(seen.args.size() == 20);
  CHECK(seen.inputs.size() == 7);
  CHECK(seen.outputs.size() == 6);
  CHECK(seen.types.size() == 8);
  CHECK(seen.ops.size() > 45);
  CHECK(seen.programs > 80);
  CHECK((seen.nested > 0 && seen.symbols > 0 && seen.guards > 0 && seen.groups > 0 && seen.tuples > 0 &&
         seen.forwards > 0));
}

TEST_CASE("random jobs without features hold none of them") {
  test::RandomJobOptions plain;
  plain.world = 4, plain.nodes = 200;
  plain.symbols = plain.in_place = plain.random_ops = plain.nested = plain.collectives = plain.opaque_ops = false;
  plain.metadata = plain.odd_names = plain.ranks_apart = false;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    Job job = test::random_job(seed, plain);
    CHECK(job.is_spmd());
    Seen seen;
    collect(job, &seen);
    CHECK(seen.nodes >= 200);
    CHECK(seen.symbols + seen.nested == 0);
    for (const std::string& op : seen.ops) {
      INFO(op);
      CHECK(op.find("c10d") == std::string::npos);
      CHECK(op.find("_.") == std::string::npos);
      CHECK(op.find("mylib") == std::string::npos);
    }
  }
}

}  // namespace sg
