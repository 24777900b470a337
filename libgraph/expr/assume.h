// --assume: one number for each symbol, so that statistics, plans and simulations can say how much a step moves.
//
//   balanced    (default) a known total is spread evenly over the symbols that share it (by the Eq guards), and a rank
//               receives what it sends; what no guard ties down takes its hint, else its upper bound: a count in a
//               tensor, as many as that has elements. What is computed of sizes alone follows
//   max         every data-dependent symbol takes its upper bound
//   SYM=VALUE   repeatable; goes before everything else. Sizes of inputs that an equality ties to it follow
//
// Sizes of inputs take their hint in both, else follow from the guards, else their upper (or only) bound.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "libgraph/expr/range_infer.h"
#include "libgraph/job.h"

namespace sg {

struct Assumption {
  enum class Policy : uint8_t { balanced, max };
  Policy policy = Policy::balanced;
  std::vector<std::pair<std::string, int64_t>> fixed;  // SYM=VALUE, in the order given
};

// Each item is one value of the option; a later policy replaces an earlier one.
Result<Assumption> parse_assume(std::span<const std::string_view> items);

// The values of one program's symbols.
class SymbolValues {
 public:
  std::optional<int64_t> value(StrId symbol) const;
  // Of an expression; none when it overflows or mentions a symbol that the program does not have.
  std::optional<int64_t> value(const ExprPool& exprs, Expr e) const;
  void set(StrId symbol, int64_t value) { values_[symbol] = value; }

 private:
  std::unordered_map<StrId, int64_t, IdHash> values_;
};

// By program. Fails with the names of the used symbols that nothing bounds, of a SYM that no program has, of a VALUE
// outside of its symbol's declared range, of one for an input size against a condition (balanced), and of a tensor that
// VALUEs make too large to count.
Result<std::vector<SymbolValues>> assume_values(const Job& job, const RangeInference& inference,
                                                const Assumption& assumption);

// The number of a symbol of one of a job's programs, if it has one. The job must outlive it.
using JobSizes = std::function<std::optional<int64_t>(const Program&, StrId)>;
JobSizes sizes_of(const Job& job, std::vector<SymbolValues> values);

// What a symbol is taken for by itself: its hint, else the middle of its range, else nothing.
std::optional<int64_t> hint_or_middle(const Symbol& symbol);

// By program, what memory is planned with by whoever was told nothing: `balanced`, or where that leaves a size open,
// each symbol by itself.
std::vector<SymbolValues> usual_values(const Job& job);

}  // namespace sg
