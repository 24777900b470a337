// The collectives that one rank has launched and not waited for, each with what its communicator keeps of it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "librun/comm/comm.h"

namespace sg {

template <class Launched>
class Tickets {
 public:
  Ticket add(Launched launched) {
    entries_.push_back({++last_id_, std::move(launched)});
    return Ticket{last_id_};
  }

  // Until the next `add` or `remove`. An error where it was waited for before.
  Result<Launched*> find(Ticket ticket) {
    const auto at = at_or_after(ticket);
    if (at == entries_.end() || at->first != ticket.id)
      return Error{ErrorKind::internal, "a ticket was waited for twice", {}, {}};
    return &at->second;
  }

  // REQUIRES: find(ticket).ok()
  void remove(Ticket ticket) { entries_.erase(at_or_after(ticket)); }

  bool empty() const { return entries_.empty(); }
  // The one launched first. REQUIRES: not empty
  Ticket first() const { return Ticket{entries_.front().first}; }
  // (id, launched), in the order of their launches.
  auto begin() { return entries_.begin(); }
  auto end() { return entries_.end(); }

 private:
  using Entry = std::pair<uint64_t, Launched>;
  auto at_or_after(Ticket ticket) { return std::ranges::lower_bound(entries_, ticket.id, {}, &Entry::first); }

  std::vector<Entry> entries_;
  uint64_t last_id_ = 0;
};

}  // namespace sg
