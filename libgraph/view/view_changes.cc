// The changes against an older job: counts, explanations, removed nodes, and the state of each node.
#include "libgraph/diff/diff.h"
#include "libgraph/text/text_printer.h"
#include "libgraph/view/view_columns.h"

namespace sg {
namespace {

enum State : int64_t { same = 0, added = 1, changed = 2 };

std::string words_of(const NodeEdit& edit) {
  std::string out;
  for (const Difference& d : edit.changes) {
    if (!out.empty()) out += "; ";
    out += d.what;
    if (!d.before.empty() || !d.after.empty()) out += ": " + d.before + " -> " + d.after;
  }
  return out;
}

}  // namespace

void write_changes(JsonWriter* json, const ViewGraph& view, const GraphDiff& diff, ViewTexts* texts) {
  std::vector<int64_t> state(view.nodes.size(), same);
  DiffCounts counts = count_edits(diff);
  json->key("changes").begin_object();
  json->member("same", counts.same).member("added", counts.added).member("removed", counts.removed);
  json->member("changed", counts.changed).member("moved", counts.moved).member("renamed", counts.renamed);

  json->key("explanations").begin_array();
  for (const Explanation& e : diff.explanations)
    json->begin_object()
        .member("kind", explanation_name(e.kind))
        .member("text", e.text)
        .member("where", e.where)
        .end_object();
  json->end_array();

  // Removed nodes are placed after the nearest preceding node that still exists.
  std::vector<int64_t> place(diff.side_a.node_count(), 0);
  for (size_t p = 0, behind = 0; p < place.size(); ++p) {
    if (uint32_t partner = diff.match.nodes[0][p]; partner != GraphMatch::kNone) behind = partner + 1;
    place[p] = static_cast<int64_t>(behind);
  }
  json->key("removed_nodes").begin_array();  // [place, label, line]
  for (const NodeEdit& edit : diff.edits) {
    if (edit.b != NodeEdit::kNone) continue;
    NodeId n = diff.side_a.nodes[edit.a];
    json->begin_array().integer(place[edit.a]).string(diff.a->label(n));
    json->string(texts->printer_before->node_alone(*diff.side_a.program, *diff.a, n)).end_array();
  }
  json->end_array();

  json->key("edits").begin_array();  // [position, what changed, explanation or -1]
  for (const NodeEdit& edit : diff.edits) {
    if (edit.b == NodeEdit::kNone) continue;
    state[edit.b] = edit.kind() == EditKind::added ? added : changed;
    json->begin_array().natural(edit.b).string(words_of(edit));
    json->integer(edit.explanation == NodeEdit::kNone ? -1 : static_cast<int64_t>(edit.explanation)).end_array();
  }
  json->end_array();
  write_column(json, "state", state.size(), [&](size_t i) { return state[i]; });
  json->end_object();
}

}  // namespace sg
