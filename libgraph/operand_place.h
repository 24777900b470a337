// Where an operand is among its node's arguments, in 32 bits: finds it again without walking the others.
//
// An argument has a place of its own, and so has an item of a list, slice or dict that is an argument. What is deeper,
// or beyond the numbers that fit, shares kElsewhere and is searched for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "libgraph/arg.h"

namespace sg::operand_place {

constexpr uint32_t kElsewhere = 0xFFFFFFFFu;
constexpr uint32_t kIsItem = 1u << 31;
constexpr uint32_t kItemBits = 24;
constexpr size_t kMostArgs = 127;  // whose items have places: the last number would make kElsewhere
constexpr size_t kMostItems = size_t{1} << kItemBits;

inline uint32_t of_arg(size_t i) { return i < kIsItem ? static_cast<uint32_t>(i) : kElsewhere; }
inline uint32_t of_item(size_t i, size_t k) {
  return i < kMostArgs && k < kMostItems ? kIsItem | static_cast<uint32_t>(i << kItemBits | k) : kElsewhere;
}

// Calls fn(arg, place) for all arguments, and inside of them, that hold no items: in the order of Arg::walk.
template <class Fn>
void for_each(std::vector<Arg>& args, const Fn& fn) {
  for (size_t i = 0; i < args.size(); ++i) {
    if (!args[i].has_items()) {
      fn(args[i], of_arg(i));
      continue;
    }
    std::vector<Arg>& items = args[i].mutable_items();
    for (size_t k = 0; k < items.size(); ++k) {
      if (!items[k].has_items()) fn(items[k], of_item(i, k));
      else items[k].walk_mutable([&](Arg& arg) { fn(arg, kElsewhere); });
    }
  }
}

// Makes the operand at `place` be `to`: of those that share kElsewhere the first that is `from`.
// REQUIRES: for_each of these arguments gave the place for an operand that is `from`
inline void set(std::vector<Arg>& args, uint32_t place, ValueId from, ValueId to) {
  if (place == kElsewhere) {
    Arg* found = nullptr;
    for_each(args, [&](Arg& arg, uint32_t at) {
      if (!found && at == kElsewhere && arg.is(ArgKind::value) && arg.as_value() == from) found = &arg;
    });
    return found->set_value(to);
  }
  if (place & kIsItem) args[(place & ~kIsItem) >> kItemBits].mutable_items()[place & (kMostItems - 1)].set_value(to);
  else args[place].set_value(to);
}

}  // namespace sg::operand_place
