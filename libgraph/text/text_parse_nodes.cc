#include <cassert>
#include <iterator>

#include "libgraph/base/nearest.h"
#include "libgraph/op.h"
#include "libgraph/text/text_parser.h"

namespace sg::text {

bool TextParser::graph_content(std::string_view keyword) {
  const char* at = lexer_.cursor() - keyword.size();
  if (keyword == "at") return at_line();
  if (auto phase = enum_named<Phase>(keyword)) return block_line(*phase);
  bool may_be_input = section_ == Section::inputs;
  if (keyword == "symbol" || keyword == "guard") {
    if (!may_be_input)
      return lexer_.error_at(at, "parse-order", "`" + std::string(keyword) + "` after the first node",
                             "symbols, guards and inputs stand before the nodes");
    return keyword == "symbol" ? symbol_line() : guard_line();
  }
  if (auto kind = enum_named<InputKind>(keyword)) {
    if (may_be_input) return input_line(*kind);
    std::string hint = "symbols, guards and inputs stand before the nodes";
    if (*kind == InputKind::opaque) hint = "an opaque output is written: output opaque %name";
    return lexer_.error_at(at, "parse-order", "an input after the first node", std::move(hint));
  }
  if (auto kind = enum_named<OutputKind>(keyword)) return output_line(*kind);
  return unknown_keyword(at, keyword);
}

bool TextParser::unknown_keyword(const char* at, std::string_view keyword) {
  static constexpr std::string_view kWords[] = {
      "symbol",   "guard",     "input", "param",  "buffer", "state", "tangent", "constant", "opaque", "forward",
      "backward", "optimizer", "at",    "output", "loss",   "grad",  "update",  "none",     "graph"};
  lexer_.back_to(at);
  std::string hint = nearest_hint(keyword, kWords);
  if (lexer_.next_is("sg ") || keyword == "group" || keyword == "mesh" || keyword == "device" || keyword == "from")
    hint = "header lines stand before the first `graph`";
  if (hint.empty()) hint = "a node begins with `%`, as in: %y = aten.relu(%x) : f32[4]";
  return lexer_.expected("a node, an input, an output or a block", std::move(hint));
}

bool TextParser::block_line(Phase phase) {
  if (lexer_.at_end()) return lexer_.expected("a module name", "`-` stands for no module");
  phase_ = phase;
  source_ = SourceId();
  if (!word("a module name", &module_)) return false;
  return lexer_.at_end() || lexer_.expected("the end of the line", "a name with blanks is written in quotes");
}

bool TextParser::at_line() { return source(&source_); }

bool TextParser::source(SourceId* out) {
  *out = SourceId();
  if (lexer_.take('-')) return true;
  Source s;
  if (!lexer_.take('?')) {
    if (lexer_.peek() != '"')
      return lexer_.expected("a file in double quotes", R"(it is written as in: at "model.py":12 forward)");
    if (!string(&s.file)) return false;
  }
  if (!lexer_.expect(':', "and the line after the file") || !lexer_.natural("a line number", &s.line)) return false;
  if (!lexer_.at_end() && !word("a function name", &s.function)) return false;
  *out = pool_.sources.intern(s);
  return true;
}

// --- names ---

bool TextParser::value_name(StrId* name, const char** at) {
  lexer_.peek();
  *at = lexer_.cursor();
  if (lexer_.peek() != '%') {
    const std::string_view bare = lexer_.peek_word();
    return lexer_.expected("`%` before a name", bare.empty() ? "" : "write it as %" + std::string(bare));
  }
  lexer_.take('%');
  std::string_view s;
  if (lexer_.cursor() != lexer_.end() && (lexer_.cursor()[0] == ' ' || lexer_.cursor()[0] == '\t'))
    return lexer_.error("parse-name", "a blank after `%`", "the name follows at once, as in %x");
  if (!lexer_.text<is_word_char>("a name after `%`", &s)) return false;
  if (s.empty()) return lexer_.error_at(*at, "parse-name", "a name may not be empty");
  *name = pool_.str(s);
  return true;
}

TextParser::NameSlot* TextParser::slot(StrId name) {
  if (name.index >= slots_.size() || slots_[name.index].graph != graph_number_) return nullptr;
  return &slots_[name.index];
}

bool TextParser::define(StrId name, const char* at, NameSlot new_slot) {
  if (NameSlot* old = slot(name)) {
    if (old->is_broken && old->line == lexer_.line()) return true;
    return lexer_.error_at(at, "parse-twice",
                           "%" + pool_.strings.str(name) + " was defined before, in line " + std::to_string(old->line),
                           "names are unique within a graph");
  }
  if (slots_.size() <= name.index) slots_.resize(std::max<size_t>(pool_.strings.size(), slots_.size() * 2));
  new_slot.graph = graph_number_;
  new_slot.line = lexer_.line();
  slots_[name.index] = new_slot;
  return true;
}

bool TextParser::undefined_value(StrId name, const char* at, uint32_t line) {
  std::string_view text = pool_.strings[name];
  std::string hint;
  if (lexer_.error_count() < 20) {
    Nearest nearest(text);
    for (uint32_t i = 0; i < slots_.size(); ++i)
      if (slots_[i].graph == graph_number_ && StrId(i) != name) nearest.offer(pool_.strings[StrId(i)]);
    hint = nearest.hint("%");
  }
  if (hint.empty()) hint = "a value is defined by an input or a node above the line that uses it";
  return lexer_.error_on(line, at, "parse-name", "there is no %" + std::string(text), std::move(hint));
}

bool TextParser::value_use(ValueId* out) {
  StrId name;
  const char* at;
  if (!value_name(&name, &at)) return false;
  NameSlot* s = slot(name);
  if (!s) return undefined_value(name, at, lexer_.line());
  if (!s->value && !s->is_broken)
    return lexer_.error_at(at, "parse-name", "%" + pool_.strings.str(name) + " is a node without a result of that name",
                           "use the name of one of its results");
  *out = s->value;
  return true;
}

// --- inputs and outputs ---

bool TextParser::input_line(InputKind kind) {
  StrId name;
  const char* at;
  if (!value_name(&name, &at)) return false;
  TypeId type_id = Pool::kUnknownType;
  Input in;
  in.kind = kind;
  auto rest = [&]() -> bool {
    if (lexer_.take(':') && !type(&type_id, 0)) return false;
    if (lexer_.peek() == '"' && !string(&in.fqn)) return false;
    std::vector<std::string_view> seen;
    while (!lexer_.at_end()) {
      const char* word_at = lexer_.cursor();
      std::string_view w = lexer_.word();
      if (!once(w, word_at, &seen)) return false;
      bool ok = true;
      if (w == "of") ok = string(&in.of);
      else if (w == "attribute") ok = word("the name of the attribute", &in.attribute);
      else if (w == "shard") ok = sharding(&in.sharding);
      else if (w == "data") ok = text<is_tag_char>("a digest", &in.digest);
      else if (w == "extra") ok = key_values(&in.extra);
      else {
        static constexpr std::string_view kWords[] = {"of", "attribute", "shard", "data", "extra"};
        lexer_.back_to(word_at);
        ok = lexer_.expected("the end of the input or a keyword", choices(w, kWords));
      }
      if (!ok) return false;
    }
    return true;
  };
  bool ok = rest();
  if (!define(name, at, {0, 0, ValueId(), NodeId(), !ok}) || !ok) return false;
  slots_[name.index].value = graph_->add_input(pool_.strings[name], type_id, std::move(in));
  return true;
}

bool TextParser::output_line(OutputKind kind) {
  section_ = Section::outputs;
  Output output;
  output.kind = kind;
  if (kind == OutputKind::other && skip_word("opaque")) output.kind = OutputKind::opaque;
  if (lexer_.peek() == '%') {
    if (!value_use(&output.value)) return false;
  } else if (kind != OutputKind::none && !skip_word("none")) {
    return lexer_.expected("a value, as in %y, or `none`");
  }
  std::vector<std::string_view> seen;
  while (!lexer_.at_end()) {
    const char* at = lexer_.cursor();
    std::string_view w = lexer_.word();
    if (w != "of" && !once(w, at, &seen)) return false;
    bool ok = true;
    if (w == "of") ok = output_owner(&output);
    else if (w == "attribute") ok = word("the name of the attribute", &output.attribute);
    else if (w == "shard") ok = sharding(&output.sharding);
    else if (w == "extra") ok = key_values(&output.extra);
    else {
      static constexpr std::string_view kWords[] = {"of", "attribute", "shard", "extra"};
      lexer_.back_to(at);
      ok = lexer_.expected("the end of the output or a keyword", choices(w, kWords));
    }
    if (!ok) return false;
  }
  graph_->add_output(std::move(output));
  return true;
}

// `of %input`, or `of "name"` for anything that is no input; a file may contain both.
bool TextParser::output_owner(Output* output) {
  const char* at = (lexer_.peek(), lexer_.cursor());
  bool is_name = at != lexer_.end() && *at == '"';
  if (is_name ? bool(output->of_name) : bool(output->of))
    return lexer_.error_at(at, "parse-twice", "`of` comes twice in this line");
  if (is_name) return string(&output->of_name);
  if (!value_use(&output->of)) return false;
  if (output->of && graph_->value(output->of).def)
    return lexer_.error_at(at, "parse-name", "this is the result of a node, not an input",
                           "`of` names the input that a gradient or an update belongs to");
  return true;
}

// --- nodes ---

bool TextParser::node_line() {
  node_.names.clear(), node_.types.clear(), node_.args.clear();
  node_.node = Node();
  if (node_.has_meta) node_.meta = NodeMeta(), node_.has_meta = false;
  node_.label = node_.forward = StrId();
  node_.mentions_nested = false;
  if (section_ == Section::outputs)
    return lexer_.error("parse-order", "a node after the outputs", "outputs stand at the end of their graph");
  section_ = Section::nodes;
  bool ok = node_results(&node_) && node_op(&node_) && arguments(&node_) && node_types(&node_) && metadata(&node_) &&
            finish_node(&node_);
  if (!ok) break_names(node_);
  return ok;
}

bool TextParser::node_results(PendingNode* node) {
  for (;;) {
    ResultName r;
    if (!value_name(&r.name, &r.at)) return false;
    node->names.push_back(r);
    if (!lexer_.take(',')) break;
    node->node.is_tuple = true;
    if (lexer_.peek() == '=') break;
  }
  return lexer_.expect('=', "after the names of the results");
}

bool TextParser::node_op(PendingNode* node) {
  bool quoted;
  std::string_view name;
  const char* at = (lexer_.peek(), lexer_.cursor());
  if (!lexer_.text<is_word_char>("an op, as in aten.mm", &name, &quoted)) return false;
  if (name.empty() || (!quoted && is_digit(name[0])))
    return lexer_.error_at(at, "parse-op", "an op has a name", "write it as in: %y = aten.mm(%a, %b)");
  if (lexer_.peek() != '(') return lexer_.expected("`(` after the op");
  if (quoted) {
    node->node.op = pool_.op(name);
    return true;
  }
  const OpId* op = ops_.find(name);
  if (!op) {
    std::string full(name);
    if (gets_default_overload(name)) full += ".default";
    op = ops_.try_emplace(name, pool_.op(full)).first;
    if (!pool_.ops[*op].info && full.size() != name.size()) {  // probably a missing overload
      for (const OpInfo& info : all_ops()) {
        if (!info.name.starts_with(name) || info.name[name.size()] != '.') continue;
        lexer_.warning_at(at, "parse-op", "no op is called " + full, "did you mean `" + std::string(info.name) + "`?");
        break;
      }
    }
  }
  node->node.op = *op;
  return true;
}

// Without a `:` types are inferred: one unknown result per name, none for an op that never has results.
bool TextParser::node_types(PendingNode* node) {
  auto& types = node->types;
  if (!lexer_.take(':')) {
    const OpInfo* info = pool_.ops[node->node.op].info;
    bool has_none = info && info->results.empty() && !info->returns_list && !info->has(kHigherOrder);
    if (!has_none || node->names.size() > 1) types.assign(node->names.size(), Pool::kUnknownType);
    return true;
  }
  const char* at = (lexer_.peek(), lexer_.cursor());
  if (lexer_.take('(')) {
    if (!lexer_.expect(')', "for a node without results")) return false;
    if (node->names.size() > 1)
      return lexer_.error_at(
          at, "parse-results",
          "`()` says that there is no result, but there are " + std::to_string(node->names.size()) + " names",
          "a node without results has one name, its label");
    return true;
  }
  do {
    types.emplace_back();
    if (!type(&types.back(), 0)) return false;
  } while (lexer_.take(','));
  if (types.size() == node->names.size()) return true;
  auto count = [](size_t n, std::string_view what) {
    return std::to_string(n) + " " + std::string(what) + (n == 1 ? "" : "s");
  };
  return lexer_.error_at(at, "parse-results",
                         count(node->names.size(), "result name") + ", but " + count(types.size(), "type"),
                         "each result has one name and one type");
}

bool TextParser::finish_node(PendingNode* node) {
  Node& made = node->node;
  made.phase = phase_, made.module = module_, made.source = source_;
  if (node->has_meta) made.meta = pool_.metas.intern(std::move(node->meta));
  made.args.assign(std::move_iterator(node->args.begin()), std::move_iterator(node->args.end()));  // exact capacity
  result_names_.clear();
  for (const ResultName& r : node->names) {
    if (!define(r.name, r.at, {})) return false;
    result_names_.push_back(r.name);
  }
  bool has_results = !node->types.empty();
  if (!has_results) made.label = result_names_[0], result_names_.clear();
  NodeId n = graph_->append_exact(std::move(made), result_names_, node->types);
  if (n.is_none())  // after an error in a header, names may belong to the previous graph
    return lexer_.error_at(node->names[0].at, "parse-names", "a name of this node is taken",
                           "fix the errors above first");
  for (uint32_t i = 0; i < node->names.size(); ++i) {
    NameSlot& s = slots_[node->names[i].name.index];
    s.node = n;
    if (has_results) s.value = graph_->node(n).result(i);
  }
  if (node->label && node->label != graph_->node(n).label) {
    if (NameSlot* s = slot(node->label); s && s->node == n && has_results) {
      graph_->relabel(n, pool_.strings[node->label]);  // the name of another of its results
    } else {
      if (!define(node->label, node->label_at, {0, 0, ValueId(), n, false})) return false;
      graph_->relabel(n, pool_.strings[node->label]);
    }
  }
  if (node->forward) links_.push_back({n, node->forward, lexer_.line(), node->forward_at});
  if (node->mentions_nested) nested_mentions_.push_back({graph_, n});
  return true;
}

// Defines the results of a broken line, so that their uses are not reported as errors.
void TextParser::break_names(const PendingNode& node) {
  for (const ResultName& r : node.names) {
    if (slot(r.name)) continue;
    define(r.name, r.at, {0, 0, ValueId(), NodeId(), true});
  }
}

}  // namespace sg::text
