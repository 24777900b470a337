// The sizes of chunks: cuts of rows, symbols per chunk, and the guards that hold for them.
#pragma once

#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "libpasses/chunk/chunk_plan.h"

namespace sg {

class ChunkSizes {
 public:
  // Declares one symbol per chunk for each symbol that a body node defines, with guards derived from the original's,
  // which are dropped; rows from inputs also get a guard that every chunk has a row. Fails if a guard cannot be
  // derived. Call it before copying nodes.
  static Result<ChunkSizes> declare(Program* program, const ChunkPlan& plan, int64_t chunks);

  int64_t chunks() const { return chunks_; }
  // Length of the axis in chunk c.
  Expr extent(const Along& a, int64_t c) const;
  // Length of the axis over all chunks.
  Expr whole(const Along& a) const { return a.length(exprs_, plan_->world.domains[a.domain].size); }
  // Where chunk c begins along an axis of rows.
  Expr begin(const Along& a, int64_t c) const;
  // An expression of the whole for chunk c: symbols that the body defines become the chunk's own.
  Expr own(Expr e, int64_t c) const;
  std::optional<StrId> own_symbol(StrId symbol, int64_t c) const;

 private:
  ChunkSizes(Program* program, const ChunkPlan& plan, int64_t chunks)
      : program_(program), exprs_(&program->graph.pool().exprs), plan_(&plan), chunks_(chunks) {}
  void declare_symbols();
  std::optional<int64_t> most_counted(NodeId n, int64_t c) const;
  bool is_alike(Expr e) const;
  Status derive_guards();
  void guard_rows();
  Result<Expr> share_of(Expr e, int64_t c) const;
  Expr rows(uint32_t domain, int64_t c) const;

  Program* program_;
  ExprPool* exprs_;
  const ChunkPlan* plan_;
  int64_t chunks_;
  std::unordered_map<StrId, std::vector<StrId>, IdHash> own_;  // by original symbol
  std::unordered_set<StrId, IdHash> alike_;                    // originals that are as large in every chunk
};

}  // namespace sg
