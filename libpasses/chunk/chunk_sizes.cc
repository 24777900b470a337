#include "libpasses/chunk/chunk_sizes.h"

#include <algorithm>

#include "libgraph/expr/symbols.h"
#include "libgraph/op.h"

namespace sg {

Result<ChunkSizes> ChunkSizes::declare(Program* program, const ChunkPlan& plan, int64_t chunks) {
  ChunkSizes out(program, plan, chunks);
  out.declare_symbols();
  SG_TRY(out.derive_guards());
  out.guard_rows();
  return out;
}

// Rows are spread evenly, the first chunks taking one more: chunk c of n has (rows + n - 1 - c) // n. Chunk 0 is
// written as the whole minus the other chunks, so that they add up to the whole for symbols too.
Expr ChunkSizes::rows(uint32_t domain, int64_t c) const {
  const AxisDomain& d = plan_->world.domains[domain];
  auto spread = [&](int64_t k) {
    return exprs_->floordiv(exprs_->add(d.size, exprs_->constant(chunks_ - 1 - k)), exprs_->constant(chunks_));
  };
  if (d.is_rows && c > 0) return spread(c);
  if (d.is_rows) {
    Expr rest = d.size;
    for (int64_t k = 1; k < chunks_; ++k) rest = exprs_->sub(rest, spread(k));
    return rest;
  }
  return d.sorted.domain != kNoDomain ? extent(d.sorted, c) : own(d.size, c);
}

Expr ChunkSizes::extent(const Along& a, int64_t c) const { return a.length(exprs_, rows(a.domain, c)); }

Expr ChunkSizes::begin(const Along& a, int64_t c) const {
  Expr out = exprs_->constant(0);
  for (int64_t i = 0; i < c; ++i) out = exprs_->add(out, extent(a, i));
  return out;
}

Expr ChunkSizes::own(Expr e, int64_t c) const {
  return exprs_->substitute(e, [&](StrId s) -> std::optional<Expr> {
    const auto symbol = own_symbol(s, c);
    return symbol ? std::optional(exprs_->symbol(*symbol)) : std::nullopt;
  });
}

std::optional<StrId> ChunkSizes::own_symbol(StrId symbol, int64_t c) const {
  auto it = own_.find(symbol);
  return it == own_.end() ? std::nullopt : std::optional(it->second[static_cast<size_t>(c)]);
}

// An upper bound of a chunk's count: the number of keys the chunk has.
std::optional<int64_t> ChunkSizes::most_counted(NodeId n, int64_t c) const {
  const Graph& graph = program_->graph;
  const AxisState& s = plan_->world.states[graph.node(n).result(0).index];
  if (s.kind != AxisKind::size || s.source.is_none() || s.source.received) return std::nullopt;
  const AxisState& keys = plan_->world.states[s.source.keys.index];
  const std::vector<Expr>& shape = graph.type(s.source.keys).shape;
  if (keys.kind != AxisKind::along) return std::nullopt;
  Expr all = extent(keys.along, c);
  for (size_t i = 0; i < shape.size(); ++i)
    if (i != keys.along.axis) all = exprs_->mul(all, shape[i]);
  return exprs_->constant_value(all);
}

void ChunkSizes::declare_symbols() {
  const Graph& graph = program_->graph;
  Pool& pool = graph.pool();
  std::unordered_map<StrId, NodeId, IdHash> bound_by;
  for (const BodyNode& body : plan_->body) {
    const auto& binds = graph.meta(body.node).binds;
    for (StrId s : binds ? *binds : default_binds(*program_, graph, body.node))
      own_.try_emplace(s), bound_by.try_emplace(s, body.node);
  }
  SymbolList list;
  for (const Symbol& symbol : program_->symbols) {
    auto it = own_.find(symbol.name);
    if (it == own_.end()) list.push_back(symbol);
    for (int64_t c = 0; it != own_.end() && c < chunks_; ++c) {
      Symbol fresh = symbol;
      fresh.hint.reset();
      if (const auto most = most_counted(bound_by.at(symbol.name), c))
        fresh.max = std::min(fresh.max.value_or(*most), *most);
      std::string name = pool.strings.str(symbol.name) + "_" + std::to_string(c);
      while (program_->find_symbol(pool.str(name)) != nullptr) name += "_";
      fresh.name = pool.str(name);
      it->second.push_back(fresh.name);
      list.push_back(fresh);
    }
  }
  for (const auto& [symbol, node] : bound_by)
    if (plan_->world.states[graph.node(node).result(0).index].kind == AxisKind::partial) alike_.insert(symbol);
  for (auto it = own_.begin(); it != own_.end();) it = it->second.empty() ? own_.erase(it) : std::next(it);
  program_->symbols = std::move(list);
}

// Whether the chunks' own symbols in it are each as large as the whole's: the lengths of what the chunks add up.
bool ChunkSizes::is_alike(Expr e) const {
  std::vector<StrId> symbols;
  exprs_->collect_symbols(e, &symbols);
  return std::ranges::all_of(symbols, [&](StrId s) { return !own_.contains(s) || alike_.contains(s); });
}

// The chunk's share of a number to which the counts of the whole add up, a multiple of the rows.
Result<Expr> ChunkSizes::share_of(Expr e, int64_t c) const {
  for (uint32_t d = 0; d < plan_->world.domains.size(); ++d) {
    const AxisDomain& domain = plan_->world.domains[d];
    if (!domain.is_rows) continue;
    const Expr unit = exprs_->floordiv(e, domain.size);
    if (exprs_->mul(unit, domain.size) == e && exprs_->constant_value(unit) != 0) return exprs_->mul(unit, rows(d, c));
  }
  return Error{ErrorKind::cannot_apply, exprs_->print(e) + " is not a multiple of the chunked rows", {}, {}};
}

Status ChunkSizes::derive_guards() {
  std::vector<Guard> kept, fresh;
  for (const Guard& guard : program_->guards) {
    const bool left = own(guard.left, 0) != guard.left, right = own(guard.right, 0) != guard.right;
    if (!left && !right) kept.push_back(guard);
    for (int64_t c = 0; (left || right) && c < chunks_; ++c) {
      Guard own_guard = guard;
      own_guard.left = own(guard.left, c), own_guard.right = own(guard.right, c);
      if (left != right &&
          !is_alike(
              left
                  ? guard.left
                  : guard
                        .right)) {  // a sum of counts equals a number of rows: compare the chunk's counts with its own rows
        Expr& number = left ? own_guard.right : own_guard.left;
        auto share = share_of(number, c);
        if (share.ok()) number = *share;
        else if (guard.relation == Relation::eq)
          return Error{ErrorKind::cannot_apply,
                       "the guard " + exprs_->print(guard.left) + " == " + exprs_->print(guard.right) +
                           " cannot be held by chunks: " + share.error().message,
                       {},
                       "the step was captured under this condition"};
      }
      fresh.push_back(own_guard);
    }
  }
  kept.insert(kept.end(), fresh.begin(), fresh.end());
  program_->guards = std::move(kept);
  return ok_status();
}

// Adds guards that every chunk has a row, since a view with -1 fails on an empty chunk. Data-dependent sizes may be 0,
// and their producers handle that.
void ChunkSizes::guard_rows() {
  for (const AxisDomain& d : plan_->world.domains) {
    std::vector<StrId> symbols;
    exprs_->collect_symbols(d.size, &symbols);
    const bool from_inputs = std::ranges::all_of(symbols, [&](StrId s) {
      const Symbol* symbol = program_->symbols.find(s);
      return symbol != nullptr && symbol->kind == SymbolKind::input;
    });
    if (!d.is_rows || symbols.empty() || !from_inputs || Facts(*program_).range(d.size).min >= chunks_) continue;
    Guard guard;
    guard.relation = Relation::ge;
    guard.left = d.size, guard.right = exprs_->constant(chunks_);
    program_->guards.push_back(guard);
  }
}

}  // namespace sg
