#include "tools/cli/children.h"

#include <unistd.h>

#include <utility>

namespace sg::cli {

void become(char* const* words, int in, int out, int err) {
  ::dup2(in, STDIN_FILENO);
  ::dup2(out, STDOUT_FILENO);
  ::dup2(err, STDERR_FILENO);
  ::execv(words[0], words);
  ::_exit(127);
}

Children::Place::Place(Children* children, pid_t child) {
  for (std::atomic<pid_t>& place : children->places_) {
    pid_t none = 0;
    if (!place.compare_exchange_strong(none, child)) continue;
    at_ = &place;
    return;
  }
}

void Children::Place::leave() {
  if (at_ != nullptr) std::exchange(at_, nullptr)->store(0);
}

}  // namespace sg::cli
