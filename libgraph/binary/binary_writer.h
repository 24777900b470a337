// Internal to binary_write*.cc: turns a Job into a FlatBuffer.
//
// Order    Everything is written in one fixed traversal; tables of the root (strings, types, ...) get their entries in
//          the order in which that traversal meets them, and hold nothing else. So equal jobs give equal bytes,
//          whatever their pool holds besides and in whatever order it was filled.
// Failure  The first one is kept in `error_`; from then on the builder gets nothing more, and `finish` returns it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "libgraph/binary/binary.h"
#include "libgraph/binary/table_builder.h"
#include "libgraph/job.h"
#include "schema/graph_generated.h"

namespace sg {

// Bounds that the reader enforces and the writer keeps; docs/binary-format.md lists them.
inline constexpr size_t kMaxArgDepth = 32;
inline constexpr size_t kMaxTypeDepth = 16;
inline constexpr size_t kMaxTypeWeight = 1 << 16;  // types within a type, counted as often as they would be printed
inline constexpr size_t kMaxOperands = 256;        // of one min or max
inline constexpr size_t kMaxNodes = 1 << 24;       // in one file
inline constexpr uint32_t kNoIndex = 0xFFFFFFFFu;  // "none" in the file

class FileWriter {
 public:
  FileWriter(const Job& job, const Pool& pool);  // `pool` is the job's or a copy of it
  Result<std::string> finish();

 private:
  template <class T>
  using Offset = flatbuffers::Offset<T>;
  using Numbers = Offset<flatbuffers::Vector<uint32_t>>;
  template <class T>
  using Tables = Offset<flatbuffers::Vector<Offset<T>>>;

  // Pool ids that the file needs, and their indices in it.
  template <class PoolId>
  struct Used {
    std::vector<uint32_t> index;  // by pool id; kNoIndex = not used so far
    std::vector<PoolId> list;     // by index
    bool add(PoolId id);          // false when it was there
    uint32_t operator[](PoolId id) const { return index[id.index]; }
  };

  // Dense numbers of one graph.
  struct GraphNumbers {
    std::vector<uint32_t> value;  // by ValueId; kNoIndex = not alive
    std::vector<uint32_t> node;   // by NodeId
  };

  // binary_write_tables.cc: indices, assigned at first use, and the tables behind them
  uint32_t string(StrId id);
  uint32_t nonempty(StrId id) { return id == StringTable::kEmpty ? kNoIndex : string(id); }
  uint32_t expr(Expr e);
  uint32_t type(TypeId id);
  uint32_t source(SourceId id);
  uint32_t meta(MetaId id);
  uint32_t op(OpId id);
  Numbers strings(const std::vector<StrId>& list);
  Numbers exprs(const std::vector<Expr>& list);
  Tables<fb::KeyValue> key_values(const std::vector<KeyValue>& list);
  Offset<fb::Sharding> sharding(const Sharding& s);
  Offset<fb::Meta> meta_table(const NodeMeta& m);
  Offset<fb::Type> type_table(const Type& t);
  Offset<fb::Expr> expr_table(Expr e);
  Offset<fb::Factor> factor(const Factor& f);
  Offset<fb::Source> source_table(const Source& s);
  size_t type_weight(const Type& t, size_t depth);
  Tables<fb::Meta> meta_tables();
  Tables<fb::Type> type_tables();
  Tables<fb::Expr> expr_tables();
  Tables<fb::Source> source_tables();
  Numbers op_names();
  Offset<flatbuffers::Vector<Offset<flatbuffers::String>>> string_table();

  // binary_write_graph.cc
  Offset<fb::Graph> graph(const Graph& g);
  GraphNumbers number(const Graph& g);
  Offset<fb::Node> node(const Graph& g, NodeId n, const GraphNumbers& numbers);
  Offset<fb::Arg> arg(const Arg& a, const GraphNumbers& numbers, size_t depth);
  uint32_t arg_index(const Arg& a, const GraphNumbers& numbers);
  Tables<fb::Arg> args(const ArgList& list, const GraphNumbers& numbers, size_t depth);
  Offset<fb::Input> input(const Input& in);
  Offset<fb::Output> output(const Graph& g, const Output& out, const GraphNumbers& numbers);

  // binary_write.cc
  Offset<fb::Program> program(const Program& p);
  Offset<fb::Group> group(const Group& g);
  Offset<fb::Mesh> mesh(const Mesh& m);
  Offset<fb::Provenance> provenance(const Provenance& p);
  void root();

  // Room for `bytes` more? Fails the whole write when not.
  bool room(size_t bytes);
  void fail(ErrorKind kind, std::string message, std::string hint = {});
  Numbers numbers(const std::vector<uint32_t>& list);           // null when empty
  Numbers numbers_or_empty(const std::vector<uint32_t>& list);  // present even when empty
  template <class T>
  Tables<T> tables(const std::vector<Offset<T>>& list) {
    if (list.empty() || !room(4 * list.size())) return 0;
    return builder_.CreateVector(list);
  }
  Offset<flatbuffers::String> text(std::string_view s);

  const Job& job_;
  const Pool& pool_;
  TableBuilder builder_;
  Used<StrId> strings_;
  Used<Expr> exprs_;
  Used<TypeId> types_;
  Used<SourceId> sources_;
  Used<MetaId> metas_;
  Used<OpId> ops_;
  size_t node_count_ = 0;
  std::optional<Error> error_;
};

// The one spelling of a float in the file: all NaNs are one.
double canonical_float(double v);

}  // namespace sg
