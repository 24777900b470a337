// The words of the IR's enums: one table each, shared by the text form, the importers, statistics and messages.
//
// name_of(Phase::forward) is "forward"; enum_named<Phase>("forward") gives it back. A table that misses an enumerator
// does not compile. docs/text-format.md lists the words.
#pragma once

#include <cstddef>
#include <iterator>
#include <optional>
#include <span>
#include <string_view>

#include "libgraph/arg.h"
#include "libgraph/graph.h"
#include "libgraph/job.h"
#include "libgraph/meta.h"
#include "libgraph/type.h"

namespace sg {

template <class Enum>
struct NameTable;  // rows: the words by enumerator; last: the last enumerator

#define SG_NAMES(Enum, last_enumerator, ...)                                                               \
  template <>                                                                                              \
  struct NameTable<Enum> {                                                                                 \
    static constexpr std::string_view rows[] = {__VA_ARGS__};                                              \
    static_assert(std::size(rows) == static_cast<size_t>(Enum::last_enumerator) + 1, "a word is missing"); \
  }

SG_NAMES(Phase, optimizer, "forward", "backward", "optimizer");
SG_NAMES(Recompute, must_recompute, "none", "must_save", "prefer_save", "prefer_recompute", "must_recompute");
SG_NAMES(EpRole, combine, "none", "dispatch", "compute", "combine");
SG_NAMES(EpStep, token_exchange_wait, "none", "count_exchange", "count_sync", "token_exchange", "token_exchange_wait");
SG_NAMES(CopyKind, offload, "none", "remat", "chunk", "offload");
SG_NAMES(CollectiveRole, reduce, "none", "unshard", "reduce");
SG_NAMES(BucketDirection, backward, "none", "forward", "backward");
SG_NAMES(InputKind, opaque, "input", "param", "buffer", "state", "tangent", "constant", "opaque");
SG_NAMES(OutputKind, opaque, "output", "loss", "grad", "update", "none", "opaque");
SG_NAMES(SymbolKind, data, "input", "data");
SG_NAMES(Relation, ge, "==", "!=", "<", "<=", ">", ">=");
SG_NAMES(TypeKind, opaque, "unknown", "tensor", "int", "float", "bool", "list", "none", "opaque");
SG_NAMES(ArgKind, opaque, "none", "bool", "int", "float", "complex", "string", "expr", "value", "dtype", "list",
         "slice", "dict", "graph", "group", "device", "layout", "memory_format", "enum", "op", "opaque");

#undef SG_NAMES

// Every word of an enum, by enumerator.
template <class Enum>
constexpr std::span<const std::string_view> names_of() {
  return NameTable<Enum>::rows;
}

// "?" for a number that is no enumerator: a file's bytes can reach this before the verifier does.
template <class Enum>
constexpr std::string_view name_of(Enum e) {
  size_t i = static_cast<size_t>(e);
  return i < names_of<Enum>().size() ? names_of<Enum>()[i] : "?";
}

template <class Enum>
constexpr std::optional<Enum> enum_named(std::string_view word) {
  for (size_t i = 0; i < names_of<Enum>().size(); ++i)
    if (names_of<Enum>()[i] == word) return static_cast<Enum>(i);
  return std::nullopt;
}

}  // namespace sg
