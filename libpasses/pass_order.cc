#include "libpasses/pass_order.h"

#include <algorithm>

namespace sg {
namespace {

// A pass that has run, and the names of its options.
struct PastStage {
  std::string name;
  std::vector<std::string> options;

  bool has(std::string_view option) const { return std::ranges::count(options, option) != 0; }
  bool is(const LaterPass& pass) const { return name == pass.name && !has(pass.but_with); }
};

// The runs in the job's history that have left something in it.
std::vector<PastStage> stages_behind(const Job& job) {
  std::vector<PastStage> out;
  for (const Provenance& entry : job.provenance) {
    std::string_view tool = job.pool->strings[entry.tool];
    if (!tool.starts_with("sg-")) continue;
    PastStage past{std::string(tool.substr(3)), {}};
    for (const KeyValue& option : entry.options) past.options.emplace_back(job.pool->strings[option.key]);
    const PassInfo* pass = find_pass(past.name);
    if (pass == nullptr || pass->has_left_traces == nullptr || pass->has_left_traces(job, past.options))
      out.push_back(std::move(past));
  }
  return out;
}

}  // namespace

std::vector<std::string> order_warnings(const Job& job, std::span<const Stage> stages, size_t first) {
  std::vector<PastStage> history = stages_behind(job);
  std::vector<std::string> out;
  for (size_t i = 0; i < stages.size(); ++i) {
    const Stage& stage = stages[i];
    for (const LaterPass& later : stage.pass->precedes) {
      const std::string with = later.if_with.empty() ? "" : " --" + std::string(later.if_with);
      if (i < first || (!with.empty() && !stage.options.has(later.if_with))) continue;
      if (std::ranges::any_of(history, [&](const PastStage& past) { return past.is(later); }))
        out.push_back("sg-" + std::string(stage.pass->name) + with + " is meant to run before sg-" +
                      std::string(later.name) + ", which has run");
    }
    history.push_back({std::string(stage.pass->name), {}});
    for (const auto& [name, values] : stage.options.values()) history.back().options.push_back(name);
  }
  return out;
}

}  // namespace sg
