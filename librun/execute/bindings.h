// Bindings: the values of a program's symbols in a run, checked against its constraints.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "libgraph/expr/sizes.h"
#include "libgraph/job.h"

namespace sg {

// The hint where data lead elsewhere than in the capture.
inline constexpr std::string_view kOfData =
    "the graph holds what the step did with the data of the capture: capture again with data like these. (Even of that "
    "data a number at the limit may fall to the other side, where sg-run rounds otherwise than PyTorch)";

class Bindings {
 public:
  explicit Bindings(const Program& program);

  std::optional<int64_t> value(StrId symbol) const;
  std::optional<int64_t> value(Expr e) const;  // none if a symbol in it has no value yet
  SizeValues lookup() const;                   // refers to this object

  // Binds a symbol, checking its declared range and divisor, and every guard whose symbols are now all bound. A symbol
  // keeps its value until `forget_data`.
  Status bind(StrId symbol, int64_t value);
  // Matches an input's sizes against its declared type: bare symbols are bound, everything else must agree.
  Status bind_shape(const Type& type, std::span<const int64_t> shape, std::string_view input);
  void forget_data();  // before a step: unbinds data-dependent symbols
  void copy_from(const Bindings& other) { values_ = other.values_; }

 private:
  Status check_guard(const Guard& guard) const;

  const Program& program_;
  const Pool& pool_;
  std::unordered_map<StrId, uint32_t, IdHash> slot_of_;
  std::vector<std::vector<uint32_t>> guards_of_;  // by symbol: the guards that mention it
  std::vector<std::optional<int64_t>> values_;    // the same
};

}  // namespace sg
