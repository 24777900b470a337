// Result<T>: a value, or an Error that says what went wrong, where, and what to do about it.
//
// Every fallible function of the libraries returns one; nothing in them prints, exits or throws (out-of-memory aside).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace sg {

// What kind of failure this is. The numbers are the exit codes of the tools (design, section 6).
enum class ErrorKind : uint8_t {
  negative = 1,      // ran correctly, the answer is no
  usage = 2,         // wrong option or argument
  unreadable = 3,    // the input is not ours, corrupt, truncated, or newer than we are
  cannot_apply = 4,  // the input is fine, but the pass or run cannot do what was asked
  missing = 5,       // a resource is missing: device, memory, disk
  rank_failed = 6,   // a rank died, hung or diverged
  internal = 70,     // our bug
};

// Of a number that another process sent; `internal` if there is no such kind.
ErrorKind error_kind_of(uint64_t number);

// A place in an input. Unset parts are left empty; `print_location` writes those that are set.
struct Location {
  std::string file;                // as the user named it; "<stdin>" for a stream
  uint32_t line = 0;               // 1-based; 0 = not a text location
  uint32_t column = 0;             // 1-based byte column
  std::optional<uint64_t> offset;  // byte offset in a binary input
  std::string path;                // table path in a binary or JSON input, or "graph 0, node %mm_3" in memory
  bool is_option = false;          // `file` is what the command line has: "--set a=1"
};

std::string print_location(const Location& where);

struct Error {
  ErrorKind kind = ErrorKind::internal;
  std::string message;  // lower-case start, no full stop
  Location where;
  std::string hint;    // the remedy; may be empty
  std::string option;  // of a command: the one that is to blame, without dashes; empty = it is no single one's fault
};

// A mistake in one option. `what` follows its name: " needs --auto", ": names no file".
Error option_error(std::string_view option, std::string_view what, std::string hint = {});

template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  // REQUIRES: ok()
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }

  // REQUIRES: !ok()
  const Error& error() const { return std::get<1>(state_); }
  Error& error() { return std::get<1>(state_); }

 private:
  std::variant<T, Error> state_;
};

struct Unit {};
using Status = Result<Unit>;
inline Status ok_status() { return Unit{}; }

#define SG_CONCAT_(a, b) a##b
#define SG_CONCAT(a, b) SG_CONCAT_(a, b)

// Returns the error of a Status (or any Result) to the caller. The expression may hold a lambda that uses SG_TRY.
#define SG_TRY(expression) SG_TRY_NAMED(SG_CONCAT(sg_status_, __COUNTER__), expression)
#define SG_TRY_NAMED(status, expression)                \
  do {                                                  \
    auto status = (expression);                         \
    if (!status.ok()) return std::move(status.error()); \
  } while (false)

// SG_ASSIGN(auto graph, read(file)): declares or assigns the value, or returns the error to the caller.
#define SG_ASSIGN(target, expression)                                                                   \
  auto SG_CONCAT(sg_result_, __LINE__) = (expression);                                                  \
  if (!SG_CONCAT(sg_result_, __LINE__).ok()) return std::move(SG_CONCAT(sg_result_, __LINE__).error()); \
  target = std::move(SG_CONCAT(sg_result_, __LINE__)).value()

}  // namespace sg
