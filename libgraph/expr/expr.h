// Symbolic integers: sizes, strides, offsets, split counts.
//
// What     An Expr is an index into an ExprPool, which keeps every expression once, in normal form: a sum of products
//          of integer powers of atoms, where an atom is a symbol, floordiv(a, b), mod(a, b), min(...) or max(...).
//          So two expressions are equal for all values of their symbols that the normal form can see exactly when
//          their ids are equal: equality is a comparison.
// Order    Terms and factors are ordered by content (symbol names in natural order, u2 before u10), never by id: the
//          same expression prints the same on every machine and whatever was built before it.
// Division floordiv and mod round towards minus infinity, as in Python. floordiv(64*u, 64) is u; floordiv(u, 2) stays.
//          A divisor is taken to be non-zero: floordiv(u, u) is 1.
// Limits   Arithmetic is checked. What overflows 64 bits, or expands past kMaxTerms, or nests past kMaxDepth, or
//          divides by zero is `kInvalid`, which absorbs everything and never equals a size: the verifier and the
//          parsers refuse it.
// Symbols  are names here; what is known about them (range, hint, divisibility) lives in libgraph/expr/symbols.h.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/flat_map.h"
#include "libgraph/base/ids.h"
#include "libgraph/base/result.h"
#include "libgraph/base/strings.h"

namespace sg {

enum class AtomKind : uint8_t { symbol, floordiv, mod, min, max };

// One factor's base. `operands` holds two expressions for floordiv and mod, two or more (sorted) for min and max.
struct Atom {
  AtomKind kind = AtomKind::symbol;
  StrId symbol;
  std::vector<Expr> operands;
};

struct Factor {
  uint32_t atom = 0;   // index into the pool's atoms
  uint32_t power = 1;  // >= 1
  friend bool operator==(const Factor&, const Factor&) = default;
};

struct Term {
  int64_t coefficient = 0;      // never 0
  std::vector<Factor> factors;  // sorted; empty for the constant term
  friend bool operator==(const Term&, const Term&) = default;
};

class ExprPool {
 public:
  static constexpr size_t kMaxTerms = 4096;
  static constexpr size_t kMaxDepth = 64;        // atoms within atoms
  static constexpr size_t kMaxWeight = 1 << 17;  // terms and factors, counted as often as they would be printed
  static constexpr size_t kMaxText = 1 << 16;    // bytes that `parse` reads
  static constexpr Expr kInvalid{1};

  explicit ExprPool(StringTable* strings);

  Expr constant(int64_t value);
  Expr symbol(StrId name);
  Expr symbol(std::string_view name);

  Expr add(Expr a, Expr b);
  Expr sub(Expr a, Expr b);
  Expr mul(Expr a, Expr b);
  Expr neg(Expr a);
  Expr pow(Expr a, uint32_t power);
  Expr floordiv(Expr a, Expr b);
  Expr mod(Expr a, Expr b);
  Expr min(Expr a, Expr b);
  Expr max(Expr a, Expr b);
  Expr extremum(AtomKind kind, std::span<const Expr> list);  // REQUIRES: kind min or max, list not empty
  Expr sum(std::span<const Expr> list);
  Expr product(std::span<const Expr> list);

  bool is_constant(Expr e) const { return constant_value(e).has_value(); }
  std::optional<int64_t> constant_value(Expr e) const;
  bool is_invalid(Expr e) const { return e == kInvalid; }
  std::optional<StrId> as_symbol(Expr e) const;  // set when the expression is one bare symbol

  std::span<const Term> terms(Expr e) const;  // REQUIRES: !is_invalid(e); the constant term comes last
  const Atom& atom(uint32_t index) const { return atoms_[index]; }

  void collect_symbols(Expr e, std::vector<StrId>* out) const;  // each once, in order of first appearance
  bool mentions(Expr e, StrId symbol) const;

  // Rebuilds `e` with symbols replaced; a symbol for which `lookup` returns none stays.
  using Lookup = std::function<std::optional<Expr>(StrId)>;
  Expr substitute(Expr e, const Lookup& lookup);

  // The number, given one for every symbol; none on overflow, division by zero or a symbol without a value. An empty
  // function knows no symbol.
  using Values = std::function<std::optional<int64_t>(StrId)>;
  std::optional<int64_t> evaluate(Expr e, const Values& values) const;

  // Python-like spelling, with spaces around + and -, none around the rest: `2*u0 + (s0//2)*max(1, u1) + 4`.
  // `min` and `max` are calls, floordiv is //, mod is %, powers are **.
  std::string print(Expr e) const;
  void print_to(Expr e, std::string* out) const;

  // Reads what `print` writes and what sympy prints (`Max(1,u0)`, `Mod(a,b)`, `(u0//2)`, `PythonMod`, `FloorDiv`).
  // Errors give the column within `text`. Depth and size are bounded.
  Result<Expr> parse(std::string_view text);

  // A name that `print` and `parse` carry: a letter or _, then letters, digits and _.
  static bool is_symbol_name(std::string_view name);

  // Content order: negative, zero or positive; independent of ids.
  int compare(Expr a, Expr b) const;

  size_t size() const { return expr_terms_.size(); }

 private:
  friend struct ExprBuilder;
  struct Info {         // one an expression
    int64_t value = 0;  // when is_constant
    uint32_t weight = 0;
    uint16_t depth = 0;
    bool is_constant = false;
  };
  Expr append(std::vector<Term> list, Info info);

  StringTable* strings_;
  std::vector<std::vector<Term>> expr_terms_;  // by Expr id
  std::vector<Info> info_;                     // by Expr id
  std::deque<Atom> atoms_;                     // stable addresses
  FlatIndex expr_index_;                       // all but constants, bare symbols included
  FlatIndex atom_index_;
  std::array<Expr, 1024> small_constants_;  // the overwhelming case, without hashing
  FlatIndex constants_;                     // the others, by value
  FlatMap<StrId, Expr> symbols_;

 public:
  // A deep copy of the tables over another string table with the same ids (see Pool).
  ExprPool(const ExprPool& other, StringTable* strings);
};

}  // namespace sg
