#include "libgraph/import/fx_import.h"

#include <algorithm>
#include <limits>

#include "libgraph/base/human.h"
#include "libgraph/base/joined.h"
#include "libgraph/edit/merge.h"
#include "libgraph/import/fx_lower.h"
#include "libgraph/import/fx_parse.h"
#include "libgraph/import/import_tally.h"
#include "libgraph/import/source_build.h"
#include "libgraph/infer/infer.h"

namespace sg {
namespace {

constexpr int64_t kMaxFxWorld = 1 << 20;
constexpr size_t kMaxImpliedGuards = 64;  // real graphs have a few; each is compared with all others

// Output of `print(graph)`: operators and names, but no types.
bool is_graph_listing(std::string_view text) {
  return text.find("= placeholder[target=") != std::string_view::npos &&
         text.find("def forward(") == std::string_view::npos;
}

// Removes the terminal colours ("\033[31m") that print_readable(colored=True) writes.
std::string without_colours(std::string text) {
  size_t out = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\033' && i + 1 < text.size() && text[i + 1] == '[') {
      size_t end = text.find_first_not_of("0123456789;", i + 2);
      if (end != std::string::npos && text[end] == 'm') {
        i = end;
        continue;
      }
    }
    text[out++] = text[i];
  }
  text.resize(out);
  return text;
}

// The device that most calls name, taken for tensors whose annotation has none.
std::string device_in(const FxFile& file) {
  std::map<std::string, size_t> counts;
  for (const FxExpr& e : file.exprs) {
    if (e.kind != FxKind::call) continue;
    std::string device = fx_device_text(file, e);
    if (!device.empty()) ++counts[device];
  }
  auto most =
      std::max_element(counts.begin(), counts.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == counts.end() ? "cpu" : most->first;
}

// --- guards ---

// Adds a guard where a size in the recorded type differs from the op's rule: the two were equal at capture, by a guard
// that the text omits.
void add_implied_guards(Graph& graph, TypeInferrer& inferrer, std::vector<Guard>* guards) {
  ExprPool& exprs = graph.pool().exprs;
  for (NodeId n : graph.nodes()) {
    auto types = inferrer.infer(graph, n);
    if (!types.ok()) continue;
    const Node& node = graph.node(n);
    for (uint32_t i = 0; i < std::min<uint32_t>(node.result_count, static_cast<uint32_t>(types->size())); ++i) {
      const Type &told = graph.type(node.result(i)), &given = (*types)[i];
      if (told.kind != TypeKind::tensor || given.kind != TypeKind::tensor || told.shape.size() != given.shape.size())
        continue;
      for (size_t d = 0; d < told.shape.size(); ++d) {
        if (told.shape[d] == given.shape[d] || exprs.is_invalid(given.shape[d])) continue;
        if (exprs.is_constant(told.shape[d]) && exprs.is_constant(given.shape[d])) continue;  // left to the verifier
        auto same = [&](const Guard& g) { return g.left == given.shape[d] && g.right == told.shape[d]; };
        if (guards->size() < kMaxImpliedGuards && std::none_of(guards->begin(), guards->end(), same))
          guards->push_back({Relation::eq, given.shape[d], told.shape[d], node.source});
      }
    }
  }
}

size_t add_implied_guards(Program* program) {
  if (program->symbols.empty()) return 0;
  std::vector<Guard> guards;
  TypeInferrer inferrer(*program);
  add_implied_guards(program->graph, inferrer, &guards);
  for (auto& nested : program->nested) add_implied_guards(nested->graph, inferrer, &guards);
  program->guards.insert(program->guards.end(), guards.begin(), guards.end());
  return guards.size();
}

// --- the importer ---

class FxImporter {
 public:
  FxImporter(const ImportOptions& options, Diagnostics* notes) : options_(options), notes_(notes), groups_(&job_) {}

  Result<Job> run(std::vector<FxStep> steps) {
    std::vector<FxProgram> programs;
    programs.reserve(steps.size());
    uint32_t last_rank = 0;
    std::vector<uint32_t> ranks;
    for (FxStep& step : steps) {
      ranks.push_back(step.rank);
      last_rank = std::max(last_rank, step.rank);
      ranks_seen_ = std::max(ranks_seen_, step.ranks);
      SG_ASSIGN(FxProgram program, read_step(std::move(step)));
      SG_TRY(check_foreign(program));
      programs.push_back(std::move(program));
    }
    SG_TRY(settle_world(static_cast<uint32_t>(programs.size()), last_rank));
    ProgramSharer sharer(&job_);
    for (size_t i = 0; i < programs.size(); ++i) {
      Program& program = job_.add_program();
      SG_TRY(build_program(programs[i].source, job_, &tally_, &program));
      implied_guards_ += add_implied_guards(&program);
      program.ranks = {ranks[i]};
      sharer.share_last();
    }
    say_what_is_missing(programs[0]);
    sharer.finish(notes_);
    if (options_.spmd) job_.programs[0]->ranks.clear();
    if (notes_ != nullptr) tally_.report(ImportTally::kNoRank, notes_);
    return std::move(job_);
  }

 private:
  Pool& pool() { return *job_.pool; }

  Result<FxUnit*> unit(FxText text) {
    std::string_view part = text.whole.substr(text.begin, text.end - text.begin);
    if (is_graph_listing(part))
      return text.error(text.begin, "this is `print(graph)`, which has no types of its values",
                        "give what graph_module.print_readable() prints");
    SG_ASSIGN(std::unique_ptr<FxUnit> unit, read_fx_unit(std::move(text)));
    units_.push_back(std::move(unit));
    return units_.back().get();
  }

  Result<FxProgram> read_step(FxStep step) {
    SG_ASSIGN(FxUnit * graph, unit(std::move(step.graph)));
    std::vector<uint32_t> roots = fx_roots(graph->file);
    if (roots.empty()) return no_module(*graph);
    FxUnit* backward = nullptr;
    if (step.backward) {
      SG_ASSIGN(backward, unit(std::move(*step.backward)));
    }
    SG_ASSIGN(FxProgram program, lower(graph, roots[0]));
    if (backward != nullptr) {
      std::vector<uint32_t> other = fx_roots(backward->file);
      if (other.empty()) return no_module(*backward);
      if (roots.size() != 1 || other.size() != 1) return several(*(roots.size() != 1 ? graph : backward));
      SG_ASSIGN(FxProgram second, lower(backward, other[0]));
      SG_ASSIGN(program, join_fx_programs(std::move(program), std::move(second), &pool()));
    } else if (roots.size() == 2) {
      SG_ASSIGN(FxProgram second, lower(graph, roots[1]));
      if (has_tangents(program) && !has_tangents(second)) std::swap(program, second);  // in any order
      if (!has_tangents(second) || has_tangents(program)) return several(*graph);
      SG_ASSIGN(program, join_fx_programs(std::move(program), std::move(second), &pool()));
    } else if (roots.size() != 1) {
      return several(*graph);
    }
    program.source.where = [this](SourcePlace place) {
      return place.b < units_.size() ? units_[place.b]->text.where(place.a) : Location();
    };
    if (step.dynamo) {
      auto names = read_fx_unit(std::move(*step.dynamo));  // names only: errors there do not matter
      if (names.ok()) name_inputs_from_dynamo(**names, step.sizes, &pool(), &program);
    }
    learn_fx_sizes(step.sizes, &pool(), &program.source, &gaps_);
    classify_fx_ports(&program, &pool());
    put_numbers_in(step.sizes, &pool(), &program.source);
    spread_backward(&program.source.graph);
    program.source.computed = computed_.list();
    return program;
  }

  Result<FxProgram> lower(FxUnit* unit, uint32_t root) {
    uint32_t index = static_cast<uint32_t>(
        std::find_if(units_.begin(), units_.end(), [&](const auto& u) { return u.get() == unit; }) - units_.begin());
    FxTypes types(&pool(), device_in(unit->file), &gaps_, &computed_);
    SG_ASSIGN(FxProgram program, lower_fx_program({&job_, &groups_, &types, &gaps_}, unit, root, index));
    program.source.where = [this](SourcePlace place) {
      return place.b < units_.size() ? units_[place.b]->text.where(place.a) : Location();
    };
    return program;
  }

  bool has_tangents(const FxProgram& program) {
    const SourceGraph& graph = program.source.graph;
    for (size_t i = 0; i < graph.inputs.size(); ++i)
      if (program.input_descriptors[i].starts_with("TangentAOTInput(") ||
          pool().strings[graph.inputs[i].name].starts_with("tangents_"))
        return true;
    return false;
  }

  static Error no_module(const FxUnit& unit) {
    return unit.text.error(unit.text.begin, "there is no module with a forward in it",
                           "an FX text has lines such as `def forward(self, arg0_1: \"f32[2, 3]\"):`");
  }

  static Error several(const FxUnit& unit) {  // REQUIRES: more than one
    std::vector<uint32_t> roots = fx_roots(unit.file);
    std::string list = joined(first_of(roots, 8), ", ", [&](uint32_t root) {
      const FxModule& m = unit.file.modules[root];
      return std::string(m.name.empty() ? "forward" : m.name) + " at line " +
             std::to_string(unit.text.where(m.at).line);
    });
    if (roots.size() > 8) list += " and " + std::to_string(roots.size() - 8) + " more";
    return unit.text.error(unit.file.modules[roots[1]].at,
                           "the text holds " + std::to_string(roots.size()) + " graphs: " + list,
                           "give one of them, or a forward and its backward");
  }

  // Refuses a graph captured before AOTAutograd: it is not a graph of operators.
  static Status check_foreign(const FxProgram& program) {
    if (program.foreign_calls == 0 || program.operator_calls != 0) return ok_status();
    return Error{
        ErrorKind::unreadable,
        "this graph was taken before its calls became operators: " + plural(program.foreign_calls, "call") +
            " such as " + program.first_foreign,
        program.first_foreign_at,
        "give a graph of AOTAutograd (aot_joint_graph; aot_forward_graph and aot_backward_graph), or of torch.export"};
  }

  // Only gathers and scatters print how many ranks take part: of an all_reduce alone the job could have any number, and
  // among one rank it would do nothing.
  Status check_world_is_told(uint32_t files, uint32_t last_rank) const {
    const int64_t told = std::max({groups_.largest(), int64_t{last_rank} + 1, int64_t{files}});
    if (options_.world && *options_.world < told)
      return Error{ErrorKind::usage, "--world " + std::to_string(*options_.world) + ": the job has at least " +
                                         plural(static_cast<uint64_t>(told), "rank")};
    if (options_.world || files > 1 || ranks_seen_ > 1 || groups_.of_unknown_size() == 0 || groups_.largest() > 1)
      return ok_status();
    return Error{ErrorKind::unreadable,
                 "the graph communicates, and the text does not say among how many ranks",
                 {units_[0]->text.file},
                 "--world N says it; or give the text of every rank"};
  }

  Status settle_world(uint32_t files, uint32_t last_rank) {
    SG_TRY(check_world_is_told(files, last_rank));
    int64_t world = std::max({groups_.largest(), int64_t{last_rank} + 1, int64_t{ranks_seen_}});
    if (options_.world) world = std::max<int64_t>(world, *options_.world);
    if (world > kMaxFxWorld)
      return Error{ErrorKind::unreadable,
                   "a group of " + std::to_string(world) + " ranks is beyond any world",
                   {units_[0]->text.file},
                   {}};
    if (files > 1 && world != files)
      return Error{ErrorKind::unreadable,
                   "the groups hold up to " + std::to_string(world) + " ranks, and here are " + plural(files, "file"),
                   {units_[0]->text.file},
                   "give the text of every rank, or one that stands for all with --spmd"};
    job_.world = static_cast<uint32_t>(world);
    auto settled = groups_.settle(job_.world, files, options_.spmd ? job_.world : last_rank + 1);
    if (!settled.ok()) settled.error().where.file = units_[0]->text.file;
    return settled;
  }

  // One note: what the text lacks, and what is assumed instead.
  void say_what_is_missing(const FxProgram& first) {
    if (notes_ == nullptr) return;
    std::string s = "text does not say: storage offsets";
    auto add = [&](const std::string& what) { s += "; " + what; };
    if (gaps_.strides != 0)
      add("strides of " + plural(gaps_.strides, "value") + " (inferred, contiguous where no rule tells)");
    if (gaps_.devices != 0) add("devices (" + device_in(units_[0]->file) + " is taken)");
    const SymbolList& symbols = job_.programs[0]->symbols;
    auto bare = std::ranges::count_if(
        symbols, [](const Symbol& symbol) { return symbol.kind == SymbolKind::input && !symbol.hint; });
    if (bare != 0) add("hints of " + plural(static_cast<uint64_t>(bare), "symbol") + " (sizes are 2 or more)");
    if (implied_guards_ != 0) add("guards (" + std::to_string(implied_guards_) + " follow from the types)");
    if (const size_t sizeless = options_.world ? 0 : groups_.of_unknown_size(); sizeless != 0)
      add("sizes of " + plural(sizeless, "group") + " (all " + std::to_string(job_.world) + " ranks are taken)");
    if (!groups_.empty()) add("members of " + plural(job_.groups.size(), "group") + " (ranks from 0 on are taken)");
    const auto& inputs = first.source.graph.inputs;
    size_t nameless = static_cast<size_t>(std::count_if(inputs.begin(), inputs.end(), [](const SourceInput& i) {
      return !i.input.fqn && (i.input.kind == InputKind::user || i.input.kind == InputKind::opaque);
    }));
    if (nameless != 0)
      add("what " + plural(nameless, "input") + (nameless == 1 ? " is" : " are") + " called in the model");
    if (gaps_.cut_annotations != 0)
      add("the ends of " + plural(gaps_.cut_annotations, "annotation") + " (cut after 40 characters)");
    if (gaps_.unread_guards != 0) add(plural(gaps_.unread_guards, "guard") + " in words that can be read");
    if (gaps_.unread_annotations != 0) add(plural(gaps_.unread_annotations, "annotation") + " that cannot be read");
    if (gaps_.subclasses != 0)
      add("the inside of " + plural(gaps_.subclasses, "tensor subclass") + " (read as plain tensors)");
    if (gaps_.odd_types != 0) add(plural(gaps_.odd_types, "type") + " in words that the graph has");
    add("which forward node a backward node belongs to");
    notes_->note(s, {units_[0]->text.file});
  }

  ImportOptions options_;
  Diagnostics* notes_;
  Job job_;
  FxGroups groups_;
  FxGaps gaps_;
  ComputedSizes computed_;
  size_t implied_guards_ = 0;
  uint32_t ranks_seen_ = 1;
  ImportTally tally_;
  std::vector<std::unique_ptr<FxUnit>> units_;
};

}  // namespace

Result<Job> import_fx_steps(std::vector<FxStep> steps, const ImportOptions& options, Diagnostics* notes) {
  if (steps.empty()) return Error{ErrorKind::usage, "there is no text to import", {}, {}};
  if (options.spmd && steps.size() != 1)
    return Error{ErrorKind::usage,
                 "one text stands for all ranks; here are " + std::to_string(steps.size()),
                 {},
                 "omit --spmd to import a rank set"};
  return FxImporter(options, notes).run(std::move(steps));
}

Result<Job> import_fx(std::vector<CaptureFile> files, const ImportOptions& options, Diagnostics* notes) {
  std::vector<FxStep> steps;
  for (CaptureFile& file : files)
    if (file.bytes.find('\033') != std::string::npos) file.bytes = without_colours(std::move(file.bytes));
  for (const CaptureFile& file : files)
    steps.push_back(
        {FxText::of(file.name, file.bytes), std::nullopt, std::nullopt, static_cast<uint32_t>(steps.size())});
  return import_fx_steps(std::move(steps), options, notes);
}

}  // namespace sg
