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

// An error where the file is somebody's that is no announcement. REQUIRES: the place is a store or a file
Status announce(const MeetingPlace& place, const Announcement& announcement);
// None: rank 0 has not been here, or the store is not there yet; `why` says what is known of it.
Result<std::optional<Announcement>> read_announcement(const MeetingPlace& place, std::string* why);
// All are there: a file goes away, unless another rank 0 has written it meanwhile.
void withdraw(const MeetingPlace& place, const Announcement& announcement);

}  // namespace sg::meet
