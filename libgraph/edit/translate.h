// Translator: carries what one job's pool interns over to another job's pool, and whole programs with it.
//
// Ids mean something only within their pool. A program moved to another job (merging the files of a rank set) has every
// string, expression, type, source, metadata record, operator and group rewritten; names, order and structure stay.
#pragma once

#include <unordered_map>
#include <vector>

#include "libgraph/job.h"

namespace sg {

class Translator {
 public:
  // `groups[i]` is what group i of the source is in the target; both jobs must outlive the translator.
  Translator(const Pool& from, Pool* to, std::vector<GroupId> groups)
      : from_(from), to_(*to), groups_(std::move(groups)) {}

  // Symbols of the source take these names (of the target) in expressions; `names` must outlive the translator.
  void rename_symbols(const std::unordered_map<StrId, StrId, IdHash>* names) { symbol_names_ = names; }

  // Symbols of the source that become numbers in expressions; `numbers` must outlive the translator.
  void replace_symbols(const std::unordered_map<StrId, int64_t, IdHash>* numbers) { symbol_numbers_ = numbers; }

  StrId str(StrId s);
  Expr expr(Expr e);
  TypeId type(TypeId t);
  SourceId source(SourceId s);
  MetaId meta(MetaId m);
  OpId op(OpId o);
  Arg arg(const Arg& a, const std::vector<ValueId>& values);
  std::vector<KeyValue> key_values(const std::vector<KeyValue>& list);
  Sharding sharding(const Sharding& s);

  // Fills the empty `target` with a translated copy of `source`.
  void program(const Program& source, Program* target);
  void graph(const Graph& source, Graph* target);

 private:
  struct Mapping {  // by id in the source: the id in the target
    std::vector<ValueId> values;
    std::vector<NodeId> nodes;
  };
  void inputs(const Graph& source, Graph* target, Mapping* map);
  void node(const Graph& source, NodeId n, Graph* target, Mapping* map);
  void outputs(const Graph& source, Graph* target, const Mapping& map);
  std::vector<StrId> strs(const std::vector<StrId>& list);
  std::vector<Expr> exprs(const std::vector<Expr>& list);
  Expr atom(const Atom& a);
  StrId symbol(StrId s);

  const Pool& from_;
  Pool& to_;
  std::vector<GroupId> groups_;
  const std::unordered_map<StrId, StrId, IdHash>* symbol_names_ = nullptr;
  const std::unordered_map<StrId, int64_t, IdHash>* symbol_numbers_ = nullptr;
  std::unordered_map<Expr, Expr, IdHash> expr_memo_;
  std::unordered_map<TypeId, TypeId, IdHash> type_memo_;
  std::unordered_map<MetaId, MetaId, IdHash> meta_memo_;
};

}  // namespace sg
