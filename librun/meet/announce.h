// Publishes rank 0's address where it is not known beforehand: in torchrun's store, or in a file.
//
// Leftovers of an earlier run are harmless: that address does not answer any more, or does not know the token.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "librun/meet/place.h"

namespace sg::meet {

struct Announcement {
  std::vector<std::string> addresses;
  uint16_t port = 0;
  std::string token;  // callers show it, to distinguish them from callers of other runs

  std::string text() const;
  static std::optional<Announcement> parse(std::string_view text);
};

// An error if the file exists and is not an announcement. REQUIRES: the place is a store or a file
Status announce(const MeetingPlace& place, const Announcement& announcement);
// None: rank 0 has not announced itself yet, or the store is not there yet; `why` says what is known.
Result<std::optional<Announcement>> read_announcement(const MeetingPlace& place, std::string* why);
// Called when all ranks have met: removes the file, unless another rank 0 has overwritten it.
void withdraw(const MeetingPlace& place, const Announcement& announcement);

}  // namespace sg::meet
