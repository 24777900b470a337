// Whole modules that only one side has: their nodes, parameters and gradients, explained as one.
#include <algorithm>
#include <map>
#include <set>

#include "libgraph/base/human.h"
#include "libgraph/diff/diff_explain.h"
#include "libgraph/facts/update_modules.h"

namespace sg {
namespace {

constexpr size_t kManyNodes = 4;  // a module with fewer nodes is shown node by node

// All modules of a side's nodes, with all their parents.
std::set<std::string_view> modules_of(const ExplainState& state, int s) {
  std::set<std::string_view> out;
  for (uint32_t n = 0; n < state.count(s); ++n)
    for (std::string_view m = state.module(s, n); !m.empty() && out.insert(m).second;)
      m = m.substr(0, m.rfind('.') == m.npos ? 0 : m.rfind('.'));
  return out;
}

// The outermost part of `module`'s path that is not among `others`; empty if all parts are.
std::string_view outermost_new(std::string_view module, const std::set<std::string_view>& others) {
  for (size_t end = module.find('.'); end != module.npos; end = module.find('.', end + 1))
    if (!others.contains(module.substr(0, end))) return module.substr(0, end);
  return others.contains(module) ? std::string_view() : module;
}

bool is_inside(std::string_view name, std::string_view module) {
  return name.starts_with(module) && (name.size() == module.size() || name[module.size()] == '.');
}

class ModuleFinder {
 public:
  ModuleFinder(ExplainState* state, int s) : state_(*state), s_(s), updates_(state->graph(s)) {}

  void run() {
    const std::set<std::string_view> others = modules_of(state_, 1 - s_);
    std::map<std::string_view, std::vector<uint32_t>> found;  // by module, sorted by name
    std::set<std::string_view> mixed;                         // modules with nodes that are matched or explained
    for (uint32_t n = 0; n < state_.count(s_); ++n) {
      const std::string_view updated = updates_.of(state_.side(s_).nodes[n]);
      const std::string_view module = outermost_new(updated.empty() ? state_.module(s_, n) : updated, others);
      if (module.empty()) continue;
      if (state_.is_free(s_, n) && state_.is_open(s_, n)) found[module].push_back(n);
      else if (updated.empty()) mixed.insert(module);  // updates look alike: one may be matched with another's
    }
    first_ = state_.next();
    for (auto& [module, nodes] : found)
      if (nodes.size() >= kManyNodes && !mixed.contains(module)) {
        const uint32_t id = first_ + static_cast<uint32_t>(news_.size());
        for (uint32_t n : nodes) state_.take(s_, n, id);
        news_.push_back({module, nodes.size()});
      }
    take_between();
    for (const New& m : news_) tell(m);
  }

 private:
  struct New {
    std::string_view module;
    size_t nodes = 0;
  };

  void tell(const New& m) {
    const uint32_t id = state_.next();
    const size_t inputs = take_ports(m.module, id, "input"), outputs = take_ports(m.module, id, "output");
    std::string text = (s_ == 1 ? "new: " : "gone: ") + plural(m.nodes, "node");
    if (inputs != 0) text += ", " + plural(inputs, "input");
    if (outputs != 0) text += ", " + plural(outputs, "output");
    state_.add(ExplanationKind::module, std::move(text), std::string(m.module), s_ == 0 ? m.nodes : 0,
               s_ == 1 ? m.nodes : 0, {{"inputs", inputs}, {"outputs", outputs}});
  }

  // Nodes without a module between those of new (or gone) modules, such as sums of gradients.
  void take_between() {
    std::vector<uint32_t> rest;
    for (uint32_t n = 0; !news_.empty() && n < state_.count(s_); ++n)
      if (state_.is_free(s_, n) && state_.is_open(s_, n) && state_.module(s_, n).empty()) rest.push_back(n);
    for (size_t before = rest.size() + 1; rest.size() < before;) {
      before = rest.size();
      std::erase_if(rest, [&](uint32_t n) {
        const Neighbours from = makers(n), to = users(n);
        const bool is_part = (from.any() && to.any()) || from.all() || to.all();
        if (!is_part || !state_.take(s_, n, from.any() ? from.id : to.id)) return false;
        ++news_[(from.any() ? from.id : to.id) - first_].nodes;
        return true;
      });
    }
  }

  // How many neighbours there are, how many belong to one of these modules, and the first such module's explanation.
  struct Neighbours {
    size_t count = 0, inside = 0;
    uint32_t id = MatchSide::kNone;
    bool any() const { return inside != 0; }
    bool all() const { return count != 0 && inside == count; }
  };

  void add(uint32_t n, Neighbours* out) const {
    const uint32_t id = n == MatchSide::kNone ? n : state_.cause(s_, n);
    ++out->count;
    if (id == MatchSide::kNone || id < first_) return;
    if (out->inside++ == 0) out->id = id;
  }

  Neighbours makers(uint32_t n) const {
    Neighbours out;
    for (uint32_t v : state_.side(s_).operands(n)) add(state_.side(s_).maker[v], &out);
    return out;
  }

  Neighbours users(uint32_t n) const {
    const MatchSide& side = state_.side(s_);
    Neighbours out;
    for (uint32_t r = 0; r < side.result_count(n); ++r)
      for (const MatchUse& use : side.uses(side.first_result[n] + r))
        add(use.is_output ? MatchSide::kNone : use.user, &out);
    return out;
  }

  // Ports of the module: parameters, their gradients, and the optimizer's state for them.
  size_t take_ports(std::string_view module, uint32_t id, std::string_view subject) {
    const EditKind kind = s_ == 1 ? EditKind::added : EditKind::removed;
    size_t count = 0;
    for (ItemEdit& item : state_.diff().items) {
      if (item.subject != subject || item.kind != kind || item.explanation != MatchSide::kNone) continue;
      if (!is_inside(fqn_of(item.port, subject == "output"), module)) continue;
      item.explanation = id;
      ++count;
    }
    return count;
  }

  std::string_view fqn_of(uint32_t port, bool is_output) const {
    const Graph& graph = state_.graph(s_);
    const ValueId value = is_output ? graph.outputs()[port].of : graph.inputs()[port].value;
    if (!value) return {};
    const auto input = std::ranges::find(graph.inputs(), value, &Input::value);
    if (input == graph.inputs().end() || !input->fqn) return {};
    return updates_.parameter_of(graph.pool().strings[input->fqn]);
  }

  ExplainState& state_;
  const int s_;
  const UpdateModules updates_;
  uint32_t first_ = 0;     // index of the first explanation
  std::vector<New> news_;  // in the order of their explanations
};

}  // namespace

void explain_modules(ExplainState* state) {
  for (int s : {0, 1}) ModuleFinder(state, s).run();
}

}  // namespace sg
