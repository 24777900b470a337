#include "librun/execute/bit_casts.h"

#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "libgraph/facts/alias.h"

namespace sg {
namespace {

bool keeps_numbers(DType from, DType to) {
  auto are_parts = [](DType whole, DType part) {
    return (whole == DType::c128 && part == DType::f64) || (whole == DType::c64 && part == DType::f32);
  };
  auto is_exact = [](DType t) { return !is_floating(t) && !is_complex(t); };
  return from == to || are_parts(from, to) || are_parts(to, from) || (is_exact(from) && is_exact(to));
}

bool is_bit_cast(const Graph& graph, NodeId n) {
  const Node& node = graph.node(n);
  return graph.op_name(n) == "aten.view.dtype" && node.args[0].is(ArgKind::value) &&
         !keeps_numbers(graph.type(node.args[0].as_value()).dtype, graph.type(node.result(0)).dtype);
}

// Finds writes that a copy would miss. `seen` is the original graph, `kept` has the copies: a memory class of `seen`
// may be split into several there.
class MissedWrites {
 public:
  MissedWrites(const Graph& graph, const AliasAnalysis& seen, const AliasAnalysis& kept)
      : graph_(graph), seen_(seen), kept_(kept), alive_(seen.storages().size()), last_use_(kept.storages().size()) {
    size_t position = 0;
    for (NodeId n : graph.nodes()) {
      ++position;
      for (const Arg& arg : graph.node(n).args)
        arg.walk([&](const Arg& a) {
          if (!a.is(ArgKind::value)) return;
          if (StorageId s = kept.storage_of(a.as_value()); !s.is_none()) last_use_[s.index] = position;
        });
    }
    for (size_t s = 0; s < last_use_.size(); ++s)
      if (kept.storages()[s].is_input() || kept.storages()[s].is_output) last_use_[s] = kAfterAll;
  }

  Status check() {
    size_t position = 0;
    begin_those_of(NodeId());
    for (NodeId n : graph_.nodes()) {
      ++position;
      for (StorageId s : kept_.writes(n))
        if (ValueId other = used_apart_from(s, position)) return refusal(n, other);
      begin_those_of(n);
    }
    return ok_status();
  }

 private:
  static constexpr size_t kAfterAll = std::numeric_limits<size_t>::max();
  struct Alive {
    StorageId storage;
    size_t last_use = 0;
  };

  // Storages are in the order of their defining nodes.
  void begin_those_of(NodeId n) {
    for (; next_ < last_use_.size() && kept_.storages()[next_].def == n; ++next_) begin(StorageId(next_));
  }

  // Of each memory class in `seen`, keeps the two storages that are used last and are separate now.
  void begin(StorageId s) {
    auto& [most, second] = alive_[class_of(s)];
    const Alive now{s, last_use_[s.index]};
    if (!most.storage || together(most.storage, s)) {
      if (!most.storage || now.last_use > most.last_use) most = now;
    } else if (now.last_use > most.last_use) {
      second = std::exchange(most, now);
    } else if (!second.storage || now.last_use > second.last_use) {
      second = now;
    }
  }

  ValueId used_apart_from(StorageId s, size_t position) const {
    for (const Alive& other : alive_[class_of(s)])
      if (other.storage && !together(other.storage, s) && other.last_use > position)
        return kept_.storage(other.storage).owner;
    return {};
  }

  size_t class_of(StorageId s) const { return seen_.storage(seen_.storage_of(kept_.storage(s).owner)).alias_class; }
  bool together(StorageId a, StorageId b) const { return kept_.storage(a).alias_class == kept_.storage(b).alias_class; }

  Error refusal(NodeId n, ValueId other) const {
    Error error{ErrorKind::cannot_apply,
                "%" + std::string(graph_.label(n)) + " = " + std::string(graph_.op_name(n)) + " writes memory that %" +
                    std::string(graph_.name(other)) +
                    " sees as another type, and which is used later: in double they are apart",
                {},
                "without --numerics f64 it runs"};
    if (SourceId id = graph_.node(n).source) {
      const Source& source = graph_.pool().sources[id];
      error.where.file = std::string(graph_.pool().strings[source.file]);
      error.where.line = source.line;
    }
    return error;
  }

  const Graph& graph_;
  const AliasAnalysis &seen_, &kept_;
  std::vector<std::array<Alive, 2>> alive_;  // by class of `seen`
  std::vector<size_t> last_use_;             // by storage of `kept`: positions from 1
  uint32_t next_ = 0;
};

bool has_bit_casts(const Graph& graph) {
  for (NodeId n : graph.nodes())
    if (is_bit_cast(graph, n)) return true;
  return false;
}

bool has_bit_casts(const Program& program) {
  return has_bit_casts(program.graph) ||
         std::ranges::any_of(program.nested, [](const auto& nested) { return has_bit_casts(nested->graph); });
}

void copy_bits_in(Graph* graph, OpId copy) {
  for (NodeId n : graph->nodes())
    if (is_bit_cast(*graph, n)) graph->set_op(n, copy);
}

// `after` is a copy of `before`.
Status copy_bits_in(const Program& before, Program* after, OpId copy) {
  copy_bits_in(&after->graph, copy);
  for (auto& nested : after->nested) copy_bits_in(&nested->graph, copy);
  auto check = [&](const Graph& was, const Graph& is) {
    const AliasAnalysis seen(before, was), kept(*after, is);
    return MissedWrites(is, seen, kept).check();
  };
  SG_TRY(check(before.graph, after->graph));
  for (size_t i = 0; i < after->nested.size(); ++i) SG_TRY(check(before.nested[i]->graph, after->nested[i]->graph));
  return ok_status();
}

}  // namespace

Result<std::unique_ptr<Job>> with_copied_bits(const Job& job) {
  const auto cast = [](const auto& program) { return has_bit_casts(*program); };
  if (std::ranges::none_of(job.programs, cast)) return std::unique_ptr<Job>();
  auto out = std::make_unique<Job>(job);
  const OpId copy = out->pool->op("sg.copy_bits");
  for (size_t p = 0; p < job.programs.size(); ++p)
    if (cast(job.programs[p])) SG_TRY(copy_bits_in(*job.programs[p], out->programs[p].get(), copy));
  return out;
}

}  // namespace sg
