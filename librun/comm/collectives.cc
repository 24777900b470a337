#include "librun/comm/collectives.h"

#include <complex>
#include <cstdlib>
#include <cstring>
#include <new>

#include "librun/element.h"
#include "librun/execute/spoil.h"

namespace sg {
namespace {

struct Row {
  std::string_view op;  // without overload and without the suffixes `_`, `_out`, `_coalesced`
  CollectiveKind kind;
};

constexpr Row kRows[] = {
    {"_c10d_functional.all_gather_into_tensor", CollectiveKind::all_gather},
    {"_c10d_functional.reduce_scatter_tensor", CollectiveKind::reduce_scatter},
    {"_c10d_functional.all_reduce", CollectiveKind::all_reduce},
    {"_c10d_functional.all_to_all_single", CollectiveKind::all_to_all},
    {"_c10d_functional.broadcast", CollectiveKind::broadcast},
    {"_dtensor.shard_dim_alltoall", CollectiveKind::all_to_all},
};
constexpr std::string_view kShardDim = "_dtensor.shard_dim_alltoall";

std::string_view base_of(std::string_view op) {
  op = op.substr(0, op.rfind('.'));
  for (std::string_view ending : {"_", "_out", "_coalesced"})
    if (op.ends_with(ending)) op.remove_suffix(ending.size());
  return op;
}

const Row* row_of(const OpInfo& op) {
  for (const Row& row : kRows)
    if (row.op == base_of(op.name)) return &row;
  return nullptr;
}

Launched::Memory allocate(Backend* backend, int64_t bytes) {
  MemorySource* source = backend ? &backend->memory() : nullptr;
  void* memory = source ? source->take(bytes + 1) : std::malloc(static_cast<size_t>(bytes) + 1);
  if (!memory) throw std::bad_alloc();
  return {static_cast<std::byte*>(memory), MemoryRelease{source}};
}

// A contiguous tensor like `like`, in memory of its own.
Tensor stage(Backend* backend, const Tensor& like, Launched::Memory& memory) {
  Tensor out = make_tensor(nullptr, like.dtype, like.sizes());
  memory = allocate(backend, out.bytes());
  out.data = memory.get();
  return out;
}

template <class T>
void copy_axis(const T* from, const Tensor& source, T* to, const Tensor& target, int axis) {
  if (axis == source.rank) {
    *to = *from;
    if constexpr (is_complex_type<T>)
      if (source.conjugate != target.conjugate) *to = std::conj(*to);
    return;
  }
  int64_t n = source.dim(axis), in = source.step(axis), out = target.step(axis);
  for (int64_t i = 0; i < n; ++i) copy_axis(from + i * in, source, to + i * out, target, axis + 1);
}

// Copies element by element between tensors of the same shape and dtype.
void copy_strided(Backend* backend, const Tensor& from, const Tensor& to) {
  if (from.elements() == 0) return;
  if (backend) return backend->copy(to, from);
  visit_stored(from.dtype, [&]<class T>() { copy_axis(from.as<T>(), from, to.as<T>(), to, 0); });
}

bool is_plain(const Tensor& t) { return t.is_contiguous() && !t.conjugate; }

// One collective to be launched, for one result.
struct Planned {
  CollectiveCall call;
  Launched launched;
};

class Planner {
 public:
  Planner(const Communicator& comm, const KernelCall& call, std::string_view label, const Row& row, bool guarded)
      : comm_(comm), call_(call), label_(label), row_(row), guarded_(guarded) {}

  Result<std::vector<Planned>> plan() {
    SG_TRY(find_group());
    SG_TRY(read_options());
    std::vector<Planned> out;
    bool is_list = call_.op().param_index("inputs") >= 0;
    std::span<const Tensor> inputs =
        is_list ? call_.tensors("inputs") : std::span(&call_.tensor(call_.op().params[0].name), 1);
    if (call_.results.size() != inputs.size()) return call_.fail("as many results as inputs are needed");
    for (size_t i = 0; i < inputs.size(); ++i) {
      SG_ASSIGN(Planned one, row_.op == kShardDim ? plan_shard_dim(inputs[i], call_.results[i])
                                                  : plan_one(inputs[i], call_.results[i]));
      SG_TRY(check_call(one.call, members()));
      out.push_back(std::move(one));
    }
    return out;
  }

 private:
  size_t members() const { return group_->ranks.size(); }
  Backend* backend() const { return backend_of(call_.context()); }

  Status find_group() {
    const ParamValue& name = call_.param("group_name");
    if (name.kind != ParamValue::Kind::group)
      return call_.fail("the group of %" + std::string(label_) + " is not in the file");
    common_.group = name.group;
    group_ = &comm_.group(name.group);
    if (group_->ranks.empty())
      return call_.fail("the rank is not in group " + group_->name + " of %" + std::string(label_));
    if (call_.op().param_index("group_size") < 0) return ok_status();
    int64_t size = call_.integer("group_size");
    if (size == static_cast<int64_t>(members())) return ok_status();
    return call_.fail("%" + std::string(label_) + " is for " + std::to_string(size) + " ranks, group " + group_->name +
                      " has " + std::to_string(members()));
  }

  Status read_options() {
    common_.kind = row_.kind;
    common_.label = label_;
    if (call_.op().param_index("reduce_op") >= 0) {
      SG_ASSIGN(common_.reduction, parse_reduction(call_.text("reduce_op")));
    }
    if (call_.op().param_index("src") >= 0) {
      int64_t root = call_.integer("src");
      if (root < 0 || root >= static_cast<int64_t>(members()))
        return call_.fail("source " + std::to_string(root) + " is not in group " + group_->name);
      common_.root = static_cast<uint32_t>(root);
    }
    return ok_status();
  }

  Result<Planned> plan_one(const Tensor& input, const Tensor& result) {
    Planned one{common_, Launched{}};
    one.launched.result = result;
    one.launched.backend = backend();
    one.call.output = result;
    if (guarded_ || !is_plain(result))
      one.call.output = one.launched.staged = stage(backend(), result, one.launched.output_memory);
    one.call.input = input;
    if (!is_plain(input)) {
      one.call.input = stage(backend(), input, one.launched.input_memory);
      copy_strided(backend(), input, one.call.input);
    }
    if (row_.kind == CollectiveKind::all_to_all) SG_TRY(read_splits(input, one.call));
    return one;
  }

  // Split sizes count rows of axis 0; converts them to elements.
  Status read_splits(const Tensor& input, CollectiveCall& call) const {
    int64_t row = 1;
    for (int i = 1; i < input.rank; ++i) row *= input.dim(i);
    auto read = [&](std::string_view name, std::vector<int64_t>& out) -> Status {
      for (int64_t rows : call_.integers(name)) {
        int64_t elements;
        if (rows < 0 || __builtin_mul_overflow(rows, row, &elements)) return call_.fail("split sizes are out of range");
        out.push_back(elements);
      }
      return ok_status();
    };
    SG_TRY(read("input_split_sizes", call.send));
    return read("output_split_sizes", call.receive);
  }

  // Part j of `t` along `axis`, which is divided into as many equal parts as there are members.
  Tensor part(const Tensor& t, int axis, size_t j) const {
    Tensor out = t;
    auto a = static_cast<size_t>(axis);
    out.shape[a] /= static_cast<int64_t>(members());
    out.data += static_cast<int64_t>(j) * out.shape[a] * t.stride[a] * dtype_bytes(t.dtype);
    return out;
  }

  // Member j gets part j along shard_dim; received parts are concatenated along gather_dim.
  Result<Planned> plan_shard_dim(const Tensor& input, const Tensor& result) {
    auto n = static_cast<int64_t>(members());
    int shard = wrap_axis(call_.integer("shard_dim"), input.rank),
        gather = wrap_axis(call_.integer("gather_dim"), input.rank);
    bool fits = shard >= 0 && shard < input.rank && gather >= 0 && gather < input.rank && result.rank == input.rank;
    if (!fits || input.dim(shard) % n != 0 || result.dim(gather) % n != 0)
      return call_.fail("the sizes cannot be divided");
    Planned one{common_, Launched{}};
    Launched& launched = one.launched;
    launched.result = result;
    launched.backend = backend();
    one.call.input = stage(backend(), input, launched.input_memory);
    int64_t slot = one.call.input.bytes() / n;
    for (size_t j = 0; j < members(); ++j) {
      Tensor from = part(input, shard, j);
      std::byte* to = one.call.input.data + static_cast<int64_t>(j) * slot;
      copy_strided(backend(), from, make_tensor(to, input.dtype, from.sizes()));
    }
    one.call.output = launched.staged = stage(backend(), result, launched.output_memory);
    launched.gathered_axis = gather;
    launched.parts = members();
    return one;
  }

  const Communicator& comm_;
  const KernelCall& call_;
  std::string_view label_;
  const Row& row_;
  const bool guarded_;
  const RankGroup* group_ = nullptr;
  CollectiveCall common_;
};

// Copies the result from staging memory to its destination.
void deliver(const Launched& l) {
  if (l.gathered_axis < 0) return copy_strided(l.backend, l.staged, l.result);
  Tensor part = l.result;
  auto axis = static_cast<size_t>(l.gathered_axis);
  part.shape[axis] /= static_cast<int64_t>(l.parts);
  Tensor from = make_tensor(l.staged.data, part.dtype, part.sizes());
  for (size_t i = 0; i < l.parts; ++i) {
    copy_strided(l.backend, from, part);
    from.data += part.bytes();
    part.data += part.shape[axis] * part.stride[axis] * dtype_bytes(part.dtype);
  }
}

// Spoils every result's memory until its wait, except where it overlaps an input, which may still be read.
void guard_all(const KernelCall& call, std::vector<Planned>* planned) {
  bool is_list = call.op().param_index("inputs") >= 0;
  std::span<const Tensor> inputs =
      is_list ? call.tensors("inputs") : std::span(&call.tensor(call.op().params[0].name), 1);
  for (Planned& one : *planned) spoil(one.launched.result, inputs);
  for (size_t i = 0; i < planned->size(); ++i) {
    Launched& launched = (*planned)[i].launched;
    launched.guarded = true;
    launched.label = (*planned)[i].call.label;
    launched.input = inputs[i];
    launched.input_sum = sum_of_bytes(launched.input);
    launched.result_sum = sum_of_bytes(launched.result);
  }
}

Status check_untouched(const Launched& l) {
  bool input = sum_of_bytes(l.input) != l.input_sum;
  if (!input && sum_of_bytes(l.result) == l.result_sum) return ok_status();
  return Error{ErrorKind::negative,
               std::string("the ") + (input ? "input" : "result") + " of %" + std::string(l.label) +
                   " was written between its launch and its wait",
               {},
               "move the write after the wait, or send a copy"};
}

}  // namespace

Result<std::vector<Launched>> launch_collective(Communicator& comm, const KernelCall& call, std::string_view label,
                                                bool guarded) {
  const Row* row = row_of(call.op());
  if (!row) return call.fail("no communicator knows " + std::string(call.op().name));
  SG_ASSIGN(std::vector<Planned> planned, Planner(comm, call, label, *row, guarded).plan());
  if (guarded) guard_all(call, &planned);
  std::vector<Launched> out;
  for (Planned& one : planned) {
    SG_ASSIGN(one.launched.ticket, comm.launch(one.call));
    out.push_back(std::move(one.launched));
  }
  return out;
}

Status finish_collective(Communicator& comm, Launched& launched) {
  if (launched.ticket.id == 0) return ok_status();
  SG_TRY(comm.wait(launched.ticket));
  launched.ticket = {};
  if (launched.guarded) SG_TRY(check_untouched(launched));
  if (!launched.staged.is_none()) deliver(launched);
  launched.input_memory.reset();
  launched.output_memory.reset();
  return ok_status();
}

}  // namespace sg
