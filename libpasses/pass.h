// Pass: one change to a job, with its contract as data. passes.def lists all; tools, recipes and docs are made from it.
//
// A pass learns, decides (a plan that --explain prints), and applies. It leaves a job that the verifier accepts, or
// returns an Error of kind cannot_apply with node, rule and remedy; the job must not be used after that. It never
// writes a provenance entry: the pipeline does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/diag.h"
#include "libgraph/job.h"
#include "libpasses/pass_option.h"

namespace sg {

// The options given to one run of a pass, as text.
class PassOptions {
 public:
  void add(std::string name, std::string value) { values_[std::move(name)].push_back(std::move(value)); }
  bool has(std::string_view name) const { return values_.find(name) != values_.end(); }
  std::string text(std::string_view name, std::string_view fallback = {}) const;  // the last value
  std::vector<std::string> all(std::string_view name) const;                      // in the order given
  Result<int64_t> whole(std::string_view name, int64_t fallback, int64_t least) const;
  Result<double> number(std::string_view name, double fallback) const;
  Result<int64_t> bytes(std::string_view name, int64_t fallback) const;  // "512MiB"
  const std::map<std::string, std::vector<std::string>, std::less<>>& values() const { return values_; }

 private:
  std::map<std::string, std::vector<std::string>, std::less<>> values_;
};

struct PassContext {
  Diagnostics* notes = nullptr;  // warnings, and regions left alone under --best-effort; not null
  bool best_effort = false;
  bool explain = false;  // fill Change::plan
  size_t threads = 1;
  std::function<void(const std::string& what)> progress;  // of a pass that may take long, at any rate; may be empty
};

// What a pass did.
struct Change {
  bool changed = false;
  std::string summary;    // "96 nodes recomputed, 31 saved"; when nothing changed, why
  std::string plan;       // --explain, as text
  std::string plan_json;  // the same as JSON, one value
};

// How results may differ from those of the original graph.
enum class Results : uint8_t { bitwise, reassociated };

// A pass that another one should come before.
struct LaterPass {
  std::string_view name;
  std::string_view but_with = {};  // not a run with this option
  std::string_view if_with = {};   // only for a run of the other one with this option
};

struct PassInfo {
  std::string_view name;     // "clean": the tool is sg-clean
  std::string_view summary;  // one sentence without the full stop
  std::string_view details;  // lines for --help; may be empty
  Results results = Results::bitwise;
  // Passes that should come after this one; the pipeline warns if one has already run (pass_order.h).
  std::span<const LaterPass> precedes;
  std::span<const PassOption> options;
  Example examples[2];
  Result<Change> (*run)(Job* job, const PassOptions& options, PassContext& context) = nullptr;
  // Checks the options before `run`; null = everything the option table accepts is valid.
  Status (*check)(const PassOptions& options) = nullptr;
  // Whether a run with options of these names left anything in the job that a pass could come too late for; null = it
  // marks no nodes, so nothing tells: assumed.
  bool (*has_left_traces)(const Job& job, std::span<const std::string> options) = nullptr;
};

// Errors in the options that do not depend on the job: usage, or an unreadable file. REQUIRES: the options are in the
// pass's table, and numbers and choices have been parsed against it
Status check_options(const PassInfo& pass, const PassOptions& options);

// In the order of passes.def.
std::span<const PassInfo* const> all_passes();
const PassInfo* find_pass(std::string_view name);  // null = none; "sg-clean" and "clean" are the same

}  // namespace sg
