#include "libgraph/diff/diff_terms.h"

#include <algorithm>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>

namespace sg {

namespace {

std::string identity_of(const Job& job, const Group& group) {
  return std::string(job.pool->strings[group.axis]) + ":" + std::to_string(group.ordinal);
}

std::vector<std::vector<uint32_t>> member_lists(const Group& group) {
  std::vector<std::vector<uint32_t>> out;
  for (const GroupPart& part : group.parts) out.push_back(part.ranks);
  return out;
}

}  // namespace

std::vector<GroupId> match_groups_of(const Job& a, const Job& b, bool ignore_name) {
  std::unordered_map<std::string, GroupId> named;  // in B
  for (uint32_t j = 0; j < b.groups.size(); ++j) named.try_emplace(identity_of(b, b.groups[j]), GroupId(j));
  std::vector<GroupId> out(a.groups.size());
  std::vector<uint8_t> taken(b.groups.size(), 0);
  for (size_t i = 0; i < a.groups.size(); ++i) {
    auto found = named.find(identity_of(a, a.groups[i]));
    if (found != named.end()) taken[(out[i] = found->second).index] = 1;
  }
  if (!ignore_name) return out;
  std::map<std::vector<std::vector<uint32_t>>, std::deque<uint32_t>> left;  // by ranks: those of B, in order
  for (uint32_t j = 0; j < b.groups.size(); ++j)
    if (!taken[j]) left[member_lists(b.groups[j])].push_back(j);
  for (size_t i = 0; i < a.groups.size(); ++i) {
    if (out[i]) continue;
    auto found = left.find(member_lists(a.groups[i]));
    if (found == left.end() || found->second.empty()) continue;
    out[i] = GroupId(found->second.front());
    found->second.pop_front();
  }
  return out;
}

DiffTerms::DiffTerms(const Job& a, const Program& program_a, const Job& b, const Program& program_b,
                     const std::vector<GroupId>& group_of_a)
    : pool_a_(*a.pool),
      pool_b_(*b.pool),
      program_a_(program_a),
      program_b_(program_b),
      group_of_a_(group_of_a),
      to_a_(pool_a_, &common_, {}),
      to_b_(pool_b_, &common_, {}),
      number_a_(pool_a_, &common_, {}),
      number_b_(pool_b_, &common_, {}) {
  to_b_.rename_symbols(&name_of_b_), number_b_.rename_symbols(&name_of_b_);
}

void DiffTerms::set_numbers(const SymbolNumbers* of_a, const SymbolNumbers* of_b) {
  numbers_[0] = of_a, numbers_[1] = of_b;
  number_a_.replace_symbols(of_a), number_b_.replace_symbols(of_b);
}

std::vector<std::pair<StrId, int64_t>> DiffTerms::learnt_numbers(int s) const {
  std::vector<std::pair<StrId, int64_t>> out;
  for (const Symbol& symbol : (s == 0 ? program_a_ : program_b_).symbols) {
    auto at = votes_[s].find(symbol.name);
    if (at == votes_[s].end() || (s == 0 ? partner_a_ : partner_b_).contains(symbol.name)) continue;
    size_t all = 0;
    auto most = at->second.begin();
    for (auto it = at->second.begin(); it != at->second.end(); ++it)
      all += it->second, most = it->second > most->second ? it : most;
    if (2 * most->second > all) out.push_back({symbol.name, most->first});
  }
  return out;
}

void DiffTerms::learn(StrId a, StrId b) {
  if (partner_a_.contains(a) || partner_b_.contains(b)) return;
  partner_a_.emplace(a, b), partner_b_.emplace(b, a);
}

void DiffTerms::learn_expr(Expr a, Expr b) {
  if (!a || !b) return;
  std::optional<StrId> x = pool_a_.exprs.as_symbol(a), y = pool_b_.exprs.as_symbol(b);
  if (x && y) return learn(*x, *y);
  if (x)
    if (std::optional<int64_t> n = pool_b_.exprs.constant_value(b)) ++votes_[0][*x][*n];
  if (y)
    if (std::optional<int64_t> n = pool_a_.exprs.constant_value(a)) ++votes_[1][*y][*n];
  if (x || y || pool_a_.exprs.is_constant(a) || pool_b_.exprs.is_constant(b)) return;
  std::vector<StrId> left, right;
  pool_a_.exprs.collect_symbols(a, &left);
  pool_b_.exprs.collect_symbols(b, &right);
  if (left.size() == 1 && right.size() == 1) learn(left[0], right[0]);
}

void DiffTerms::learn_exprs(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  for (size_t i = 0; a.size() == b.size() && i < a.size(); ++i) learn_expr(a[i], b[i]);
}

void DiffTerms::learn(TypeId a, TypeId b) {
  if (!seen_.emplace(static_cast<uint64_t>(a.index) << 32 | b.index).second) return;
  const Type& x = pool_a_.types[a];
  const Type& y = pool_b_.types[b];
  if (x.kind != y.kind) return;
  learn_expr(x.value, y.value);
  learn_exprs(x.shape, y.shape);
  for (size_t i = 0; x.elements.size() == y.elements.size() && i < x.elements.size(); ++i)
    learn(x.elements[i], y.elements[i]);
}

// Symbols that occur in no type are matched by their declaration: by name, else by kind and position. Then every symbol
// of B gets its name in the common pool: its partner's, or one that A does not have.
void DiffTerms::finish_symbols() {
  std::unordered_map<std::string_view, const Symbol*> named;
  for (const Symbol& t : program_b_.symbols) named.emplace(pool_b_.strings[t.name], &t);
  for (const Symbol& s : program_a_.symbols)
    if (auto at = named.find(pool_a_.strings[s.name]); at != named.end() && at->second->kind == s.kind)
      learn(s.name, at->second->name);
  for (const Symbol& s : program_a_.symbols)  // symbols that became numbers still pair by name, for guards
    if (auto at = named.find(pool_a_.strings[s.name]);
        at != named.end() && (votes_[0].contains(s.name) || votes_[1].contains(at->second->name)))
      learn(s.name, at->second->name);
  for (SymbolKind kind : {SymbolKind::input, SymbolKind::data}) {
    std::vector<StrId> left, right;
    for (const Symbol& s : program_a_.symbols)
      if (s.kind == kind && !partner_a_.contains(s.name)) left.push_back(s.name);
    for (const Symbol& s : program_b_.symbols)
      if (s.kind == kind && !partner_b_.contains(s.name)) right.push_back(s.name);
    if (left.size() != right.size()) continue;
    for (size_t i = 0; i < left.size(); ++i) learn(left[i], right[i]);
  }
  for (const Symbol& s : program_b_.symbols) {
    auto at = partner_b_.find(s.name);
    std::string name =
        at != partner_b_.end() ? pool_a_.strings.str(at->second) : pool_b_.strings.str(s.name) + "' of B";
    name_of_b_.emplace(s.name, common_.str(name));
  }
}

StrId DiffTerms::symbol_partner(StrId a) const {
  auto at = partner_a_.find(a);
  return at == partner_a_.end() ? StrId() : at->second;
}

bool DiffTerms::same_text(StrId a, StrId b) {
  if (!a || !b) return a.is_none() == b.is_none();
  return pool_a_.strings[a] == pool_b_.strings[b];
}

bool DiffTerms::same_exprs(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](Expr x, Expr y) { return same_expr(x, y); });
}

bool DiffTerms::same_exprs_by_number(const std::vector<Expr>& a, const std::vector<Expr>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [&](Expr x, Expr y) { return same_expr(x, y) || same_expr_by_number(x, y); });
}

bool DiffTerms::same_texts(const std::vector<StrId>& a, const std::vector<StrId>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](StrId x, StrId y) { return same_text(x, y); });
}

bool DiffTerms::same_symbols(const std::vector<StrId>& a, const std::vector<StrId>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](StrId x, StrId y) { return symbol_partner(x) == y; });
}

bool DiffTerms::same_key_values(const std::vector<KeyValue>& a, const std::vector<KeyValue>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const KeyValue& x, const KeyValue& y) {
    return same_text(x.key, y.key) && same_text(x.json, y.json);
  });
}

bool DiffTerms::same_sharding(const Sharding& a, const Sharding& b) {
  return same_exprs(a.global_shape, b.global_shape) && same_texts(a.placements, b.placements) &&
         same_texts(a.mesh_axes, b.mesh_axes);
}

bool DiffTerms::same_source(SourceId a, SourceId b) {
  if (!a || !b) return a.is_none() && b.is_none();
  const Source& x = pool_a_.sources[a];
  const Source& y = pool_b_.sources[b];
  return x.line == y.line && same_text(x.file, y.file) && same_text(x.function, y.function);
}

bool DiffTerms::same_group(GroupId a, GroupId b) const {
  if (a.index >= group_of_a_.size()) return a == b;
  return group_of_a_[a.index] == b && b;
}

}  // namespace sg
