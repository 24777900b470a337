// sg-remat without a target, by the policies full and default: all that they name is computed again, but for what would
// make the peak (RematChooser::ease), and for parameters that only the head reads. Internal to sg-remat.
#pragma once

#include <span>

#include "libpasses/remat/remat_part.h"

namespace sg {

struct RematEase {
  std::span<const RematPart> decided;  // programs before this one
  bool alike = false;                  // the first of them decides for all
  size_t threads = 1;
};

// Decides about `part`. `unshards` gather the parameters of the head (RematTags): where they are gathered again after
// all, they are tagged so in `graph`.
void ease(const RematEase& with, const std::vector<NodeId>& unshards, Graph* graph, RematPart* part);

}  // namespace sg
