// Group families. A group is identified by (axis, rank list, ordinal); a family holds the disjoint groups of one axis,
// one per rank, so that a node that is the same on all ranks can name all of them at once.
#include <algorithm>
#include <map>

#include "libgraph/base/joined.h"
#include "libgraph/import/capture_read.h"

namespace sg {
namespace {

using Ranks = std::vector<uint32_t>;

std::string print_ranks(const Ranks& ranks) {
  return "[" + joined(first_of(ranks, 16), " ") + (ranks.size() > 16 ? " ...]" : "]");
}

// A slice of a row-major mesh along the axes in `axes` (bits); stride[i]: the distance between ranks along axis i.
struct Slicing {
  const Mesh& mesh;
  uint32_t axes;
  std::vector<uint32_t> stride;

  Slicing(const Mesh& m, uint32_t spanned) : mesh(m), axes(spanned), stride(m.shape.size(), 1) {
    for (size_t i = mesh.shape.size(); i-- > 1;) stride[i - 1] = stride[i] * mesh.shape[i];
  }
  bool spans(size_t axis) const { return (axes >> axis & 1) != 0; }

  uint64_t size() const {
    uint64_t out = 1;
    for (size_t i = 0; i < mesh.shape.size(); ++i)
      if (spans(i)) out *= mesh.shape[i];
    return out;
  }

  // The first rank of the slice that contains `rank`.
  uint32_t first(uint32_t rank) const {
    for (size_t i = 0; i < mesh.shape.size(); ++i)
      if (spans(i)) rank -= rank / stride[i] % mesh.shape[i] * stride[i];
    return rank;
  }

  // The k-th rank of the slice that starts at `begin`.
  uint32_t at(uint32_t begin, uint32_t k) const {
    for (size_t i = mesh.shape.size(); i-- > 0;) {
      if (!spans(i)) continue;
      begin += k % mesh.shape[i] * stride[i];
      k /= mesh.shape[i];
    }
    return begin;
  }

  bool holds(const Ranks& ranks) const {
    if (size() != ranks.size() || first(ranks[0]) != ranks[0]) return false;
    for (uint32_t k = 0; k < ranks.size(); ++k)
      if (at(ranks[0], k) != ranks[k]) return false;
    return true;
  }

  std::vector<Ranks> all(uint32_t world) const {
    std::vector<Ranks> out;
    for (uint32_t rank = 0; rank < world; ++rank) {
      if (first(rank) != rank) continue;
      Ranks& slice = out.emplace_back(static_cast<size_t>(size()));
      for (uint32_t k = 0; k < slice.size(); ++k) slice[k] = at(rank, k);
    }
    return out;
  }
};

bool covers(const Mesh& mesh, uint32_t world) {
  uint64_t count = 1;
  for (uint32_t size : mesh.shape)
    if ((count *= size) > world) return false;
  return count == world;
}

// All groups that correspond to `ranks` on other ranks; empty if no mesh determines them. The rank list alone
// determines the mesh axes it spans: a row-major slice has only one reading, up to axes of size one.
std::vector<Ranks> derive_parts(const std::vector<Mesh>& meshes, const Ranks& ranks, uint32_t world) {
  constexpr size_t kMaxAxes = 8;
  if (ranks.size() == world) return {ranks};
  for (const Mesh& mesh : meshes) {
    if (mesh.shape.size() > kMaxAxes || !covers(mesh, world)) continue;
    for (uint32_t axes = 0; axes < 1u << mesh.shape.size(); ++axes) {
      Slicing slicing(mesh, axes);
      if (slicing.holds(ranks)) return slicing.all(world);
    }
  }
  return {};
}

class FamilyBuilder {
 public:
  FamilyBuilder(ImportContext* context, uint32_t world) : context_(context), world_(world) {}

  Status add(RankCapture* capture) {
    std::map<std::pair<StrId, Ranks>, uint32_t> occurrences;
    for (CapturedGroup& group : capture->groups) {
      uint32_t occurrence = occurrences[{group.axis, group.ranks}]++;
      auto [it, is_new] = placed_.try_emplace(Key{group.axis, group.ranks, occurrence});
      if (is_new) {
        std::vector<Ranks> parts = {group.ranks};
        if (context_->is_spmd) {
          parts = derive_parts(capture->meshes, group.ranks, world_);
          if (parts.empty()) return underivable(*capture, group);
          if ((derived_ += world_) > kMaxDerived) return too_many(*capture);
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

  // The first family of the axis, starting at ordinal `occurrence`, that contains none of these ranks yet.
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
      for (size_t p = 0; p < parts.size() && is_free; ++p)
        for (size_t k = 0; k < parts[p].size() && is_free; ++k) is_free = taken.count(parts[p][k]) == 0;
      if (!is_free) continue;
      for (const Ranks& ranks : parts) {
        for (uint32_t rank : ranks) taken[rank] = true;
        context_->job.groups[families[ordinal].index].parts.push_back({ranks, {}});
      }
      return families[ordinal];
    }
  }

  Error underivable(const RankCapture& capture, const CapturedGroup& group) const {
    Error error{ErrorKind::cannot_apply, {}, {capture.text->name()}, {}};
    error.message = "the groups of the other ranks do not follow: `" + std::string(group.name) + "` (axis " +
                    context_->job.pool->strings.str(group.axis) + ", ranks " + print_ranks(group.ranks) +
                    ") is not a slice of the capture's mesh";
    error.where.path = "groups[" + std::to_string(&group - capture.groups.data()) + "]";
    error.hint = "capture every rank and import the set: sg-import 'rank{r}/step.json'";
    return error;
  }

  Error too_many(const RankCapture& capture) const {
    return {ErrorKind::cannot_apply,
            "too many groups for a world of " + std::to_string(world_),
            {capture.text->name(), 0, 0, std::nullopt, "groups"},
            "capture every rank and import the set"};
  }

  static constexpr uint64_t kMaxDerived = uint64_t{1} << 24;  // ranks in all families derived from a mesh

  ImportContext* context_;
  uint32_t world_;
  uint64_t derived_ = 0;
  std::map<Key, GroupId> placed_;
  std::map<StrId, std::vector<GroupId>> by_axis_;
  std::vector<std::unordered_map<uint32_t, bool>> taken_;  // by family: its ranks
};

}  // namespace

Status make_families(ImportContext* context, std::vector<RankCapture>* captures) {
  FamilyBuilder builder(context, context->job.world);
  for (RankCapture& capture : *captures) SG_TRY(builder.add(&capture));
  builder.finish();
  return ok_status();
}

}  // namespace sg
