// Chooses a compilation of a trace and imports it.
#include <algorithm>
#include <map>
#include <set>

#include "libgraph/base/human.h"
#include "libgraph/base/json.h"
#include "libgraph/import/fx_import.h"
#include "libgraph/import/trace_log.h"
#include "libgraph/op.h"

namespace sg {
namespace {

constexpr std::string_view kJoint = "aot_joint_graph", kForward = "aot_forward_graph", kBackward = "aot_backward_graph",
                           kInference = "aot_inference_graph", kDynamo = "dynamo_output_graph";

std::string id_of(const TraceArtefact& a) {
  return a.compile + (a.attempt == 0 ? "" : "_" + std::to_string(a.attempt));
}

// The graphs of one attempt at one compilation on one rank.
struct Attempt {
  std::map<std::string_view, std::vector<const TraceArtefact*>> graphs;
  std::vector<FxSize> sizes;
  bool has(std::string_view name) const { return graphs.count(name) != 0; }
  bool is_whole() const { return has(kJoint) || has(kForward) || has(kInference); }
  // The graph that represents the step.
  std::string_view main() const {
    return has(kJoint) ? kJoint : has(kForward) && has(kBackward) ? kForward : has(kInference) ? kInference : kForward;
  }
};

struct Rank {
  std::map<std::string, std::map<uint32_t, Attempt>> compiles;  // compile id -> attempt
  std::string file;
};

using Ranks = std::map<uint32_t, Rank>;

std::set<uint32_t> ranks_told(const TraceLog& log) {
  std::set<uint32_t> out;
  for (const TraceArtefact& a : log.artefacts)
    if (a.rank) out.insert(*a.rank);
  return out;
}

// The rank of what a process logs before it knows its own: the one that the rest of its log has, else the log's place.
uint32_t own_rank(const std::vector<TraceLog>& logs, size_t i) {
  const std::set<uint32_t> told = ranks_told(logs[i]);
  return told.size() == 1 ? *told.begin() : static_cast<uint32_t>(i);
}

Ranks ranks_of(const std::vector<TraceLog>& logs) {
  Ranks ranks;
  for (size_t i = 0; i < logs.size(); ++i) {
    const uint32_t own = own_rank(logs, i);
    for (const TraceArtefact& a : logs[i].artefacts) {
      Rank& rank = ranks[a.rank.value_or(own)];
      if (rank.file.empty()) rank.file = a.text.file;
      for (std::string_view name : {kJoint, kForward, kBackward, kInference, kDynamo})
        if (a.name == name) rank.compiles[a.compile][a.attempt].graphs[name].push_back(&a);
    }
    for (const TraceSize& s : logs[i].sizes)
      if (auto rank = ranks.find(s.rank.value_or(own)); rank != ranks.end())
        rank->second.compiles[s.compile][s.attempt].sizes.push_back(s.size);
  }
  return ranks;
}

// Compilations that contain a step, each with the last attempt that has one.
std::vector<std::pair<std::string, uint32_t>> candidates(const Rank& rank) {
  std::vector<std::pair<std::string, uint32_t>> out;
  for (const auto& [id, attempts] : rank.compiles) {
    std::optional<uint32_t> last;
    for (const auto& [attempt, graphs] : attempts)
      if (graphs.is_whole()) last = attempt;
    if (last) out.emplace_back(id, *last);
  }
  return out;
}

std::string name_of(const std::string& id, uint32_t attempt) {
  return id + (attempt == 0 ? "" : "_" + std::to_string(attempt));
}

std::string listed(const Rank& rank) {
  std::string out;
  size_t said = 0;
  auto all = candidates(rank);
  for (const auto& [id, attempt] : all) {
    if (said++ == 8) return out + " and " + std::to_string(all.size() - 8) + " more";
    out += (out.empty() ? "" : ", ") + name_of(id, attempt) + " (" +
           std::string(rank.compiles.at(id).at(attempt).main()) + ")";
  }
  return out;
}

Error trace_error(const Rank& rank, std::string message, std::string hint) {
  return {ErrorKind::unreadable, std::move(message), {rank.file}, std::move(hint)};
}

bool has_dynamo_only(const Rank& rank) {
  return std::ranges::any_of(rank.compiles, [](const auto& compile) {
    return std::ranges::any_of(compile.second, [](const auto& attempt) { return attempt.second.has(kDynamo); });
  });
}

// The default choice: a step has a joint graph; graphs after a graph break are small remainders.
std::string likely(const Rank& rank, const std::vector<std::pair<std::string, uint32_t>>& all) {
  auto is_joint = [&](const auto& c) { return rank.compiles.at(c.first).at(c.second).main() == kJoint; };
  auto it = std::ranges::find_if(all, is_joint);
  return it == all.end() ? name_of(all[0].first, all[0].second) : name_of(it->first, it->second);
}

Result<const Attempt*> choose(const Rank& rank, const std::string& wanted) {
  auto all = candidates(rank);
  if (all.empty() && has_dynamo_only(rank))
    return trace_error(rank, "the trace ends before a graph of operators: it holds no more than Dynamo's",
                       "the log is cut (the job was still compiling, or the copy is not whole), the graph came out of "
                       "a compile cache, or "
                       "the backend makes none (`eager`)");
  if (all.empty())
    return trace_error(
        rank, "the trace holds no graph of operators (aot_joint_graph, aot_forward_graph, aot_inference_graph)",
        "compile with the backend aot_eager or inductor, and with the compile cache off");
  if (wanted.empty() && all.size() > 1)
    return trace_error(rank, "the trace holds " + std::to_string(all.size()) + " compilations: " + listed(rank),
                       "choose one: --compile-id " + likely(rank, all));
  for (const auto& [id, attempt] : all)
    if (wanted.empty() || wanted == id) return &rank.compiles.at(id).at(attempt);
  for (const auto& [id, attempts] : rank.compiles)
    for (const auto& [attempt, graphs] : attempts)
      if (graphs.is_whole() && wanted == name_of(id, attempt)) return &graphs;
  return trace_error(rank, "the trace has no graphs of a compilation " + wanted, "there are " + listed(rank));
}

Result<FxStep> step_of(const Rank& rank, const Attempt& attempt) {
  std::string_view main = attempt.main();
  const auto& graphs = attempt.graphs.at(main);
  if (graphs.size() != 1)
    return trace_error(rank,
                       "the compilation holds " + std::to_string(graphs.size()) + " graphs " + std::string(main) +
                           " (parts of a model that was split)",
                       "cut the one you mean out of the trace, and import it as FX text");
  FxStep step{graphs[0]->text, std::nullopt, std::nullopt, 0};
  if (main == kForward && attempt.has(kBackward)) step.backward = attempt.graphs.at(kBackward)[0]->text;
  if (attempt.has(kDynamo)) step.dynamo = attempt.graphs.at(kDynamo)[0]->text;
  step.sizes = attempt.sizes;
  return step;
}

// Logs of several ranks name their ranks: two logs that do not are two runs or two jobs.
Status check_ranks(const std::vector<TraceLog>& logs) {
  std::map<uint32_t, std::string> files;  // by rank: a file that contains entries of it
  auto wrong = [](const std::string& file, std::string message) {
    return Error{ErrorKind::unreadable,
                 std::move(message),
                 {file},
                 "name the log of one run: the folder keeps those of the runs before"};
  };
  for (const TraceLog& log : logs) {
    if (log.artefacts.empty()) continue;
    const std::string file(log.artefacts[0].text.file);
    const std::set<uint32_t> told = ranks_told(log);
    if (told.empty() && logs.size() > 1)
      return wrong(file, plural(logs.size(), "log") + ", and this one is of a process of its own: it names no rank");
    for (uint32_t rank : told)
      if (auto [at, is_new] = files.emplace(rank, file); !is_new)
        return wrong(file, "rank " + std::to_string(rank) + " has a log already: " + at->second);
  }
  return ok_status();
}

bool has_collective(const Program& program) {
  auto is_in = [](const Graph& graph) {
    for (NodeId n : graph.nodes()) {
      const OpInfo* op = graph.op_info(n);
      if (op != nullptr ? op->has(kCollective) : graph.op_name(n).find("c10d") != std::string_view::npos) return true;
    }
    return false;
  };
  return is_in(program.graph) ||
         std::ranges::any_of(program.nested, [&](const auto& nested) { return is_in(nested->graph); });
}

// A capture records how far apart correct answers may be; a trace does not.
void tell_of_rounding(const Job& job, const std::string& file, Diagnostics* notes) {
  auto is_narrow = [&](const Graph& graph, NodeId n) {
    const Node& node = graph.node(n);
    for (uint32_t i = 0; i < node.result_count; ++i)
      if (DType d = graph.type(node.result(i)).dtype; d == DType::bf16 || d == DType::f16) return true;
    return false;
  };
  for (const auto& program : job.programs)
    for (NodeId n : program->graph.nodes())
      if (is_narrow(program->graph, n)) {
        notes->note(
            "the step computes in bf16 or f16, and a trace does not say how far apart correct answers may be there: "
            "--expect of PyTorch's values may need --rtol (a capture knows)",
            {file});
        return;
      }
}

void tell_of_cut_logs(const std::vector<TraceLog>& logs, Diagnostics* notes) {
  for (const TraceLog& log : logs)
    if (notes != nullptr && !log.cut_file.empty())
      notes->note("the log ends within a line, which is left out: its job still runs, or was ended", {log.cut_file});
}

// Notes that nothing outside the compiled graphs is in a trace.
void tell_of_silent_ranks(const Job& job, const std::string& file, Diagnostics* notes) {
  if (notes == nullptr || job.world < 2) return;
  if (std::ranges::any_of(job.programs, [](const auto& program) { return has_collective(*program); })) return;
  notes->note(
      "no rank's graph talks to another: what DDP or FSDP2 exchanges outside of what was compiled is in no trace, "
      "and gradients are each rank's own",
      {file});
}

}  // namespace

Result<Job> import_trace(const std::vector<TraceLog>& logs, const TraceOptions& options, Diagnostics* notes) {
  SG_TRY(check_ranks(logs));
  Ranks ranks = ranks_of(logs);
  if (ranks.empty()) return Error{ErrorKind::unreadable, "the trace holds no artefacts", {}, {}};
  uint32_t world = 1;  // the ranks that the logs show, though one is chosen
  if (options.rank) {
    auto it = ranks.find(*options.rank);
    if (it == ranks.end())
      return trace_error(ranks.begin()->second, "the trace holds nothing of rank " + std::to_string(*options.rank), {});
    Rank rank = std::move(it->second);
    world = std::max(static_cast<uint32_t>(ranks.size()), ranks.rbegin()->first + 1);
    ranks.clear();
    ranks.emplace(*options.rank, std::move(rank));
  } else if (ranks.size() > 1 && ranks.rbegin()->first + 1 != ranks.size()) {
    return trace_error(ranks.rbegin()->second,
                       "the trace holds " + std::to_string(ranks.size()) +
                           " ranks, and their numbers have gaps up to " + std::to_string(ranks.rbegin()->first),
                       "choose one with --rank");
  }
  std::vector<FxStep> steps;
  const Rank* without_backward = nullptr;  // the first one
  for (const auto& [number, rank] : ranks) {
    SG_ASSIGN(const Attempt* attempt, choose(rank, options.compile));
    SG_ASSIGN(FxStep step, step_of(rank, *attempt));
    if (attempt->main() == kForward && !step.backward && without_backward == nullptr) without_backward = &rank;
    step.rank = number;
    step.ranks = world;
    steps.push_back(std::move(step));
  }
  if (without_backward != nullptr && notes != nullptr)
    notes->note("the trace holds the forward only: the backward of this compilation was never made",
                {without_backward->file});
  tell_of_cut_logs(logs, notes);
  SG_ASSIGN(Job job, import_fx_steps(std::move(steps), options.import, notes));
  tell_of_silent_ranks(job, ranks.begin()->second.file, notes);
  if (notes != nullptr) tell_of_rounding(job, ranks.begin()->second.file, notes);
  return job;
}

std::string describe_trace(const std::vector<TraceLog>& logs) {
  std::string out;
  uint64_t events = 0, artefacts = 0, others = 0;
  for (size_t i = 0; i < logs.size(); ++i) {
    const uint32_t own = own_rank(logs, i);
    for (const TraceArtefact& a : logs[i].artefacts) {
      const bool is_graph = a.name.ends_with("_graph") && !a.name.starts_with("artifact ");
      others += !is_graph;
      if (!is_graph) continue;
      // Logs without a rank are separate runs, not ranks of a job.
      const bool is_rank = a.rank || logs.size() == 1;
      out += (is_rank ? "rank " + std::to_string(a.rank.value_or(own)) : a.text.file) + "  compile " +
             (a.compile.empty() ? "-" : id_of(a)) + "  " + a.name + "  " + std::to_string(a.bytes()) + " bytes\n";
    }
    events += logs[i].events, artefacts += logs[i].artefacts.size();
  }
  out += std::to_string(events) + " events, " + std::to_string(artefacts) + " artefacts";
  out += others == 0 ? "\n" : ", " + std::to_string(others) + " of them no graphs (--json lists them)\n";
  if (Status ranks = check_ranks(logs); !ranks.ok()) return out + ranks.error().message + ": give one of them\n";
  for (const auto& [number, rank] : ranks_of(logs))
    if (size_t steps = candidates(rank).size(); steps > 1)
      out += "rank " + std::to_string(number) + ": " + std::to_string(steps) +
             " compilations for --compile-id: " + listed(rank) + "\n";
  return out;
}

std::string trace_json(const std::vector<TraceLog>& logs) {
  JsonWriter out(JsonWriter::Style::pretty);
  out.begin_object().member("schema", "sg-import-list").member("version", 1).key("artefacts").begin_array();
  for (size_t i = 0; i < logs.size(); ++i) {
    const uint32_t own = own_rank(logs, i);
    for (const TraceArtefact& a : logs[i].artefacts)
      out.begin_object()
          .member("rank", a.rank.value_or(own))
          .member("compile", a.compile)
          .member("attempt", a.attempt)
          .member("name", a.name)
          .member("bytes", a.bytes())
          .end_object();
  }
  out.end_array().end_object();
  return out.take() + "\n";
}

}  // namespace sg
