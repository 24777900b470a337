// Rank 0's address, where it is not known beforehand: in torchrun's store, or in a file.
//
// What an earlier run has left there is harmless: its address answers no more, or does not know the token.
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
  std::string token;  // what callers show, to be told from callers of other runs

  std::string text() const;
  static std::optional<Announcement> parse(std::string_view text);
};

// REQUIRES: the place is a store or a file
Status announce(const MeetingPlace& place, const Announcement& announcement);
// None: rank 0 has not been here, or the store is not there yet.
Result<std::optional<Announcement>> read_announcement(const MeetingPlace& place);
// All are there: a file goes away.
void withdraw(const MeetingPlace& place);

}  // namespace sg::meet
