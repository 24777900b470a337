#include "libgraph/diff/diff_program.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "libgraph/base/human.h"
#include "libgraph/diff/diff_members.h"
#include "libgraph/diff/diff_same.h"
#include "libgraph/diff/diff_symbols.h"
#include "libgraph/op.h"

namespace sg {
namespace {

class ProgramDiffer {
 public:
  ProgramDiffer(const Job& a, const Program& program_a, const Job& b, const Program& program_b,
                const DiffOptions& options, const std::vector<GroupId>& group_of_a, DiffPrinters* print)
      : a_(a),
        b_(b),
        program_a_(program_a),
        program_b_(program_b),
        options_(options),
        group_of_a_(group_of_a),
        print_(*print) {}

  ProgramDiff run() {
    out_.a = &program_a_, out_.b = &program_b_;
    match();
    if (learn_numbers()) match();  // matches again: the numbers identify sizes that became literals
    terms_->finish_symbols();
    if (has_numbers()) terms_->set_numbers(&numbers_[0], &numbers_[1]);
    for (GraphDiff& g : out_.graphs) compare(&g);
    SymbolDiffer symbols(a_, b_, options_, numbers_, &*terms_, &print_, &out_);
    symbols.run();
    nested();
    explain_numbers();
    for (GraphDiff& g : out_.graphs) explain_edits(a_, b_, out_, &g);
    explain_bodies();
    symbols.explain();
    return std::move(out_);
  }

 private:
  void match() {
    out_.graphs.clear();
    terms_.emplace(a_, program_a_, b_, program_b_, group_of_a_);
    nested_of_a_.assign(program_a_.nested.size(), NestedId());
    nested_of_b_.assign(program_b_.nested.size(), NestedId());
    add_graph(program_a_.graph, program_b_.graph, "");
    match_nested();
    for (const GraphDiff& g : out_.graphs) learn_symbols(g);
  }

  bool has_numbers() const { return !numbers_[0].empty() || !numbers_[1].empty(); }

  bool learn_numbers() {
    for (int s = 0; s < 2; ++s) {
      learnt_[s] = terms_->learnt_numbers(s);
      numbers_[s].insert(learnt_[s].begin(), learnt_[s].end());
    }
    return has_numbers();
  }

  void add_graph(const Graph& a, const Graph& b, std::string name) {
    MatchWords words;
    GraphDiff diff;
    diff.a = &a, diff.b = &b, diff.name = std::move(name);
    diff.side_a = make_match_side(a_, program_a_, a, &words, has_numbers() ? &numbers_[0] : nullptr);
    diff.side_b = make_match_side(b_, program_b_, b, &words, has_numbers() ? &numbers_[1] : nullptr);
    diff.match = match_graphs(diff.side_a, diff.side_b, &words);
    unpair_members(&diff);
    auto has_free = [](const std::vector<uint32_t>& partners) {
      return std::find(partners.begin(), partners.end(), MatchSide::kNone) != partners.end();
    };
    bool free_a = has_free(diff.match.nodes[0]), free_b = has_free(diff.match.nodes[1]);
    if (free_a || free_b) diff.tensors[0] = same_tensors(diff.side_a), diff.tensors[1] = same_tensors(diff.side_b);
    if (free_a || free_b) pair_through(&diff);
    out_.graphs.push_back(std::move(diff));
  }

  // --- nested graphs: partners are those that matched nodes take; the rest is paired by position ---

  void match_nested() {
    for (size_t g = 0; g < out_.graphs.size(); ++g) {
      std::vector<std::pair<NestedId, NestedId>> found;
      const GraphDiff& diff = out_.graphs[g];
      for (uint32_t x = 0; x < diff.side_a.node_count(); ++x) {
        uint32_t y = diff.match.nodes[0][x];
        if (y != MatchSide::kNone && diff.side_a.blank[x])
          pair_bodies(diff.a->node(diff.side_a.nodes[x]).args, diff.b->node(diff.side_b.nodes[y]).args, &found);
      }
      for (auto [m, n] : found) pair_nested(m, n);
    }
    // Bodies that no matched nodes take: in order.
    for (uint32_t i = 0, j = 0; i < nested_of_a_.size(); ++i) {
      while (j < nested_of_b_.size() && nested_of_b_[j]) ++j;
      if (!nested_of_a_[i] && j < nested_of_b_.size()) pair_nested(NestedId(i), NestedId(j));
    }
  }

  void pair_bodies(const ArgList& a, const ArgList& b, std::vector<std::pair<NestedId, NestedId>>* found) {
    for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
      if (a[i].is(ArgKind::graph) && b[i].is(ArgKind::graph)) found->push_back({a[i].as_graph(), b[i].as_graph()});
      if (a[i].has_items() && b[i].has_items()) pair_bodies(a[i].items(), b[i].items(), found);
    }
  }

  void pair_nested(NestedId m, NestedId n) {
    bool known = m.index >= nested_of_a_.size() || n.index >= nested_of_b_.size();
    if (known || nested_of_a_[m.index] || nested_of_b_[n.index]) return;
    nested_of_a_[m.index] = n, nested_of_b_[n.index] = m;
    const Nested& a = *program_a_.nested[m.index];
    const Nested& b = *program_b_.nested[n.index];
    add_graph(a.graph, b.graph, b_.pool->strings.str(b.name));
  }

  void nested() {
    for (uint32_t i = 0; i < nested_of_a_.size(); ++i) {
      std::string name = a_.pool->strings.str(program_a_.nested[i]->name);
      if (!nested_of_a_[i]) {
        out_.items.push_back({"nested graph", name, EditKind::removed, {}});
        continue;
      }
      std::string now = b_.pool->strings.str(program_b_.nested[nested_of_a_[i].index]->name);
      if (now != name && !options_.ignore_name)
        out_.items.push_back({"nested graph", now, EditKind::changed, {{Aspect::name, "name", name, now}}});
    }
    for (uint32_t j = 0; j < nested_of_b_.size(); ++j)
      if (!nested_of_b_[j])
        out_.items.push_back({"nested graph", b_.pool->strings.str(program_b_.nested[j]->name), EditKind::added, {}});
  }

  // An added body gets the explanation of the first node that calls it.
  void explain_bodies() {
    const GraphDiff& main = out_.graphs[0];
    for (ItemEdit& item : out_.items) {
      if (item.subject != "nested graph" || item.kind != EditKind::added) continue;
      for (const NodeEdit& e : main.edits) {
        const ArgList* args = e.b == MatchSide::kNone ? nullptr : &main.b->node(main.side_b.nodes[e.b]).args;
        bool calls = args && !args->empty() && (*args)[0].is(ArgKind::graph) &&
                     b_.pool->strings[program_b_.nested[(*args)[0].as_graph().index]->name] == item.name;
        if (calls) item.explanation = e.explanation;
        if (calls) break;
      }
    }
  }

  void learn_symbols(const GraphDiff& diff) {
    for (uint32_t v = 0; v < diff.side_a.value_count(); ++v)
      if (uint32_t w = diff.match.values[0][v]; w != MatchSide::kNone)
        terms_->learn(diff.a->value(value_id(diff.side_a, v)).type, diff.b->value(value_id(diff.side_b, w)).type);
    for (uint32_t x = 0; x < diff.side_a.node_count(); ++x)
      if (uint32_t y = diff.match.nodes[0][x]; y != MatchSide::kNone) {
        const NodeMeta& m = diff.a->meta(diff.side_a.nodes[x]);
        const NodeMeta& n = diff.b->meta(diff.side_b.nodes[y]);
        if (m.binds && n.binds && m.binds->size() == n.binds->size())
          for (size_t i = 0; i < m.binds->size(); ++i) terms_->learn((*m.binds)[i], (*n.binds)[i]);
      }
  }

  static ValueId value_id(const MatchSide& side, uint32_t v) {
    if (side.maker[v] == MatchSide::kNone) return side.graph->inputs()[v].value;
    return side.graph->node(side.nodes[side.maker[v]]).result(v - side.first_result[side.maker[v]]);
  }

  // --- one graph ---

  void compare(GraphDiff* diff) {
    NodeComparer compare(*diff, options_, nested_of_a_, &*terms_, &print_);
    ports(diff, &compare, 0), ports(diff, &compare, 1);
    std::vector<std::vector<uint32_t>> removed_behind(diff->side_b.node_count() + 1);  // [0]: before all nodes
    uint32_t last = 0;
    for (uint32_t x = 0; x < diff->side_a.node_count(); ++x) {
      uint32_t y = diff->match.nodes[0][x];
      if (y == MatchSide::kNone) removed_behind[last].push_back(x);
      else if (!diff->match.moved[x]) last = y + 1;
    }
    for (uint32_t x : removed_behind[0]) add_edit(diff, x, MatchSide::kNone, {});
    for (uint32_t y = 0; y < diff->side_b.node_count(); ++y) {
      uint32_t x = diff->match.nodes[1][y];
      if (x == MatchSide::kNone) add_edit(diff, MatchSide::kNone, y, {});
      else compare_pair(diff, &compare, x, y);
      for (uint32_t gone : removed_behind[y + 1]) add_edit(diff, gone, MatchSide::kNone, {});
    }
  }

  void add_edit(GraphDiff* diff, uint32_t x, uint32_t y, std::vector<Difference> changes) {
    NodeEdit edit;
    edit.a = x, edit.b = y, edit.changes = std::move(changes);
    if (x == MatchSide::kNone ? is_size(diff->side_b, 1, y) : y == MatchSide::kNone && is_size(diff->side_a, 0, x)) {
      edit.explanation = substitution(diff);
      ++diff->explanations[edit.explanation].facts[x == MatchSide::kNone ? "added" : "removed"];
    }
    diff->edits.push_back(std::move(edit));
  }

  void compare_pair(GraphDiff* diff, NodeComparer* compare, uint32_t x, uint32_t y) {
    std::vector<Difference> changes = compare->nodes(x, y);
    if (diff->match.moved[x] && !options_.ignore_order) {
      bool in_run = x > 0 && y > 0 && diff->match.nodes[0][x - 1] == y - 1;  // moved along with the node before it
      std::string after = behind(diff->side_b, y);
      changes.push_back({Aspect::order, "position", in_run ? after : behind(diff->side_a, x), after});
    }
    std::vector<Difference> numbers = compare->take_numbers();
    if (!numbers.empty()) ++diff->explanations[substitution(diff)].before;
    if (!changes.empty()) return add_edit(diff, x, y, std::move(changes));
    if (numbers.empty()) return void(++diff->same);
    add_edit(diff, x, y, std::move(numbers));
    diff->edits.back().explanation = substitution(diff);
  }

  static std::string behind(const MatchSide& side, uint32_t n) {
    return n == 0 ? "first" : "behind %" + std::string(side.graph->label(side.nodes[n - 1]));
  }

  // kind 0: inputs, 1: outputs. A port at another position in its list counts as moved.
  void ports(GraphDiff* diff, NodeComparer* compare, int kind) {
    const std::vector<uint32_t>& partner = kind == 0 ? diff->match.inputs[0] : diff->match.outputs[0];
    const std::vector<uint32_t>& back = kind == 0 ? diff->match.inputs[1] : diff->match.outputs[1];
    const std::string subject = kind == 0 ? "input" : "output";
    std::vector<uint8_t> moved = moved_nodes(partner);
    auto line_a = [&](uint32_t i) {
      return kind == 0 ? print_.a.input_alone(*diff->a, diff->a->inputs()[i])
                       : print_.a.output_alone(*diff->a, diff->a->outputs()[i]);
    };
    auto line_b = [&](uint32_t j) {
      return kind == 0 ? print_.b.input_alone(*diff->b, diff->b->inputs()[j])
                       : print_.b.output_alone(*diff->b, diff->b->outputs()[j]);
    };
    for (uint32_t i = 0; i < partner.size(); ++i) {
      uint32_t j = partner[i];
      if (j == MatchSide::kNone) {
        diff->items.push_back({subject, line_a(i), EditKind::removed, {}, i});
        continue;
      }
      std::vector<Difference> changes = kind == 0 ? compare->inputs(i, j) : compare->outputs(i, j);
      if (moved[i] && !(options_.ignore_order && kind == 0))
        changes.push_back({Aspect::order, "position", std::to_string(i), std::to_string(j)});
      std::vector<Difference> numbers = compare->take_numbers();
      uint32_t told = changes.empty() && !numbers.empty() ? substitution(diff) : MatchSide::kNone;
      if (told != MatchSide::kNone) changes = std::move(numbers);
      if (!changes.empty()) diff->items.push_back({subject, line_b(j), EditKind::changed, std::move(changes), i, told});
    }
    for (uint32_t j = 0; j < back.size(); ++j)
      if (back[j] == MatchSide::kNone) diff->items.push_back({subject, line_b(j), EditKind::added, {}, j});
  }

  // --- symbols that became numbers, or the reverse ---

  // The graph's explanation for them, always its first. `before` counts the nodes until the text is written.
  uint32_t substitution(GraphDiff* diff) {
    if (diff->explanations.empty()) diff->explanations.push_back({ExplanationKind::substituted, "", "", 0, 0, {}});
    return 0;
  }

  // Whether a node only computes sizes that are numbers on the other side.
  bool is_size(const MatchSide& side, int s, uint32_t n) const {
    if (numbers_[s].empty()) return false;
    const Graph& graph = *side.graph;
    const OpInfo* info = graph.op_info(side.nodes[n]);
    const Node& node = graph.node(side.nodes[n]);
    bool all = info != nullptr && info->has(kPure) && node.result_count > 0;
    for (uint32_t r = 0; all && r < node.result_count; ++r)
      all = number_of(graph.pool(), graph.value(node.result(r)).type, numbers_[s]).has_value();
    return all;
  }

  void explain_numbers() {
    if (!has_numbers()) return;
    substitution(&out_.graphs[0]);
    for (GraphDiff& g : out_.graphs)
      if (!g.explanations.empty()) tell_numbers(&g.explanations[0]);
  }

  void tell_numbers(Explanation* e) const {
    constexpr size_t kFew = 8;
    for (int s = 0; s < 2; ++s) {
      if (learnt_[s].empty()) continue;
      e->text +=
          std::string(e->text.empty() ? "" : "; ") + (s == 0 ? "symbols made numbers: " : "numbers made symbols: ");
      for (size_t i = 0; i < std::min(kFew, learnt_[s].size()); ++i) {
        std::string name = (s == 0 ? a_ : b_).pool->strings.str(learnt_[s][i].first),
                    number = std::to_string(learnt_[s][i].second);
        e->text += (i ? ", " : "") + (s == 0 ? name + " = " + number : number + " = " + name);
      }
      if (learnt_[s].size() > kFew) e->text += " and " + std::to_string(learnt_[s].size() - kFew) + " more";
    }
    e->text += " (" + plural(e->before, "node") + ")";
    size_t removed = e->facts["removed"], added = e->facts["added"];
    if (removed) e->text += "; " + plural(removed, "node") + " gone that computed sizes";
    if (added)
      e->text += "; " + plural(added, "node") + " new that " + (added == 1 ? "computes" : "compute") + " sizes";
    e->facts["symbols"] = learnt_[0].size() + learnt_[1].size(), e->facts["nodes"] = e->before;
    e->after = e->before + added, e->before += removed;
  }

  const Job& a_;
  const Job& b_;
  const Program& program_a_;
  const Program& program_b_;
  const DiffOptions& options_;
  std::optional<DiffTerms> terms_;                    // for the current match
  SymbolNumbers numbers_[2];                          // symbols of each side that are numbers on the other
  std::vector<std::pair<StrId, int64_t>> learnt_[2];  // the same, in order
  const std::vector<GroupId>& group_of_a_;
  DiffPrinters& print_;
  ProgramDiff out_;
  std::vector<NestedId> nested_of_a_, nested_of_b_;
};

}  // namespace

ProgramDiff diff_programs(const Job& a, const Program& program_a, const Job& b, const Program& program_b,
                          const DiffOptions& options, const std::vector<GroupId>& group_of_a, DiffPrinters* print) {
  return ProgramDiffer(a, program_a, b, program_b, options, group_of_a, print).run();
}

}  // namespace sg
