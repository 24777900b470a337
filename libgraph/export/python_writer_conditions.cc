// The conditions of a graph in its code: sizes of inputs, ranges of symbols and guards. Without them a module would
// compute something for sizes and data that the step was not captured for. (A torch.fx graph has no place for them.)
#include <algorithm>

#include "libgraph/export/python_runtime.h"
#include "libgraph/export/python_writer.h"
#include "libgraph/expr/guard_text.h"

namespace sg::python {

// Guards, and ranges as such. A size or a count of at least 0 says nothing.
void GraphWriter::plan_conditions() {
  unchecked_.clear();
  if (module_.fx || graph_ != &program_.graph) return;
  ExprPool& exprs = graph_->pool().exprs;
  const auto plan = [&](const Guard& guard) {
    if (guard.relation == Relation::ge && guard.right == guard.left) return;
    std::vector<StrId> symbols;
    exprs.collect_symbols(guard.left, &symbols);
    exprs.collect_symbols(guard.right, &symbols);
    std::ranges::sort(symbols, {}, [](StrId s) { return s.index; });
    symbols.erase(std::unique(symbols.begin(), symbols.end()), symbols.end());
    unchecked_.push_back({guard, std::move(symbols)});
  };
  for (const Symbol& s : program_.symbols) {
    if (s.min && (*s.min > 0 || s.kind == SymbolKind::data))
      plan({Relation::ge, exprs.symbol(text(s.name)), exprs.constant(*s.min), {}});
    if (s.max) plan({Relation::le, exprs.symbol(text(s.name)), exprs.constant(*s.max), {}});
  }
  for (const Guard& guard : program_.guards) plan(guard);
}

// Of what the user gives with each step; parameters and buffers belong to the model.
void GraphWriter::check_inputs() {
  if (module_.fx || graph_ != &program_.graph) return;
  for (const Input& input : graph_->inputs()) {
    const Type& type = graph_->type(input.value);
    if (input.kind != InputKind::user || type.kind != TypeKind::tensor || !graph_->is_used(input.value)) continue;
    std::string sizes;
    for (Expr size : type.shape) {
      std::vector<StrId> symbols;
      graph_->pool().exprs.collect_symbols(size, &symbols);
      const bool is_known = std::ranges::all_of(symbols, [&](StrId s) { return defined_.contains(s); });
      if (!sizes.empty()) sizes += kBreak;
      sizes += (is_known ? expression(size) : "None") + ",";
    }
    if (type.shape.size() > 1) sizes.pop_back();
    module_.helpers.insert(kConditions);
    const StrId name = input.fqn ? input.fqn : graph_->value(input.value).name;
    line("fits(" + string_literal(text(name)) + "," + kBreak + identifier(input.value) + "," + kBreak + "(" + sizes +
         "))");
  }
}

// " at model.py:7": the line whose data decides, in a node; empty for sizes of inputs.
std::string GraphWriter::place() const {
  const SourceId source = at_ ? graph_->node(at_).source : SourceId();
  if (!source) return {};
  const Source& line = graph_->pool().sources[source];
  std::string out = " at ";
  if (line.file) append_comment(text(line.file), &out);
  return out + ":" + std::to_string(line.line);
}

// Those whose symbols are all known by now.
void GraphWriter::check_conditions() {
  std::erase_if(unchecked_, [&](const Condition& checked) {
    const auto& [guard, symbols] = checked;
    if (!std::ranges::all_of(symbols, [&](StrId s) { return defined_.contains(s); })) return false;
    const std::string condition =
        expression(guard.left) + " " + std::string(relation_sign(guard.relation)) + " " + expression(guard.right);
    std::string code = "needs(" + condition + "," + kBreak + string_literal(condition + place());
    for (StrId s : symbols) code += "," + std::string(1, kBreak) + symbol(s) + "=" + symbol(s);
    module_.helpers.insert(kConditions);
    line(code + ")");
    return true;
  });
}

}  // namespace sg::python
