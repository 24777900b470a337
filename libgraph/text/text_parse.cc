#include <algorithm>

#include "libgraph/base/joined.h"
#include "libgraph/base/nearest.h"
#include "libgraph/binary/binary.h"
#include "libgraph/text/text.h"
#include "libgraph/text/text_parser.h"

namespace sg::text {

Job TextParser::parse(Diagnostics* diagnostics) {
  device_ = pool_.str("cpu");
  bool has_version = lexer_.next_line() && version_line();
  if (lexer_.line() == 0)
    lexer_.error_on(1, lexer_.cursor(), "parse", "this text is empty", "a graph begins with: sg 1.0");
  while (has_version && !lexer_.gave_up() && lexer_.next_line()) line();
  if (graph_) end_graph();
  if (program_) end_program();
  lexer_.report(diagnostics);
  return std::move(job_);
}

std::string TextParser::choices(std::string_view word, std::span<const std::string_view> words) {
  std::string near = nearest_hint(word, words);
  return near.empty() ? "one of: " + joined(words, ", ") : near;
}

bool TextParser::skip_word(std::string_view word) {
  if (lexer_.peek_word() != word) return false;
  lexer_.word();
  return true;
}

bool TextParser::once(std::string_view word, const char* at, std::vector<std::string_view>* seen) {
  if (std::find(seen->begin(), seen->end(), word) != seen->end())
    return lexer_.error_at(at, "parse-twice", "`" + std::string(word) + "` comes twice in this line");
  seen->push_back(word);
  return true;
}

// --- header ---

bool TextParser::version_line() {
  const char* at = lexer_.cursor();
  if (!skip_word("sg"))
    return lexer_.expected("`sg 1.0`", "the first line of a graph is: sg 1.0 job \"title\" world 1");
  at = lexer_.cursor();
  std::string_view version = lexer_.word();
  size_t dot = version.find('.');
  int major = 0;
  for (char c : version.substr(0, std::min<size_t>(dot, 4))) major = is_digit(c) ? major * 10 + (c - '0') : -1;
  if (dot == std::string_view::npos || major <= 0)
    return lexer_.error_at(at, "parse-version", "expected a version such as 1.0");
  if (major > kSchemaMajor)
    return lexer_.error_at(at, "parse-version",
                           "this text has version " + std::string(version) + ", this program reads version " +
                               std::to_string(kSchemaMajor),
                           "use a newer stepgraph, or write the file again with this one");
  std::vector<std::string_view> seen;
  while (!lexer_.at_end()) {
    at = (lexer_.peek(), lexer_.cursor());
    std::string_view w = lexer_.word();
    lexer_.back_to(at);
    if (w != "job" && w != "world") return lexer_.expected("`job` or `world`");
    lexer_.word();
    if (!once(w, at, &seen)) return false;
    if (w == "job" && !string(&job_.title)) return false;
    if (w == "world" && !lexer_.natural("a world size", &job_.world)) return false;
  }
  return true;
}

bool TextParser::line() {
  const char* at = lexer_.cursor();
  if (lexer_.peek() == '%') {
    if (!graph_) return lexer_.error("parse-order", "a node outside of a graph", "begin a graph first: graph rank *");
    return node_line();
  }
  std::string_view keyword = lexer_.word();
  bool ok;
  if (keyword == "graph") ok = graph_line();
  else if (!graph_) ok = header_line(keyword) || false;
  else ok = graph_content(keyword);
  if (keyword.empty() && ok) lexer_.back_to(at);
  return ok && lexer_.expect_end();
}

bool TextParser::header_line(std::string_view keyword) {
  static constexpr std::string_view kKeywords[] = {"producer", "note",   "mesh", "group",
                                                   "extra",    "device", "from", "graph"};
  const char* at = lexer_.cursor() - keyword.size();
  if (keyword == "producer") return producer_line(&job_.producer);
  if (keyword == "extra") return producer_line(&job_.extra);
  if (keyword == "mesh") return mesh_line();
  if (keyword == "group") return group_line();
  if (keyword == "from") return provenance_line();
  if (keyword == "note" || keyword == "device") {
    if (!once(keyword, at, &header_seen_)) return false;
    if (keyword == "device") return text<is_device_char>("a device", &device_);
    std::string_view note;
    if (!lexer_.string(&note)) return false;
    job_.note = note;
    return true;
  }
  lexer_.back_to(at);
  std::string hint = choices(keyword, kKeywords);
  if (enum_named<InputKind>(keyword) || enum_named<Phase>(keyword)) hint = "begin a graph first: graph rank *";
  if (keyword == "sg") hint = "the version is said once, in the first line";
  return lexer_.expected("a line of the header or `graph`", hint);
}

bool TextParser::producer_line(std::vector<KeyValue>* list) {
  const char* at = (lexer_.peek(), lexer_.cursor());
  KeyValue kv;
  if (!word("a key", &kv.key) || !json(&kv.json)) return false;
  if (!kv.key) kv.key = StringTable::kEmpty;
  const std::string_view key = pool_.strings[kv.key];
  const auto place = std::ranges::lower_bound(*list, key, {}, [&](const KeyValue& k) { return pool_.strings[k.key]; });
  if (place != list->end() && place->key == kv.key)
    return lexer_.error_at(at, "parse-twice", "the key \"" + std::string(key) + "\" comes twice");
  list->insert(place, kv);
  return true;
}

bool TextParser::mesh_line() {
  Mesh mesh{StringTable::kEmpty, {}, {}};
  if (lexer_.peek() != '[' && !word("a mesh name or `[`", &mesh.name)) return false;
  if (!lexer_.expect('[', "before the axes, as in: mesh [fsdp 4, tp 2]")) return false;
  if (!lexer_.take(']')) {
    do {
      StrId axis;
      uint32_t size;
      if (!text<is_axis_char>("an axis", &axis) || !lexer_.natural("the size of the axis", &size)) return false;
      mesh.axes.push_back(axis);
      mesh.shape.push_back(size);
    } while (lexer_.take(','));
    if (!lexer_.expect(']', "after the axes")) return false;
  }
  job_.meshes.push_back(std::move(mesh));
  return true;
}

bool TextParser::rank_list(std::vector<uint32_t>* out) {
  while (is_digit(lexer_.peek())) {
    const char* at = lexer_.cursor();
    uint32_t first, last;
    if (!lexer_.natural("a rank", &first)) return false;
    last = first;
    if (lexer_.next_is("..")) {
      lexer_.take('.'), lexer_.take('.');
      if (!lexer_.natural("the last rank of the run", &last)) return false;
    }
    if (last < first)
      return lexer_.error_at(at, "parse-ranks", "this run of ranks goes down", "write the smaller rank first");
    if (last - first >= rank_budget_)
      return lexer_.error_at(at, "parse-ranks", "more ranks than this program can hold");
    rank_budget_ -= last - first + 1;
    for (uint32_t r = first; r <= last; ++r) out->push_back(r);
    lexer_.take(',');
  }
  return true;
}

bool TextParser::group_line() {
  const char* at = (lexer_.peek(), lexer_.cursor());
  if (!lexer_.expect('@', "before the axis, as in: group @ep [0 1]")) return false;
  Group group;
  std::string_view axis;
  if (!lexer_.text<is_axis_char>("an axis", &axis)) return false;
  group.axis = pool_.str(axis);
  if (lexer_.take(':') && !lexer_.natural("the ordinal of the group", &group.ordinal)) return false;
  if (job_.find_group(group.axis, group.ordinal))
    return lexer_.error_at(at, "parse-twice", "this group was declared before",
                           "give it another ordinal, as in @" + std::string(pool_.strings[group.axis]) + ":" +
                               std::to_string(group.ordinal + 1));
  while (lexer_.peek() == '[')
    if (!group_part(&group)) return false;
  if (skip_word("priority")) {
    int32_t priority;
    if (!small_number("a priority", &priority)) return false;
    group.priority = priority;
  }
  if (!lexer_.expect_end()) return false;
  job_.groups.push_back(std::move(group));
  return true;
}

bool TextParser::group_part(Group* group) {
  GroupPart part;
  lexer_.take('[');
  if (!rank_list(&part.ranks) || !lexer_.expect(']', "after the ranks of the group")) return false;
  StrId name;
  if (lexer_.peek() == '"') {
    if (!string(&name)) return false;
    for (uint32_t r : part.ranks) part.aliases.push_back({r, name});
    std::sort(part.aliases.begin(), part.aliases.end(), [](auto& a, auto& b) { return a.rank < b.rank; });
  } else if (lexer_.take('{')) {
    do {
      uint32_t rank;
      if (!lexer_.natural("a rank", &rank) || !string(&name)) return false;
      part.aliases.push_back({rank, name});
    } while (lexer_.take(','));
    if (!lexer_.expect('}', "after the names of the group")) return false;
  }
  group->parts.push_back(std::move(part));
  return true;
}

bool TextParser::provenance_line() {
  Provenance p;
  if (!text<is_tag_char>("the name of a tool", &p.tool) || !text<is_tag_char>("its version", &p.version)) return false;
  if (lexer_.peek() == '{' && !key_values(&p.options)) return false;
  if (!lexer_.at_end() && !text<is_tag_char>("a digest", &p.input_digest)) return false;
  job_.provenance.push_back(std::move(p));
  return true;
}

// --- graphs ---

bool TextParser::graph_line() {
  if (graph_) end_graph();
  graph_ = nullptr;
  const char* at = lexer_.cursor();
  std::vector<uint32_t> ranks;
  if (!skip_word("rank")) return lexer_.expected("`rank`", "write: graph rank *, or: graph rank 0 1");
  if (!lexer_.take('*')) {
    if (!is_digit(lexer_.peek())) return lexer_.expected("`*` or the ranks that run this graph");
    if (!rank_list(&ranks)) return false;
  }
  bool ok = true;
  if (skip_word("nested")) {
    ok = nested_graph(ranks, at);
  } else {
    if (program_) end_program();
    program_ = &job_.add_program();
    program_->ranks = std::move(ranks);
    expressions_.clear(), symbols_.clear();
    in_nested_ = false;
  }
  if (!program_) program_ = &job_.add_program();  // after an error: gives the following lines a place
  if (!ok) program_->nested.push_back(std::make_unique<Nested>(Nested{StringTable::kEmpty, Graph(&pool_)}));
  begin_graph(in_nested_ ? &program_->nested.back()->graph : &program_->graph);
  return ok;
}

bool TextParser::nested_graph(const std::vector<uint32_t>& ranks, const char* at) {
  in_nested_ = true;
  if (!program_ || ranks != program_->ranks)
    return lexer_.error_at(at, "parse-order", "a nested graph does not follow the graph of the same ranks",
                           "nested graphs stand right after their `graph rank` and name the same ranks");
  StrId name;
  const char* name_at = (lexer_.peek(), lexer_.cursor());
  if (!word("the name of the nested graph", &name)) return false;
  if (!name) return lexer_.error_at(name_at, "parse-name", "a nested graph needs a name");
  if (!nested_defined_.try_emplace(name, static_cast<uint32_t>(program_->nested.size())).second)
    return lexer_.error_at(name_at, "parse-twice", "a nested graph of this name was defined before");
  program_->nested.push_back(std::make_unique<Nested>(Nested{name, Graph(&pool_)}));
  return true;
}

void TextParser::begin_graph(Graph* graph) {
  graph_ = graph;
  ++graph_number_;
  section_ = Section::inputs;
  phase_ = Phase::forward, module_ = StrId(), source_ = SourceId();
  links_.clear();
}

void TextParser::end_graph() {
  for (const ForwardLink& link : links_) {
    NameSlot* s = slot(link.name);
    if (!s) {
      undefined_value(link.name, link.at, link.line);
    } else if (s->node) {
      graph_->set_forward(link.node, s->node);
    } else if (!s->is_broken) {
      lexer_.error_on(link.line, link.at, "parse-name", "%" + pool_.strings.str(link.name) + " is an input, not a node",
                      "`of` names the forward node that this one belongs to");
    }
  }
}

// Arguments hold indices into nested_names_ until all nested graphs of the program are known.
void TextParser::end_program() {
  std::vector<NestedId> ids;
  for (const NestedName& mention : nested_names_) {
    const uint32_t* index = nested_defined_.find(mention.name);
    ids.push_back(NestedId(index ? *index : 0));
    if (index) continue;
    Nearest nearest(pool_.strings[mention.name]);
    if (lexer_.error_count() < 20)
      for (const auto& n : program_->nested) nearest.offer(pool_.strings[n->name]);
    std::string hint = nearest.hint();
    lexer_.error_on(mention.line, mention.at, "parse-name",
                    "there is no nested graph `" + pool_.strings.str(mention.name) + "`",
                    hint.empty() ? "define it after this graph: graph rank ... nested NAME" : hint);
  }
  for (const NestedMention& mention : nested_mentions_) {
    std::vector<Arg> args = mention.graph->node(mention.node).args;
    for (Arg& arg : args)
      arg.walk_mutable([&](Arg& a) {
        if (!a.is(ArgKind::graph)) return;
        StrId key = a.key();
        a = Arg::graph(ids[a.as_graph().index]);
        a.set_key(key);
      });
    mention.graph->set_args(mention.node, std::move(args));
  }
  nested_names_.clear(), nested_index_.clear(), nested_mentions_.clear(), nested_defined_.clear();
}

bool TextParser::symbol_line() {
  if (in_nested_) return lexer_.error("parse-order", "symbols belong to the graph of the ranks, not to a nested one");
  Symbol symbol;
  const char* at = (lexer_.peek(), lexer_.cursor());
  std::string_view name = lexer_.span<is_word_char>();
  if (name.empty() || is_digit(name[0]) || name.find('.') != std::string_view::npos) {
    lexer_.back_to(at);
    return lexer_.expected("the name of the symbol", "letters, digits and `_`, as in: symbol u4 data [0, 256]");
  }
  symbol.name = pool_.str(name);
  if (!one_of("the kind of the symbol", &symbol.kind)) return false;
  if (program_->find_symbol(symbol.name)) return lexer_.error_at(at, "parse-twice", "this symbol was declared before");
  if (lexer_.peek() == '[' && !symbol_range(&symbol)) return false;
  std::vector<std::string_view> seen;
  while (!lexer_.at_end() && lexer_.peek() != '"') {
    const char* word_at = (lexer_.peek(), lexer_.cursor());
    std::string_view w = lexer_.peek_word();
    if (w != "hint" && w != "divisor") return lexer_.expected("`hint`, `divisor` or the source in quotes");
    lexer_.word();
    int64_t value;
    if (!once(w, word_at, &seen) || !lexer_.integer("a number", &value)) return false;
    if (w == "hint") symbol.hint = value;
    else symbol.divisor = value;
  }
  if (lexer_.peek() == '"' && !string(&symbol.source)) return false;
  if (!lexer_.expect_end()) return false;
  program_->symbols.push_back(symbol);
  symbols_.insert(symbol.name);
  return true;
}

bool TextParser::symbol_range(Symbol* symbol) {
  auto bound = [&](std::string_view open, std::optional<int64_t>* out) {
    if (lexer_.next_is(open)) {
      lexer_.back_to(lexer_.cursor() + open.size());
      return true;
    }
    int64_t value;
    if (!lexer_.integer("a bound, `-inf` or `inf`", &value)) return false;
    *out = value;
    return true;
  };
  lexer_.take('[');
  return bound("-inf", &symbol->min) && lexer_.expect(',', "between the bounds") && bound("inf", &symbol->max) &&
         lexer_.expect(']', "after the bounds");
}

bool TextParser::guard_line() {
  if (in_nested_) return lexer_.error("parse-order", "guards belong to the graph of the ranks, not to a nested one");
  Guard guard;
  if (!expr(&guard.left)) return false;
  static constexpr std::string_view kLongestFirst[] = {"==", "!=", "<=", ">=", "<", ">"};
  std::string_view found;
  for (std::string_view r : kLongestFirst)
    if (found.empty() && lexer_.next_is(r)) found = r;
  if (found.empty()) return lexer_.expected("a relation", "one of: == != < <= > >=");
  guard.relation = *enum_named<Relation>(found);
  lexer_.back_to(lexer_.cursor() + found.size());
  if (!expr(&guard.right)) return false;
  if (skip_word("at") && !source(&guard.source)) return false;
  program_->guards.push_back(guard);
  return true;
}

}  // namespace sg::text

namespace sg {

Result<Job> parse_text(std::string_view text, const std::string& file, Diagnostics* diagnostics) {
  size_t before = diagnostics->error_count();
  Job job = text::TextParser(text, file).parse(diagnostics);
  if (diagnostics->error_count() != before) return diagnostics->as_error(ErrorKind::unreadable);
  return job;
}

}  // namespace sg
