#include <map>

#include "libgraph/base/json.h"
#include "libgraph/diff/diff_names.h"
#include "libgraph/diff/diff_text.h"
#include "libgraph/names.h"
#include "libgraph/story/ranks_text.h"

namespace sg {
namespace {

class Writer {
 public:
  Writer(const JobDiff& diff, const DiffTextOptions& options) : diff_(diff), options_(options) {}

  std::string run() {
    json_.begin_object().key("schema").string("sg-diff").key("version").integer(1).key("same").boolean(diff_.is_same());
    json_.key("a").string(options_.name_a).key("b").string(options_.name_b).key("ignored").begin_array();
    for (const std::string& word : options_.ignored) json_.string(word);
    json_.end_array().key("items");
    items(diff_.items);
    json_.key("programs").begin_array();
    programs();
    json_.end_array().key("costs").begin_array();
    for (const CostRow& row : options_.costs) {
      json_.begin_object().key("key").string(row.key).key("before").count(row.before).key("after").count(row.after);
      json_.end_object();
    }
    json_.end_array().end_object();
    return json_.take();
  }

 private:
  void changes(const std::vector<Difference>& list) {
    json_.key("changes").begin_array();
    for (const Difference& c : list)
      json_.begin_object()
          .key("aspect")
          .string(aspect_name(c.aspect))
          .key("what")
          .string(c.what)
          .key("before")
          .string(text(c.before))
          .key("after")
          .string(text(c.after))
          .end_object();
    json_.end_array();
  }

  void items(const std::vector<ItemEdit>& list) {
    json_.begin_array();
    for (const ItemEdit& i : list) {
      json_.begin_object()
          .key("subject")
          .string(i.subject)
          .key("kind")
          .string(edit_name(i.kind))
          .key("name")
          .string(text(i.name));
      changes(i.changes);
      if (i.explanation != NodeEdit::kNone) json_.key("explanation").natural(i.explanation);
      json_.end_object();
    }
    json_.end_array();
  }

  void counts(const DiffCounts& n) {
    json_.key("counts")
        .begin_object()
        .key("same")
        .natural(n.same)
        .key("changed")
        .natural(n.changed)
        .key("renamed")
        .natural(n.renamed);
    json_.key("moved").natural(n.moved).key("added").natural(n.added).key("removed").natural(n.removed);
    json_.key("explained").natural(n.explained).end_object();
  }

  // Programs whose edits are equal up to names share one entry, with the names of the first.
  void programs() {
    std::map<std::string, size_t> known;
    std::vector<std::pair<const ProgramDiff*, std::vector<uint32_t>>> groups;
    for (const ProgramDiff& p : diff_.programs) {
      auto [at, is_new] = known.emplace(diff_.programs.size() > 1 ? key_of(p) : std::string(), groups.size());
      if (is_new) groups.push_back({&p, {}});
      groups[at->second].second.insert(groups[at->second].second.end(), p.ranks.begin(), p.ranks.end());
    }
    for (const auto& [p, ranks] : groups) program(*p, ranks);
  }

  // Everything reported about a program, without names.
  std::string key_of(const ProgramDiff& p) const {
    Writer writer(diff_, options_);
    writer.with_names_ = false;
    writer.program(p, {});
    return writer.json_.take();
  }

  std::string text(const std::string& s) const { return with_names_ ? s : without_names(s); }

  void program(const ProgramDiff& p, const std::vector<uint32_t>& ranks) {
    write_ranks(ranks, &json_.begin_object());
    counts(count_edits(p));
    json_.key("items");
    items(p.items);
    json_.key("graphs").begin_array();
    for (const GraphDiff& g : p.graphs) graph(g);
    json_.end_array().end_object();
  }

  void graph(const GraphDiff& g) {
    json_.begin_object()
        .key("name")
        .string(g.name)
        .key("nodes_before")
        .natural(g.a->node_count())
        .key("nodes_after")
        .natural(g.b->node_count());
    counts(count_edits(g));
    json_.key("items");
    items(g.items);
    json_.key("explanations").begin_array();
    for (const Explanation& e : g.explanations) {
      json_.begin_object()
          .key("kind")
          .string(explanation_name(e.kind))
          .key("text")
          .string(e.text)
          .key("where")
          .string(e.where);
      json_.key("nodes_before").natural(e.before).key("nodes_after").natural(e.after).key("facts").begin_object();
      for (const auto& [key, value] : e.facts) json_.key(key).natural(value);
      json_.end_object().end_object();
    }
    json_.end_array().key("edits").begin_array();
    for (const NodeEdit& e : g.edits) edit(g, e);
    json_.end_array().end_object();
  }

  void edit(const GraphDiff& g, const NodeEdit& e) {
    json_.begin_object().key("kind").string(edit_name(e.kind()));
    if (e.a != NodeEdit::kNone) node("a", *g.a, g.side_a.nodes[e.a]);
    if (e.b != NodeEdit::kNone) node("b", *g.b, g.side_b.nodes[e.b]);
    changes(e.changes);
    if (e.explanation != NodeEdit::kNone) json_.key("explanation").natural(e.explanation);
    json_.end_object();
  }

  void node(const char* side, const Graph& graph, NodeId n) {
    const Node& node = graph.node(n);
    json_.key(side)
        .begin_object()
        .key("name")
        .string(with_names_ ? graph.label(n) : std::string_view())
        .key("op")
        .string(graph.op_name(n));
    json_.key("phase").string(name_of(node.phase));
    if (node.module) json_.key("module").string(graph.pool().strings[node.module]);
    if (node.source) source(graph.pool(), graph.pool().sources[node.source]);
    json_.end_object();
  }

  void source(const Pool& pool, const Source& source) {
    json_.key("source").begin_object().member("file", pool.strings[source.file]).key("line").natural(source.line);
    if (source.function) json_.member("function", pool.strings[source.function]);
    json_.end_object();
  }

  const JobDiff& diff_;
  const DiffTextOptions& options_;
  JsonWriter json_;
  bool with_names_ = true;
};

}  // namespace

std::string diff_json(const JobDiff& diff, const DiffTextOptions& options) { return Writer(diff, options).run(); }

}  // namespace sg
