#include "librun/check/dump.h"

#include <algorithm>
#include <utility>

#include "libgraph/base/nearest.h"
#include "libgraph/op_pattern.h"
#include "librun/cpu/fill.h"

namespace sg {

Dump::Dump(std::vector<std::string> patterns) : patterns_(std::move(patterns)) {
  for (const std::string& text : patterns_)
    if (auto pattern = ModulePattern::parse(text); pattern.ok()) modules_.push_back(std::move(*pattern));
}

bool Dump::names_module_of(const Graph& graph, NodeId n) const {
  const StrId module = graph.node(n).module;
  return !module.is_none() &&
         std::ranges::any_of(modules_, [&](const ModulePattern& p) { return p.matches(graph.pool().strings[module]); });
}

Status Dump::after(const Graph& graph, NodeId n, std::span<const Tensor> results) {
  if (!has_settled_results(graph, n)) return ok_status();
  const bool in_module = names_module_of(graph, n);
  for (size_t i = 0; i < results.size(); ++i) {
    const Tensor& t = results[i];
    std::string name = name_of_result(graph, n, static_cast<uint32_t>(i));
    const bool is_named = std::ranges::any_of(
        patterns_, [&](const std::string& p) { return fits_stars(p, name) || p == graph.label(n); });
    if (t.is_none() || !(is_named || in_module)) continue;
    const auto [place, is_new] = places_.try_emplace(name, kept_.size());
    const size_t at = place->second;
    if (is_new) kept_.emplace_back(), memory_.emplace_back();
    memory_[at] = std::make_unique<std::byte[]>(static_cast<size_t>(t.bytes()));
    Tensor copy = make_tensor(memory_[at].get(), t.dtype, t.sizes());
    ThreadTeam alone(1);
    cpu::copy(alone, copy, t);
    kept_[at] = {name, t.dtype, {t.sizes().begin(), t.sizes().end()}, {}, memory_[at].get()};
  }
  return ok_status();
}

Result<OutputFile> Dump::stage(const std::string& path) const { return stage_tensors(path, kept_, {{}, true}); }

namespace {

bool matches_module(const Graph& graph, std::string_view text) {
  auto pattern = ModulePattern::parse(text);
  if (!pattern.ok()) return false;
  for (NodeId n : graph.nodes())
    if (const StrId module = graph.node(n).module; !module.is_none() && pattern->matches(graph.pool().strings[module]))
      return true;
  return false;
}

bool matches_some(const Graph& graph, std::string_view pattern) {
  for (NodeId n : graph.nodes()) {
    if (pattern == graph.label(n)) return true;
    for (uint32_t i = 0; i < graph.node(n).result_count; ++i)
      if (fits_stars(pattern, graph.name(graph.node(n).result(i)))) return true;
  }
  return false;
}

}  // namespace

Status check_dump_patterns(const Job& job, std::span<const std::string> patterns) {
  for (const std::string& pattern : patterns) {
    const std::string in_body = pattern.substr(pattern.rfind('/') + 1);  // npos + 1 = 0
    const bool is_found = std::ranges::any_of(job.programs, [&](const auto& program) {
      return matches_some(program->graph, pattern) || matches_module(program->graph, pattern) ||
             std::ranges::any_of(program->nested, [&](const auto& nested) {
               return matches_some(nested->graph, in_body) || matches_module(nested->graph, pattern);
             });
    });
    if (is_found) continue;
    Nearest nearest(pattern);
    for (const auto& program : job.programs)
      for (NodeId n : program->graph.nodes()) nearest.offer(program->graph.label(n));
    return Error{ErrorKind::cannot_apply,
                 "--nodes " + pattern + " matches no result and no module of the graph",
                 {},
                 nearest.hint()};
  }
  return ok_status();
}

}  // namespace sg
