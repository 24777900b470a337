#include "librun/values/shard.h"

#include <algorithm>
#include <charconv>
#include <string>

#include "libgraph/shape_text.h"

namespace sg {
namespace {

constexpr int64_t kMaxPieces = 1 << 20;  // per axis

struct Range {
  int64_t begin, end;
};
using Ranges = std::vector<Range>;  // the remaining ranges of an axis, in order

int64_t length(const Ranges& list) {
  int64_t n = 0;
  for (Range r : list) n += r.end - r.begin;
  return n;
}

// Appends positions [begin, end) of the concatenated ranges in `list`.
void cut(const Ranges& list, int64_t begin, int64_t end, Ranges* out) {
  int64_t at = 0;
  for (Range r : list) {
    const int64_t size = r.end - r.begin;
    const int64_t from = std::clamp<int64_t>(begin - at, 0, size), to = std::clamp<int64_t>(end - at, 0, size);
    if (from < to) out->push_back({r.begin + from, r.begin + to});
    at += size;
  }
}

struct Placement {
  enum class Kind : uint8_t { shard, replicate, sum, partial } kind = Kind::replicate;
  int64_t axis = 0, factor = 1;
};

Result<Placement> parse_placement(std::string_view text) {
  const Error unknown{ErrorKind::cannot_apply, "unknown placement `" + std::string(text) + "`", {}, {}};
  if (text == "R") return Placement{};
  if (text.starts_with("P"))
    return Placement{text == "P(sum)" || text == "P" ? Placement::Kind::sum : Placement::Kind::partial};
  const bool strided = text.starts_with("_S(");
  if ((!strided && !text.starts_with("S(")) || !text.ends_with(")")) return unknown;
  text.remove_suffix(1);
  text.remove_prefix(strided ? 3 : 2);
  Placement out{Placement::Kind::shard};
  auto read = [&](int64_t* to) {
    while (text.starts_with(' ') || text.starts_with(',')) text.remove_prefix(1);
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *to);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    return error == std::errc();
  };
  if (!read(&out.axis) || (strided && !read(&out.factor)) || !text.empty() || out.factor < 1) return unknown;
  return out;
}

struct Coordinate {
  int64_t index, size;
};

// A rank's coordinate along an axis: in a mesh that has all `axes`, else in the group of that axis.
Result<Coordinate> coordinate(const Job& job, uint32_t rank, const std::vector<StrId>& axes, StrId axis) {
  for (const Mesh& mesh : job.meshes) {
    auto has = [&](StrId a) { return std::find(mesh.axes.begin(), mesh.axes.end(), a) != mesh.axes.end(); };
    if (!std::all_of(axes.begin(), axes.end(), has)) continue;
    uint64_t place = rank;
    for (size_t i = std::min(mesh.axes.size(), mesh.shape.size()); i-- > 0 && mesh.shape[i] != 0;) {
      if (mesh.axes[i] == axis) return Coordinate{static_cast<int64_t>(place % mesh.shape[i]), mesh.shape[i]};
      place /= mesh.shape[i];
    }
  }
  const std::string name = "/" + job.pool->strings.str(axis) + "/";
  for (const Group& group : job.groups) {
    if (("/" + job.pool->strings.str(group.axis) + "/").find(name) == std::string::npos) continue;
    const GroupPart* part = group.part_of(rank);
    if (part == nullptr) continue;
    auto at = std::find(part->ranks.begin(), part->ranks.end(), rank) - part->ranks.begin();
    return Coordinate{at, static_cast<int64_t>(part->ranks.size())};
  }
  return Error{
      ErrorKind::cannot_apply, "no mesh and no group has the axis `" + job.pool->strings.str(axis) + "`", {}, {}};
}

Result<Ranges> shard(const Ranges& list, Placement placement, Coordinate at) {
  int64_t pieces = 0;
  if (__builtin_mul_overflow(at.size, placement.factor, &pieces) || pieces > kMaxPieces)
    return Error{ErrorKind::cannot_apply, "a placement that cuts an axis into too many pieces", {}, {}};
  const int64_t total = length(list), size = total == 0 ? 0 : (total - 1) / pieces + 1;
  Ranges out;
  for (int64_t j = 0; j < placement.factor; ++j) {
    const int64_t begin = std::min(total, (at.index + j * at.size) * size);
    cut(list, begin, std::min(total, begin + size), &out);
  }
  return out;
}

}  // namespace

Shard Shard::whole(std::span<const int64_t> shape) {
  Shard out;
  out.local_shape_.assign(shape.begin(), shape.end());
  out.global_shape_ = out.local_shape_;
  out.map_.resize(shape.size());
  return out;
}

Result<Shard> Shard::of(const Job& job, uint32_t rank, const Sharding& sharding, std::span<const int64_t> local_shape,
                        const SizeValues& sizes) {
  Shard out = whole(local_shape);
  if (sharding.empty()) return out;
  if (sharding.placements.size() != sharding.mesh_axes.size() || sharding.global_shape.size() != local_shape.size())
    return Error{ErrorKind::cannot_apply, "its sharding does not fit its shape", {}, {}};
  std::vector<Ranges> axes;
  for (size_t d = 0; d < local_shape.size(); ++d) {
    auto size = evaluate_size(*job.pool, sharding.global_shape[d], sizes);
    if (!size) return Error{ErrorKind::cannot_apply, "its global shape is not known", {}, {}};
    out.global_shape_[d] = *size;
    axes.push_back({{0, *size}});
  }
  for (size_t i = 0; i < sharding.placements.size(); ++i) {
    SG_ASSIGN(Placement placement, parse_placement(job.pool->strings[sharding.placements[i]]));
    if (placement.kind == Placement::Kind::replicate || placement.kind == Placement::Kind::partial) continue;
    SG_ASSIGN(Coordinate at, coordinate(job, rank, sharding.mesh_axes, sharding.mesh_axes[i]));
    if (placement.kind == Placement::Kind::sum) {
      out.is_zero_ = out.is_zero_ || at.index != 0;
      continue;
    }
    if (placement.axis < 0) placement.axis += static_cast<int64_t>(axes.size());
    if (placement.axis < 0 || placement.axis >= static_cast<int64_t>(axes.size()))
      return Error{ErrorKind::cannot_apply, "a placement names an axis that the tensor does not have", {}, {}};
    Ranges& list = axes[static_cast<size_t>(placement.axis)];
    SG_ASSIGN(list, shard(list, placement, at));
  }
  for (size_t d = 0; d < axes.size(); ++d)
    if (length(axes[d]) != local_shape[d])
      return Error{ErrorKind::cannot_apply,
                   "its placements give rank " + std::to_string(rank) + " " + std::to_string(length(axes[d])) +
                       " elements of axis " + std::to_string(d) + ", the graph has " + shape_text(local_shape),
                   {},
                   {}};
  if (std::find(local_shape.begin(), local_shape.end(), 0) != local_shape.end()) return out;
  for (size_t d = 0; d < axes.size(); ++d) {
    if (axes[d].size() == 1 && axes[d][0].begin == 0) continue;
    for (Range r : axes[d])
      for (int64_t i = r.begin; i < r.end; ++i) out.map_[d].push_back(i);
  }
  return out;
}

int64_t Shard::run_length(size_t d, int64_t i) const {
  if (map_[d].empty()) return local_shape_[d] - i;
  int64_t n = 1;
  while (i + n < local_shape_[d] && map_[d][static_cast<size_t>(i + n)] == map_[d][static_cast<size_t>(i)] + n) ++n;
  return n;
}

bool is_in_shards(const Job& job, uint32_t rank, const Sharding& sharding) {
  for (size_t i = 0; i < std::min(sharding.placements.size(), sharding.mesh_axes.size()); ++i) {
    const Result<Placement> placement = parse_placement(job.pool->strings[sharding.placements[i]]);
    if (!placement.ok() || placement->kind != Placement::Kind::shard) continue;
    const Result<Coordinate> at = coordinate(job, rank, sharding.mesh_axes, sharding.mesh_axes[i]);
    if (at.ok() && at->size > 1) return true;
  }
  return false;
}

}  // namespace sg
