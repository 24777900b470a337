#include "libgraph/job.h"

#include <algorithm>
#include <numeric>

namespace sg {

Nested* Program::find_nested(StrId name) const {
  for (const auto& n : nested)
    if (n->name == name) return n.get();
  return nullptr;
}

const GroupPart* Group::part_of(uint32_t rank) const {
  for (const GroupPart& part : parts)
    if (std::find(part.ranks.begin(), part.ranks.end(), rank) != part.ranks.end()) return &part;
  return nullptr;
}

namespace {

std::vector<size_t> all_of(size_t count) {
  std::vector<size_t> out(count);
  std::iota(out.begin(), out.end(), size_t{0});
  return out;
}

}  // namespace

Job::Job(const Job& other) : Job(other, all_of(other.programs.size())) {}

Job::Job(const Job& other, std::span<const size_t> chosen)
    : pool(std::make_unique<Pool>(*other.pool)),
      title(other.title),
      producer(other.producer),
      note(other.note),
      world(other.world),
      meshes(other.meshes),
      groups(other.groups),
      provenance(other.provenance),
      extra(other.extra) {
  for (size_t index : chosen) {
    const Program* from = other.programs[index].get();
    Program& to = add_program();
    to.ranks = from->ranks;
    to.symbols = from->symbols;
    to.guards = from->guards;
    to.graph = Graph(from->graph, pool.get());
    for (const auto& n : from->nested)
      to.nested.push_back(std::make_unique<Nested>(Nested{n->name, Graph(n->graph, pool.get())}));
  }
}

Program& Job::add_program() {
  programs.push_back(std::make_unique<Program>(pool.get()));
  return *programs.back();
}

Program* Job::program_of(uint32_t rank) const {
  if (rank >= world) return nullptr;
  for (const auto& p : programs)
    if (p->ranks.empty() || std::binary_search(p->ranks.begin(), p->ranks.end(), rank)) return p.get();
  return nullptr;
}

GroupId Job::find_group(StrId axis, uint32_t ordinal) const {
  for (uint32_t i = 0; i < groups.size(); ++i)
    if (groups[i].axis == axis && groups[i].ordinal == ordinal) return GroupId(i);
  return GroupId();
}

size_t Job::node_count() const {
  size_t n = 0;
  for_each_graph([&](const Graph& graph) { n += graph.node_count(); });
  return n;
}

std::string place_of(const Program& program, const Graph& graph, NodeId n) {
  std::string out = "graph ";
  if (&graph != &program.graph) {
    for (const auto& nested : program.nested)
      if (&nested->graph == &graph) out += std::string(graph.pool().strings[nested->name]) + " of ";
  }
  if (program.ranks.empty()) {
    out += "rank *";
  } else {
    out += "rank";
    for (uint32_t r : program.ranks) out += " " + std::to_string(r);
  }
  if (n) out += ", node %" + std::string(graph.label(n));
  return out;
}

}  // namespace sg
