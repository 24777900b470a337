#include "libgraph/binary/binary_reader.h"

#include <algorithm>

#include "libgraph/base/utf8.h"
#include "libgraph/binary/seal.h"

namespace sg {
namespace {

constexpr uint32_t kMaxTableDepth = 64;  // more than kMaxArgDepth plus all nesting around arguments
constexpr size_t kMinTableBytes = 8;     // a table and the offset that leads to it
constexpr size_t kAlignment = 8;

std::string version_name(uint32_t major, uint32_t minor) { return std::to_string(major) + "." + std::to_string(minor); }

}  // namespace

// --- failures ---

bool FileReader::fail(std::string path, std::string message) {
  error_.where.path = std::move(path);
  error_.message = std::move(message);
  return false;
}

bool FileReader::unknown_enumerator(int value, const char* field) {
  return fail(field, "unknown value " + std::to_string(value));
}

bool FileReader::bad_index(const char* field, uint32_t index, size_t size) {
  if (index == kNoIndex) return fail(field, "is required");
  return fail(field, "index " + std::to_string(index) + " is out of range, there are " + std::to_string(size));
}

bool FileReader::under(const char* field) {
  error_.where.path = field + ("." + error_.where.path);
  return false;
}

bool FileReader::under(const char* field, uint32_t index) {
  return under((field + ("[" + std::to_string(index) + "]")).c_str());
}

bool FileReader::at_index(uint32_t index) {
  error_.where.path += "[" + std::to_string(index) + "]";
  return false;
}

bool FileReader::charge(size_t bytes, const char* field) {
  if (bytes > budget_) return fail(field, "parts of the file overlap");
  budget_ -= bytes;
  return true;
}

// --- small parts ---

bool FileReader::ranks(const Numbers* in, const char* field, std::vector<uint32_t>* out) {
  if (!in) return true;
  if (!charge(4 * size_t{in->size()}, field)) return false;
  out->assign(in->begin(), in->end());
  return true;
}

bool FileReader::key_values(const Tables<fb::KeyValue>* in, const char* field, std::vector<KeyValue>* out) {
  bool ok = each(in, field, [&](const fb::KeyValue& kv, uint32_t) {
    out->emplace_back();
    return required_string(kv.key(), "key", &out->back().key) && required_string(kv.json(), "json", &out->back().json);
  });
  if (!ok) return false;
  const StringTable& text = job_.pool->strings;
  auto before = [&](const KeyValue& a, const KeyValue& b) { return text[a.key] < text[b.key]; };
  return std::is_sorted(out->begin(), out->end(), before) || fail(field, "the keys are not sorted");
}

bool FileReader::sharding(const fb::Sharding* in, Sharding* out) {
  if (!in) return true;
  bool ok = exprs(in->global_shape(), "global_shape", &out->global_shape) &&
            strings(in->placements(), "placements", &out->placements) &&
            strings(in->mesh_axes(), "mesh_axes", &out->mesh_axes);
  if (ok && out->placements.size() != out->mesh_axes.size()) ok = fail("mesh_axes", "is not as long as placements");
  return ok || under("sharding");
}

// --- the job ---

bool FileReader::check_version() {
  FilePrefix prefix = read_prefix(bytes_);
  if (!prefix.has_version) return fail("", "this is not a binary graph file: it has no schema version");
  if (prefix.major > kSchemaMajor) {
    error_.hint = "use a newer stepgraph, or the one that wrote it";
    return fail("", "the file has schema version " + version_name(prefix.major, prefix.minor) +
                        ", this stepgraph reads up to " + version_name(kSchemaMajor, kSchemaMinor));
  }
  bool is_newer = prefix.major == kSchemaMajor && prefix.minor > kSchemaMinor;
  error_.hint = is_newer ? "the file's schema is " + version_name(prefix.major, prefix.minor) + ", newer than our " +
                               version_name(kSchemaMajor, kSchemaMinor) + ": a newer stepgraph may read it"
                         : "the file does not come from stepgraph, or was changed: make it again";
  return true;
}

bool FileReader::check_buffer() {
  if (bytes_.size() >= FLATBUFFERS_MAX_BUFFER_SIZE) return fail("", "larger than the 2 GiB that one file can hold");
  if (reinterpret_cast<uintptr_t>(bytes_.data()) % kAlignment != 0) {
    aligned_ = std::string(bytes_);
    bytes_ = aligned_;
  }
  auto max_tables = static_cast<uint32_t>(bytes_.size() / kMinTableBytes + 1);
  const auto* data = reinterpret_cast<const uint8_t*>(bytes_.data());
  flatbuffers::Verifier verifier(data, bytes_.size(), kMaxTableDepth, max_tables);
  if (!fb::VerifyJobBuffer(verifier)) return fail("", "the file's structure is broken: offsets, sizes or nesting");
  root_ = fb::GetJob(data);
  return true;
}

bool FileReader::read_root() {
  auto text = [&](const flatbuffers::String* s, const char* field, std::string* out) {
    if (!s) return true;
    out->assign(s->data(), s->size());
    return charge(s->size(), field) && (is_utf8(*out) || fail(field, "is not valid UTF-8"));
  };
  std::string title;
  if (!text(root_->title(), "title", &title) || !text(root_->note(), "note", &job_.note)) return false;
  job_.title = job_.pool->str(title);
  job_.world = root_->world();
  if (!read_strings() || !read_exprs() || !read_types() || !read_sources() || !read_metas() || !read_ops())
    return false;
  auto into = [](auto& list) -> auto& { return list.emplace_back(); };
  return key_values(root_->producer(), "producer", &job_.producer) &&
         key_values(root_->extra(), "extra", &job_.extra) &&
         each(root_->meshes(), "meshes", [&](auto& m, uint32_t) { return read_mesh(m, &into(job_.meshes)); }) &&
         each(root_->groups(), "groups", [&](auto& g, uint32_t) { return read_group(g, &into(job_.groups)); }) &&
         each(root_->provenance(), "provenance",
              [&](auto& p, uint32_t) { return read_provenance(p, &into(job_.provenance)); }) &&
         each(root_->programs(), "programs", [&](auto& p, uint32_t) { return read_program(p); });
}

bool FileReader::read_mesh(const fb::Mesh& in, Mesh* out) {
  if (!string(in.name(), "name", &out->name)) return false;
  if (out->name.is_none()) out->name = StringTable::kEmpty;
  if (!strings(in.axes(), "axes", &out->axes) || !ranks(in.shape(), "shape", &out->shape)) return false;
  return out->axes.size() == out->shape.size() || fail("shape", "is not as long as axes");
}

bool FileReader::read_group(const fb::Group& in, Group* out) {
  out->ordinal = in.ordinal();
  out->priority = in.priority();
  return required_string(in.axis(), "axis", &out->axis) &&
         each(in.parts(), "parts",
              [&](const fb::GroupPart& part, uint32_t) { return read_group_part(part, &out->parts.emplace_back()); });
}

bool FileReader::read_group_part(const fb::GroupPart& in, GroupPart* out) {
  if (!ranks(in.ranks(), "ranks", &out->ranks)) return false;
  if (out->ranks.empty()) return fail("ranks", "is empty");
  return each(in.aliases(), "aliases", [&](const fb::Alias& alias, uint32_t) {
    out->aliases.push_back({alias.rank(), {}});
    return required_string(alias.name(), "name", &out->aliases.back().name);
  });
}

bool FileReader::read_provenance(const fb::Provenance& in, Provenance* out) {
  return required_string(in.tool(), "tool", &out->tool) && string(in.version(), "version", &out->version) &&
         key_values(in.options(), "options", &out->options) &&
         string(in.input_digest(), "input_digest", &out->input_digest);
}

bool FileReader::read_program(const fb::Program& in) {
  Program& out = job_.add_program();
  if (!ranks(in.ranks(), "ranks", &out.ranks)) return false;
  if (!std::is_sorted(out.ranks.begin(), out.ranks.end())) return fail("ranks", "is not sorted");
  if (!in.graph()) return fail("graph", "is required");
  auto symbol = [&](const fb::Symbol& s, uint32_t) {
    Symbol read;
    if (!read_symbol(s, &read)) return false;
    out.symbols.push_back(read);
    return true;
  };
  auto guard = [&](const fb::Guard& g, uint32_t) { return read_guard(g, &out.guards.emplace_back()); };
  return each(in.symbols(), "symbols", symbol) && each(in.guards(), "guards", guard) && read_nested(in, &out) &&
         (read_graph(*in.graph(), size_of(in.nested()), &out.graph) || under("graph"));
}

bool FileReader::read_symbol(const fb::Symbol& in, Symbol* out) {
  auto optional = [](const flatbuffers::Optional<int64_t>& v) {
    return v.has_value() ? std::optional<int64_t>(*v) : std::nullopt;
  };
  out->min = optional(in.min());
  out->max = optional(in.max());
  out->hint = optional(in.hint());
  out->divisor = in.divisor();
  if (!required_string(in.name(), "name", &out->name)) return false;
  if (!ExprPool::is_symbol_name(job_.pool->strings[out->name])) return fail("name", "is not a valid symbol name");
  return enumerator(in.kind(), "kind", &out->kind) && string(in.source(), "source", &out->source);
}

bool FileReader::read_guard(const fb::Guard& in, Guard* out) {
  return enumerator(in.relation(), "relation", &out->relation) && required_expr(in.left(), "left", &out->left) &&
         required_expr(in.right(), "right", &out->right) && source(in.source(), "source", &out->source);
}

bool FileReader::read_nested(const fb::Program& in, Program* out) {
  std::vector<StrId> names;
  bool ok = each(in.nested(), "nested", [&](const fb::Nested& n, uint32_t) {
    if (!required_string(n.name(), "name", &names.emplace_back())) return false;
    if (names.back() == StringTable::kEmpty) return fail("name", "is empty");
    if (!n.graph()) return fail("graph", "is required");
    out->nested.push_back(std::make_unique<Nested>(Nested{names.back(), Graph(job_.pool.get())}));
    return read_graph(*n.graph(), size_of(in.nested()), &out->nested.back()->graph) || under("graph");
  });
  if (!ok) return false;
  std::sort(names.begin(), names.end());
  bool unique = std::adjacent_find(names.begin(), names.end()) == names.end();
  return unique || fail("nested", "two nested graphs have the same name");
}

Result<Job> FileReader::read() {
  if (!check_version() || !check_buffer() || !read_root()) return std::move(error_);
  return std::move(job_);
}

Result<Job> read_unsealed(std::string_view bytes, const std::string& file) { return FileReader(bytes, file).read(); }

Result<Job> read_binary(std::string_view bytes, const std::string& file) {
  SG_ASSIGN(std::string_view body, unseal(bytes, file));
  return read_unsealed(body, file);
}

}  // namespace sg
