// The header of a capture: format, world, meshes, groups, title, note, producer; and source positions.
#include <algorithm>

#include "libgraph/import/capture_read.h"

namespace sg {
namespace {

constexpr int64_t kVersion = 1;
constexpr size_t kMaxGroups = 8192;  // per rank

Status check_format(const Json& root) {
  std::string_view format;
  if (!root.is_object() || root.element["format"].get(format) || format != "step-capture")
    return root.error("not a capture: there is no \"format\": \"step-capture\" at the top level",
                      "sg-import reads capture JSON; sg-print and sg-check read .sg files and their text form");
  simdjson::dom::element version;
  if (root.element["version"].get(version)) return root.error("the capture has no \"version\"");
  JsonPlace place = JsonPlace::at_key(nullptr, "version");
  SG_ASSIGN(int64_t number, (Json{version, &place, root.text}.integer()));
  if (number == kVersion) return ok_status();
  return Json{version, &place, root.text}.error(
      "capture version " + std::to_string(number) + "; this program reads version " + std::to_string(kVersion),
      number > kVersion ? "use a newer stepgraph, or write the capture as version 1" : "capture the step again");
}

Status read_axes(ImportContext* context, const Json& list, std::vector<StrId>* out) {
  return for_each_item(list, [&](size_t, const Json& item) -> Status {
    SG_ASSIGN(std::string_view s, item.string());
    out->push_back(context->str(s));
    return ok_status();
  });
}

Status read_shape(const Json& list, std::vector<uint32_t>* out) {
  return for_each_item(list, [&](size_t, const Json& item) -> Status {
    SG_ASSIGN(uint32_t size, item.natural(kMaxWorld));
    if (size == 0) return item.error("a mesh axis holds at least one rank");
    out->push_back(size);
    return ok_status();
  });
}

Status add_mesh(const Json& json, Mesh mesh, std::vector<Mesh>* meshes) {
  if (mesh.axes.size() != mesh.shape.size())
    return json.error("the mesh names " + std::to_string(mesh.axes.size()) + " axes but has " +
                      std::to_string(mesh.shape.size()) + " sizes");
  if (!mesh.axes.empty()) meshes->push_back(std::move(mesh));
  return ok_status();
}

Status read_mesh(ImportContext* context, const Json& json, std::vector<Mesh>* meshes, Extras* extras) {
  Mesh main, sparse;
  main.name = StringTable::kEmpty;
  sparse.name = context->str("sparse");
  SG_TRY(for_each_field_once(json, [&](std::string_view key, const Json& value) -> Status {
    if (key == "axes") return read_axes(context, value, &main.axes);
    if (key == "shape") return read_shape(value, &main.shape);
    if (key == "sparse_axes") return read_axes(context, value, &sparse.axes);
    if (key == "sparse_shape") return read_shape(value, &sparse.shape);
    context->tally.unknown_key("world.mesh", key, value);
    extras->add("world.mesh." + std::string(key), canonical_json(value.element));
    return ok_status();
  }));
  SG_TRY(add_mesh(json, std::move(main), meshes));
  return add_mesh(json, std::move(sparse), meshes);
}

Status read_named_mesh(ImportContext* context, const Json& json, std::vector<Mesh>* meshes) {
  Mesh mesh;
  mesh.name = StringTable::kEmpty;
  SG_TRY(for_each_field_once(json, [&](std::string_view key, const Json& value) -> Status {
    if (key == "axes") return read_axes(context, value, &mesh.axes);
    if (key == "shape") return read_shape(value, &mesh.shape);
    if (key != "name") return context->tally.unknown_key("world.meshes", key, value), ok_status();
    SG_ASSIGN(std::string_view name, value.string());
    mesh.name = context->str(name);
    return ok_status();
  }));
  if (mesh.name == StringTable::kEmpty) return json.error("a mesh beside the main one has a name");
  return add_mesh(json, std::move(mesh), meshes);
}

Status read_world(ImportContext* context, const Json& json, RankCapture* capture, Extras* extras) {
  std::vector<Mesh> named;
  SG_TRY(for_each_field_once(json, [&](std::string_view key, const Json& value) -> Status {
    if (key == "size") {
      SG_ASSIGN(capture->world, value.natural(kMaxWorld));
    } else if (key == "rank") {
      SG_ASSIGN(capture->rank, value.natural(kMaxWorld));
    } else if (key == "mesh") {
      if (!value.is_null()) SG_TRY(read_mesh(context, value, &capture->meshes, extras));
    } else if (key == "meshes") {
      SG_TRY(for_each_item(value, [&](size_t, const Json& item) { return read_named_mesh(context, item, &named); }));
    } else {
      context->tally.unknown_key("world", key, value);
      extras->add("world." + std::string(key), canonical_json(value.element));
    }
    return ok_status();
  }));
  std::ranges::move(named, std::back_inserter(capture->meshes));
  if (capture->rank < capture->world) return ok_status();
  return json.error("rank " + std::to_string(capture->rank) + " is not in a world of " +
                    std::to_string(capture->world));
}

Status read_group_ranks(const Json& json, uint32_t world, std::vector<uint32_t>* ranks) {
  SG_TRY(for_each_item(json, [&](size_t, const Json& item) -> Status {
    SG_ASSIGN(uint32_t rank, item.natural(world - 1));
    ranks->push_back(rank);
    return ok_status();
  }));
  if (ranks->empty()) return json.error("the group has no ranks");
  std::vector<uint32_t> sorted = *ranks;
  std::sort(sorted.begin(), sorted.end());
  auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) return json.error("rank " + std::to_string(*twice) + " is in the group twice");
  return ok_status();
}

Status read_group(ImportContext* context, const Json& json, RankCapture* capture, Extras* extras) {
  CapturedGroup group;
  bool is_named = false, has_axis = false, has_ranks = false;
  SG_TRY(for_each_field_once(json, [&](std::string_view key, const Json& value) -> Status {
    if (key == "name") {
      SG_ASSIGN(std::string_view name, value.string());
      group.name = capture->group_names.emplace_back(name);
      is_named = true;
    } else if (key == "axis") {
      SG_ASSIGN(std::string_view axis, value.string());
      group.axis = context->str(axis);
      has_axis = true;
    } else if (key == "ranks") {
      if (has_ranks) return value.error("the key occurs twice");
      SG_TRY(read_group_ranks(value, capture->world, &group.ranks));
      group.holds_rank = std::find(group.ranks.begin(), group.ranks.end(), capture->rank) != group.ranks.end();
      has_ranks = true;
    } else {
      context->tally.unknown_key("groups", key, value);
      extras->add(print_place(value.place), canonical_json(value.element));
    }
    return ok_status();
  }));
  if (capture->groups.size() == kMaxGroups) return json.error("more than " + std::to_string(kMaxGroups) + " groups");
  if (!is_named || !has_axis || !has_ranks) return json.error("a group needs `name`, `axis` and `ranks`");
  auto [index, is_new] = capture->group_index.try_emplace(group.name, static_cast<uint32_t>(capture->groups.size()));
  if (!is_new)
    return json.error("the group name `" + std::string(group.name) + "` is taken by groups[" + std::to_string(*index) +
                      "]");
  capture->groups.push_back(std::move(group));
  return ok_status();
}

Status read_producer(ImportContext* context, const Json& json, Extras* extras) {
  if (!json.is_object()) {
    extras->add("producer", canonical_json(json.element));
    return ok_status();
  }
  Extras producer;
  SG_TRY(for_each_field_once(json, [&](std::string_view key, const Json& value) -> Status {
    producer.add(std::string(key), canonical_json(value.element));
    return ok_status();
  }));
  context->job.producer = producer.take(&context->pool());
  return ok_status();
}

}  // namespace

Result<RankCapture> read_header(ImportContext* context, std::unique_ptr<CaptureText> text) {
  RankCapture capture;
  capture.text = std::move(text);
  SG_TRY(check_format(capture.root()));
  SG_TRY(with_field(capture.root(), "world",
                    [&](const Json& json) { return read_world(context, json, &capture, &capture.extras); }));
  SG_TRY(with_field(capture.root(), "groups", [&](const Json& json) {
    return for_each_item(
        json, [&](size_t, const Json& item) { return read_group(context, item, &capture, &capture.extras); });
  }));
  return capture;
}

Status read_people(ImportContext* context, const RankCapture& capture) {
  static constexpr std::string_view kElsewhere[] = {"format", "version", "world", "groups",  "symbols",
                                                    "guards", "inputs",  "nodes", "outputs", "graphs"};
  Extras& extras = context->job_extras;
  extras = capture.extras;
  return for_each_field_once(capture.root(), [&](std::string_view key, const Json& value) -> Status {
    if (std::find(std::begin(kElsewhere), std::end(kElsewhere), key) != std::end(kElsewhere)) return ok_status();
    if (key == "title") {
      SG_ASSIGN(std::string_view title, value.string());
      context->job.title = context->str(title);
    } else if (key == "note") {
      if (!value.is_string()) extras.add("note", canonical_json(value.element));
      else context->job.note = std::string(value.element.get_string().value_unsafe());
    } else if (key == "producer") {
      return read_producer(context, value, &extras);
    } else {
      context->tally.unknown_key("the top level", key, value);
      extras.add(std::string(key), canonical_json(value.element));
    }
    return ok_status();
  });
}

Result<Source> read_source(ImportContext* context, const Json& json, std::string_view prefix, Extras* extras) {
  Source source;
  source.file = source.function = StringTable::kEmpty;
  SG_TRY(for_each_field_once(json, [&](std::string_view key, const Json& value) -> Status {
    if (key == "line") {
      if (value.is_null()) return ok_status();
      SG_ASSIGN(source.line, value.natural(0xFFFFFFFEu));
    } else if (key == "file" || key == "function") {
      if (value.is_null()) return ok_status();
      SG_ASSIGN(std::string_view text, value.string());
      (key == "file" ? source.file : source.function) = context->str(text);
    } else {
      context->tally.unknown_key("source", key, value);
      extras->add(std::string(prefix) + "." + std::string(key), canonical_json(value.element));
    }
    return ok_status();
  }));
  return source;
}

}  // namespace sg
