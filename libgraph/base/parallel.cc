#include "libgraph/base/parallel.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <system_error>
#include <thread>
#include <vector>

namespace sg {

void parallel_for(size_t count, size_t threads, const std::function<void(size_t)>& fn) {
  std::atomic<size_t> next = 0;
  std::vector<std::exception_ptr> failed(count);
  auto work = [&] {
    for (size_t i; (i = next.fetch_add(1)) < count;) {
      try {
        fn(i);
      } catch (...) {
        failed[i] = std::current_exception();
      }
    }
  };
  std::vector<std::thread> helpers;
  helpers.reserve(std::min(count, std::max<size_t>(threads, 1)));
  try {
    while (helpers.size() + 1 < std::min(count, threads)) helpers.emplace_back(work);
  } catch (const std::system_error&) {
    // no more threads available: the ones running, and this one, do the work
  }
  work();
  for (std::thread& t : helpers) t.join();
  for (const std::exception_ptr& e : failed)
    if (e) std::rethrow_exception(e);
}

}  // namespace sg
