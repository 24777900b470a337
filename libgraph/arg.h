// Arg: one argument of a node: a value, a literal, a symbolic size, a group, a nested graph, or a list of them.
//
// A plain value type: copying copies lists deeply. Keyword arguments and dict entries carry a `key`.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "libgraph/base/ids.h"
#include "libgraph/dtype.h"

namespace sg {

// The order is the value in the file: append only.
enum class ArgKind : uint8_t {
  none,
  boolean,
  integer,
  floating,
  complex,
  string,
  expr,
  value,
  dtype,
  list,
  slice,
  dict,
  graph,
  group,
  device,
  layout,
  memory_format,
  enumerator,
  op,
  opaque,
};

class Arg;
using ArgList = std::vector<Arg>;

class Arg {
 public:
  Arg() = default;
  static Arg none() { return Arg(); }
  static Arg boolean(bool v) { return Arg(ArgKind::boolean, v ? 1 : 0); }
  static Arg integer(int64_t v) { return Arg(ArgKind::integer, v); }
  static Arg floating(double v);
  static Arg complex(double re, double im);
  static Arg expr(Expr e) { return Arg(ArgKind::expr, e.index); }
  static Arg value(ValueId v) { return Arg(ArgKind::value, v.index); }
  static Arg dtype(DType t) { return Arg(ArgKind::dtype, static_cast<int64_t>(t)); }
  static Arg list(ArgList items) { return Arg(ArgKind::list, std::move(items)); }
  static Arg slice(Arg begin, Arg end, Arg step);
  static Arg dict(ArgList entries) { return Arg(ArgKind::dict, std::move(entries)); }  // each entry has a key
  static Arg graph(NestedId g) { return Arg(ArgKind::graph, g.index); }
  static Arg group(GroupId g) { return Arg(ArgKind::group, g.index); }
  // string, device, layout, memory_format, enumerator, op, opaque: a text
  static Arg text(ArgKind kind, StrId s) { return Arg(kind, s.index); }

  Arg(const Arg& other);
  Arg& operator=(const Arg& other);
  Arg(Arg&&) noexcept = default;
  Arg& operator=(Arg&&) noexcept = default;

  ArgKind kind() const { return kind_; }
  bool is(ArgKind kind) const { return kind_ == kind; }
  bool is_text() const { return kind_ == ArgKind::string || kind_ >= ArgKind::device; }

  StrId key() const { return key_; }  // none for positional arguments and list items
  Arg& set_key(StrId key) {
    key_ = key;
    return *this;
  }

  // REQUIRES for each: the matching kind
  bool as_bool() const { return bits_ != 0; }
  int64_t as_int() const { return bits_; }
  double as_float() const;
  Expr as_expr() const { return Expr(static_cast<uint32_t>(bits_)); }
  ValueId as_value() const { return ValueId(static_cast<uint32_t>(bits_)); }
  DType as_dtype() const { return static_cast<DType>(bits_); }
  NestedId as_graph() const { return NestedId(static_cast<uint32_t>(bits_)); }
  GroupId as_group() const { return GroupId(static_cast<uint32_t>(bits_)); }
  StrId as_text() const { return StrId(static_cast<uint32_t>(bits_)); }
  // list: the items; slice: begin, end, step; dict: the entries; complex: real and imaginary part as floats
  const ArgList& items() const { return *items_; }
  ArgList& mutable_items() { return *items_; }

  bool has_items() const { return items_ != nullptr; }
  int64_t bits() const { return bits_; }  // tells two of one kind without items apart: an id, a number, a float

  friend bool operator==(const Arg& a, const Arg& b);  // keys included, floats by their bits

  // Calls fn(const Arg&) for this argument and everything inside it, depth first.
  template <class Fn>
  void walk(const Fn& fn) const {
    fn(*this);
    if (items_)
      for (const Arg& item : *items_) item.walk(fn);
  }
  template <class Fn>
  void walk_mutable(const Fn& fn) {
    fn(*this);
    if (items_)
      for (Arg& item : *items_) item.walk_mutable(fn);
  }
  void set_value(ValueId v) { bits_ = v.index; }  // REQUIRES: is(ArgKind::value)

 private:
  Arg(ArgKind kind, int64_t bits) : kind_(kind), bits_(bits) {}
  Arg(ArgKind kind, ArgList items) : kind_(kind), items_(std::make_unique<ArgList>(std::move(items))) {}

  ArgKind kind_ = ArgKind::none;
  StrId key_;
  int64_t bits_ = 0;
  std::unique_ptr<ArgList> items_;
};

}  // namespace sg
