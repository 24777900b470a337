// The sizes of chunks: cuts of rows, symbols of each chunk's own, and the guards that hold for them.
#pragma once

#include <optional>
#include <unordered_map>

#include "libpasses/chunk/chunk_plan.h"

namespace sg {

class ChunkSizes {
 public:
  // Declares a symbol a chunk for each that a body node defines, with guards derived from those of the whole; what
  // spoke of the whole's is dropped, and with one that inputs bring a row for each chunk. Fails where a guard cannot be
  // derived. Call before nodes are copied.
  static Result<ChunkSizes> declare(Program* program, const ChunkPlan& plan, int64_t chunks);

  int64_t chunks() const { return chunks_; }
  // How long the axis is in chunk c.
  Expr extent(const Along& a, int64_t c) const;
  // And in all of them together.
  Expr whole(const Along& a) const { return a.length(exprs_, plan_->world.domains[a.domain].size); }
  // Where chunk c begins along an axis of rows.
  Expr begin(const Along& a, int64_t c) const;
  // An expression of the whole as chunk c has it: its own symbols for those that the body defines.
  Expr own(Expr e, int64_t c) const;
  std::optional<StrId> own_symbol(StrId symbol, int64_t c) const;

 private:
  ChunkSizes(Program* program, const ChunkPlan& plan, int64_t chunks)
      : program_(program), exprs_(&program->graph.pool().exprs), plan_(&plan), chunks_(chunks) {}
  void declare_symbols();
  std::optional<int64_t> most_counted(NodeId n, int64_t c) const;
  Status derive_guards();
  void guard_rows();
  Result<Expr> share_of(Expr e, int64_t c) const;
  Expr rows(uint32_t domain, int64_t c) const;

  Program* program_;
  ExprPool* exprs_;
  const ChunkPlan* plan_;
  int64_t chunks_;
  std::unordered_map<StrId, std::vector<StrId>, IdHash> own_;  // by symbol of the whole
};

}  // namespace sg
