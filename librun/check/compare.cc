#include "librun/check/compare.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "libgraph/data/safetensors.h"
#include "libgraph/op.h"
#include "libgraph/shape_text.h"
#include "libgraph/story/source_text.h"
#include "librun/check/expect.h"
#include "librun/check/expect_report.h"
#include "librun/cpu/fill.h"

namespace sg {
namespace {

struct Digest {
  std::array<uint64_t, 2> sums{0x9E3779B97F4A7C15ull, 0xC2B2AE3D27D4EB4Full};
  void add(uint64_t word) {
    sums[0] = (std::rotl(sums[0], 5) ^ word) * 0xBF58476D1CE4E5B9ull;
    sums[1] = std::rotl(sums[1] + word, 23) * 0x94D049BB133111EBull;
  }
  void add(const std::byte* bytes, size_t size) {
    for (; size >= 8; bytes += 8, size -= 8) {
      uint64_t word;
      std::memcpy(&word, bytes, 8);
      add(word);
    }
    if (size == 0) return;
    uint64_t rest = 0;
    std::memcpy(&rest, bytes, size);
    add(rest);
  }
};

// Mixes the bits, so that sums of digests reveal which words belong together.
uint64_t stirred(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

Tensor contiguous_copy(const Tensor& t, std::unique_ptr<std::byte[]>* memory) {
  *memory = std::make_unique<std::byte[]>(static_cast<size_t>(t.bytes()));
  Tensor out = make_tensor(memory->get(), t.dtype, t.sizes());
  ThreadTeam alone(1);
  cpu::copy(alone, out, t);
  return out;
}

}  // namespace

std::array<uint64_t, 2> digest_of(const Tensor& t) {
  std::unique_ptr<std::byte[]> memory;
  Tensor flat = t.is_contiguous() && !t.conjugate ? t : contiguous_copy(t, &memory);
  Digest digest;
  digest.add(flat.data, static_cast<size_t>(flat.bytes()));
  return digest.sums;
}

std::array<uint64_t, 2> slice_digest_of(const Tensor& t, int axis) {
  std::array<uint64_t, 2> out{};
  int64_t before = 1, run = dtype_bytes(t.dtype);
  for (int i = 0; i < axis; ++i) before *= t.dim(i);
  for (int i = axis + 1; i < t.rank; ++i) run *= t.dim(i);
  for (int64_t at = 0; at < t.dim(axis); ++at) {
    Digest slice;
    for (int64_t b = 0; b < before; ++b) slice.add(t.data + (b * t.dim(axis) + at) * run, static_cast<size_t>(run));
    for (size_t i = 0; i < 2; ++i) out[i] += stirred(slice.sums[i]);
  }
  return out;
}

SummedResults summed_in(const Graph& changed) {
  SummedResults out;
  const Pool& pool = changed.pool();
  for (NodeId n : changed.nodes()) {
    const ChunkInfo& chunk = changed.meta(n).chunk;
    if (chunk.original.is_none() || chunk.index < 0 || changed.node(n).result_count == 0) continue;
    const Type& t = changed.type(changed.node(n).result(0));
    if (t.kind != TypeKind::tensor) continue;
    std::vector<int64_t>& sizes = out[std::string(pool.strings[chunk.original])];
    sizes.clear();
    for (Expr e : t.shape) sizes.push_back(pool.exprs.constant_value(e).value_or(-1));
  }
  return out;
}

bool Record::keeps(const std::string& name, const Tensor& t) const {
  auto it = kept_.find(name);
  return it != kept_.end() &&
         std::ranges::equal(it->second, t.sizes(), [](int64_t a, int64_t b) { return a == b || a < 0; });
}

Status Record::after(const Graph& graph, NodeId n, std::span<const Tensor> results) {
  if (!has_settled_results(graph, n)) return ok_status();
  for (uint32_t i = 0; i < results.size(); ++i) {
    const Tensor& t = results[i];
    if (t.is_none()) continue;
    RecordedValue& value = values_[name_of_result(graph, n, i)];
    value = {t.dtype, {t.sizes().begin(), t.sizes().end()}, digest_of(t), {}, nullptr};
    const auto sizes = kept_.find(name_of_result(graph, n, i));
    if (sizes == kept_.end()) continue;
    std::unique_ptr<std::byte[]> memory;
    const Tensor flat = contiguous_copy(t, &memory);
    for (int axis = 0; axis < t.rank && sizes->second.size() == static_cast<size_t>(t.rank); ++axis)
      if (sizes->second[static_cast<size_t>(axis)] != t.dim(axis))
        value.slices.emplace_back(axis, slice_digest_of(flat, axis));
    if (keeps(sizes->first, t)) value.memory = std::move(memory);
  }
  return ok_status();
}

const RecordedValue* Record::find(std::string_view name) const {
  auto it = values_.find(std::string(name));
  return it == values_.end() ? nullptr : &it->second;
}

RunDifference Comparison::site(const Graph& graph, NodeId n, uint32_t result) const {
  const Node& node = graph.node(n);
  const Pool& pool = graph.pool();
  RunDifference out;
  out.name = name_of_result(graph, n, result);
  out.op = std::string(graph.op_name(n));
  out.order = order_;
  if (!node.module.is_none()) out.module = std::string(pool.strings[node.module]);
  out.place = source_of(graph, n);
  return out;
}

Status Comparison::after(const Graph& graph, NodeId n, std::span<const Tensor> results) {
  ++order_;
  const NodeMeta& meta = graph.meta(n);
  const Pool& pool = graph.pool();
  int32_t* chunks = meta.chunk.region.is_none() ? nullptr : &chunks_[std::string(pool.strings[meta.chunk.region])];
  if (chunks != nullptr) *chunks = std::max(*chunks, meta.chunk.index + 1);
  if (!has_settled_results(graph, n)) return ok_status();
  for (uint32_t i = 0; i < results.size(); ++i) {
    if (results[i].is_none()) continue;
    RunDifference here = site(graph, n, i);
    const ResultChunk* own = i < meta.result_chunks.size() ? &meta.result_chunks[i] : nullptr;
    StrId piece_of = own ? own->original : meta.chunk.original;
    int32_t index = own ? own->index : meta.chunk.index;
    std::string copy_of = meta.copy.of.is_none() ? "" : std::string(pool.strings[meta.copy.of]);
    if (!piece_of.is_none() && index >= 0 && first_.find(pool.strings[piece_of])) {
      here.original = std::string(pool.strings[piece_of]);
      const DType narrowest = &graph == &graph_ ? narrowest_[graph.node(n).result(i).index] : results[i].dtype;
      keep_piece(here, index, results[i], narrowest)->chunks = chunks;
    } else if (const RecordedValue* same = first_.find(here.name)) {
      here.original = here.name;
      hold(here, *same, results[i], &report_.equal);
    } else if (const RecordedValue* copied = copy_of.empty() ? nullptr : first_.find(copy_of)) {
      here.original = copy_of;
      hold(here, *copied, results[i], &report_.copies_equal);
    } else {
      ++report_.without_counterpart;
    }
  }
  return ok_status();
}

void Comparison::hold(const RunDifference& site, const RecordedValue& expected, const Tensor& t, size_t* counter) {
  RunDifference d = site;
  if (t.dtype != expected.dtype)
    d.what = "dtype " + std::string(dtype_name(t.dtype)) + " instead of " + std::string(dtype_name(expected.dtype));
  else if (!std::ranges::equal(t.sizes(), expected.shape))
    d.what = "shape " + shape_text(t.sizes()) + " instead of " + shape_text(expected.shape);
  else if (digest_of(t) != expected.digest) d.what = "values";
  else return void(++*counter);
  report_.differences.push_back(std::move(d));
}

Comparison::Chunked* Comparison::keep_piece(const RunDifference& site, int32_t index, const Tensor& t,
                                            DType narrowest) {
  Chunked& chunked = chunked_[site.original];
  if (chunked.pieces.empty()) chunked.site = site, chunked.narrowest = narrowest;
  for (Piece& p : chunked.pieces)
    if (p.index == index) return ++report_.without_counterpart, &chunked;  // a second copy of this piece
  Piece& piece = chunked.pieces.emplace_back();
  piece.index = index;
  piece.tensor = contiguous_copy(t, &piece.memory);
  return &chunked;
}

// Whether all pieces have arrived: a reshape that copies in one chunk may be a view in another, and views are not
// observed.
bool Comparison::is_whole(const Chunked& chunked) const {
  return chunked.chunks == nullptr || chunked.pieces.size() >= static_cast<size_t>(*chunked.chunks);
}

// Whether the pieces, concatenated along some axis, equal the original.
bool Comparison::put_together(const Chunked& chunked, const RecordedValue& expected) const {
  const Tensor& first = chunked.pieces[0].tensor;
  if (first.dtype != expected.dtype || static_cast<size_t>(first.rank) != expected.shape.size()) return false;
  for (int axis = 0; axis < first.rank; ++axis) {
    std::vector<int64_t> shape(first.sizes().begin(), first.sizes().end());
    int64_t total = 0;
    bool fits = true;
    for (const Piece& p : chunked.pieces) {
      fits &= p.tensor.rank == first.rank;
      for (int i = 0; fits && i < first.rank; ++i) fits = i == axis || p.tensor.dim(i) == first.dim(i);
      if (fits) total += p.tensor.dim(axis);
    }
    shape[static_cast<size_t>(axis)] = total;
    if (!fits || shape != expected.shape) continue;
    auto memory = std::make_unique<std::byte[]>(static_cast<size_t>(*contiguous_bytes(first.dtype, shape)));
    Tensor whole = make_tensor(memory.get(), first.dtype, shape);
    ThreadTeam alone(1);
    int64_t at = 0;
    for (const Piece& p : chunked.pieces) {
      Tensor part = whole;
      part.data += at * whole.step(axis) * dtype_bytes(whole.dtype);
      part.shape = p.tensor.shape;
      cpu::copy(alone, part, p.tensor);
      at += p.tensor.dim(axis);
    }
    if (digest_of(whole) == expected.digest) return true;
  }
  return false;
}

// Whether the pieces have the slices of the original along some axis, in any order.
bool Comparison::has_same_slices(const Chunked& chunked, const RecordedValue& expected) const {
  for (const auto& [axis, digest] : expected.slices) {
    std::array<uint64_t, 2> sums{};
    int64_t total = 0;
    bool fits = true;
    for (const Piece& p : chunked.pieces) {
      fits = fits && p.tensor.dtype == expected.dtype && static_cast<size_t>(p.tensor.rank) == expected.shape.size();
      for (int i = 0; fits && i < p.tensor.rank; ++i)
        fits = i == axis || p.tensor.dim(i) == expected.shape[static_cast<size_t>(i)];
      if (!fits) break;
      total += p.tensor.dim(axis);
      const auto own = slice_digest_of(p.tensor, axis);
      for (size_t i = 0; i < 2; ++i) sums[i] += own[i];
    }
    if (fits && total == expected.shape[static_cast<size_t>(axis)] && sums == digest) return true;
  }
  return false;
}

// Whether the pieces, each the size of the original, add up to it.
bool Comparison::adds_up(const Chunked& chunked, const RecordedValue& expected) const {
  if (!expected.memory || is_complex(expected.dtype)) return false;
  for (const Piece& p : chunked.pieces)
    if (p.tensor.dtype != expected.dtype || !std::ranges::equal(p.tensor.sizes(), expected.shape)) return false;
  const bool floats = is_floating(expected.dtype);
  const DType wide = floats ? DType::f64 : DType::i64;
  const auto count = static_cast<size_t>(chunked.pieces[0].tensor.elements());
  std::vector<double> sum(count), part(count);
  std::vector<int64_t> whole_sum(count), whole_part(count);
  ThreadTeam alone(1);
  for (const Piece& p : chunked.pieces) {
    Tensor out = make_tensor(
        floats ? reinterpret_cast<std::byte*>(part.data()) : reinterpret_cast<std::byte*>(whole_part.data()), wide,
        expected.shape);
    cpu::copy(alone, out, p.tensor);
    for (size_t i = 0; i < count; ++i) sum[i] += part[i], whole_sum[i] += whole_part[i];
  }
  const Tensor together =
      make_tensor(floats ? reinterpret_cast<std::byte*>(sum.data()) : reinterpret_cast<std::byte*>(whole_sum.data()),
                  wide, expected.shape);
  StoredTensor original;
  original.dtype = expected.dtype, original.shape = expected.shape, original.data = expected.memory.get();
  original.bytes = count * static_cast<size_t>(dtype_bytes(expected.dtype));
  ExpectRow row;
  row.narrowest = chunked.narrowest;
  ExpectOptions options = tolerance_;
  options.bitwise = false;
  compare_tensor(together, original, options, &row);
  return row.passed();
}

ComparisonReport Comparison::report() {
  for (auto& [name, chunked] : chunked_) {
    std::ranges::sort(chunked.pieces, {}, &Piece::index);
    const RecordedValue& original = *first_.find(name);
    const Tensor& last = chunked.pieces.back().tensor;
    // A buffer that the chunks update in turn equals the original after the last chunk.
    const bool in_turn = std::ranges::equal(last.sizes(), original.shape) && last.dtype == original.dtype &&
                         digest_of(last) == original.digest;
    if (in_turn || put_together(chunked, original)) {
      report_.chunked_equal += chunked.pieces.size();
      continue;
    }
    if (has_same_slices(chunked, original)) {
      report_.reordered_equal += chunked.pieces.size();
      continue;
    }
    if (adds_up(chunked, original)) {
      ++report_.sums_close;
      continue;
    }
    if (is_integral(original.dtype) && last.dtype == original.dtype) {
      report_.own_numbers += chunked.pieces.size();
      continue;
    }
    if (!is_whole(chunked)) {
      report_.without_counterpart += chunked.pieces.size();
      continue;
    }
    RunDifference d = chunked.site;
    d.what = "values of the " + std::to_string(chunked.pieces.size()) + " chunks together";
    report_.differences.push_back(std::move(d));
  }
  chunked_.clear();
  std::ranges::sort(report_.differences, {}, &RunDifference::order);
  return report_;
}

}  // namespace sg
