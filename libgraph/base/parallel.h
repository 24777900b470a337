// The same work on several things at once.
#pragma once

#include <cstddef>
#include <functional>

namespace sg {

// Calls fn(0) ... fn(count - 1), each once, on up to `threads` threads, and returns when all are done. Which thread
// takes which is not defined: fn writes to a place of its own, and the caller puts the results together in order, so
// that the outcome is that of one thread. With threads <= 1, or where the system gives no thread, the caller's does the
// work. Out of memory in one call is out of memory here, after the others have ended.
void parallel_for(size_t count, size_t threads, const std::function<void(size_t)>& fn);

}  // namespace sg
