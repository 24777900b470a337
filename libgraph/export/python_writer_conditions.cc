// The conditions of a graph in its code: sizes of inputs, ranges of symbols and guards. Without them a module would compute
// something for sizes and data that the step was not captured for. (A torch.fx graph has no place for them.)
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
  for (const Symbol& s : program_.symbols) {
    if (s.min && (*s.min > 0 || s.kind == SymbolKind::data))
      unchecked_.push_back({Relation::ge, exprs.symbol(text(s.name)), exprs.constant(*s.min), {}});
    if (s.max) unchecked_.push_back({Relation::le, exprs.symbol(text(s.name)), exprs.constant(*s.max), {}});
  }
  unchecked_.insert(unchecked_.end(), program_.guards.begin(), program_.guards.end());
  std::erase_if(unchecked_, [](const Guard& g) { return g.relation == Relation::ge && g.right == g.left; });
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
  std::erase_if(unchecked_, [&](const Guard& guard) {
    std::vector<StrId> symbols;
    graph_->pool().exprs.collect_symbols(guard.left, &symbols);
    graph_->pool().exprs.collect_symbols(guard.right, &symbols);
    if (!std::ranges::all_of(symbols, [&](StrId s) { return defined_.contains(s); })) return false;
    std::ranges::sort(symbols, {}, [](StrId s) { return s.index; });
    symbols.erase(std::unique(symbols.begin(), symbols.end()), symbols.end());
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
