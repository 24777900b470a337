// Operation: one collective of this rank, as messages between ranks and local arithmetic.
//
// Each collective and phase has its own message tag (modulo a limit), so that collectives may overtake each other. All
// receives of a phase are posted before its sends.
#pragma once

#include <mpi.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "librun/comm/comm.h"

namespace sg {

class Operation {
 public:
  // `channel`: the group's number, equal on all its members; `number`: counts the collectives of the group.
  Operation(const CollectiveCall& call, const RankGroup& group, MPI_Comm comm, uint32_t channel, uint64_t number);
  Operation(const Operation&) = delete;

  Status start();
  Status progress();  // processes what has arrived; never blocks
  bool done() const { return done_; }

  const CollectiveCall& call() const { return call_; }
  const RankGroup& group() const { return group_; }
  std::vector<uint32_t> missing() const;  // ranks whose messages are awaited

 private:
  enum class Next : uint8_t { finish, reduce_all, reduce_slot };  // after the messages of this phase
  struct Message {
    uint32_t peer;  // group rank
    bool receives;
    int64_t bytes;
  };

  int64_t unit() const { return dtype_bytes(call_.output.is_none() ? call_.input.dtype : call_.output.dtype); }
  size_t members() const { return group_.ranks.size(); }
  void receive(uint32_t peer, std::byte* to, int64_t bytes);
  void send(uint32_t peer, const std::byte* from, int64_t bytes);
  void post(uint32_t peer, std::byte* at, int64_t bytes, bool receives);
  int tag() const;
  std::byte* scratch(int64_t bytes);

  void start_barrier();
  void start_all_gather();
  void start_reduce_scatter();
  void start_all_reduce();
  void start_all_to_all();
  void start_rooted();
  void gather_inputs();  // all inputs, in group order, into scratch
  void advance();        // called when all messages of the phase are complete
  void share_slots();
  Status check_received(const MPI_Status& status, const Message& message) const;
  Error failed(const std::string& what) const;

  // All reduce: the members' slots of the tensor, as equal as possible, in elements.
  int64_t slot_begin(size_t i) const {
    return call_.input.elements() * static_cast<int64_t>(i) / static_cast<int64_t>(members());
  }
  int64_t slot_size(size_t i) const { return slot_begin(i + 1) - slot_begin(i); }

  CollectiveCall call_;
  const RankGroup& group_;
  MPI_Comm comm_;
  uint32_t channel_;
  uint64_t number_;
  int phase_ = 0;
  Next next_ = Next::finish;
  bool done_ = false;
  int error_ = MPI_SUCCESS;  // from posting
  std::unique_ptr<std::byte[]> scratch_;
  std::vector<const std::byte*> inputs_;  // by group rank: what is reduced once it has arrived
  std::vector<MPI_Request> requests_;
  std::vector<Message> messages_;  // by request
  size_t pending_ = 0;
  std::vector<int> indices_;  // for MPI_Testsome
  std::vector<MPI_Status> statuses_;
};

}  // namespace sg
