#include "librun/mpi/operation.h"

#include <algorithm>
#include <cstring>

#include "librun/comm/comm_match.h"
#include "librun/comm/reduce.h"

namespace sg {
namespace {

// Tags combine phase, the collective's number and the channel; MPI guarantees 32767, Open MPI has 31 bits.
constexpr uint64_t kNumbers = 512;
// Limit of one message; counts are `int` in MPI.
constexpr int64_t kMostBytes = int64_t{1} << 30;
// Below this, sending every input to every member needs one round trip less than reducing slots and sharing them.
constexpr int64_t kSmallBytes = 16 << 10;

std::string mpi_text(int code) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, text, &length);
  return std::string(text, static_cast<size_t>(length));
}

}  // namespace

Operation::Operation(const CollectiveCall& call, const RankGroup& group, MPI_Comm comm, uint32_t channel,
                     uint64_t number)
    : call_(call), group_(group), comm_(comm), channel_(channel), number_(number) {}

Error Operation::failed(const std::string& what) const {
  return Error{ErrorKind::rank_failed,
               std::string(collective_name(call_.kind)) + " %" + std::string(call_.label) + " of group " + group_.name +
                   ": " + what,
               {},
               {}};
}

int Operation::tag() const {
  return static_cast<int>((channel_ * kNumbers + number_ % kNumbers) * 2 + static_cast<uint64_t>(phase_));
}

std::byte* Operation::scratch(int64_t bytes) {
  scratch_.reset(new std::byte[static_cast<size_t>(bytes) + 1]);
  return scratch_.get();
}

void Operation::receive(uint32_t peer, std::byte* to, int64_t bytes) { post(peer, to, bytes, true); }
void Operation::send(uint32_t peer, const std::byte* from, int64_t bytes) {
  post(peer, const_cast<std::byte*>(from), bytes, false);
}

// Messages between two ranks arrive in the order sent, so long ones can be split.
void Operation::post(uint32_t peer, std::byte* at, int64_t bytes, bool receives) {
  int other = static_cast<int>(group_.ranks[peer]);
  do {
    int64_t part = std::min(bytes, kMostBytes);
    MPI_Request request = MPI_REQUEST_NULL;
    int count = static_cast<int>(part);
    int code = receives ? MPI_Irecv(at, count, MPI_BYTE, other, tag(), comm_, &request)
                        : MPI_Isend(at, count, MPI_BYTE, other, tag(), comm_, &request);
    if (code != MPI_SUCCESS) error_ = code;
    requests_.push_back(request);
    messages_.push_back({peer, receives, part});
    ++pending_;
    at += part;
    bytes -= part;
  } while (bytes > 0);
}

Status Operation::start() {
  switch (call_.kind) {
    case CollectiveKind::barrier: start_barrier(); break;
    case CollectiveKind::all_gather: start_all_gather(); break;
    case CollectiveKind::reduce_scatter: start_reduce_scatter(); break;
    case CollectiveKind::all_reduce: start_all_reduce(); break;
    case CollectiveKind::all_to_all: start_all_to_all(); break;
    default: start_rooted();
  }
  return progress();
}

void Operation::start_barrier() {
  for (uint32_t p = 0; p < members(); ++p)
    if (p != group_.position) receive(p, nullptr, 0);
  for (uint32_t p = 0; p < members(); ++p)
    if (p != group_.position) send(p, nullptr, 0);
}

void Operation::start_all_gather() {
  int64_t bytes = call_.input.bytes();
  std::byte* own = call_.output.data + group_.position * bytes;
  for (uint32_t p = 0; p < members(); ++p)
    if (p != group_.position) receive(p, call_.output.data + p * bytes, bytes);
  if (own != call_.input.data && bytes != 0) std::memcpy(own, call_.input.data, static_cast<size_t>(bytes));
  for (uint32_t p = 0; p < members(); ++p)
    if (p != group_.position) send(p, call_.input.data, bytes);
}

void Operation::start_reduce_scatter() {
  int64_t bytes = call_.output.bytes();
  std::byte* at = scratch(bytes * static_cast<int64_t>(members()));
  for (uint32_t p = 0; p < members(); ++p) {
    bool own = p == group_.position;
    inputs_.push_back(own ? call_.input.data + p * bytes : at + p * bytes);
    if (!own) receive(p, at + p * bytes, bytes);
  }
  for (uint32_t p = 0; p < members(); ++p)
    if (p != group_.position) send(p, call_.input.data + p * bytes, bytes);
  next_ = Next::reduce_all;
}

void Operation::gather_inputs() {
  int64_t bytes = call_.input.bytes();
  std::byte* at = scratch(bytes * static_cast<int64_t>(members()));
  for (uint32_t p = 0; p < members(); ++p) {
    bool own = p == group_.position;
    inputs_.push_back(own ? call_.input.data : at + p * bytes);
    if (!own) receive(p, at + p * bytes, bytes);
  }
  for (uint32_t p = 0; p < members(); ++p)
    if (p != group_.position) send(p, call_.input.data, bytes);
}

void Operation::start_all_reduce() {
  if (call_.input.bytes() <= kSmallBytes) {
    gather_inputs();
    next_ = Next::reduce_all;
    return;
  }
  int64_t mine = slot_size(group_.position) * unit();
  std::byte* at = scratch(mine * static_cast<int64_t>(members()));
  for (uint32_t p = 0; p < members(); ++p) {
    bool own = p == group_.position;
    inputs_.push_back(own ? call_.input.data + slot_begin(p) * unit() : at + p * mine);
    if (!own) receive(p, at + p * mine, mine);
  }
  for (uint32_t p = 0; p < members(); ++p)
    if (p != group_.position) send(p, call_.input.data + slot_begin(p) * unit(), slot_size(p) * unit());
  next_ = Next::reduce_slot;
}

// Empty parts are sent, too: a rank that expects more must notice.
void Operation::start_all_to_all() {
  size_t n = members();
  std::byte* to = call_.output.data;
  const std::byte *from = call_.input.data, *own_from = nullptr;
  std::byte* own_to = nullptr;
  for (uint32_t p = 0; p < n; ++p) {
    int64_t bytes = received_from(call_, p, n) * unit();
    if (p == group_.position) own_to = to;
    else receive(p, to, bytes);
    to += bytes;
  }
  int64_t own_bytes = 0;
  for (uint32_t p = 0; p < n; ++p) {
    int64_t bytes = sent_to(call_, p, n) * unit();
    if (p == group_.position) own_from = from, own_bytes = bytes;
    else send(p, from, bytes);
    from += bytes;
  }
  if (own_bytes != 0) std::memcpy(own_to, own_from, static_cast<size_t>(own_bytes));
}

void Operation::start_rooted() {
  bool is_root = group_.position == call_.root, gathers = call_.kind == CollectiveKind::gather;
  bool sends = is_root != gathers;
  Tensor& part = gathers ? call_.input : call_.output;
  if (!is_root) {
    if (sends) send(call_.root, part.data, part.bytes());
    else receive(call_.root, part.data, part.bytes());
    return;
  }
  Tensor& whole = gathers ? call_.output : call_.input;
  int64_t step = call_.kind == CollectiveKind::broadcast ? 0 : part.bytes();
  for (uint32_t p = 0; p < members(); ++p) {
    std::byte* at = whole.data + p * step;
    if (p != group_.position) sends ? send(p, at, part.bytes()) : receive(p, at, part.bytes());
    else if (at != part.data && part.bytes() != 0)
      std::memcpy(gathers ? at : part.data, gathers ? part.data : at, static_cast<size_t>(part.bytes()));
  }
}

void Operation::advance() {
  requests_.clear();
  messages_.clear();
  switch (next_) {
    case Next::finish: done_ = true; return;
    case Next::reduce_all: {
      std::byte* out[] = {call_.output.data};
      reduce_elements(call_.reduction, call_.output.dtype, inputs_, out, call_.output.elements());
      done_ = true;
      return;
    }
    case Next::reduce_slot: return share_slots();
  }
}

void Operation::share_slots() {
  std::byte* own = call_.output.data + slot_begin(group_.position) * unit();
  std::byte* out[] = {own};
  reduce_elements(call_.reduction, call_.output.dtype, inputs_, out, slot_size(group_.position));
  phase_ = 1;
  next_ = Next::finish;
  for (uint32_t p = 0; p < members(); ++p)
    if (p != group_.position) receive(p, call_.output.data + slot_begin(p) * unit(), slot_size(p) * unit());
  for (uint32_t p = 0; p < members(); ++p)
    if (p != group_.position) send(p, own, slot_size(group_.position) * unit());
}

Status Operation::check_received(const MPI_Status& status, const Message& message) const {
  int bytes = 0;
  MPI_Get_count(&status, MPI_BYTE, &bytes);
  if (bytes == message.bytes) return ok_status();
  return failed("rank " + std::to_string(group_.ranks[message.peer]) + " sent " + std::to_string(bytes) +
                " bytes, rank " + std::to_string(group_.ranks[group_.position]) + " expects " +
                std::to_string(message.bytes));
}

Status Operation::progress() {
  while (!done_) {
    if (error_ != MPI_SUCCESS) return failed(mpi_text(error_));
    if (pending_ != 0) {
      int count = static_cast<int>(requests_.size()), completed = 0;
      indices_.resize(requests_.size());
      statuses_.resize(requests_.size());
      int code = MPI_Testsome(count, requests_.data(), &completed, indices_.data(), statuses_.data());
      for (int i = 0; completed != MPI_UNDEFINED && i < completed; ++i) {
        const MPI_Status& status = statuses_[static_cast<size_t>(i)];
        const Message& message = messages_[static_cast<size_t>(indices_[static_cast<size_t>(i)])];
        if (code == MPI_ERR_IN_STATUS && status.MPI_ERROR != MPI_SUCCESS && status.MPI_ERROR != MPI_ERR_PENDING)
          return failed("rank " + std::to_string(group_.ranks[message.peer]) + ": " + mpi_text(status.MPI_ERROR));
        if (message.receives) SG_TRY(check_received(status, message));
        --pending_;
      }
      if (code != MPI_SUCCESS && code != MPI_ERR_IN_STATUS) return failed(mpi_text(code));
      if (pending_ != 0) return ok_status();
    }
    advance();
  }
  return ok_status();
}

std::vector<uint32_t> Operation::missing() const {
  std::vector<uint32_t> out;
  for (size_t i = 0; i < requests_.size(); ++i) {
    uint32_t rank = group_.ranks[messages_[i].peer];
    if (requests_[i] != MPI_REQUEST_NULL && (out.empty() || out.back() != rank)) out.push_back(rank);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

}  // namespace sg
