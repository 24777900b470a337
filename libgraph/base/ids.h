// Typed indices. Each is a 32-bit number into one table; kNone is "not there".
#pragma once

#include <cstdint>
#include <functional>

namespace sg {

template <class Tag>
struct Id {
  static constexpr uint32_t kNoneIndex = 0xFFFFFFFFu;
  uint32_t index = kNoneIndex;

  constexpr Id() = default;
  constexpr explicit Id(uint32_t i) : index(i) {}
  constexpr bool is_none() const { return index == kNoneIndex; }
  constexpr explicit operator bool() const { return !is_none(); }
  friend constexpr bool operator==(Id, Id) = default;
  friend constexpr auto operator<=>(Id, Id) = default;
};

using StrId = Id<struct StrTag>;        // Pool::strings; the empty string is StrId(0)
using TypeId = Id<struct TypeTag>;      // Pool::types
using Expr = Id<struct ExprTag>;        // Pool::exprs: a symbolic integer in normal form
using SourceId = Id<struct SourceTag>;  // Pool::sources: file, line, function
using MetaId = Id<struct MetaTag>;      // Pool::metas: the rarely set part of a node's metadata
using OpId = Id<struct OpTag>;          // Pool::ops
using NodeId = Id<struct NodeTag>;      // one Graph; never reused within it
using ValueId = Id<struct ValueTag>;    // one Graph; never reused within it
using GroupId = Id<struct GroupTag>;    // Job::groups
using NestedId = Id<struct NestedTag>;  // Program::nested

struct IdHash {
  template <class Tag>
  size_t operator()(Id<Tag> id) const {
    return static_cast<size_t>(id.index) * 0x9E3779B97F4A7C15ull >> 16;
  }
};

}  // namespace sg
