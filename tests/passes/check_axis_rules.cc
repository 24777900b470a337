// check_axis_rules [--ops TEXT] [--keep] VECTORS MODULES: the axis rules against whole runs, and against mutants of
// themselves.
//
// Calls     Every conformance vector of an op that has an axis rule, as a module of one node: in 2 or 3 chunks of its
//           first axis, and of its second (for elementwise ops, which share a rule, only for some). It must be refused
//           or give what the whole call gives.
// Modules   The graphs of MODULES/*.txt: modules whose nodes need each other's states. Those named refused-* must be
//           refused.
// Mutants   Each rule made wrong on purpose, in one way at a time, for each op: it must show somewhere, as a refusal,
//           as a finding of the verifier or the type rules, or in the values. A mutant that does not is a failure.
// Prints a table, a line per rule. Exit 0: calls and modules are right, every rule was tried, and every mutant was
// caught.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "libgraph/import/gzip.h"
#include "libgraph/infer/infer.h"
#include "libgraph/text/text.h"
#include "libgraph/verify/verify.h"
#include "libpasses/axis/axis_rules.h"
#include "libpasses/chunk/chunk.h"
#include "librun/check/compare_session.h"
#include "librun/comm/comm_local.h"
#include "tests/conformance/vector.h"

using namespace sg;

namespace {

// --- mutations: false if there is nothing to change ---

AxisState partial_state() {
  AxisState out;
  out.kind = AxisKind::partial;
  return out;
}

template <class Fn>
bool change_along(AxisCall& c, const Fn& fn) {
  bool any = false;
  for (uint32_t i = 0; i < c.given.size(); ++i)
    if (c.given[i].kind == AxisKind::along) any = fn(i, c.given[i]) || any;
  return any;
}

template <class Fn>
bool change_sums(AxisCall& c, const Fn& fn) {
  bool any = false;
  for (uint32_t i = 0; i < c.given.size(); ++i)
    if (c.given[i].kind == AxisKind::partial) any = fn(i, c.given[i]) || any;
  return any;
}

bool settle(AxisCall& c, uint32_t i, Settle how) {
  c.settles.resize(c.given.size(), Settle::none);
  c.settles[i] = how;
  c.given[i] = AxisState();
  return true;
}

bool next_axis(AxisCall& c) {
  return change_along(c, [&](uint32_t i, AxisState& s) {
    const size_t rank = c.rank(c.result(i));
    if (rank < 2) return false;
    s.along.axis = static_cast<uint32_t>((s.along.axis + 1) % rank);
    return true;
  });
}
bool sum_for_rows(AxisCall& c) {
  return change_along(c, [](uint32_t, AxisState& s) { return s = partial_state(), true; });
}
bool one_for_rows(AxisCall& c) {
  return change_along(c, [&](uint32_t i, AxisState&) { return settle(c, i, Settle::first); });
}
bool twice_the_rows(AxisCall& c) {
  return change_along(c, [&](uint32_t, AxisState& s) {
    s.along.unit = c.exprs.mul(s.along.unit, c.exprs.constant(2));
    return true;
  });
}
bool one_run(AxisCall& c) {
  return change_along(c, [](uint32_t, AxisState& s) {
    const bool has_runs = bool(s.along.runs);
    s.along = s.along.one_run();
    return has_runs;
  });
}
bool rows_for_sum(AxisCall& c) {
  auto first = c.first_along();
  return first.ok() && change_sums(c, [&](uint32_t i, AxisState& s) {
           if (c.rank(c.result(i)) == 0) return false;
           Along a = c.state(*first).along;
           a.axis = 0;
           s = along_state(a);
           return true;
         });
}
bool one_for_sum(AxisCall& c) {
  return change_sums(c, [&](uint32_t i, AxisState&) { return settle(c, i, Settle::first); });
}
bool no_slices(AxisCall& c) { return c.slices.empty() ? false : (c.slices.clear(), true); }
bool no_sizes(AxisCall& c) { return c.edits.empty() ? false : (c.edits.clear(), true); }
bool no_words(AxisCall& c) { return c.words.empty() ? false : (c.words.clear(), true); }
bool no_share(AxisCall& c) { return c.share ? (c.share.reset(), true) : false; }
bool first_for_settled(AxisCall& c) {
  bool any = false;
  for (Settle& s : c.settles)
    if (s == Settle::sum || s == Settle::quotient) s = Settle::first, any = true;
  return any;
}
bool not_divided(AxisCall& c) {
  bool any = false;
  for (Settle& s : c.settles)
    if (s == Settle::quotient) s = Settle::sum, any = true;
  return any;
}
bool not_local(AxisCall& c) {
  return change_along(c, [](uint32_t, AxisState& s) { return std::exchange(s.local, false); });
}
bool other_counts(AxisCall& c) {
  return change_sums(c, [&](uint32_t, AxisState& s) {
    if (s.table == kNoTable) return false;
    CountTable table = c.world.tables[s.table];
    table.source.received = !table.source.received;
    s.source = table.source;
    s.table = c.world.add_table(std::move(table));
    return true;
  });
}
bool other_order(AxisCall& c) {
  return change_sums(c, [&](uint32_t, AxisState& s) {
    if (s.table == kNoTable || c.world.tables[s.table].order.size() < 2) return false;
    CountTable table = c.world.tables[s.table];
    std::ranges::reverse(table.order);
    s.table = c.world.add_table(std::move(table));
    return true;
  });
}
bool next_count(AxisCall& c) {
  bool any = false;
  for (AxisState& s : c.given)
    if (s.cell != kNoTable) ++s.cell, any = true;
  return any;
}
bool same_numbers(AxisCall& c) {
  bool any = false;
  for (AxisState& s : c.given)
    if (s.is_own_size()) s.common = true, any = true;
  return any;
}

struct Mutation {
  const char* name;
  bool (*apply)(AxisCall&);
};
constexpr Mutation kMutations[] = {
    {"next axis", next_axis},       {"sum for rows", sum_for_rows},
    {"one for rows", one_for_rows}, {"twice the rows", twice_the_rows},
    {"one run", one_run},           {"rows for sum", rows_for_sum},
    {"one for sum", one_for_sum},   {"no slices", no_slices},
    {"no sizes", no_sizes},         {"no words", no_words},
    {"no share", no_share},         {"first for sum", first_for_settled},
    {"not divided", not_divided},   {"not local", not_local},
    {"other counts", other_counts}, {"other order", other_order},
    {"next count", next_count},     {"same numbers", same_numbers},
};

// --- one attempt ---

struct Case {
  std::string name, text;
  int64_t chunks = 2;
  ChunkAlong along = ChunkAlong::batch;
  bool must_refuse = false;
};

enum class Outcome : uint8_t { equal, refused, invalid, failed, differs };

Job parse_case(const Case& one, bool whole_graph_is_module) {
  Diagnostics problems;
  auto job = parse_text(one.text, one.name, &problems);
  if (!job.ok()) {
    std::fprintf(stderr, "%s: %s\n", one.name.c_str(),
                 problems.has_errors() ? problems.as_error(ErrorKind::unreadable).message.c_str() : "");
    std::exit(2);
  }
  for (auto& program : job->programs) infer_missing_types(*program);
  if (whole_graph_is_module)
    for (auto& program : job->programs)
      for (NodeId n : program->graph.nodes()) {
        program->graph.set_module(n, job->pool->str("m"));
        program->graph.set_phase(n, Phase::forward);
      }
  return std::move(*job);
}

bool same_results(const Job& whole, const Job& chunked, std::string* said) {
  SessionOptions options;
  options.init_seed = 7;
  options.rank.use_arena = false;  // memory is not under test, and planning it takes most of the time
  auto report = run_compared(whole, make_local_communicators(whole), chunked, options);
  if (!report.ok()) return *said = report.error().message, false;
  for (const RankReport& rank : report->ranks)
    for (const auto& [file, expected] : rank.expected)
      for (const ExpectRow& row : expected.rows)
        if (!row.passed()) *said = row.name + " differs " + row.problem;
  return report->passed();
}

// `used`: whether the mutation found something to change.
Outcome attempt(const Case& one, bool is_call, const std::function<void(AxisCall&)>& tamper, std::string* said) {
  const Job whole = parse_case(one, is_call);
  Job chunked = parse_case(one, is_call);
  Diagnostics notes;
  PassContext context;
  context.notes = &notes;
  ChunkOptions options;
  options.modules = "m";
  options.chunks = one.chunks;
  options.along = one.along;
  options.tamper = tamper;
  auto change = chunk(&chunked, options, context);
  if (!change.ok()) return *said = change.error().message, Outcome::refused;
  Diagnostics findings;
  auto written = parse_text(print_text(chunked), one.name, &findings);  // as written and read between tools
  if (written.ok()) verify(*written, {}, &findings);
  if (findings.has_errors()) return *said = findings.as_error(ErrorKind::unreadable).message, Outcome::invalid;
  return same_results(whole, *written, said) ? Outcome::equal : Outcome::differs;
}

// --- all cases ---

struct Row {
  size_t calls = 0, refused = 0, mutants = 0;
  size_t caught[4] = {};  // by refusal, verifier, failure of the run, values
  std::vector<std::string> survivors;
};

struct Checker {
  std::map<std::string, Row> rows;  // by rule
  std::map<std::string, std::vector<std::pair<Case, bool>>>
      accepted;  // by op: cases that use it, and whether they are calls
  size_t wrong = 0;
  bool keep = false;

  static std::string rule_of(const OpInfo& op) {
    const AxisRow* row = find_axis_rule(op);
    return std::string(row == nullptr ? "" : row->name);
  }

  void report_wrong(const Case& one, const std::string& why) {
    ++wrong;
    std::printf("WRONG %s in %d chunks: %s\n", one.name.c_str(), static_cast<int>(one.chunks), why.c_str());
    if (keep) std::printf("%s\n", one.text.c_str());
  }

  void hold(const Case& one, bool is_call, const std::string& rule) {
    std::string said;
    std::vector<std::string> ops;
    const Outcome outcome = attempt(
        one, is_call, [&](AxisCall& c) { ops.emplace_back(c.op.name); }, &said);
    if (!rule.empty()) ++(outcome == Outcome::refused ? rows[rule].refused : rows[rule].calls);
    if (outcome == Outcome::refused && (is_call || one.must_refuse)) {
      if (one.must_refuse) accepted["*"].emplace_back(one, is_call);
      return;
    }
    const bool is_undefined = one.name.starts_with("aten.empty") || one.name.starts_with("aten.new_empty");
    if (is_undefined && outcome == Outcome::differs) return;  // uninitialized memory is no result
    std::string whole_said;
    if (is_call && outcome == Outcome::differs &&
        !same_results(parse_case(one, true), parse_case(one, true), &whole_said))
      return;  // no inputs can be made up
    if (outcome != Outcome::equal || one.must_refuse)
      return report_wrong(one, one.must_refuse ? "is not refused" : said);
    std::ranges::sort(ops);
    ops.erase(std::unique(ops.begin(), ops.end()), ops.end());
    for (const std::string& op : ops) accepted[op].emplace_back(one, is_call);
  }

  // How some case catches the op's mutant (equal: none does); none if there is nothing to change.
  std::optional<Outcome> catch_mutant(const std::string& op, const Mutation& mutation,
                                      const std::vector<std::pair<Case, bool>>& cases) {
    bool any = false;
    for (const auto& [one, is_call] : cases) {
      bool used = false;
      std::string said;
      const Outcome outcome = attempt(
          one, is_call, [&](AxisCall& c) { used = (c.op.name == op && mutation.apply(c)) || used; }, &said);
      any = any || used;
      if (!used) continue;
      if (one.must_refuse ? outcome != Outcome::refused : outcome != Outcome::equal)
        return one.must_refuse ? Outcome::differs : outcome;
    }
    return any ? std::optional(Outcome::equal) : std::nullopt;
  }

  // Some calls of the op, and the modules that hold it, those that must be refused included.
  std::vector<std::pair<Case, bool>> cases_of(const std::string& op) {
    constexpr size_t kMostCalls = 4;
    std::vector<std::pair<Case, bool>> out;
    size_t calls = 0;
    for (const auto& one : accepted[op])
      if (!one.second ? one.first.chunks == 2 : calls++ < kMostCalls) out.push_back(one);
    const std::string called = op.ends_with(".default") ? op.substr(0, op.size() - 8) : op;
    for (const auto& one : accepted["*"])
      if (one.first.chunks == 2 && one.first.text.find(called + "(") != std::string::npos) out.push_back(one);
    return out;
  }

  void mutate() {
    std::vector<std::string> ops;
    for (const auto& [op, cases] : accepted)
      if (op != "*") ops.push_back(op);
    for (const std::string& op : ops) {
      const auto some = cases_of(op);
      Row& row = rows[rule_of(*find_op(op))];
      for (const Mutation& mutation : kMutations) {
        const auto outcome = catch_mutant(op, mutation, some);
        if (!outcome) continue;
        ++row.mutants;
        if (*outcome == Outcome::equal) row.survivors.push_back(op + ": " + mutation.name);
        else ++row.caught[static_cast<size_t>(*outcome) - 1];
      }
    }
  }

  bool print(bool whole) const {
    std::printf("%-28s %6s %8s %8s %8s %9s %7s %8s\n", "rule", "equal", "refused", "mutants", "refused", "verifier",
                "values", "survive");
    size_t survivors = 0, untried = 0;
    for (const auto& [rule, row] : rows) {
      std::printf("%-28s %6zu %8zu %8zu %8zu %9zu %7zu %8zu\n", rule.c_str(), row.calls, row.refused, row.mutants,
                  row.caught[0], row.caught[1], row.caught[2] + row.caught[3], row.survivors.size());
      survivors += row.survivors.size();
    }
    for (const auto& [rule, row] : rows)
      if (whole && row.mutants == 0) std::printf("UNTRIED %s: no case that goes through\n", rule.c_str()), ++untried;
    for (const auto& [rule, row] : rows)
      for (const std::string& s : row.survivors) std::printf("SURVIVES %s: %s\n", rule.c_str(), s.c_str());
    return wrong == 0 && survivors == 0 && untried == 0;
  }
};

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::filesystem::path> files_of(const std::string& folder) {
  std::vector<std::filesystem::path> out;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) out.push_back(entry.path());
  std::ranges::sort(out);
  return out;
}

// Elementwise ops share one rule: some of them stand for all.
bool stands_for_others(const OpInfo& op) {
  constexpr std::string_view kSome[] = {"aten.add.Tensor",      "aten.mul.Tensor", "aten.sub.Scalar",
                                        "aten.tanh.default",    "aten.where.self", "aten.addcmul.default",
                                        "aten.maximum.default", "aten.lt.Tensor",  "aten._to_copy.default"};
  return std::ranges::find(all_axis_rules(), op.name, &AxisRow::op) != all_axis_rules().end() ||
         std::ranges::find(kSome, op.name) != std::end(kSome);
}

void hold_vectors(Checker* checker, const std::filesystem::path& path, const std::string& ops) {
  constexpr size_t kMostOfOne = 3;
  auto bytes = gunzip(read_file(path));
  auto vectors = bytes.ok() ? test::read_vectors(bytes.value()) : Result<std::vector<test::Vector>>(bytes.error());
  if (!vectors.ok()) std::exit(2);
  std::map<std::string_view, size_t> seen;
  for (const test::Vector& v : *vectors) {
    const OpInfo* op = find_op(v.op);
    if (op == nullptr || v.op.find(ops) == std::string_view::npos || (v.dtype != "f32" && v.dtype != "i64")) continue;
    if (!stands_for_others(*op) || op->has(kRandom) || seen[v.op]++ >= kMostOfOne) continue;
    const int64_t chunks = 2 + static_cast<int64_t>(seen[v.op] % 2);
    for (ChunkAlong along : {ChunkAlong::batch, ChunkAlong::sequence})
      checker->hold({std::string(v.op), std::string(v.text), chunks, along, false}, true, Checker::rule_of(*op));
  }
}

}  // namespace

int main(int argc, char** argv) {
  Checker checker;
  std::string ops;
  std::vector<std::string> folders;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--ops" && i + 1 < argc) ops = argv[++i];
    else if (word == "--keep") checker.keep = true;
    else folders.push_back(word);
  }
  if (folders.size() != 2)
    return std::fprintf(stderr, "usage: check_axis_rules [--ops TEXT] [--keep] VECTORS MODULES\n"), 2;
  for (const auto& path : files_of(folders[0]))
    if (path.string().ends_with(".sgv.gz")) hold_vectors(&checker, path, ops);
  for (const auto& path : files_of(folders[1]))
    for (int64_t chunks : {2, 3}) {
      const std::string name = path.filename().string();
      checker.hold({name, read_file(path), chunks, ChunkAlong::batch, name.starts_with("refused-")}, false, {});
    }
  checker.mutate();
  return checker.print(ops.empty()) ? 0 : 1;
}
