#include "libgraph/export/python_writer.h"

#include <algorithm>

#include "libgraph/base/joined.h"
#include "libgraph/export/python_layout.h"
#include "libgraph/export/python_runtime.h"
#include "libgraph/names.h"
#include "libgraph/op.h"

namespace sg::python {

namespace {

// A type in few words, for comments: "f32[128, u0 + 4]".
std::string short_type(const Pool& pool, TypeId id) {
  const Type& t = pool.types[id];
  if (t.kind != TypeKind::tensor) return std::string(name_of(t.kind));
  return std::string(dtype_name(t.dtype)) + "[" + joined(t.shape, ", ", [&](Expr e) { return pool.exprs.print(e); }) +
         "]";
}

// The comment on an input: its kind, type and parameter name.
std::string input_comment(const Pool& pool, const Graph& graph, const Input& input) {
  std::string out = std::string(name_of(input.kind)) + " " + short_type(pool, graph.value(input.value).type);
  if (input.fqn) out += " \"", append_comment(pool.strings[input.fqn], &out), out += '"';
  return out;
}

}  // namespace

std::string GraphWriter::fail(std::string message, std::string hint) {
  if (error_) return {};
  Location where;
  if (at_) where.path = place_of(program_, *graph_, at_);
  error_ = Error{ErrorKind::cannot_apply, std::move(message), std::move(where), std::move(hint)};
  return {};
}

Status GraphWriter::write(const Graph& graph, const GraphSymbols& symbols, const What& what, std::string* out) {
  graph_ = &graph, out_ = out;
  learn(graph);
  draws_ = &graph == &program_.graph ? plan_draws(graph) : DrawPlan();
  draw_names_.assign(draws_.count, {});
  is_laid_out_ = counted_layouts(graph);
  if (!draws_.places.empty()) module_.helpers.insert(kDraws);
  head(symbols, what);
  for (const SymbolSource& source : symbols.from_inputs) define(source);
  plan_conditions();
  check_inputs();
  check_conditions();
  for (NodeId n : graph.nodes()) {
    node(symbols, n);
    if (error_) return *error_;
  }
  at_ = NodeId();
  returns(what);
  if (error_) return *error_;
  return ok_status();
}

// Determines names for all values, their last uses, and which are used at all.
void GraphWriter::learn(const Graph& graph) {
  scope_ = Scope(&module_.scope);
  names_.assign(graph.value_id_limit(), {});
  last_use_.assign(graph.value_id_limit(), NodeId());
  is_wanted_.assign(graph.value_id_limit(), 0);
  symbol_names_.clear();
  defined_.clear();
  phase_ = Phase::forward, block_ = StrId(), source_ = SourceId(), in_block_ = false;
  for (const Input& input : graph.inputs()) names_[input.value.index] = scope_.claim(graph.name(input.value));
  for (NodeId n : graph.nodes()) {
    for (const Arg& top : graph.node(n).args)
      top.walk([&](const Arg& arg) {
        if (arg.is(ArgKind::value)) last_use_[arg.as_value().index] = n;
      });
    for (uint32_t i = 0; i < graph.node(n).result_count; ++i) {
      ValueId v = graph.node(n).result(i);
      is_wanted_[v.index] = graph.is_used(v);
      names_[v.index] = scope_.claim(graph.name(v));
    }
  }
  for (const Output& output : graph.outputs())
    if (output.value) last_use_[output.value.index] = NodeId();
}

void GraphWriter::head(const GraphSymbols& symbols, const What& what) {
  auto claim = [&](StrId name) { symbol_names_.emplace(name, scope_.claim(text(name))); };
  for (const SymbolSource& s : symbols.from_inputs) claim(s.symbol);
  for (NodeId n : graph_->nodes()) {
    auto found = symbols.from_node.find(n);
    if (found == symbols.from_node.end()) continue;
    for (const SymbolSource& s : found->second) {
      is_wanted_[s.value.index] = 1;
      // The producer often names the result like the symbol: then one name serves for both.
      if (s.dimension == SymbolSource::kScalar && identifier(s.value) == text(s.symbol))
        symbol_names_.emplace(s.symbol, identifier(s.value));
      else claim(s.symbol);
    }
  }
  for (StrId name : symbols.parameters) claim(name);
  if (!module_.fx) *out_ += "@torch.no_grad()\n";
  *out_ += "def " + what.name + "(";
  if (!module_.fx) parameters(symbols);
  *out_ += "):\n    \"\"\"" + what.doc + "\"\"\"\n";
  if (!module_.fx) return;
  *out_ += "    g = Builder()\n";
  for (const Input& input : graph_->inputs())
    line(identifier(input.value) + " = g.input(" + string_literal(identifier(input.value)) + ")",
         input_comment(graph_->pool(), *graph_, input));
  for (StrId name : symbols.parameters)
    line(symbol(name) + " = g.input(" + string_literal(symbol(name)) + ")", "a size");
}

void GraphWriter::parameters(const GraphSymbols& symbols) {
  if (graph_->inputs().empty() && symbols.parameters.empty()) return;
  *out_ += '\n';
  for (const Input& input : graph_->inputs())
    line(identifier(input.value) + ",", input_comment(graph_->pool(), *graph_, input));
  for (StrId name : symbols.parameters) line(symbol(name) + ",", "a size");
}

void GraphWriter::define(const SymbolSource& s) {
  defined_.insert(s.symbol);
  if (symbol(s.symbol) == identifier(s.value)) return;
  std::string code = identifier(s.value);
  if (s.dimension != SymbolSource::kScalar)
    code = module_.fx ? "g.size(" + code + ", " + std::to_string(s.dimension) + ")"
                      : code + ".size(" + std::to_string(s.dimension) + ")";
  if (s.offset != 0)
    code = "(" + code + (s.offset > 0 ? " - " : " + ") + std::to_string(s.offset > 0 ? s.offset : -s.offset) + ")";
  if (s.factor != 1) code += " // " + (s.factor < 0 ? "(" + std::to_string(s.factor) + ")" : std::to_string(s.factor));
  line(symbol(s.symbol) + " = " + code);
}

// Comments that say where the code comes from: one per block of a phase and module, then source lines.
void GraphWriter::context(const Node& node) {
  std::string comment;
  if (!in_block_ || node.phase != phase_ || node.module != block_) {
    phase_ = node.phase, block_ = node.module, source_ = SourceId(), in_block_ = true;
    comment = "\n    # " + std::string(name_of(phase_));
    if (block_) comment += ": ", append_comment(text(block_), &comment);
    comment += '\n';
  }
  if (node.source && node.source != source_) {
    const Source& source = graph_->pool().sources[node.source];
    comment += "    # ";
    if (source.file) append_comment(text(source.file), &comment);
    comment += ":" + std::to_string(source.line);
    if (source.function) comment += ' ', append_comment(text(source.function), &comment);
    comment += '\n';
  }
  source_ = node.source;
  *out_ += comment;
}

void GraphWriter::node(const GraphSymbols& symbols, NodeId n) {
  at_ = n;
  const Node& node = graph_->node(n);
  if (draws_random(*graph_, n)) module_.draws_random = true;
  std::string call = call_of(n);
  if (error_) return;
  context(node);
  draws_before(n);
  statement(assigned(n, std::move(call)), dead_after(n), types_of(node));
  if (auto found = symbols.from_node.find(n); found != symbols.from_node.end()) {
    for (const SymbolSource& source : found->second) define(source);
    check_conditions();
  }
  for (uint32_t i = 0; i < graph_->node(n).result_count; ++i) lay_out(graph_->node(n).result(i));
}

// Restores the strides of the graph where a later view relies on them: an eager kernel may choose others.
void GraphWriter::lay_out(ValueId v) {
  if (!is_laid_out_[v.index] || !is_wanted_[v.index]) return;
  const std::vector<Expr>& wanted = graph_->type(v).stride;
  std::vector<StrId> symbols;
  for (Expr e : wanted) graph_->pool().exprs.collect_symbols(e, &symbols);
  if (!std::all_of(symbols.begin(), symbols.end(), [&](StrId s) { return symbol_names_.contains(s); })) return;
  module_.helpers.insert(kLayout);
  const std::string strides = joined(wanted, ", ", [this](Expr e) { return expression(e); });
  const std::string& name = identifier(v);
  line(name + " = " + (module_.fx ? "g.call(None, laid_out, " : "laid_out(") + name + ", (" + strides + "))");
}

std::string GraphWriter::types_of(const Node& node) const {
  constexpr uint32_t kTypesShown = 4;
  std::string out;
  bool any = false;
  for (uint32_t i = 0; i < std::min(node.result_count, kTypesShown); ++i) {
    any |= graph_->type(node.result(i)).kind != TypeKind::unknown;
    out += (i ? ", " : "") + short_type(graph_->pool(), graph_->value(node.result(i)).type);
  }
  if (node.result_count > kTypesShown) out += ", ...";
  return any ? out : std::string();
}

void GraphWriter::returns(const What& what) {
  const auto& outputs = graph_->outputs();
  auto value = [&](const Output& o) { return o.value ? identifier(o.value) : std::string("None"); };
  *out_ += '\n';
  std::string begin = module_.fx ? "return g.finish(" : "return ", end = module_.fx ? ")" : "";
  if (what.is_flex && outputs.size() == 1) return line(begin + value(outputs[0]) + end);
  if (outputs.empty()) return line(begin + "()" + end);
  line(begin + (what.is_flex ? "[" : "("));
  for (const Output& o : outputs) {
    std::string comment(name_of(o.kind));
    if (o.of) comment += " of " + identifier(o.of);
    append_line(8, value(o) + ",", o.kind == OutputKind::other ? "" : comment, out_);
  }
  line((what.is_flex ? "]" : ")") + end);
}

std::string GraphWriter::strides_function(const std::string& name) {
  const std::string given = "inputs";  // its parameter
  const Graph& graph = program_.graph;
  Pool& pool = graph.pool();
  graph_ = &graph;
  std::string rows, code;
  std::vector<StrId> used;
  out_ = &rows;
  symbol_names_.clear();
  scope_ = Scope(&module_.scope);
  scope_.claim(given);
  for (const SymbolSource& s : symbols_.main().from_inputs)
    symbol_names_.emplace(s.symbol, scope_.claim(text(s.symbol)));
  for (const Input& input : graph.inputs()) {
    const Type& type = graph.type(input.value);
    if (type.kind != TypeKind::tensor || type.stride == pool.contiguous_strides(type.shape)) continue;
    std::vector<StrId> symbols;
    std::string strides;
    for (Expr e : type.stride) {
      pool.exprs.collect_symbols(e, &symbols);
      strides += expression(e) + ",", strides += kBreak;
    }
    bool is_known = std::all_of(symbols.begin(), symbols.end(), [&](StrId s) { return symbol_names_.contains(s); });
    if (!is_known) continue;
    if (!strides.empty()) strides.pop_back();
    append_line(8, string_literal(graph.name(input.value)) + ": (" + strides + "),", {}, &rows);
    used.insert(used.end(), symbols.begin(), symbols.end());
  }
  if (rows.empty()) return {};
  code = "def " + name + "(" + given + "):\n    \"\"\"The strides of the inputs that do not lie contiguously.\"\"\"\n";
  out_ = &code;
  for (const SymbolSource& s : symbols_.main().from_inputs) {
    if (std::find(used.begin(), used.end(), s.symbol) == used.end()) continue;
    names_.resize(graph.value_id_limit());
    names_[s.value.index] = given + "[" + string_literal(graph.name(s.value)) + "]";
    define(s);
  }
  return code + "    return {\n" + rows + "    }\n";
}

}  // namespace sg::python
