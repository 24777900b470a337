// Pool: everything a Job interns: strings, expressions, types, source lines, metadata records, operators.
//
// Ids are stable and append-only, shared by all graphs of the job, so that comparing two types (or modules, or
// metadata) is comparing two numbers. Copying a Pool keeps every id. Not thread-safe while something interns.
#pragma once

#include <deque>
#include <string_view>
#include <vector>

#include "libgraph/base/flat_map.h"
#include "libgraph/base/ids.h"
#include "libgraph/base/strings.h"
#include "libgraph/expr/expr.h"
#include "libgraph/meta.h"
#include "libgraph/type.h"

namespace sg {

struct OpInfo;  // op.h

// Where a node came from in the user's program.
struct Source {
  StrId file;
  uint32_t line = 0;
  StrId function;
  friend bool operator==(const Source&, const Source&) = default;
};
uint64_t hash_of(const Source& source);

// An operator as it occurs in this job: its full name, and its row of the op table (null = unknown, travels opaque).
struct Op {
  StrId name;  // "aten.mm.default"
  const OpInfo* info = nullptr;
};

// Keeps each distinct record once; ids are indices in order of first appearance.
template <class Record, class RecordId>
class InternTable {
 public:
  RecordId intern(Record record);
  const Record& operator[](RecordId id) const { return records_[id.index]; }
  size_t size() const { return records_.size(); }

 private:
  std::deque<Record> records_;
  FlatIndex index_;
};

class OpTable {
 public:
  OpId intern(StrId name, std::string_view text);
  const Op& operator[](OpId id) const { return ops_[id.index]; }
  size_t size() const { return ops_.size(); }

 private:
  std::vector<Op> ops_;
  FlatMap<StrId, OpId> index_;
};

class Pool {
 public:
  Pool();
  Pool(const Pool& other);
  Pool& operator=(const Pool&) = delete;

  StringTable strings;
  ExprPool exprs;
  InternTable<Type, TypeId> types;  // TypeId(0) is the unknown type
  InternTable<Source, SourceId> sources;
  InternTable<NodeMeta, MetaId> metas;  // MetaId(0) is the default: nothing set
  OpTable ops;

  static constexpr TypeId kUnknownType{0};
  static constexpr MetaId kDefaultMeta{0};

  StrId str(std::string_view s) { return strings.intern(s); }
  OpId op(std::string_view name) { return ops.intern(strings.intern(name), name); }
  std::string_view op_name(OpId id) const { return strings[ops[id].name]; }

  // A contiguous tensor type: strides filled in from the shape (sizes multiplied as they are, no max(1, ...)).
  TypeId tensor(DType dtype, std::vector<Expr> shape, StrId device);
  std::vector<Expr> contiguous_strides(const std::vector<Expr>& shape);
};

template <class Record, class RecordId>
RecordId InternTable<Record, RecordId>::intern(Record record) {
  uint64_t hash = hash_of(record);
  RecordId known(index_.find(hash, [&](uint32_t i) { return records_[i] == record; }));
  if (known) return known;
  RecordId id(static_cast<uint32_t>(records_.size()));
  records_.push_back(std::move(record));
  index_.insert(hash, id.index);
  return id;
}

}  // namespace sg
