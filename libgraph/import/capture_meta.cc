// The metadata of a node: `meta` and `custom`, and what folded getitems have besides.
#include <algorithm>
#include <limits>

#include "libgraph/import/annotation_keys.h"
#include "libgraph/import/capture_read.h"
#include "libgraph/names.h"

namespace sg {
namespace {

constexpr uint32_t kMaxIndex = std::numeric_limits<int32_t>::max();

// Reads a chunk key, which has the same name in `meta` and in `custom`. False = another key.
Result<bool> read_chunk_key(ImportContext* context, std::string_view key, const Json& json, ChunkInfo* chunk) {
  const auto* text = std::ranges::find(kChunkTexts, key, &ChunkTextKey::key);
  if (text != std::end(kChunkTexts)) {
    SG_ASSIGN(std::string_view s, json.string());
    chunk->*(text->field) = context->str(s);
  } else if (key == kChunkIndex) {
    SG_ASSIGN(uint32_t index, json.natural(kMaxIndex));
    chunk->index = static_cast<int32_t>(index);
  } else if (key == kChunkIsBackward) {
    SG_ASSIGN(bool is_backward, json.boolean());
    chunk->is_backward = is_backward ? 1 : 0;
  } else {
    return false;
  }
  return true;
}

class MetaReader {
 public:
  MetaReader(ImportContext* context, NodeMeta* meta, Extras* extras)
      : context_(context), meta_(meta), extras_(extras) {}

  Status recompute(const Json& json) {
    SG_ASSIGN(std::string_view word, json.string());
    if (auto policy = enum_named<Recompute>(word)) meta_->recompute = *policy;
    else keep("recompute", json);
    return ok_status();
  }

  Status meta(const Json& json) {
    return for_each_field(json, [&](std::string_view key, const Json& value) -> Status {
      SG_ASSIGN(bool is_chunk, read_chunk_key(context_, key, value, &meta_->chunk));
      if (is_chunk) return ok_status();
      if (key == "fsdp_bucket") return bucket(value);
      if (key == "ac_graph_id") {
        SG_ASSIGN(uint32_t region, value.natural(kMaxIndex));
        meta_->recompute_region = static_cast<int32_t>(region);
        return ok_status();
      }
      unknown("meta", key, value);
      return ok_status();
    });
  }

  // Runs after meta(), which takes precedence.
  Status custom(const Json& json) {
    ChunkInfo chunk;
    SG_TRY(for_each_field(json, [&](std::string_view key, const Json& value) -> Status {
      SG_ASSIGN(bool is_chunk, read_chunk_key(context_, key, value, &chunk));
      if (!is_chunk && !is_ep_key(key)) unknown("custom", key, value);
      return ok_status();
    }));
    expert_parallel(json);
    merge_chunk(json, chunk);
    return ok_status();
  }

 private:
  static bool is_ep_key(std::string_view key) {
    return key == "EP" || std::ranges::find(kEpSteps, key, &EpStepKey::key) != std::end(kEpSteps);
  }

  static std::optional<EpRole> role_of(const Json& json, std::string_view key) {
    std::string_view word;
    if (json.element[key].get(word)) return std::nullopt;
    auto role = enum_named<EpRole>(word);
    return role && *role != EpRole::none ? role : std::nullopt;
  }

  // EP names the region; each other key marks a step within it and repeats the region's word. Anything else (a second
  // step, another region, an unknown word) is kept as a free key.
  void expert_parallel(const Json& json) {
    if (auto role = role_of(json, "EP")) meta_->ep_role = *role;
    else keep_field(json, "EP");
    for (const EpStepKey& s : kEpSteps) {
      simdjson::dom::element unused;
      if (json.element[s.key].get(unused)) continue;
      auto role = role_of(json, s.key);
      bool fits = role && meta_->ep_step == EpStep::none && (meta_->ep_role == *role || meta_->ep_role == EpRole::none);
      if (!fits) {
        keep_field(json, s.key);
        continue;
      }
      meta_->ep_role = *role;
      meta_->ep_step = s.step;
    }
  }

  void merge_chunk(const Json& json, const ChunkInfo& custom) {
    ChunkInfo& chunk = meta_->chunk;
    auto merge = [&](auto ChunkInfo::*field, std::string_view key) {
      if (custom.*field == ChunkInfo().*field) return;
      if (chunk.*field == ChunkInfo().*field) chunk.*field = custom.*field;
      else if (chunk.*field != custom.*field) keep_field(json, key);
    };
    for (const ChunkTextKey& text : kChunkTexts) merge(text.field, text.key);
    merge(&ChunkInfo::index, kChunkIndex);
    merge(&ChunkInfo::is_backward, kChunkIsBackward);
    // Only the user's own annotation puts chunk keys into `custom`: such a module was chunked eagerly.
    if (custom.region && !chunk.producer) chunk.producer = context_->str("eager");
  }

  Status bucket(const Json& json) {
    CollectiveInfo& info = meta_->collective;
    return for_each_field(json, [&](std::string_view key, const Json& value) -> Status {
      if (key == "plan_fqns") {
        return for_each_item(value, [&](size_t, const Json& item) -> Status {
          SG_ASSIGN(std::string_view fqn, item.string());
          info.plan.push_back(context_->str(fqn));
          return ok_status();
        });
      }
      if (key == "direction") {
        SG_ASSIGN(std::string_view word, value.string());
        if (word == "fwd") info.direction = BucketDirection::forward;
        else if (word == "bwd") info.direction = BucketDirection::backward;
        else keep("meta.fsdp_bucket.direction", value);
        return ok_status();
      }
      unknown("meta.fsdp_bucket", key, value);
      return ok_status();
    });
  }

  void unknown(std::string_view owner, std::string_view key, const Json& value) {
    context_->tally.unknown_key(owner, key, value);
    extras_->add(std::string(owner) + "." + std::string(key), canonical_json(value.element));
  }
  void keep(std::string_view what, const Json& value) {
    context_->tally.kept_raw(what, value);
    extras_->add(std::string(what), canonical_json(value.element));
  }
  void keep_field(const Json& custom, std::string_view key) {
    simdjson::dom::element value;
    if (custom.element[key].get(value)) return;
    JsonPlace place = JsonPlace::at_key(custom.place, key);
    keep("custom." + std::string(key), {value, &place, custom.text});
  }

  ImportContext* context_;
  NodeMeta* meta_;
  Extras* extras_;
};

// Calls fn(key, value) for each field of the getitem's object that its parent lacks or has with another value.
template <class Fn>
Status for_each_difference(const Json& json, const PlacedNode& parent, NodeField field, const Fn& fn) {
  return for_each_field(json, [&](std::string_view key, const Json& value) -> Status {
    simdjson::dom::element same;
    bool is_there = parent.record->has(field) && !parent.record->field(field)[key].get(same);
    if (is_there && canonical_json(same) == canonical_json(value.element)) return ok_status();
    return fn(key, value);
  });
}

}  // namespace

Status read_meta(ImportContext* context, const PlacedNode& node, NodeMeta* meta, Extras* extras) {
  MetaReader reader(context, meta, extras);
  SG_TRY(node.with(NodeField::recompute, [&](const Json& json) { return reader.recompute(json); }));
  SG_TRY(node.with(NodeField::meta, [&](const Json& json) { return reader.meta(json); }));
  SG_TRY(node.with(NodeField::custom, [&](const Json& json) { return reader.custom(json); }));
  return node.with(NodeField::bind_paths, [&](const Json& json) -> Status {
    extras->add("bind_paths", canonical_json(json.element));
    return ok_status();
  });
}

Status read_getitem_meta(ImportContext* context, const PlacedNode& getitem, const PlacedNode& parent,
                         ResultChunk* chunk, Extras* extras) {
  const std::string prefix = "getitem." + std::string(getitem.record->name) + ".";
  auto keep = [&](const std::string& key, const Json& value) {
    context->tally.kept_raw("getitem " + key, value);
    extras->add(prefix + key, canonical_json(value.element));
  };
  // What a result has of its own. As for the node itself, `meta` takes precedence over `custom`.
  ChunkInfo found;
  auto chunk_keys = [&](NodeField field, const std::string& owner) {
    return getitem.with(field, [&](const Json& json) {
      return for_each_difference(json, parent, field, [&](std::string_view key, const Json& value) -> Status {
        const bool is_new_index = key == kChunkIndex && found.index == -1;
        const bool is_new_original = key == kChunkOriginal && !found.original;
        if (!is_new_index && !is_new_original) return keep(owner + "." + std::string(key), value), ok_status();
        SG_TRY(read_chunk_key(context, key, value, &found));
        if (is_new_index) chunk->index = found.index;
        else chunk->original = found.original;
        return ok_status();
      });
    });
  };
  SG_TRY(chunk_keys(NodeField::meta, "meta"));
  SG_TRY(chunk_keys(NodeField::custom, "custom"));
  for (NodeField field : {NodeField::module, NodeField::phase, NodeField::seq, NodeField::draws_as,
                          NodeField::recompute, NodeField::source, NodeField::binds, NodeField::bind_paths}) {
    SG_TRY(getitem.with(field, [&](const Json& json) -> Status {
      bool is_there = parent.record->has(field);
      if (!is_there || canonical_json(parent.record->field(field)) != canonical_json(json.element))
        keep(std::string(kNodeKeys[static_cast<size_t>(field)]), json);
      return ok_status();
    }));
  }
  return ok_status();
}

}  // namespace sg
