// TextParser: the state of one parse_text; private to the text form.
//
// One function a rule of the grammar (docs/text-format.md). Each returns false after it reported an error; the line is
// then given up, its results are remembered as broken (so that their uses are no errors of their own), and parsing goes
// on with the next line. Names are resolved through a table by StrId: one hash a mention, whatever the graph's size.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "libgraph/job.h"
#include "libgraph/names.h"
#include "libgraph/text/text_lexer.h"

namespace sg::text {

class TextParser {
 public:
  TextParser(std::string_view text, const std::string& file) : lexer_(text, file), pool_(*job_.pool) {}

  // The whole text; the job is worth something only when nothing was reported.
  Job parse(Diagnostics* diagnostics);

 private:
  enum class Section : uint8_t { header, inputs, nodes, outputs };

  // What a name stands for in the graph being read.
  struct NameSlot {
    uint32_t graph = 0;      // number of the graph that defines it; an older one = not defined
    uint32_t line = 0;       // where it was defined
    ValueId value;           // none: the label of a node
    NodeId node;             // none: an input
    bool is_broken = false;  // defined by a line with an error
  };
  struct ResultName {
    StrId name;
    const char* at;
  };
  struct ForwardLink {  // resolved at the end of the graph: it may point ahead
    NodeId node;
    StrId name;
    uint32_t line;
    const char* at;
  };
  struct NestedMention {  // resolved at the end of the program
    Graph* graph;
    NodeId node;
  };
  struct NestedName {
    StrId name;
    uint32_t line;
    const char* at;
  };
  struct PendingNode {  // the parts of a node line, until all of it is read
    std::vector<ResultName> names;
    std::vector<TypeId> types;
    std::vector<Arg> args;
    Node node;
    NodeMeta meta;
    bool has_meta = false;
    StrId label;
    const char* label_at = nullptr;
    StrId forward;
    const char* forward_at = nullptr;
    bool mentions_nested = false;
  };

  // --- text_parse.cc: lines, header, graphs ---
  bool line();
  bool version_line();
  bool header_line(std::string_view keyword);
  bool mesh_line();
  bool group_line();
  bool group_part(Group* group);
  bool rank_list(std::vector<uint32_t>* out);
  bool provenance_line();
  bool producer_line(std::vector<KeyValue>* list);
  bool graph_line();
  bool nested_graph(const std::vector<uint32_t>& ranks, const char* at);
  void begin_graph(Graph* graph);
  void end_graph();
  void end_program();
  bool symbol_line();
  bool symbol_range(Symbol* symbol);
  bool guard_line();

  // --- text_parse_nodes.cc: what a graph holds ---
  bool graph_content(std::string_view keyword);
  bool unknown_keyword(const char* at, std::string_view keyword);
  bool block_line(Phase phase);
  bool at_line();
  bool source(SourceId* out);
  bool input_line(InputKind kind);
  bool output_line(OutputKind kind);
  bool output_owner(Output* output);
  bool node_line();
  bool node_results(PendingNode* node);
  bool node_op(PendingNode* node);
  bool node_types(PendingNode* node);
  bool finish_node(PendingNode* node);
  void break_names(const PendingNode& node);
  bool value_name(StrId* name, const char** at);
  bool define(StrId name, const char* at, NameSlot slot);
  NameSlot* slot(StrId name);
  bool value_use(ValueId* out);  // none without an error: the value is a broken line's
  bool undefined_value(StrId name, const char* at, uint32_t line);

  // --- text_parse_args.cc ---
  bool arguments(PendingNode* node);
  bool argument(Arg* out, StrId key, int depth);
  bool argument_value(Arg* out, std::string_view key, int depth);
  bool word_argument(std::string_view word, Arg* out, std::string_view key, int depth);
  bool number_argument(Arg* out);
  bool items(std::string_view what, char close, int depth, std::vector<Arg>* out);
  bool dict(Arg* out, int depth);
  bool call_argument(std::string_view word, Arg* out, int depth);
  bool kind_argument(ArgKind kind, Arg* out);
  bool expression_argument(Arg* out);
  bool group_argument(Arg* out);
  StrId take_key();

  // --- text_parse_types.cc ---
  bool type(TypeId* out, int depth);
  bool tensor(DType dtype, TypeId* out);
  bool tensor_details(Type* type);
  bool scalar(TypeKind kind, TypeId* out);
  bool starts_value();
  bool list_type(TypeId* out, int depth);
  bool expr(Expr* out);
  bool exprs(std::vector<Expr>* out);
  void check_symbols(Expr e, std::string_view text);

  // --- text_parse_meta.cc ---
  bool metadata(PendingNode* node);
  bool metadata_word(std::string_view word, PendingNode* node);
  bool ep(NodeMeta* meta);
  bool chunk(ChunkInfo* chunk);
  bool chunk_detail(std::string_view word, ChunkInfo* chunk);
  bool chunk_index(int32_t* out);
  bool result_chunks(std::vector<ResultChunk>* out);
  bool collective(CollectiveRole role, CollectiveInfo* info);
  bool random(RandomInfo* info);
  bool sharding(Sharding* sharding);
  bool placement(StrId* out);
  bool key_values(std::vector<KeyValue>* out);
  bool json(StrId* out);
  bool word_list(std::string_view what, std::vector<StrId>* out);
  bool small_number(std::string_view what, int32_t* out);
  // Reports a word that came twice; `seen` holds those of this line.
  bool once(std::string_view word, const char* at, std::vector<std::string_view>* seen);
  template <class Enum>
  bool one_of(std::string_view what, Enum* out) {
    const char* at = lexer_.cursor();
    std::string_view w = lexer_.word();
    if (auto e = enum_named<Enum>(w)) {
      *out = *e;
      return true;
    }
    lexer_.back_to(at);
    return lexer_.expected(what, choices(w, names_of<Enum>()));
  }

  // --- small pieces ---
  template <bool (*is_char)(char)>
  bool text(std::string_view what, StrId* out) {  // a word or a string; `-` = none
    std::string_view s;
    bool quoted;
    if (lexer_.peek() == '-' && (lexer_.take('-'), true)) {
      const char* after = lexer_.cursor();
      if (after == lexer_.end() || !is_char(*after)) {
        *out = StrId();
        return true;
      }
      lexer_.back_to(after - 1);
    }
    if (!lexer_.text<is_char>(what, &s, &quoted)) return false;
    *out = pool_.str(s);
    return true;
  }
  bool word(std::string_view what, StrId* out) { return text<is_word_char>(what, out); }
  bool string(StrId* out) {
    std::string_view s;
    if (!lexer_.string(&s)) return false;
    *out = pool_.str(s);
    return true;
  }
  // "did you mean ...?", else "one of: ..."
  static std::string choices(std::string_view word, std::span<const std::string_view> words);
  bool skip_word(std::string_view word);  // takes it when it is the next one

  TextLexer lexer_;
  Job job_;
  Pool& pool_;

  Section section_ = Section::header;
  StrId device_;
  std::vector<std::string_view> header_seen_;
  size_t rank_budget_ = size_t{1} << 24;  // runs like 0..4000000000 are short texts
  Program* program_ = nullptr;
  Graph* graph_ = nullptr;
  uint32_t graph_number_ = 0;  // names of earlier graphs are not seen
  bool in_nested_ = false;
  Phase phase_ = Phase::forward;
  StrId module_;
  SourceId source_;

  PendingNode node_;                 // reused from line to line
  std::vector<StrId> result_names_;  // of node_
  std::vector<NameSlot> slots_;      // by StrId
  std::vector<ForwardLink> links_;
  std::vector<NestedName> nested_names_;  // mentioned; ArgKind::graph holds an index into it until the end
  FlatMap<StrId, uint32_t> nested_index_;
  FlatMap<StrId, uint32_t> nested_defined_;  // index into the program's nested graphs
  std::vector<NestedMention> nested_mentions_;
  FlatTextMap<Expr> expressions_;              // by spelling, this program's
  std::unordered_set<StrId, IdHash> symbols_;  // declared, or already warned about
  size_t undeclared_ = 0;                      // warnings of that kind
  FlatTextMap<OpId> ops_;                      // by spelling
  std::vector<Expr> constants_;                // of small numbers
};

}  // namespace sg::text
