#include "libgraph/job.h"

#include <algorithm>

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

Job::Job(const Job& other)
    : pool(std::make_unique<Pool>(*other.pool)), title(other.title), producer(other.producer), note(other.note),
      world(other.world), meshes(other.meshes), groups(other.groups), provenance(other.provenance),
      extra(other.extra) {
  for (const auto& from : other.programs) {
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
