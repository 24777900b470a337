#include "libpasses/chunk/chunk_memory.h"

#include "libgraph/facts/alias.h"
#include "libgraph/op.h"

namespace sg {
namespace {

class MemoryCheck {
 public:
  MemoryCheck(const Program& program, const ChunkPlan& plan)
      : graph_(program.graph), plan_(plan), alias_(program, program.graph) {}

  // By BodyNode: whether nothing writes to a view's memory after it.
  std::vector<bool> views_that_may_copy() {
    find_last_writes();
    std::vector<bool> out;
    for (const BodyNode& body : plan_.body) {
      const OpInfo* op = graph_.op_info(body.node);
      out.push_back(op->has(kView) && !op->has(kWait) && graph_.node(body.node).result_count == 1 &&
                    !is_written_behind(graph_.node(body.node).result(0), body.node));
    }
    return out;
  }

  std::optional<MemoryConflict> run() {
    find_last_writes();
    body_.assign(graph_.node_id_limit(), nullptr);
    for (const BodyNode& body : plan_.body) body_[body.node.index] = &body;
    for (NodeId n : graph_.nodes())
      for (StorageId s : alias_.writes(n))
        if (!is_wait(n))
          if (auto bad = check_write(n, s)) return bad;
    for (const BodyNode& body : plan_.body) {
      if (auto bad = check_joined(body)) return bad;
      if (auto bad = check_slices(body)) return bad;
    }
    return std::nullopt;
  }

 private:
  bool is_wait(NodeId n) const {
    const OpInfo* op = graph_.op_info(n);
    return op != nullptr && op->has(kWait);
  }

  void find_last_writes() {
    last_write_.resize(alias_.storages().size());
    for (NodeId n : graph_.nodes())
      for (StorageId s : alias_.writes(n))
        if (!is_wait(n)) last_write_[alias_.storage(s).alias_class] = n;
  }

  bool is_chunks_own(StorageId s) const {
    for (StorageId member : alias_.class_members(alias_.storage(s).alias_class))
      if (!plan_.world.states[alias_.storage(member).owner.index].is_chunked()) return false;
    return true;
  }

  std::optional<MemoryConflict> check_write(NodeId n, StorageId s) {
    const ValueId owner = alias_.storage(s).owner;
    const std::string name = "%" + std::string(graph_.name(owner));
    const BodyNode* body = body_[n.index];
    if (body == nullptr) {
      if (!plan_.world.states[owner.index].is_chunked()) return std::nullopt;
      return MemoryConflict{n, plan_.made_in[owner.index],
                            "it writes to " + name + " from outside of the region, and that is in chunks"};
    }
    if (is_chunks_own(s)) return std::nullopt;
    if (body->accumulates && !plan_.world.states[owner.index].is_chunked()) return std::nullopt;
    return MemoryConflict{n, body->region, "it writes to " + name + ", which is not a chunk's own"};
  }

  bool is_written_behind(ValueId v, NodeId n) const {
    const StorageId s = alias_.storage_of(v);
    if (s.is_none()) return false;
    const NodeId write = last_write_[alias_.storage(s).alias_class];
    return write && write != n && graph_.before(n, write);
  }

  // A concatenation is a copy: later writes to the original would not reach it.
  std::optional<MemoryConflict> check_joined(const BodyNode& body) const {
    const Node& node = graph_.node(body.node);
    for (uint32_t i = 0; i < node.result_count; ++i) {
      const ValueId v = node.result(i);
      if (plan_.full_use[v.index] && is_written_behind(v, body.node))
        return MemoryConflict{
            body.node, body.region,
            "%" + std::string(graph_.name(v)) + " is written after it is made, and its chunks are put together"};
    }
    return std::nullopt;
  }

  // Slices along an inner axis, or of runs, are copies; those along axis 0 are views.
  std::optional<MemoryConflict> check_slices(const BodyNode& body) const {
    for (const SliceWish& wish : body.slices) {
      if (wish.along.axis == 0 && !wish.along.runs) continue;
      const NodeId def = graph_.value(wish.value).def;
      const StorageId s = alias_.storage_of(wish.value);
      if (s.is_none()) continue;
      const NodeId write = last_write_[alias_.storage(s).alias_class];
      if (write && write != def && (!def || graph_.before(def, write)))
        return MemoryConflict{
            body.node, body.region,
            "%" + std::string(graph_.name(wish.value)) + " is written after it is made, and copied in slices"};
    }
    return std::nullopt;
  }

  const Graph& graph_;
  const ChunkPlan& plan_;
  AliasAnalysis alias_;
  std::vector<const BodyNode*> body_;  // by node
  std::vector<NodeId> last_write_;     // by alias class; waits do not count
};

}  // namespace

std::optional<MemoryConflict> find_memory_conflict(const Program& program, const ChunkPlan& plan) {
  return MemoryCheck(program, plan).run();
}

void find_views_that_may_copy(const Program& program, ChunkPlan* plan) {
  const std::vector<bool> found = MemoryCheck(program, *plan).views_that_may_copy();
  for (size_t i = 0; i < found.size(); ++i) plan->body[i].may_copy = found[i];
}

}  // namespace sg
