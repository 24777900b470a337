// DiffTerms: types, expressions and metadata of two programs put into one pool, so that comparing them is comparing
// ids; private to the diff.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "libgraph/diff/diff.h"
#include "libgraph/edit/translate.h"
#include "libgraph/text/text_printer.h"

namespace sg {

class DiffTerms {
 public:
  // `group_of_a`: match_groups_of both jobs, found once for all of their programs; outlives this.
  DiffTerms(const Job& a, const Program& program_a, const Job& b, const Program& program_b,
            const std::vector<GroupId>& group_of_a);

  // Which symbol of B is which of A: to be learnt before anything is compared.
  // Pairs symbols where `a` and `b` (types of partners) have bare symbols in the same place.
  void learn(TypeId a, TypeId b);
  void learn(StrId a, StrId b);
  // Symbols of side s that are a number wherever the other side's partners have a bare size: most places say so, none
  // has a symbol there. In the order in which the program declares them. To be asked before `finish_symbols`.
  std::vector<std::pair<StrId, int64_t>> learnt_numbers(int s) const;
  void finish_symbols();                // the rest by kind and order
  StrId symbol_partner(StrId a) const;  // none = it has none

  // From now on what is not equal may be equal by these numbers. They must outlive this.
  void set_numbers(const SymbolNumbers* of_a, const SymbolNumbers* of_b);
  bool has_numbers() const { return numbers_[0] != nullptr; }
  const SymbolNumbers& numbers(int s) const { return *numbers_[s]; }
  bool same_type_by_number(TypeId a, TypeId b) { return has_numbers() && number_a_.type(a) == number_b_.type(b); }
  bool same_expr_by_number(Expr a, Expr b) { return has_numbers() && number_a_.expr(a) == number_b_.expr(b); }
  bool same_exprs_by_number(const std::vector<Expr>& a, const std::vector<Expr>& b);

  bool same_type(TypeId a, TypeId b) { return to_a_.type(a) == to_b_.type(b); }
  Expr of_a(Expr a) { return to_a_.expr(a); }  // in the common pool
  Expr of_b(Expr b) { return to_b_.expr(b); }
  bool same_expr(Expr a, Expr b) { return to_a_.expr(a) == to_b_.expr(b); }
  bool same_exprs(const std::vector<Expr>& a, const std::vector<Expr>& b);
  bool same_text(StrId a, StrId b);
  bool same_texts(const std::vector<StrId>& a, const std::vector<StrId>& b);
  bool same_symbols(const std::vector<StrId>& a, const std::vector<StrId>& b);
  bool same_key_values(const std::vector<KeyValue>& a, const std::vector<KeyValue>& b);
  bool same_sharding(const Sharding& a, const Sharding& b);
  bool same_source(SourceId a, SourceId b);
  bool same_group(GroupId a, GroupId b) const;
  const Pool& pool_a() const { return pool_a_; }
  const Pool& pool_b() const { return pool_b_; }

 private:
  void learn_exprs(const std::vector<Expr>& a, const std::vector<Expr>& b);
  void learn_expr(Expr a, Expr b);
  using Votes = std::unordered_map<StrId, std::map<int64_t, size_t>, IdHash>;  // symbol -> number -> places

  const Pool& pool_a_;
  const Pool& pool_b_;
  const Program& program_a_;
  const Program& program_b_;
  Pool common_;
  std::unordered_map<StrId, StrId, IdHash> partner_a_, partner_b_;  // symbols
  std::unordered_map<StrId, StrId, IdHash> name_of_b_;              // B's symbol -> its name in the common pool
  std::unordered_set<uint64_t> seen_;                               // pairs of types learnt from
  Votes votes_[2];
  const SymbolNumbers* numbers_[2] = {nullptr, nullptr};
  const std::vector<GroupId>& group_of_a_;
  Translator to_a_, to_b_, number_a_, number_b_;
};

// Groups correspond by axis and ordinal; where names do not count, those left over by their ranks, in order. By GroupId
// of A; none = B has none.
std::vector<GroupId> match_groups_of(const Job& a, const Job& b, bool ignore_name);

}  // namespace sg
