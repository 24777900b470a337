// GraphRun: one graph of one rank, prepared once and run once per step.
//
// Ready     `build` turns the graph into steps once the sizes of the inputs are bound: views whose memory is known
//           vanish, every other node gets its kernel. Everything that cannot run is reported here, all at once.
// Memory    Tensors with planned memory are in the arena; tensors with data-dependent sizes come from the pool between
//           their first and last use; inputs stay in the caller's memory.
// Static    Tensors whose size and address cannot change are set up once; a step that uses only such tensors costs just
//           its kernel call.
// Calls     are made when a step first runs, and kept for the next run unless there is none (RankOptions::runs_once);
//           on the CPU a fused step needs none, as the program of its group holds what it takes.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "libgraph/facts/alias.h"
#include "libgraph/plan/liveness.h"
#include "libgraph/plan/plan.h"
#include "librun/backend.h"
#include "librun/comm/collectives.h"
#include "librun/cpu/pointwise.h"
#include "librun/execute/arguments.h"
#include "librun/execute/bindings.h"
#include "librun/execute/memory.h"
#include "librun/execute/segments.h"
#include "librun/kernel.h"

namespace sg {

struct Unsupported;  // unsupported.h

// Receives each node's results as they are computed: for NaN detection, dumps, profiles and comparisons.
class Observer {
 public:
  virtual ~Observer() = default;
  virtual void before(const Graph&, NodeId) {}
  // Called before results are copied here. `steps`: how many steps ran as one, this node being the first.
  virtual void ran(const Graph&, NodeId, size_t /*steps*/) {}
  // False: `after` gets no results, and on a device fused groups stay fused: their results stay on the device.
  virtual bool looks_at_results() const { return true; }
  virtual Status after(const Graph& graph, NodeId n, std::span<const Tensor> results) = 0;
  // The same for views of memory that is there, for which nothing runs: called only if wanted, and in a node's turn.
  virtual bool looks_at_views() const { return false; }
  virtual Status at_view(const Graph&, NodeId, std::span<const Tensor>) { return ok_status(); }
  // The nodes between these two calls belong to the body that call `n` runs.
  virtual void enter_body(const Graph&, NodeId) {}
  virtual void leave_body() {}
};

// Gives every result a unique name: "%call/%x" for %x of the body that %call runs.
class NamingObserver : public Observer {
 public:
  void enter_body(const Graph& graph, NodeId n) override;
  void leave_body() override;

 protected:
  std::string name_of_result(const Graph& graph, NodeId n, uint32_t result) const;

 private:
  std::vector<std::string> calls_;
};

// Whether the node's results are defined yet: those of a collective only after its wait, those of aten.empty and its
// kin never.
bool has_settled_results(const Graph& graph, NodeId n);

// State shared by all graphs of one rank during a run.
struct RankState {
  const Job* job = nullptr;
  const Program* program = nullptr;
  uint32_t rank = 0;
  uint64_t seed = 0, step = 0;
  Bindings* bindings = nullptr;
  BlockPool* pool = nullptr;
  KernelContext* kernels = nullptr;
  Communicator* comm = nullptr;  // null = the job has no collectives
  Observer* observer = nullptr;
  bool use_arena = true;       // false: all memory comes from the pool
  bool guards_flight = false;  // collectives.h
  bool runs_once = false;      // RankOptions
  Backend* backend = nullptr;  // null = the CPU; else the owner of the tensors' memory
};

class GraphRun {
 public:
  // `nested`: the index of the nested graph in the program; none = the main graph.
  GraphRun(RankState* state, const Graph& graph, NestedId nested = {});
  ~GraphRun();

  // Plans memory and creates steps. REQUIRES: the input symbols are bound.
  Status build(std::vector<Unsupported>* unsupported);
  // Reserves the arena; insufficient memory is an error here.
  Status reserve();

  // Binds the inputs: tensors by input position, numbers for scalar inputs. The memory remains the caller's and must
  // not move until the next `bind_inputs`.
  Status bind_inputs(std::span<const Tensor> tensors, std::span<const Scalar> scalars);
  // The same for a body that is called again: state from its previous call is kept if the tensors are the same.
  Status rebind_inputs(std::span<const Tensor> tensors, std::span<const Scalar> scalars);

  Status run();
  // The same, step by step: for runs in lockstep, which inspect a step's results before `free_after` releases them.
  size_t step_count() const { return steps_.size(); }
  NodeId step_node(size_t i) const { return steps_[i].node; }
  Status run_step(size_t i);
  Status begin_step(size_t i);  // prepares results and arguments, computes nothing
  KernelCall* step_call(size_t i) { return steps_[i].call.get(); }
  void free_after(size_t i);
  void finish();  // releases what outlives the last step, except outputs

  // Adds rank, node and source line to the error.
  Error at_node(Error error, NodeId n) const;
  // How it runs on a backend: what is recorded, what splits recordings, what the host computes. One line each.
  std::vector<std::string> explain() const;
  // Ops of this graph and its bodies that the backend leaves to the host, with their node counts.
  const std::map<std::string, size_t>& on_host() const { return on_host_; }

  // The run, among this one and the bodies it calls, that contains the node at `place` (Heartbeat::place); null if
  // none.
  const GraphRun* find_nested(uint64_t place) const;

  const Graph& graph() const { return graph_; }
  const ValueTable& values() const { return values_; }
  ValueTable& values() { return values_; }
  ThreadTeam& team() const { return *state_.kernels->team; }
  const AliasAnalysis& alias() const { return *alias_; }
  const Liveness& liveness() const { return *live_; }
  const MemoryPlan& plan() const { return *placed_; }
  int64_t arena_bytes() const { return plan_.arena_bytes; }
  int64_t host_bytes() const { return plan_.host_bytes; }

 private:
  enum class StepKind : uint8_t { kernel, view, host, call, copy, launch, wait };
  struct Step {
    NodeId node;
    StepKind kind = StepKind::kernel;
    bool is_static = false;
    bool resolved = false;        // static, and its call is filled in
    bool has_open_sizes = false;  // its type rule is checked again with this run's numbers
    bool gives_numbers = true;    // to the host or to symbols: results other than tensors known in advance
    Kernel kernel = nullptr;
    std::unique_ptr<KernelCall> call;  // from `resolve` on; views have none
    std::unique_ptr<GraphRun> body;    // calls only
    std::vector<Launched> launched;    // launches only: one per result, until all are finished
    uint64_t copy = 0;                 // copies only: the backend's number, until waited for
    std::vector<StorageId> frees;      // pool storages without users after this step
  };
  struct FusedGroup {  // consecutive steps that run as one pass over memory
    size_t first = 0, count = 0;
    std::unique_ptr<cpu::PointwiseProgram> program;  // null: of a pair, or no longer needed
    std::unique_ptr<DeviceProgram> on_device;
  };
  struct Item {                   // runs as one: a group, or a single step
    size_t first = 0, count = 1;  // steps
    FusedGroup* group = nullptr;
    bool touches_host = false;  // the host took part in its last run
  };
  struct ShownView {  // without a step of its own
    NodeId node;
    size_t before;  // the step that comes next
  };
  struct Slot {  // the memory of a storage
    std::byte* base = nullptr;
    int64_t bytes = 0;
    bool is_static = false;  // input or arena: the address is fixed
    bool from_pool = false;
  };

  // graph_build.cc
  void build_as_body(const Liveness* liveness, const MemoryPlan* plan, const GraphRun& root, int64_t frame,
                     std::vector<Unsupported>* unsupported);
  void take_apart(std::vector<Unsupported>* unsupported);
  void place_storages();
  void build_bodies(std::vector<Unsupported>* unsupported);
  void add_steps(std::vector<Unsupported>* unsupported);
  bool add_step(NodeId n, Step* step, std::string* reason);
  bool is_plain_view(NodeId n) const;
  bool is_left_alone(NodeId transfer) const;
  void find_conjugates();
  bool has_static_type(ValueId v) const;
  bool is_static_number(ValueId v) const;
  void schedule_frees();

  // graph_fuse.cc
  Status fuse();
  Status fuse_from(size_t first);
  void give_up_calls(size_t first, size_t end);
  Result<size_t> fuse_run(size_t first, size_t end);
  Result<size_t> fuse_pair(size_t first);
  Result<size_t> fuse_rows(size_t first, size_t stop);
  Result<std::unique_ptr<FusedGroup>> lay_out(size_t first, size_t stop, size_t end);
  size_t end_of_chain(size_t first) const;
  bool can_fuse(const Step& step) const;
  bool can_reduce(const Step& step) const;
  bool is_needed_outside(ValueId v, size_t first, size_t end) const;
  bool is_looked_at_outside(ValueId v, size_t first, size_t end) const;

  // graph_record.cc
  Status run_on_device();
  Status run_item(const Item& item);
  Status run_item_watched(size_t i);
  void list_items();
  Split split_of(const Item& item) const;
  bool has_number(NodeId n) const;
  bool holds_number(const Type& type) const;
  Status record(const Segment& segment, size_t number);

  // graph_run.cc
  Status run_group(FusedGroup& group);
  Status run_by_kind(Step* step);
  Status resolve(Step* step);
  Status run_kernel(Step* step);
  Status run_host(Step* step);
  Status expect_input(size_t i, const Tensor& given) const;
  Status run_body(Step* step);
  Status run_copy(Step* step);
  Status run_launch(Step* step);
  Status run_wait(Step* step);
  Launched* launched_for(ValueId v);
  bool is_of_copy(const Step& step) const;
  Status finish_value(ValueId v);
  Status finish_arguments(NodeId n);
  Status finish_launched();
  Status define_result(NodeId n, uint32_t i);
  Status define_fresh(NodeId n, ValueId v);
  Status define_static_values();
  Result<Tensor> view_of(ValueId v) const;  // in the memory that its storage has now
  Status allocate_by_kernel(Step* step, size_t i, std::span<const int64_t> shape);
  Status bind_results(Step* step);
  void set_arena_bases();
  Status take_memory(StorageId s, int64_t bytes);
  Status show_results(NodeId n);
  std::vector<ShownView> views_to_show() const;
  Status show_view(NodeId n);
  Status show(NodeId n, const std::function<Status(std::span<const Tensor>)>& look);
  void begin_node(NodeId n);
  bool shows_nodes() const;
  bool keeps_calls() const { return !state_.runs_once || state_.backend != nullptr || nested_; }

  RankState& state_;
  const Graph& graph_;
  NestedId nested_;
  std::unique_ptr<AliasAnalysis> alias_;
  Liveness liveness_;  // of the main graph; bodies point into it
  MemoryPlan plan_;
  Arena arena_, host_arena_;
  const Liveness* live_ = &liveness_;
  const MemoryPlan* placed_ = &plan_;
  const GraphRun* root_ = this;  // the run whose arena, plan and liveness are used
  int64_t frame_ = 0;            // offset of this body's frame in the arena
  std::vector<Slot> slots_;      // by storage
  std::vector<bool> conjugate_;  // by value
  ValueTable values_;
  std::vector<Step> steps_;
  std::vector<uint32_t> step_of_;                    // by node; launches and copies only
  std::vector<std::unique_ptr<FusedGroup>> groups_;  // in schedule order
  size_t fused_ = 0;                                 // steps before it are in groups where that is possible
  std::vector<Item> items_;                          // with a backend, after fusing
  std::vector<Segment> segments_;
  std::vector<std::unique_ptr<DeviceProgram>> recorded_;  // by segment; null = not yet
  size_t runs_ = 0;                                       // since the inputs were bound
  std::map<std::string, size_t> on_host_;
  size_t in_flight_ = 0;                // roughly, not yet waited for: whether to call progress()
  std::vector<bool> static_;            // by value: neither size nor address can change
  std::vector<ValueId> static_values_;  // defined when the inputs are bound
  std::vector<NodeId> open_views_;      // views among them with symbols in their types, until their sizes are checked
  std::vector<Tensor> bound_;           // from the last rebind_inputs
};

}  // namespace sg
