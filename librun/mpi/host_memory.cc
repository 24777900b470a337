#include "librun/mpi/host_memory.h"

#include <algorithm>
#include <cstring>
#include <new>

namespace sg {

Status HostMemory::open(MPI_Comm world) {
  int rank = 0, own = 0, size = 0;
  MPI_Comm_rank(world, &rank);
  MPI_Comm_split_type(world, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &host_);
  MPI_Comm_rank(host_, &own);
  MPI_Comm_size(host_, &size);
  void* memory = nullptr;
  constexpr size_t kAlign = alignof(Slot);
  int code = MPI_Win_allocate_shared(sizeof(Slot) + kAlign, 1, MPI_INFO_NULL, host_, &memory, &window_);
  if (code != MPI_SUCCESS)
    return Error{ErrorKind::missing, "the ranks of this host cannot share memory", {}, "look at /dev/shm"};
  own_ = static_cast<size_t>(own);
  for (int i = 0; i < size; ++i) {
    MPI_Aint bytes = 0;
    int unit = 0;
    MPI_Win_shared_query(window_, i, &bytes, &unit, &memory);
    // Every process maps the window at its own page-aligned address, so the offset is the same in each.
    auto at = (reinterpret_cast<uintptr_t>(memory) + kAlign - 1) / kAlign * kAlign;
    slots_.push_back(reinterpret_cast<Slot*>(at));
  }
  new (slots_[own_]) Slot;
  ranks_.resize(slots_.size());
  auto mine = static_cast<uint32_t>(rank);
  MPI_Allgather(&mine, 1, MPI_UINT32_T, ranks_.data(), 1, MPI_UINT32_T, host_);  // also a barrier: all slots exist
  return ok_status();
}

void HostMemory::close() {
  if (window_ != MPI_WIN_NULL) MPI_Win_free(&window_);
  if (host_ != MPI_COMM_NULL) MPI_Comm_free(&host_);
  slots_.clear();
}

std::vector<WatchedRank> HostMemory::in_sight() const {
  std::vector<WatchedRank> out;
  for (size_t i = 0; i < slots_.size(); ++i) out.push_back({ranks_[i], &slots_[i]->heart});
  return out;
}

void HostMemory::tell(const Error& error) {
  Slot& slot = *slots_[own_];
  uint32_t nothing = 0;
  if (!slot.told.compare_exchange_strong(nothing, 1)) return;
  slot.kind = static_cast<uint32_t>(error.kind);
  auto write = [](auto& text, const std::string& what) {
    std::memcpy(text, what.data(), std::min(what.size(), sizeof text - 1));
  };
  std::string where = print_location(error.where);
  write(slot.message, where.empty() ? error.message : where + ": " + error.message);
  write(slot.hint, error.hint);
  slot.told.store(2, std::memory_order_release);
}

bool HostMemory::failed() const {
  return std::any_of(slots_.begin(), slots_.end(),
                     [](const Slot* s) { return s->told.load(std::memory_order_acquire) == 2; });
}

bool HostMemory::claim_speech() { return slots_[0]->spoken.exchange(1) == 0; }

Error HostMemory::failure() const {
  // Another process wrote it: the contents are not trusted.
  auto read = [](const auto& text) { return std::string(text, std::find(text, text + sizeof text, '\0')); };
  for (const Slot* s : slots_) {
    if (s->told.load(std::memory_order_acquire) != 2) continue;
    return Error{error_kind_of(s->kind), read(s->message), {}, read(s->hint)};
  }
  return Error{};
}

}  // namespace sg
