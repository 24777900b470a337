// TextPrinter: the state of one print_text; private to the text form.
//
// Types and metadata are spelled once each and kept by id: a graph of a million nodes has a few thousand of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libgraph/job.h"
#include "libgraph/text/text_words.h"

namespace sg::text {

class TextPrinter {
 public:
  explicit TextPrinter(const Job& job);

  std::string job();
  std::string node_alone(const Program& program, const Graph& graph, NodeId n);
  std::string type_alone(TypeId type);
  std::string arg_alone(const Program& program, const Graph& graph, const Arg& arg);
  std::string input_alone(const Graph& graph, const Input& input);  // with its kind, as its line without indentation
  std::string output_alone(const Graph& graph, const Output& output);
  std::string symbol_alone(const Symbol& symbol);
  std::string guard_alone(const Guard& guard);
  std::string group_alone(const Group& group);
  std::string mesh_alone(const Mesh& mesh);
  std::string meta_alone(const NodeMeta& meta);  // "recompute must_save ep compute"
  std::string source_alone(SourceId source);
  std::string sharding_alone(const Sharding& sharding);

 private:
  template <class Write>
  std::string line_alone(const Write& write);

  // --- text_print.cc: the job, its header, graphs, inputs, outputs, nodes ---
  void header();
  void mesh(const Mesh& mesh);
  void group(const Group& group);
  void group_part(const GroupPart& part);
  void provenance(const Provenance& p);
  void program(const Program& program);
  void symbol(const Symbol& symbol);
  void guard(const Guard& guard);
  void graph(const Program& program, const Graph& graph);
  void input(const Graph& graph, const Input& input);
  void output(const Graph& graph, const Output& output);
  void context(const Node& node);
  void node(const Program& program, const Graph& graph, NodeId n);
  void node_head(const Program& program, const Graph& graph, NodeId n);
  void node_types(const Graph& graph, const Node& node);
  void graph_line(const Program& program);

  // --- text_print_args.cc ---
  void arguments(const Program& program, const Graph& graph, const Node& node);
  void argument(const Program& program, const Graph& graph, const Arg& arg);
  void items(const Program& program, const Graph& graph, const Arg& arg, std::string_view begin, char end);
  void expression_argument(const Arg& arg);
  void text_argument(const Arg& arg);
  void op_name(OpId op);
  void group_name(GroupId group);

  // --- text_print_meta.cc: types, metadata, and the words they share ---
  const std::string& type_text(TypeId type);
  const std::string& meta_text(MetaId meta);
  void type(const Type& type);
  void tensor(const Type& type);
  void node_metadata(const Graph& graph, const Node& node);
  void metadata(const NodeMeta& meta);
  void chunk(const ChunkInfo& chunk);
  void collective(const CollectiveInfo& info);
  void random(const RandomInfo& info);
  void sharding(const Sharding& sharding);
  void key_values(const std::vector<KeyValue>& list);
  void extra(const std::vector<KeyValue>& list);
  void json(StrId json);

  // --- small pieces ---
  void put(std::string_view s) { out_ += s; }
  void put(char c) { out_ += c; }
  void number(int64_t v);
  void expr(Expr e);
  void exprs(const std::vector<Expr>& list);
  void ranks(const std::vector<uint32_t>& list);
  void value_name(std::string_view name);
  void source(SourceId source);
  std::string_view text_of(StrId id) const { return id ? pool_.strings[id] : std::string_view(); }
  template <bool (*is_char)(char)>
  void text(StrId id) {  // bare where it can be; `-` = none
    if (id) plain_or_quoted<is_char>(pool_.strings[id]);
    else put('-');
  }
  void word(StrId id) { text<is_word_char>(id); }
  template <bool (*is_char)(char)>
  void plain_or_quoted(std::string_view s) {
    if (is_plain<is_char>(s)) put(s);
    else append_quoted(s, &out_);
  }
  void words(const std::vector<StrId>& list);
  // Runs `write` with an empty output and returns what it wrote.
  template <class Write>
  std::string captured(const Write& write) {
    std::string outer = std::move(out_);
    out_.clear();
    write();
    std::string inner = std::move(out_);
    out_ = std::move(outer);
    return inner;
  }

  const Job& job_;
  Pool& pool_;
  StrId device_;                            // the job's default device; none = no tensor has one
  std::vector<std::string> types_, metas_;  // by id; empty = not spelled yet
  std::vector<std::string> ops_;            // by OpId
  std::string out_;

  // context of the nodes printed so far in this graph
  Phase phase_ = Phase::forward;
  StrId module_;
  SourceId source_;
  bool in_block_ = false;
};

// The device that most results and inputs of the job lie on, ties by name; none when there is no tensor.
StrId most_frequent_device(const Job& job);

}  // namespace sg::text
