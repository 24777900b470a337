// Hunks: what a reader is shown of a diff. Unexplained edits that stand together, equal ones of several layers as one.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "libgraph/diff/diff.h"

namespace sg {

struct DiffLine {
  char mark = ' ';  // '-' of A, '+' of B, ' ' both, '>' moved here, '.' a remark
  std::string text;
};

constexpr size_t kDetails = 3;

struct Hunk {
  // "layers.{0..31}.attention"; outside of modules the source line, "model.py:31 forward"; empty = neither is known
  std::string phase, where;
  std::string source;         // of the first edit, where `where` is a module: "model.py:31 forward"; may be empty
  size_t layers = 1;          // how many layers (or places) have the same edits; the lines are of the first
  bool is_of_source = false;  // `where` is a source line
  size_t edits = 0;           // in all of them
  size_t changed = 0, renamed = 0, moved = 0, added = 0, removed = 0;  // in the first
  std::vector<DiffLine> lines;
  std::vector<std::string> details;  // "%mul argument other: 0.5 -> 0.25", of changed nodes; the first kDetails + 1
  std::vector<std::string> names;    // of the nodes: B's, A's for what is gone
  uint32_t first = 0, lead = 0, end = 0;  // in B: of the nodes shown, how many of them are context, behind the last
  std::string place_a;                    // where in A, as place_of says it: the first node, or the one before
};

struct Note {  // one line of its own
  std::string kind, text, where;
};

// What is to be said of one program, or of several with the same edits.
struct DiffReport {
  std::vector<uint32_t> ranks;  // empty = all
  size_t programs = 1;
  std::string title;        // "706 -> 947 nodes: 641 same, ..."
  std::vector<Note> notes;  // items, explanations, what is folded
  std::vector<Hunk> hunks;
};

struct HunkOptions {
  size_t context = 2;  // nodes shown around edits
  bool full = false;   // explained edits too, and every rename and move
};

std::vector<DiffReport> report_diff(const JobDiff& diff, const HunkOptions& options);

// Items of the job itself: "world: 4 -> 8".
std::vector<Note> job_notes(const JobDiff& diff);

}  // namespace sg
