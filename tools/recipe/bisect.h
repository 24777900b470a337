// sg-recipe bisect: which stage between a good graph and a bad one makes it bad, by which of its options, at what
// nodes.
#pragma once

#include "tools/recipe/session.h"

namespace sg::recipe {

// Operands: RECIPE [GOOD [BAD]], names of an input or stage; by default the input and the last stage. Bad is what
// --fails says, or without it: sg-run gives other bits than on GOOD. Binary search, so one stage has to have made it
// bad and none good again; where it cannot judge what lies before the first bad one it says so, and looks no further.
Result<int> bisect(const cli::Args& args, Session* session);

}  // namespace sg::recipe
