// The part of random_job that fills one graph; see random_job.h.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/job.h"
#include "tests/support/random_job.h"
#include "tests/support/rng.h"

namespace sg::test {

class GraphBuilder {
 public:
  // `shape` decides the structure, equal in all programs of a job; `own` decides what may differ between them.
  GraphBuilder(Job& job, Program& program, Graph& graph, Rng& shape, Rng& own, const RandomJobOptions& options);

  void fill();                                                 // a main graph: inputs, nodes, outputs
  void fill_nested(std::vector<TypeId> inputs, size_t nodes);  // a body: all inputs used or not, some outputs

 private:
  struct Entry {
    ValueId value;
    bool dense = true;      // contiguous: may feed any op; others feed views and copies only
    bool writable = false;  // its storage was made here (or is a buffer's), and no element occurs twice
  };
  using Step = void (GraphBuilder::*)();
  struct WeightedStep {
    unsigned weight;
    Step step;
  };
  void choose_steps();

  // inputs and outputs
  void add_inputs();
  void add_data_inputs();
  Input sharded_parameter(StrId fqn, const std::vector<Expr>& shape);
  void declare_symbols();
  void add_outputs();

  // emitting
  ValueId emit(std::string_view op, std::vector<Arg> args, Type type, MetaId meta = MetaId(0));
  NodeId emit_node(std::string_view op, std::vector<Arg> args, const std::vector<TypeId>& types, bool is_tuple,
                   MetaId meta = MetaId(0));
  void move_context();
  MetaId random_meta(uint32_t result_count);
  void fill_chunk_meta(NodeMeta* meta, uint32_t result_count);
  std::string odd_name();
  Arg random_literal(int depth);

  // values
  void add_entry(ValueId v, bool dense, bool writable);
  const Type& type(ValueId v) const { return graph_.type(v); }
  Entry pick_any();
  Entry pick_dense(size_t min_rank = 0);
  Entry pick_writable();
  Entry fresh_entry();
  Type dense_type(DType dtype, std::vector<Expr> shape);
  Arg size_arg(Expr e);
  Arg shape_arg(const std::vector<Expr>& shape);
  std::optional<size_t> constant_dim(const Type& t, int64_t at_least);
  int64_t weight_of(const Type& t) const;  // elements, with every symbol at its hint

  // steps: each adds a few nodes
  void pointwise_unary();
  void pointwise_binary();
  void pointwise_scalar();
  void compare_and_select();
  void cast();
  void product();
  void reduce();
  void make_fresh();
  void transpose();
  void slice();
  void select();
  void diagonal();
  void windows();
  void reshape();
  void unsqueeze_expand();
  void split();
  void copy_contiguous();
  void concatenate();
  void top_k();
  void gather_rows();
  void assert_true();
  void write_in_place();
  void write_slice();
  void draw_random();
  void read_size();
  void read_data();
  void mystery();
  void call_nested();
  void gather();
  void gather_out();
  void reduce_ranks();
  void scatter_ranks();
  void exchange();

  void launch(std::string_view op, std::vector<Arg> args, Type result);
  void wait_one();
  GroupId usable_group();
  int64_t group_size(GroupId g) const;

  Job& job_;
  Program& program_;
  Graph& graph_;
  Pool& pool_;
  Rng& shape_;
  Rng& own_;
  RandomJobOptions options_;
  StrId device_;
  std::vector<WeightedStep> steps_;
  unsigned total_weight_ = 0;
  std::vector<Entry> base_, recent_;
  size_t next_recent_ = 0;
  std::vector<ValueId> last_of_type_;  // by TypeId
  std::vector<ValueId> pending_;       // launched, not yet waited for
  std::vector<ValueId> counts_;        // i64 vectors that symbols may be read from
  std::vector<NodeId> forward_nodes_;
  Phase phase_ = Phase::forward;
  StrId module_;
  SourceId source_;
  uint32_t next_stream_ = 0;
  uint32_t next_symbol_ = 0;
};

}  // namespace sg::test
