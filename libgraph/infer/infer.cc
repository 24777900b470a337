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
  size_t set = infer_missing_in(program.graph, inferrer, missing);
  for (auto& nested : program.nested) set += infer_missing_in(nested->graph, inferrer, missing);
  return set;
}

}  // namespace sg
