// The selectors of sg-remat: which forward nodes --save and --recompute name. Internal to sg-remat.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/expr/assume.h"
#include "libgraph/expr/sizes.h"
#include "libgraph/modules/module_pattern.h"

namespace sg {

// The items of --save or --recompute: PATTERN, PATTERN:OP or op=OP, each optionally followed by ",size>=SIZE" or
// ",size<SIZE" (total size of a node's results), which may also stand alone.
class ValueSelectors {
 public:
  // `option`: for messages.
  static Result<ValueSelectors> parse(std::string_view option, const std::vector<std::string>& items);
  bool matches(const Graph& graph, NodeId n, const SizeValues& sizes) const;

  // A selector that matches no node of the job is an error (cannot_apply). `values`: by program.
  Status check_used(const Job& job, const std::vector<SymbolValues>& values) const;

 private:
  struct Item {
    std::string text, op;                 // no op = any
    std::optional<ModulePattern> module;  // none = any
    std::optional<int64_t> least_bytes, below_bytes;
  };
  static Result<Item> parse_item(std::string_view option, const std::string& text);
  static bool matches(const Item& item, const Graph& graph, NodeId n, const SizeValues& sizes);
  std::string option_;
  std::vector<Item> items_;
};

// Selectors besides the policy; if both match, the value is saved.
struct RematSelectors {
  ValueSelectors save, recompute;
};

}  // namespace sg
