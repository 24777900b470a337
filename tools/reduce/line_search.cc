#include "tools/reduce/line_search.h"

#include <pthread.h>

#include <cstddef>
#include <functional>
#include <iterator>
#include <new>
#include <optional>

namespace sg::reduce {
namespace {

constexpr size_t kStack = size_t{256} << 20;  // of addresses: what is not touched takes no memory
constexpr size_t kLongestExpression = 4096;

using Clock = LineSearch::Clock;

struct Late {};

// Bytes of a line, which end the search when it is late: nothing else interrupts the library.
class Bytes {
 public:
  using iterator_category = std::bidirectional_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  struct Timer {
    Clock::time_point deadline;
    uint32_t looks = 0;
  };

  Bytes() = default;
  Bytes(const char* at, Timer* timer) : at_(at), timer_(timer) {}
  reference operator*() const {
    constexpr uint32_t kLooks = 1024;  // between two looks at the clock
    if (++timer_->looks % kLooks == 0 && Clock::now() > timer_->deadline) throw Late();
    return *at_;
  }
  Bytes& operator++() { return ++at_, *this; }
  Bytes& operator--() { return --at_, *this; }
  Bytes operator++(int) { return {at_++, timer_}; }
  Bytes operator--(int) { return {at_--, timer_}; }
  bool operator==(const Bytes& other) const { return at_ == other.at_; }

 private:
  const char* at_ = nullptr;
  Timer* timer_ = nullptr;
};

void* call(void* work) {
  (*static_cast<std::function<void()>*>(work))();
  return nullptr;
}

// False: there is no such thread. `work` throws nothing.
bool run_on_large_stack(std::function<void()> work) {
  pthread_attr_t large;
  if (::pthread_attr_init(&large) != 0) return false;
  pthread_t thread;
  const bool started =
      ::pthread_attr_setstacksize(&large, kStack) == 0 && ::pthread_create(&thread, &large, call, &work) == 0;
  ::pthread_attr_destroy(&large);
  return started && ::pthread_join(thread, nullptr) == 0;
}

Error no_thread() { return {ErrorKind::missing, "cannot start a thread", {}, "see ulimit -u and -v"}; }

Error no_expression(const std::string& expression, const std::string& why) {
  return {ErrorKind::usage, "`" + expression + "` is no regular expression" + why, {}, {}};
}

}  // namespace

Result<LineSearch> LineSearch::parse(const std::string& expression) {
  if (expression.size() > kLongestExpression)
    return no_expression(expression.substr(0, 32) + "...", ", which has at most 4096 bytes here");
  constexpr auto kLinear = std::regex::ECMAScript | std::regex_constants::__polynomial | std::regex::nosubs;
  LineSearch out;
  std::optional<std::regex_constants::error_type> problem;
  const bool has_run = run_on_large_stack([&] {
    try {
      std::regex(expression, std::regex::ECMAScript);  // alone: what follows would balance `a)|(b`
      out.regex_ = std::regex("[\\s\\S]*?(?:" + expression + ")", kLinear);
    } catch (const std::regex_error& error) {
      problem = error.code();
    } catch (const std::bad_alloc&) {
      problem = std::regex_constants::error_space;
    }
    if (problem != std::regex_constants::error_complexity) return;
    out.refers_back_ = true;
    out.regex_ = std::regex(expression, std::regex::ECMAScript);
    problem.reset();
  });
  if (!has_run) return no_thread();
  if (problem == std::regex_constants::error_space) return no_expression(expression, ": it is too large");
  if (problem) return no_expression(expression, "");
  return out;
}

Result<LineSearch::Found> LineSearch::found_in(const Lines& next, Clock::time_point deadline) const {
  Found found = Found::no;
  bool has_memory = true;
  const bool has_run = run_on_large_stack([&] {
    Bytes::Timer timer{deadline};
    const auto how = refers_back_ ? std::regex_constants::match_default : std::regex_constants::match_continuous;
    try {
      for (std::string line; found == Found::no && next(&line);) {
        if (Clock::now() > deadline) throw Late();
        const Bytes begin(line.data(), &timer), end(line.data() + line.size(), &timer);
        if (std::regex_search(begin, end, regex_, how)) found = Found::yes;
      }
    } catch (const Late&) {
      found = Found::late;
    } catch (const std::bad_alloc&) {
      has_memory = false;
    }
  });
  if (!has_run) return no_thread();
  if (!has_memory) return Error{ErrorKind::missing, "out of memory", {}, "use a smaller regular expression"};
  return found;
}

}  // namespace sg::reduce
