// Asks the system to back a large buffer with large pages: touching it for the first time then costs a few faults
// instead of thousands, and walking through it misses fewer translations. Advice only: what it holds stays the same.
#pragma once

#include <cstddef>

namespace sg {

// Does nothing for buffers of less than some megabytes, nor where the system knows no such advice.
void advise_large_pages(const void* data, size_t bytes);

}  // namespace sg
