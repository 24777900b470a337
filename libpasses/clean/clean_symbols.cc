// Removes symbols that nothing in a program mentions, and the guards that mention only those.
#include "libpasses/clean/clean_parts.h"
#include "libpasses/symbol_uses.h"

namespace sg::clean_parts {

size_t remove_symbols(Program* program, Tally* tally) {
  if (program->symbols.empty()) return 0;
  const SymbolUses uses(*program);
  std::vector<bool> kept(program->guards.size(), false);
  std::unordered_set<StrId, IdHash> spoken = uses.all();
  const ExprPool& exprs = program->graph.pool().exprs;
  // A guard ties the symbols it mentions together: if one is used, all are.
  for (bool grows = true; grows;) {
    grows = false;
    for (size_t i = 0; i < kept.size(); ++i) {
      std::vector<StrId> mentioned;
      exprs.collect_symbols(program->guards[i].left, &mentioned);
      exprs.collect_symbols(program->guards[i].right, &mentioned);
      bool matters = mentioned.empty();
      for (StrId s : mentioned) matters |= spoken.contains(s);
      if (kept[i] || !matters) continue;
      kept[i] = grows = true;
      spoken.insert(mentioned.begin(), mentioned.end());
    }
  }
  SymbolList symbols;
  for (const Symbol& s : program->symbols)
    if (spoken.contains(s.name)) symbols.push_back(s);
    else tally->add(Kind::symbol, "symbol " + program->graph.pool().strings.str(s.name) + ": it is not used");
  const size_t removed = program->symbols.size() - symbols.size();
  if (removed == 0) return 0;
  program->symbols = std::move(symbols);
  std::vector<Guard> guards;
  for (size_t i = 0; i < kept.size(); ++i)
    if (kept[i]) guards.push_back(program->guards[i]);
  program->guards = std::move(guards);
  return removed;
}

}  // namespace sg::clean_parts
