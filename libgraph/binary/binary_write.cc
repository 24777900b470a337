#include <algorithm>
#include <cmath>
#include <limits>

#include "libgraph/binary/binary_writer.h"
#include "libgraph/binary/seal.h"

namespace sg {
namespace {

constexpr size_t kMaxFileBytes = (size_t{1} << 31) - 4096;  // FlatBuffers' limit, minus what padding may add
constexpr size_t kFirstAllocation = 1 << 16;
constexpr size_t kBytesOfNode = 96;  // an estimate: growing the buffer later costs a copy

template <class T>
std::vector<const T*> sorted_by_first(const std::vector<std::unique_ptr<T>>& list) {
  std::vector<const T*> out;
  for (const auto& item : list) out.push_back(item.get());
  std::stable_sort(out.begin(), out.end(), [](const T* a, const T* b) { return a->ranks < b->ranks; });
  return out;
}

size_t first_allocation(const Job& job) {
  size_t nodes = 0;
  for (const auto& program : job.programs) {
    nodes += program->graph.node_count();
    for (const auto& nested : program->nested) nodes += nested->graph.node_count();
  }
  return kFirstAllocation + kBytesOfNode * std::min(nodes, kMaxNodes);
}

}  // namespace

double canonical_float(double v) { return std::isnan(v) ? std::numeric_limits<double>::quiet_NaN() : v; }

FileWriter::FileWriter(const Job& job, const Pool& pool) : job_(job), pool_(pool), builder_(first_allocation(job)) {
  strings_.index.assign(pool_.strings.size(), kNoIndex);
  exprs_.index.assign(pool_.exprs.size(), kNoIndex);
  types_.index.assign(pool_.types.size(), kNoIndex);
  sources_.index.assign(pool_.sources.size(), kNoIndex);
  metas_.index.assign(pool_.metas.size(), kNoIndex);
  ops_.index.assign(pool_.ops.size(), kNoIndex);
}

bool FileWriter::room(size_t bytes) {
  if (error_) return false;
  if (bytes < kMaxFileBytes && builder_.GetSize() < kMaxFileBytes - bytes) return true;
  fail(ErrorKind::cannot_apply, "the graph needs more than the 2 GiB that one file can hold",
       "write fewer ranks into one file (-o 'out/rank{r}.sg')");
  return false;
}

void FileWriter::fail(ErrorKind kind, std::string message, std::string hint) {
  if (!error_) error_ = Error{kind, std::move(message), {}, std::move(hint)};
}

FileWriter::Numbers FileWriter::numbers(const std::vector<uint32_t>& list) {
  return list.empty() ? Numbers(0) : numbers_or_empty(list);
}

FileWriter::Numbers FileWriter::numbers_or_empty(const std::vector<uint32_t>& list) {
  if (!room(4 * list.size() + 16)) return 0;
  return builder_.CreateVector(list);
}

FileWriter::Offset<flatbuffers::String> FileWriter::text(std::string_view s) {
  if (!room(s.size() + 16)) return 0;
  return builder_.CreateString(s.data(), s.size());
}

FileWriter::Offset<fb::Program> FileWriter::program(const Program& p) {
  std::vector<Offset<fb::Symbol>> symbols;
  for (const Symbol& s : p.symbols) {
    auto optional = [](const std::optional<int64_t>& v) {
      return v ? flatbuffers::Optional<int64_t>(*v) : flatbuffers::Optional<int64_t>();
    };
    uint32_t name = string(s.name), source_text = string(s.source);
    if (!room(128)) return 0;
    symbols.push_back(
        builder_.share(fb::CreateSymbol(builder_, name, static_cast<fb::SymbolKind>(s.kind), optional(s.min),
                                        optional(s.max), optional(s.hint), s.divisor, source_text)));
  }
  std::vector<Offset<fb::Guard>> guards;
  for (const Guard& g : p.guards) {
    uint32_t left = expr(g.left), right = expr(g.right);
    if (!room(64)) return 0;
    guards.push_back(builder_.share(
        fb::CreateGuard(builder_, static_cast<fb::Relation>(g.relation), left, right, source(g.source))));
  }
  auto main_graph = graph(p.graph);
  std::vector<Offset<fb::Nested>> nested;
  for (const auto& n : p.nested) {
    uint32_t name = string(n->name);
    auto body = graph(n->graph);
    if (!room(64)) return 0;
    nested.push_back(builder_.share(fb::CreateNested(builder_, name, body)));
  }
  auto ranks = numbers(p.ranks);
  auto symbol_list = tables(symbols);
  auto guard_list = tables(guards);
  auto nested_list = tables(nested);
  if (!room(64)) return 0;
  return builder_.share(fb::CreateProgram(builder_, ranks, symbol_list, guard_list, main_graph, nested_list));
}

FileWriter::Offset<fb::Group> FileWriter::group(const Group& g) {
  uint32_t axis = string(g.axis);
  std::vector<const GroupPart*> sorted;
  for (const GroupPart& part : g.parts) sorted.push_back(&part);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const GroupPart* a, const GroupPart* b) { return a->ranks < b->ranks; });
  std::vector<Offset<fb::GroupPart>> parts;
  for (const GroupPart* part : sorted) {
    std::vector<GroupPart::Alias> by_rank = part->aliases;
    std::stable_sort(by_rank.begin(), by_rank.end(), [](const auto& a, const auto& b) { return a.rank < b.rank; });
    std::vector<Offset<fb::Alias>> aliases;
    for (const GroupPart::Alias& alias : by_rank) {
      if (!room(32)) return 0;
      aliases.push_back(builder_.share(fb::CreateAlias(builder_, alias.rank, string(alias.name))));
    }
    auto ranks = numbers(part->ranks);
    auto alias_list = tables(aliases);
    if (!room(32)) return 0;
    parts.push_back(builder_.share(fb::CreateGroupPart(builder_, ranks, alias_list)));
  }
  auto part_list = tables(parts);
  if (!room(64)) return 0;
  return builder_.share(fb::CreateGroup(builder_, axis, g.ordinal, g.priority, part_list));
}

FileWriter::Offset<fb::Mesh> FileWriter::mesh(const Mesh& m) {
  uint32_t name = nonempty(m.name);
  auto axes = strings(m.axes);
  auto shape = numbers(m.shape);
  if (!room(64)) return 0;
  return builder_.share(fb::CreateMesh(builder_, name, axes, shape));
}

FileWriter::Offset<fb::Provenance> FileWriter::provenance(const Provenance& p) {
  uint32_t tool = string(p.tool), version = string(p.version), digest = string(p.input_digest);
  auto options = key_values(p.options);
  if (!room(64)) return 0;
  return builder_.share(fb::CreateProvenance(builder_, tool, version, options, digest));
}

void FileWriter::root() {
  auto make = [](const auto& list, auto&& fn) {
    std::vector<decltype(fn(*list.begin()))> out;
    for (const auto& item : list) out.push_back(fn(item));
    return out;
  };
  auto producer = key_values(job_.producer);
  auto meshes = tables(make(job_.meshes, [&](const Mesh& m) { return mesh(m); }));
  auto groups = tables(make(job_.groups, [&](const Group& g) { return group(g); }));
  auto programs = tables(make(sorted_by_first(job_.programs), [&](const Program* p) { return program(*p); }));
  auto tools = tables(make(job_.provenance, [&](const Provenance& p) { return provenance(p); }));
  auto extra = key_values(job_.extra);
  // From here on each line may add entries to the tables written below it, never to those above.
  auto metas = meta_tables();
  auto types = type_tables();
  auto exprs = expr_tables();
  auto sources = source_tables();
  auto ops = op_names();
  auto strings = string_table();
  auto title = job_.title && job_.title != StringTable::kEmpty ? text(pool_.strings[job_.title]) : 0;
  auto note = job_.note.empty() ? 0 : text(job_.note);
  // Last before the root, and so first in the file: see Job.tool in the schema.
  StrId last = job_.provenance.empty() ? StringTable::kEmpty : job_.provenance.back().tool;
  auto tool = text(last ? pool_.strings[last] : std::string_view());
  if (!room(256)) return;
  auto job =
      builder_.share(fb::CreateJob(builder_, tool, kSchemaMajor, kSchemaMinor, title, note, job_.world, strings, exprs,
                                   types, sources, metas, ops, producer, meshes, groups, programs, tools, extra));
  builder_.Finish(job, fb::JobIdentifier());
}

Result<std::string> FileWriter::finish() {
  root();
  if (error_) return *error_;
  std::string out;
  out.reserve(builder_.GetSize() + kTrailerBytes);
  advise_large_pages(out.data(), out.capacity());
  out.assign(reinterpret_cast<const char*>(builder_.GetBufferPointer()), builder_.GetSize());
  builder_.Reset();
  seal(&out);
  return out;
}

Result<std::string> write_binary(const Job& job) { return write_binary(job, *job.pool); }

Result<std::string> write_binary(const Job& job, const Pool& pool) { return FileWriter(job, pool).finish(); }

}  // namespace sg
