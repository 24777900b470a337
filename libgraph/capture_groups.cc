// Group families. A group's identity is (axis, rank list, ordinal); a family holds the disjoint groups of one axis, of
// which each rank knows its own, so that a node that is the same on all ranks can name all of them at once.
#include <algorithm>
#include <map>

#include "libgraph/capture_read.h"

namespace sg {
namespace {

using Ranks = std::vector<uint32_t>;

std::string print_ranks(const Ranks& ranks) {
  std::string out = "[";
  for (size_t i = 0; i < ranks.size() && i < 16; ++i) out += (i == 0 ? "" : " ") + std::to_string(ranks[i]);
  return out + (ranks.size() > 16 ? " ...]" : "]");
}

// The ranks of a mesh that share their coordinates on all axes but those of `axes`, row-major, for each such choice.
// REQUIRES: the mesh holds `world` ranks
std::vector<Ranks> slices_of(const Mesh& mesh, uint32_t axes, uint32_t world) {
  std::vector<uint32_t> stride(mesh.shape.size(), 1);
  for (size_t i = mesh.shape.size(); i-- > 1;) stride[i - 1] = stride[i] * mesh.shape[i];
  std::map<uint32_t, Ranks> by_first;
  for (uint32_t rank = 0; rank < world; ++rank) {
    uint32_t first = rank;
    for (size_t i = 0; i < mesh.shape.size(); ++i)
      if ((axes >> i & 1) != 0) first -= rank / stride[i] % mesh.shape[i] * stride[i];
    by_first[first].push_back(rank);
  }
  std::vector<Ranks> out;
  for (auto& [first, ranks] : by_first) out.push_back(std::move(ranks));
  return out;
}

bool covers(const Mesh& mesh, uint32_t world) {
  uint64_t count = 1;
  for (uint32_t size : mesh.shape)
    if ((count *= size) > world) return false;
  return count == world;
}

// All groups that are to the other ranks what `ranks` is to its own; empty when the meshes do not tell. The rank list
// alone decides which mesh axes it spans: a row-major slice has one reading up to axes of size one.
std::vector<Ranks> derive_parts(const std::vector<Mesh>& meshes, const Ranks& ranks, uint32_t world) {
  constexpr size_t kMaxAxes = 8;
  if (ranks.size() == world) return {ranks};
  for (const Mesh& mesh : meshes) {
    if (mesh.shape.size() > kMaxAxes || !covers(mesh, world)) continue;
    for (uint32_t axes = 1; axes < 1u << mesh.shape.size(); ++axes) {
      uint64_t size = 1;
      bool is_minimal = true;                // an axis of one rank adds nothing
      for (size_t i = 0; i < mesh.shape.size(); ++i) {
        if ((axes >> i & 1) == 0) continue;
        size *= mesh.shape[i];
        is_minimal = is_minimal && mesh.shape[i] != 1;
      }
      if (size != ranks.size() || (!is_minimal && size != 1)) continue;
      std::vector<Ranks> slices = slices_of(mesh, axes, world);
      if (std::find(slices.begin(), slices.end(), ranks) != slices.end()) return slices;
      if (size == 1) break;
    }
  }
  return {};
}

class FamilyBuilder {
 public:
  FamilyBuilder(ImportContext* context, uint32_t world) : context_(context), world_(world) {}

  Status add(RankCapture* capture) {
    std::map<std::pair<StrId, Ranks>, uint32_t> occurrences;
    for (RankGroup& group : capture->groups) {
      uint32_t occurrence = occurrences[{group.axis, group.ranks}]++;
      auto [it, is_new] = placed_.try_emplace(Key{group.axis, group.ranks, occurrence});
      if (is_new) {
        std::vector<Ranks> parts = {group.ranks};
        if (context_->is_spmd) {
          parts = derive_parts(capture->meshes, group.ranks, world_);
          if (parts.empty()) return underivable(*capture, group);
        }
        it->second = place(group.axis, occurrence, parts);
      }
      group.family = it->second;
      Group& family = context_->job.groups[group.family.index];
      auto part = std::find_if(family.parts.begin(), family.parts.end(),
                               [&](const GroupPart& p) { return p.ranks == group.ranks; });
      part->aliases.push_back({capture->rank, context_->str(group.name)});
    }
    return ok_status();
  }

  void finish() {
    for (Group& family : context_->job.groups)
      std::sort(family.parts.begin(), family.parts.end(), [](const GroupPart& a, const GroupPart& b) {
        return *std::min_element(a.ranks.begin(), a.ranks.end()) < *std::min_element(b.ranks.begin(), b.ranks.end());
      });
  }

 private:
  struct Key {
    StrId axis;
    Ranks ranks;
    uint32_t occurrence;
    auto operator<=>(const Key&) const = default;
  };

  // The first family of the axis, from ordinal `occurrence` on, that holds none of these ranks yet.
  GroupId place(StrId axis, uint32_t occurrence, const std::vector<Ranks>& parts) {
    std::vector<GroupId>& families = by_axis_[axis];
    for (size_t ordinal = occurrence;; ++ordinal) {
      while (families.size() <= ordinal) {
        Group family;
        family.axis = axis;
        family.ordinal = static_cast<uint32_t>(families.size());
        families.push_back(GroupId(static_cast<uint32_t>(context_->job.groups.size())));
        context_->job.groups.push_back(std::move(family));
        taken_.emplace_back();
      }
      std::unordered_map<uint32_t, bool>& taken = taken_[families[ordinal].index];
      bool is_free = true;
      for (const Ranks& ranks : parts)
        for (uint32_t rank : ranks) is_free = is_free && taken.count(rank) == 0;
      if (!is_free) continue;
      for (const Ranks& ranks : parts) {
        for (uint32_t rank : ranks) taken[rank] = true;
        context_->job.groups[families[ordinal].index].parts.push_back({ranks, {}});
      }
      return families[ordinal];
    }
  }

  Error underivable(const RankCapture& capture, const RankGroup& group) const {
    Error error{ErrorKind::cannot_apply, {}, {capture.text->name()}, {}};
    error.message = "the groups of the other ranks do not follow: `" + std::string(group.name) + "` (axis " +
                    context_->job.pool->strings.str(group.axis) + ", ranks " + print_ranks(group.ranks) +
                    ") is no slice of the capture's mesh";
    error.where.path = "groups[" + std::to_string(&group - capture.groups.data()) + "]";
    error.hint = "capture every rank and import the set: sg-import 'rank{r}/step.json'";
    return error;
  }

  ImportContext* context_;
  uint32_t world_;
  std::map<Key, GroupId> placed_;
  std::map<StrId, std::vector<GroupId>> by_axis_;
  std::vector<std::unordered_map<uint32_t, bool>> taken_;    // by family: its ranks
};

}  // namespace

Status make_families(ImportContext* context, std::vector<RankCapture>* captures) {
  FamilyBuilder builder(context, context->job.world);
  for (RankCapture& capture : *captures) SG_TRY(builder.add(&capture));
  builder.finish();
  return ok_status();
}

}  // namespace sg
