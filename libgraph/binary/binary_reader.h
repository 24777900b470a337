// Internal to binary_read*.cc: builds a Job from the bytes of a FlatBuffer that nobody vouches for.
//
// Order    The FlatBuffers verifier first: after it every offset lies inside the buffer and the number of tables is
//          bounded by the buffer's size. Then the tables of the root, each entry referring only to entries before it,
//          then the programs. Every index is checked where it is read.
// Bounds   Tables may overlap in a hostile file, so that a small file could stand for a huge job. Vectors and strings
//          are charged to `budget_`, which is the size of the file: what a file holds once, it may use once.
// Failure  Methods return false after the first failure, which is in `error_`. Its path is put together on the way
//          out: `return under("args", i)`. So a good file pays nothing for paths.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libgraph/binary/binary_writer.h"
#include "libgraph/names.h"

namespace sg {

class FileReader {
 public:
  FileReader(std::string_view bytes, const std::string& file) : bytes_(bytes), budget_(bytes.size()) {
    error_.kind = ErrorKind::unreadable;
    error_.where.file = file;
  }
  Result<Job> read();

 private:
  template <class T>
  using Tables = flatbuffers::Vector<flatbuffers::Offset<T>>;
  using Numbers = flatbuffers::Vector<uint32_t>;

  // binary_read.cc
  bool check_buffer();
  bool check_version();
  bool read_root();
  bool read_mesh(const fb::Mesh& in, Mesh* out);
  bool read_group(const fb::Group& in, Group* out);
  bool read_group_part(const fb::GroupPart& in, GroupPart* out);
  bool read_provenance(const fb::Provenance& in, Provenance* out);
  bool read_program(const fb::Program& in);
  bool read_symbol(const fb::Symbol& in, Symbol* out);
  bool read_guard(const fb::Guard& in, Guard* out);
  bool read_nested(const fb::Program& in, Program* out);

  // binary_read_tables.cc
  bool read_strings();
  bool read_exprs();
  bool read_expr(const fb::Expr& in, uint32_t index, Expr* out);
  bool read_term(const fb::Term& in, uint32_t limit, std::vector<Expr>* factors);
  bool read_factor(const fb::Factor& in, uint32_t limit, Expr* out);
  bool read_operands(const fb::Factor& in, uint32_t limit, Expr* out);
  bool spend_weight(const fb::Expr& in);
  bool is_same(const fb::Expr& in, Expr e) const;
  bool is_same_factor(const fb::Factor& in, const Factor& f) const;
  bool read_types();
  bool read_type(const fb::Type& in, uint32_t index, Type* out);
  bool read_elements(const fb::Type& in, uint32_t index, Type* out);
  bool read_sources();
  bool read_metas();
  bool read_meta(const fb::Meta& in, NodeMeta* out);
  bool read_ops();

  // binary_read_graph.cc
  struct GraphState {
    Graph* graph;
    const fb::Graph* file;
    uint32_t value_count;  // in the whole graph
    uint32_t node_count;
    uint32_t nested_count;     // of the program
    std::vector<StrId> names;  // results of the node being read
    std::vector<TypeId> types;
  };
  bool read_graph(const fb::Graph& in, uint32_t nested_count, Graph* out);
  bool read_input(const fb::Input& in, uint32_t index, GraphState* state);
  bool read_node(const fb::Node& in, GraphState* state);
  bool read_results(const fb::Node& in, GraphState* state);
  bool read_args(const Tables<fb::Arg>* in, const GraphState& state, size_t depth, bool need_keys, ArgList* out);
  bool read_arg(const fb::Arg& in, const GraphState& state, size_t depth, Arg* out);
  bool read_items(const fb::Arg& in, const GraphState& state, size_t depth, Arg* out);
  bool read_leaf(const fb::Arg& in, const GraphState& state, Arg* out);
  bool read_output(const fb::Output& in, GraphState* state);

  // Parts. An index that is none gives an id that is none, unless `required_` is in the name.
  bool string(uint32_t index, const char* field, StrId* out);
  bool required_string(uint32_t index, const char* field, StrId* out);
  bool required_expr(uint32_t index, const char* field, Expr* out);
  bool expr(uint32_t index, const char* field, Expr* out);
  bool type(uint32_t index, const char* field, TypeId* out);
  bool source(uint32_t index, const char* field, SourceId* out);
  bool strings(const Numbers* in, const char* field, std::vector<StrId>* out);
  bool exprs(const Numbers* in, const char* field, std::vector<Expr>* out);
  bool ranks(const Numbers* in, const char* field, std::vector<uint32_t>* out);
  bool key_values(const Tables<fb::KeyValue>* in, const char* field, std::vector<KeyValue>* out);
  bool sharding(const fb::Sharding* in, Sharding* out);
  template <class Enum, class FileEnum>
  bool enumerator(FileEnum value, const char* field, Enum* out) {
    if (static_cast<size_t>(value) >= names_of<Enum>().size())
      return unknown_enumerator(static_cast<int>(value), field);
    *out = static_cast<Enum>(value);
    return true;
  }
  bool dtype(uint32_t value, const char* field, DType* out);

  // Reads each table of a list with `fn(table, index)`.
  template <class T, class Fn>
  bool each(const Tables<T>* list, const char* field, const Fn& fn) {
    uint32_t count = size_of(list);
    for (uint32_t i = 0; i < count; ++i)
      if (!fn(*list->Get(i), i)) return under(field, i);
    return true;
  }
  template <class T>
  static uint32_t size_of(const flatbuffers::Vector<T>* list) {
    return list ? list->size() : 0;
  }

  bool fail(std::string path, std::string message);  // always false
  bool unknown_enumerator(int value, const char* field);
  bool bad_index(const char* field, uint32_t index, size_t size);
  bool under(const char* field);  // prefixes the path of the failure; always false
  bool under(const char* field, uint32_t index);
  bool at_index(uint32_t index);  // the failure is in this entry of the vector it names
  bool charge(size_t bytes, const char* field);

  std::string_view bytes_;
  std::string aligned_;  // a copy, when the caller's bytes are not aligned
  size_t budget_;
  size_t node_count_ = 0;
  const fb::Job* root_ = nullptr;
  Job job_;
  std::vector<StrId> strings_;  // by file index, and so on
  std::vector<Expr> exprs_;
  std::vector<uint32_t> expr_weights_;
  size_t expr_budget_ = 0;  // weight that the expressions may still have in all
  std::vector<TypeId> types_;
  std::vector<uint32_t> type_weights_;
  std::vector<uint8_t> type_depths_;
  std::vector<SourceId> sources_;
  std::vector<MetaId> metas_;
  std::vector<OpId> ops_;
  Error error_;
};

}  // namespace sg
