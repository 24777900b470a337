// Symbols and guards of one program against another's; private to the diff.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "libgraph/diff/diff.h"
#include "libgraph/diff/diff_nodes.h"
#include "libgraph/diff/diff_terms.h"

namespace sg {

class SymbolDiffer {
 public:
  // `numbers`: of each side, the symbols that are numbers on the other. Items are added to `out`, which has its
  // programs.
  SymbolDiffer(const Job& a, const Job& b, const DiffOptions& options, const SymbolNumbers (&numbers)[2],
               DiffTerms* terms, DiffPrinters* print, ProgramDiff* out)
      : a_(a), b_(b), options_(options), numbers_(numbers), terms_(*terms), print_(*print), out_(*out) {}

  void run();
  // Items that follow from what became of the nodes which define the symbols. REQUIRES: the main graph's edits are
  // explained
  void explain();

 private:
  struct About {  // what an item is about
    size_t item;
    int side;
    std::vector<StrId> symbols;
  };
  void symbols();
  void guards();
  std::vector<Difference> symbol(const Symbol& s, const Symbol& t);
  void add(ItemEdit item, int side, std::vector<StrId> symbols);
  std::vector<StrId> symbols_of(int side, const Guard& g) const;
  uint32_t told_symbol(int side, StrId symbol) const;
  uint32_t told_guard(int side, const Guard& g) const;
  std::set<const Guard*> same_by_number(const std::vector<const Guard*>& gone, const std::vector<const Guard*>& made);

  const Job& a_;
  const Job& b_;
  const DiffOptions& options_;
  const SymbolNumbers (&numbers_)[2];
  DiffTerms& terms_;
  DiffPrinters& print_;
  ProgramDiff& out_;
  std::vector<About> about_;
};

}  // namespace sg
