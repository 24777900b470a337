#include "libgraph/infer/infer.h"

#include "libgraph/base/human.h"
#include "libgraph/infer/infer_expect.h"
#include "libgraph/infer/infer_rules.h"

namespace sg {
namespace infer {

Status none(InferCall& c) { return c.fail("has no inference rule"); }

}  // namespace infer

namespace {

size_t infer_missing_in(Graph& graph, TypeInferrer& inferrer, std::vector<NodeId>* missing) {
  size_t set = 0;
  for (NodeId n : graph.nodes()) {
    const Node& node = graph.node(n);
    bool wanted = false;
    for (uint32_t i = 0; i < node.result_count; ++i)
      wanted = wanted || graph.type(node.result(i)).kind == TypeKind::unknown;
    if (!wanted) continue;
    auto types = inferrer.infer(graph, n);
    if (!types.ok()) {
      if (missing != nullptr) missing->push_back(n);
      continue;
    }
    bool all_known = true;
    for (uint32_t i = 0; i < node.result_count; ++i) {
      if (graph.type(node.result(i)).kind != TypeKind::unknown) continue;
      if ((*types)[i].kind == TypeKind::unknown) all_known = false;  // only a record could tell
      if ((*types)[i].kind == TypeKind::unknown) continue;
      graph.set_type(node.result(i), graph.pool().types.intern((*types)[i]));
      ++set;
    }
    if (!all_known && missing != nullptr) missing->push_back(n);
  }
  return set;
}

std::vector<uint32_t> bodies_called_by(const Program& program, const Graph& graph) {
  std::vector<uint32_t> out;
  for (NodeId n : graph.nodes())
    for (const Arg& arg : graph.node(n).args)
      arg.walk([&](const Arg& a) {
        if (a.is(ArgKind::graph) && a.as_graph().index < program.nested.size()) out.push_back(a.as_graph().index);
      });
  return out;
}

// Each after those that it calls, from which its calls take their types; bodies that nobody calls too.
std::vector<uint32_t> bodies_callees_first(const Program& program) {
  struct Visit {
    uint32_t body;
    std::vector<uint32_t> callees;
  };
  std::vector<bool> seen(program.nested.size());
  std::vector<uint32_t> out;
  std::vector<Visit> open;
  const auto enter = [&](uint32_t body) {
    if (seen[body]) return;
    seen[body] = true;
    open.push_back({body, bodies_called_by(program, program.nested[body]->graph)});
  };
  for (uint32_t first = 0; first < program.nested.size(); ++first) {
    enter(first);
    while (!open.empty()) {
      if (open.back().callees.empty()) {
        out.push_back(open.back().body);
        open.pop_back();
        continue;
      }
      const uint32_t callee = open.back().callees.back();
      open.back().callees.pop_back();
      enter(callee);
    }
  }
  return out;
}

}  // namespace

TypeInferrer::TypeInferrer(const Program& program)
    : program_(program), sizes_(std::make_unique<Sizes>(&program.graph.pool(), &program)) {}

TypeInferrer::~TypeInferrer() = default;

bool TypeInferrer::is_dense(const Type& tensor) { return sizes_->is_dense(tensor); }

Result<std::vector<Type>> TypeInferrer::infer(const Graph& graph, NodeId n) {
  const OpInfo* op = graph.op_info(n);
  if (op == nullptr || op->infer == nullptr)
    return Error{ErrorKind::cannot_apply, std::string(graph.op_name(n)) + ": has no inference rule", {}, {}};
  InferCall call(program_, graph, n, *op, *sizes_);
  SG_TRY(call.bind());
  SG_TRY(infer::check_expectations(call));
  SG_TRY(op->infer(call));
  SG_TRY(infer::check_result_numbers(call));
  if (call.results.size() != call.node.result_count)
    return call.fail("has " + plural(call.results.size(), "result") + ", not " +
                     std::to_string(call.node.result_count));
  return std::move(call.results);
}

Result<std::vector<Type>> infer_types(const Program& program, const Graph& graph, NodeId n) {
  return TypeInferrer(program).infer(graph, n);
}

size_t infer_missing_types(Program& program, std::vector<NodeId>* missing) {
  TypeInferrer inferrer(program);
  size_t set = 0;
  for (const uint32_t body : bodies_callees_first(program))
    set += infer_missing_in(program.nested[body]->graph, inferrer, missing);
  return set + infer_missing_in(program.graph, inferrer, missing);
}

}  // namespace sg
