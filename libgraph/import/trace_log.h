// TORCH_TRACE logs and what tlparse makes of them: the artefacts that lie in them, and the import of their graphs.
//
// Log      A line is "V1121 02:33:03.218000 13001 file.py:10] {json}"; lines behind it that begin with a tab are its
//          payload. An artefact is a payload with its name, its compilation and its rank. Everything else is passed
//          over.
// tlparse  A folder for each compilation ("-_0_0_0"), a file for each artefact ("aot_joint_graph_5.txt").
// Compile  "0/0" is the first compilation of the first frame; a graph break makes 1/0, another shape 0/1. Of
//          several attempts at one the last that has graphs counts. A step is one compilation: among several
//          one must choose.
// Graphs   The joint graph, else the forward joined with the backward, else the graph for inference. Dynamo's graph
//          names the inputs.
// Sizes    What symbols stood for and what was assumed of them (hints, ranges, guards).
// Ranks    by the `rank` of the lines, else by the file's name ("..._rank_3_...", "rank3/..."). Several logs of which
//          one names no rank, or two the same, are no job: two runs, say.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/import/capture.h"
#include "libgraph/import/fx_import.h"
#include "libgraph/import/fx_syntax.h"

namespace sg {

struct TraceArtefact {
  std::string compile;  // "0/0", "!1/0/0" inside of compiled autograd; empty = of none
  uint32_t attempt = 0;
  std::optional<uint32_t> rank;
  std::string name;  // "aot_joint_graph", "artifact before_post_grad_graph"
  FxText text;       // where the payload stands
  size_t bytes() const { return text.end - text.begin; }
};

// What a compilation's shapes and inputs stand for: a symbol ("s77", hint "3", range "[2, int_oo]", source
// "L['x'].size()[0]"), or a relation that was assumed of symbols ("Eq(s77, s27)"), or where a tensor comes from
// ("L['self']._parameters['w']").
struct TraceSize {
  std::string compile;
  uint32_t attempt = 0;
  std::optional<uint32_t> rank;
  FxSize size;
};

struct TraceLog {
  std::vector<TraceArtefact> artefacts;  // in order
  std::vector<TraceSize> sizes;          // likewise; a tlparse folder has none
  uint64_t events = 0;                   // all of them
  std::string cut_file;                  // the log's, if it ends within a line: of a job that still runs
};

// One file of a tlparse folder.
struct TraceFile {
  std::string path;  // from the folder on: "-_0_0_0/aot_joint_graph_5.txt"
  std::string name;  // for messages
  std::string bytes;
};

// `name` and `bytes` must outlive the result.
Result<TraceLog> read_trace_log(const std::string& name, std::string_view bytes);
Result<TraceLog> read_trace_folder(const std::vector<TraceFile>& files);

// Whether a file of a tlparse folder is worth reading: one that holds a graph.
bool is_trace_graph_file(std::string_view path);

struct TraceOptions {
  std::optional<uint32_t> rank;
  std::string compile;  // empty = the only one
  ImportOptions import;
};

// What --list prints: compilations, their artefacts, sizes.
std::string describe_trace(const std::vector<TraceLog>& logs);
std::string trace_json(const std::vector<TraceLog>& logs);

// The job of the chosen compilation. Each log is a rank, or holds several.
Result<Job> import_trace(const std::vector<TraceLog>& logs, const TraceOptions& options, Diagnostics* notes);

}  // namespace sg
