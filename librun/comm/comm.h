// Communicator: how one rank communicates with the others of the job.
//
// Asynchronous   `launch` starts a collective and returns at once; `wait` returns when this rank's result is complete
//                and its input may be written again, which is when no peer reads it any more. Between the two the
//                caller leaves input and output alone and alive. Every launch is waited for, or drained, once.
// Order          All members of a group launch its collectives in the same order. Waits come in any order, different on
//                every rank: a rank that blocks makes progress on everything that it has launched.
// Arithmetic     A reduction adds element by element in group-rank order: (((x0 + x1) + x2) + ...), bf16 and f16 in
//                f32, the result rounded once; f32, f64 and complex in their own type; integers wrap as in two's
//                complement. `average` divides that sum by the number of members (integers: towards zero), `premul_sum`
//                multiplies each x by the factor first. minimum and maximum give NaN when any x is NaN. For bool, sum
//                and maximum mean "or", product and minimum "and". The bits are the same for every communicator, size
//                and thread.
// Failure        When a rank fails, all launches and waits of all ranks return the first error at once.
// Threads        A Communicator belongs to its rank's thread; methods marked (any thread) may be called from others.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libgraph/base/result.h"
#include "libgraph/job.h"
#include "librun/comm/heartbeat.h"
#include "librun/tensor.h"

namespace sg {

class ThreadTeam;

enum class CollectiveKind : uint8_t {
  barrier,         // no tensors
  all_gather,      // output = the inputs of all members, one after the other
  reduce_scatter,  // input = one slot a member; output = my slot, reduced
  all_reduce,      // output = the inputs, reduced; may be the input itself
  all_to_all,      // input = one slot per member, of `send` elements; output = their slots for me, of `receive`
  broadcast,       // output = the root's input; the others' input is not looked at, and may be `none`
  gather,          // the root's output = the inputs of all members; the others have none
  scatter,         // output = my slot of the root's input; the others have none
};

enum class ReduceKind : uint8_t { sum, average, product, minimum, maximum, premul_sum, bit_and, bit_or, bit_xor };

struct Reduction {
  ReduceKind kind = ReduceKind::sum;
  double factor = 1;  // premul_sum
  friend bool operator==(const Reduction&, const Reduction&) = default;
};

// PyTorch's names: "sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum:0.25".
Result<Reduction> parse_reduction(std::string_view name);
std::string reduction_name(const Reduction& reduction);
// Whether elements of this type can be reduced so.
bool can_reduce(ReduceKind kind, DType dtype);

struct CollectiveCall {
  CollectiveKind kind = CollectiveKind::barrier;
  GroupId group;
  Tensor input, output;  // contiguous, of the same dtype
  Reduction reduction;
  uint32_t root = 0;                   // group rank: broadcast, gather, scatter
  std::vector<int64_t> send, receive;  // all_to_all, in elements, by group rank; both empty = equal slots
  std::string_view label;              // the node's, for errors; outlives the wait
};

// One launched collective of one rank. 0 = none: waiting for it is a no-op.
struct Ticket {
  uint64_t id = 0;
};

// A group as one of its ranks sees it. Of one size for any number of ranks: refers to the job, which outlives it.
struct RankGroup {
  std::string name;                 // "@ep": for people
  std::string axis;                 // "ep:0": with its ordinal
  std::string digest;               // of its identity; empty = this rank is in no part of it
  std::span<const uint32_t> ranks;  // by group rank; empty likewise
  uint32_t position = 0;            // my group rank
};

// "ep:0 [0 1 2 3]": equal on the members, different for all other groups.
std::string identity_of(const RankGroup& group);

// By GroupId.
std::vector<RankGroup> groups_of_rank(const Job& job, uint32_t rank);
// The same of all ranks, by rank.
std::vector<std::vector<RankGroup>> groups_of_all_ranks(const Job& job);

// What all ranks said in one exchange, by rank. A copy refers to the same texts.
class Texts {
 public:
  explicit Texts(std::vector<std::string> texts)
      : texts_(std::make_shared<const std::vector<std::string>>(std::move(texts))) {}
  size_t size() const { return texts_->size(); }
  const std::string& operator[](size_t rank) const { return (*texts_)[rank]; }
  auto begin() const { return texts_->begin(); }
  auto end() const { return texts_->end(); }

 private:
  std::shared_ptr<const std::vector<std::string>> texts_;
};

// What a rank is blocked in.
struct BlockedIn {
  CollectiveKind kind = CollectiveKind::barrier;
  std::string label;
  std::string group;
  std::vector<uint32_t> missing;  // ranks of the job that have not launched it, or not sent their part
};

class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual uint32_t rank() const = 0;
  virtual uint32_t world() const = 0;
  virtual const RankGroup& group(GroupId g) const = 0;

  // Errors: what of the call does not fit the group; a failure of another rank.
  virtual Result<Ticket> launch(const CollectiveCall& call) = 0;
  virtual Status wait(Ticket ticket) = 0;
  // Waits for all that is launched and not waited for: at the end of a step.
  virtual Status drain() = 0;
  // Advances launched collectives without blocking. To be called now and then between long nodes.
  virtual void progress() {}

  // Gives every rank of the job all ranks' texts, by rank. Blocks; all ranks call it equally often.
  virtual Result<Texts> exchange(std::string text) = 0;

  // Fails the job: every rank's launches and waits return this error (the first that any rank gives). (any thread)
  virtual void abort(Error error) = 0;
  virtual std::optional<Error> failure() const = 0;         // (any thread)
  virtual std::optional<BlockedIn> blocked_in() const = 0;  // (any thread)
  // Whether this process reports the failure to the user: true for the first caller among the processes that can see
  // each other. The others must give it time, as the first process to exit ends the whole job.
  virtual bool speaks_of_failure() { return true; }

  // What this rank is doing: its thread beats at every node; waits are entered and left in here.
  virtual Heartbeat& heartbeat() = 0;
  // Ranks whose heartbeats this process can see, this one included. (any thread)
  virtual std::vector<WatchedRank> in_sight() = 0;
  // Ranks that run on this machine, this one included, in rising order: those in sight, unless one sees further.
  virtual std::vector<uint32_t> ranks_of_machine();

  // Ends the processes of all ranks with this exit code, those included that are stuck or stopped. Returns when the
  // ranks are threads of this process, which the caller then ends. (any thread)
  virtual void end_all(int /*exit_code*/) {}

  // Threads that `wait` may use for its share of the work, when its caller has them idle; null = none. Not owned.
  virtual void use_team(ThreadTeam* /*team*/) {}
};

std::string_view collective_name(CollectiveKind kind);

// "rank 3", "ranks 0, 2 and 5 more" (of many).
std::string ranks_text(const std::vector<uint32_t>& ranks);

// Whether the call's tensors, splits and root fit each other and a group of `members`, as far as one rank can see.
Status check_call(const CollectiveCall& call, size_t members);

}  // namespace sg
