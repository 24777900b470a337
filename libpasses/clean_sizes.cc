#include "libpasses/clean_parts.h"
#include "libpasses/size_plumbing.h"

namespace sg::clean_parts {

size_t fold_sizes(Scope& scope) {
  return replace_known_sizes(&scope.graph, [&](NodeId n, ValueId size) {
    scope.tally.add(Kind::size, scope.graph, n, "%" + std::string(scope.graph.name(size)) + " is a known number");
  });
}

}  // namespace sg::clean_parts
