// A job of one screen with something of every table of the schema: the sample that each release keeps in schema/compat,
// and what the binary tests break bit by bit.
#pragma once

#include <string>
#include <vector>

#include "libgraph/job.h"

namespace sg::test {

// `noise` is interned first: it must not show in the written bytes.
Job sample_job(const std::vector<std::string>& noise = {});

}  // namespace sg::test
