// Bindings: the numbers that a program's symbols have in a run, and what must hold for them.
#pragma once

#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "libgraph/expr/sizes.h"
#include "libgraph/job.h"

namespace sg {

class Bindings {
 public:
  explicit Bindings(const Program& program);

  std::optional<int64_t> value(StrId symbol) const;
  std::optional<int64_t> value(Expr e) const;  // none when a symbol in it has no number yet
  SizeValues lookup() const;                   // refers to this object

  // Gives a symbol its number: held against its declared range and divisor, and against every guard whose symbols all
  // have numbers now. A symbol keeps its number until `forget_data`.
  Status bind(StrId symbol, int64_t value);
  // Matches the sizes of an input against those its type declares: bare symbols are bound, all else must agree.
  Status bind_shape(const Type& type, std::span<const int64_t> shape, std::string_view input);
  void forget_data();  // before a step: symbols that the data decides
  void copy_from(const Bindings& other) { values_ = other.values_; }

 private:
  struct Slot {
    uint32_t symbol = 0;           // index into program_.symbols
    std::vector<uint32_t> guards;  // that mention it
  };
  Status check_guard(const Guard& guard) const;

  const Program& program_;
  const Pool& pool_;
  std::unordered_map<StrId, uint32_t, IdHash> slot_of_;
  std::vector<Slot> slots_;
  std::vector<std::optional<int64_t>> values_;  // by slot
};

}  // namespace sg
