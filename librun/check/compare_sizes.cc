#include "librun/check/compare_sizes.h"

#include <algorithm>
#include <map>
#include <optional>
#include <tuple>

#include "libgraph/expr/input_sizes.h"
#include "libgraph/facts/port_names.h"
#include "librun/values/inputs.h"

namespace sg {
namespace {

// A --bind may be meant for one of the graphs only; one that fits neither is an error.
Result<std::vector<SizeBinding>> bindings_of(const Job& job, const Job& other, std::span<const SizeBinding> all) {
  std::vector<SizeBinding> out;
  for (const SizeBinding& binding : all) {
    Status here = check_bindings(job, {&binding, 1});
    if (here.ok()) out.push_back(binding);
    else if (!check_bindings(other, {&binding, 1}).ok()) return std::move(here.error());
  }
  return out;
}

const Input* find_input(const Graph& graph, std::string_view name, std::string_view fqn) {
  const Input* by_fqn = nullptr;
  for (const Input& input : graph.inputs()) {
    if (input.kind == InputKind::opaque || graph.type(input.value).kind != TypeKind::tensor) continue;
    if (graph.name(input.value) == name) return &input;
    if (!by_fqn && !fqn.empty() && input.fqn && graph.pool().strings[input.fqn] == fqn) by_fqn = &input;
  }
  return by_fqn;
}

std::string_view fqn_of(const Graph& graph, const Input& input) {
  return input.fqn ? std::string_view(graph.pool().strings[input.fqn]) : std::string_view();
}

// The symbol values of one rank's inputs under these bindings and files.
Result<SymbolValues> sizes_of(const Job& job, uint32_t rank, const SessionOptions& options,
                              std::span<const SizeBinding> bindings) {
  InputSource source;
  set_files(options.inputs, options.state, rank, options.first_step, &source);
  source.may_miss = true;
  source.may_spare = options.spare_inputs;
  source.bindings = bindings;
  SG_ASSIGN(InputSet inputs, load_inputs(job, rank, source));
  return std::move(inputs.symbols);
}

// Sizes of symbolic dimensions in one job's inputs that another job's numbers determine, by program: an input's name
// may be that of another one in the next program.
class Decided {
 public:
  void add(const Program& program, std::string_view input, size_t axis, int64_t size) {
    auto [at, is_new] = sizes_.try_emplace({program.ranks, std::string(input), axis}, size);
    if (!is_new && at->second != size) at->second.reset();
  }
  void append_to(std::vector<SizeBinding>* bindings) const {
    for (const auto& [where, size] : sizes_) {
      if (!size) continue;
      const auto& [ranks, input, axis] = where;
      std::string text = input + "[" + std::to_string(axis) + "]=" + std::to_string(*size);
      bindings->push_back({text, input, static_cast<int64_t>(axis), *size, ranks});
    }
  }

 private:
  std::map<std::tuple<std::vector<uint32_t>, std::string, size_t>, std::optional<int64_t>> sizes_;
};

Error different(const Graph& graph, const Input& input, size_t axis, int64_t here, int64_t there) {
  return {ErrorKind::cannot_apply,
          "the graphs cannot run on the same inputs: dimension " + std::to_string(axis) + " of " +
              input_title(graph, input) + " is " + std::to_string(here) + " in the first and " + std::to_string(there) +
              " in the second",
          {},
          "compare graphs of one size"};
}

// Calls fn(input of `from`, input of `to`, axis) for each axis of each input that both have.
template <class Fn>
Status for_each_axis(const Graph& from, const Graph& to, const Fn& fn) {
  for (const Input& a : from.inputs()) {
    if (a.kind == InputKind::opaque || from.type(a.value).kind != TypeKind::tensor) continue;
    const Input* b = find_input(to, from.name(a.value), fqn_of(from, a));
    if (!b || from.type(a.value).shape.size() != to.type(b->value).shape.size()) continue;  // a comparison of its own
    for (size_t axis = 0; axis < from.type(a.value).shape.size(); ++axis) SG_TRY(fn(a, *b, axis));
  }
  return ok_status();
}

}  // namespace

Result<CommonSizes> find_common_sizes(const Job& first, const Job& second, const SessionOptions& options) {
  CommonSizes out;
  SG_ASSIGN(out.first, bindings_of(first, second, options.bindings));
  SG_ASSIGN(out.second, bindings_of(second, first, options.bindings));
  auto constant = [](const Graph& g, const Input& i, size_t axis) {
    return g.pool().exprs.constant_value(g.type(i.value).shape[axis]);
  };
  // Only such a size can be solved; one of several symbols follows from theirs.
  auto has_one_symbol = [](const Graph& g, const Input& i, size_t axis) {
    std::vector<StrId> symbols;
    g.pool().exprs.collect_symbols(g.type(i.value).shape[axis], &symbols);
    return std::ranges::all_of(symbols, [&](StrId s) { return s == symbols[0]; }) && !symbols.empty();
  };
  Decided by_second, by_first;
  for (uint32_t rank = 0; rank < first.world; ++rank) {
    const Program& program = *first.program_of(rank);
    const Graph &a = program.graph, &b = second.program_of(rank)->graph;
    SG_TRY(for_each_axis(a, b, [&](const Input& x, const Input& y, size_t axis) -> Status {
      auto here = constant(a, x, axis), there = constant(b, y, axis);
      if (here && there && *here != *there) return different(a, x, axis, *here, *there);
      if (has_one_symbol(a, x, axis) && there) by_second.add(program, a.name(x.value), axis, *there);
      return ok_status();
    }));
  }
  by_second.append_to(&out.first);
  for (uint32_t rank = 0; rank < first.world; ++rank) {
    const Program& program = *second.program_of(rank);
    const Graph &a = first.program_of(rank)->graph, &b = program.graph;
    SG_ASSIGN(SymbolValues sizes, sizes_of(first, rank, options, out.first));
    SG_TRY(for_each_axis(b, a, [&](const Input& y, const Input& x, size_t axis) -> Status {
      auto here = sizes.value(a.pool().exprs, a.type(x.value).shape[axis]);
      if (here && has_one_symbol(b, y, axis)) by_first.add(program, b.name(y.value), axis, *here);
      return ok_status();
    }));
  }
  by_first.append_to(&out.second);
  return out;
}

namespace {

// What an output is, apart from its position; empty if unknown.
std::string meaning(const Graph& graph, const Output& output) {
  if (output.kind == OutputKind::loss) return "loss";
  if (output.kind == OutputKind::gradient || output.kind == OutputKind::buffer) {
    const std::string target(target_name(graph, output));
    return target.empty() ? target : (output.kind == OutputKind::gradient ? "gradient:" : "buffer:") + target;
  }
  return {};
}

}  // namespace

std::unordered_map<std::string, std::string> pair_outputs(const Graph& first, const Graph& second) {
  const auto &from = first.outputs(), &to = second.outputs();
  std::unordered_map<std::string, std::string> out;
  std::map<std::string, std::vector<size_t>> of_first, of_second;
  for (size_t i = 0; i < from.size(); ++i) of_first[meaning(first, from[i])].push_back(i);
  for (size_t i = 0; i < to.size(); ++i) of_second[meaning(second, to[i])].push_back(i);
  std::vector<bool> taken(to.size());
  for (auto& [what, list] : of_first) {
    auto there = of_second.find(what);
    if (what.empty() || there == of_second.end() || there->second.size() != list.size()) continue;
    for (size_t i = 0; i < list.size(); ++i)
      out.emplace(output_key(list[i]), output_key(there->second[i])), taken[there->second[i]] = true;
  }
  for (size_t i = 0; i < from.size() && from.size() == to.size(); ++i)
    if (!out.contains(output_key(i)) && !taken[i] && from[i].kind == to[i].kind)
      out.emplace(output_key(i), output_key(i));
  return out;
}

}  // namespace sg
