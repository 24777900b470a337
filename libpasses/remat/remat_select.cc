#include "libpasses/remat/remat_select.h"

#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/op_pattern.h"

namespace sg {
namespace {

// Bytes of all results; none if a size has no value.
std::optional<int64_t> given_bytes(const Graph& graph, NodeId n, const SizeValues& sizes) {
  int64_t sum = 0;
  for (uint32_t i = 0; i < graph.node(n).result_count; ++i) {
    const Type& type = graph.type(graph.node(n).result(i));
    if (type.kind != TypeKind::tensor) continue;
    const std::optional<int64_t> bytes = storage_bytes(graph.pool(), type, sizes);
    if (!bytes || __builtin_add_overflow(sum, *bytes, &sum)) return std::nullopt;
  }
  return sum;
}

}  // namespace

Result<ValueSelectors> ValueSelectors::parse(std::string_view option, const std::vector<std::string>& items) {
  ValueSelectors out;
  out.option_ = option;
  for (const std::string& text : items) {
    SG_ASSIGN(Item item, parse_item(option, text));
    out.items_.push_back(std::move(item));
  }
  return out;
}

Result<ValueSelectors::Item> ValueSelectors::parse_item(std::string_view option, const std::string& text) {
  Item item{text, {}, {}, {}, {}};
  const Error unreadable =
      option_error(option, " cannot read '" + text + "'",
                   "write PATTERN, PATTERN:OP or op=OP, for example 'layers.*.attention:mm'; with or without it "
                   "size>=SIZE or size<SIZE, as 'op=mm,size>=1MiB'");
  const auto is_size = [&](size_t at) {
    const std::string_view rest = std::string_view(text).substr(at);
    return rest.starts_with("size>=") || rest.starts_with("size<");
  };
  std::string what = text;
  const size_t last = is_size(0) ? 0 : text.rfind(',') + 1;  // npos + 1 = 0
  if (is_size(last)) {
    const bool is_least = text[last + 4] == '>';
    const Result<int64_t> bytes = parse_bytes(std::string_view(text).substr(last + (is_least ? 6 : 5)));
    if (!bytes.ok()) return unreadable;
    (is_least ? item.least_bytes : item.below_bytes) = bytes.value();
    if (last == 0) return item;
    what = text.substr(0, last - 1);
  }
  std::string module;
  const size_t colon = what.rfind(':');
  if (what.starts_with("op=")) item.op = what.substr(3);
  else if (colon != std::string::npos) module = what.substr(0, colon), item.op = what.substr(colon + 1);
  else module = what;
  if ((module.empty() && item.op.empty()) || (colon != std::string::npos && item.op.empty())) return unreadable;
  if (!module.empty()) {
    SG_ASSIGN(item.module, ModulePattern::parse(module));
  }
  return item;
}

bool ValueSelectors::matches(const Item& item, const Graph& graph, NodeId n, const SizeValues& sizes) {
  if (!item.op.empty() && !op_is_called(graph.op_name(n), item.op)) return false;
  const StrId module = graph.node(n).module;
  if (item.module && !(module && item.module->matches(graph.pool().strings[module]))) return false;
  if (!item.least_bytes && !item.below_bytes) return true;
  const std::optional<int64_t> bytes = given_bytes(graph, n, sizes);
  return bytes && *bytes >= item.least_bytes.value_or(0) && *bytes < item.below_bytes.value_or(INT64_MAX);
}

bool ValueSelectors::matches(const Graph& graph, NodeId n, const SizeValues& sizes) const {
  return std::ranges::any_of(items_, [&](const Item& item) { return matches(item, graph, n, sizes); });
}

Status ValueSelectors::check_used(const Job& job, const std::vector<SymbolValues>& values) const {
  for (const Item& item : items_) {
    bool is_used = false;
    for (size_t i = 0; i < job.programs.size(); ++i) {
      const Graph& graph = job.programs[i]->graph;
      const SizeValues sizes = [&](StrId symbol) { return values[i].value(symbol); };
      for (NodeId n : graph.nodes()) is_used |= graph.node(n).phase == Phase::forward && matches(item, graph, n, sizes);
    }
    if (!is_used)
      return Error{ErrorKind::cannot_apply,
                   "--" + option_ + " " + item.text + " matches no forward node",
                   {},
                   "sg-stat --by module lists the modules, --by op the ops"};
  }
  return ok_status();
}

}  // namespace sg
