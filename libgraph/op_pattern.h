// Ops by the names that people give them: `mm`, `aten.mm`, `aten.mm.default`, `aten.all*`.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include "libgraph/base/nearest.h"
#include "libgraph/op.h"

namespace sg {

// Whether `text` fits the pattern, in which `*` stands for any text, also none. Only the last star needs backtracking:
// the matches of earlier ones can stay.
inline bool fits_stars(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0, star = std::string_view::npos, after_star = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      after_star = t;
    } else if (p < pattern.size() && pattern[p] == text[t]) {
      ++p, ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++after_star;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

// What an op may be called: without and with its overload, with and without its namespace.
inline std::array<std::string_view, 4> spellings_of_op(std::string_view name) {
  const size_t space = name.find('.'), overload = name.rfind('.');
  const bool has_overload = overload != space;  // "sg.wait" has none
  const std::string_view packet = has_overload ? name.substr(0, overload) : name;
  const size_t own = space + 1;  // npos + 1 = 0
  return {packet, packet.substr(own), name, name.substr(own)};
}

// Whether `pattern` names this op. The namespace and the overload may be left out, and `*` stands for any text:
// "mm", "aten.mm", "mm.default", "*mm" and "aten.m*" all name "aten.mm.default".
inline bool op_is_called(std::string_view name, std::string_view pattern) {
  return std::ranges::any_of(spellings_of_op(name), [&](std::string_view one) { return fits_stars(pattern, one); });
}

// Whether it names any op of the table. An op without a row may still be meant: a graph can hold any.
inline bool names_an_op(std::string_view pattern) {
  return std::ranges::any_of(all_ops(), [&](const OpInfo& op) { return op_is_called(op.name, pattern); });
}

// What was probably meant by a pattern that names none; with as much of an op's name as the pattern has.
inline Nearest nearest_op(std::string_view pattern) {
  Nearest out(pattern);
  for (const OpInfo& op : all_ops())
    for (std::string_view name : spellings_of_op(op.name)) out.offer(name);
  return out;
}

}  // namespace sg
