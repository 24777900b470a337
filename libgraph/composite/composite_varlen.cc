// Attention by the kernels that take queries and keys with the heads inside ([batch, length, heads, width]), or pieces
// of unlike lengths one after another ([rows, heads, width], with offsets): as attention over padded rows under a mask.
//
// Causal means that the last query sees the last key, as in these kernels: of fewer queries the first one sees more.
#include <limits>

#include "libgraph/composite/composite_jagged.h"

namespace sg::composite {
namespace {

constexpr std::string_view kMaskedAttention = "_scaled_dot_product_flash_attention_for_cpu";
constexpr std::string_view kMaskedAttentionBackward = "_scaled_dot_product_flash_attention_for_cpu_backward";

// One side: queries, or keys and values.
struct Side {
  bool is_of_pieces = false;
  Pieces pieces;
  Arg length;
};

struct Reach {
  int64_t left = -1, right = -1;  // how far a query looks; negative: all the way
};

struct Varlen {
  Side queries, keys;
  ValueId mask;        // none: everything is seen
  int64_t shared = 1;  // queries' heads for each head of keys
};

Side side_of(CompositeCall& c, std::string_view rows, std::string_view offsets, std::string_view longest) {
  Side s;
  const ValueId given = c.tensor(rows);
  if (c.failed()) return s;
  s.is_of_pieces = c.has(offsets);
  if (c.rank(given) != (s.is_of_pieces ? 3 : 4)) return c.fail("needs rows with heads inside"), s;
  s.length = s.is_of_pieces ? c.arg(longest) : c.size(given, 1);
  if (s.is_of_pieces) s.pieces = pieces_of(c, c.tensor(offsets));
  return s;
}

// [pieces, heads, length, ...] of rows with heads inside.
ValueId heads_outside(CompositeCall& c, ValueId rows, const Side& side) {
  if (side.is_of_pieces) rows = padded(c, rows, side.pieces, side.length, 0.0);
  return c.make("transpose.int", {rows, 1, 2});
}

ValueId heads_inside(CompositeCall& c, ValueId heads, const Side& side, Arg rows) {
  const ValueId inside = c.make("transpose.int", {heads, 1, 2});
  return side.is_of_pieces ? unpadded(c, inside, side.pieces, std::move(rows)) : inside;
}

ValueId either(CompositeCall& c, ValueId a, ValueId b) {
  if (a.is_none() || b.is_none()) return a.is_none() ? b : a;
  return c.make("logical_or", {a, b});
}

// 0 for what a query sees, else minus infinity, of the queries' type: [pieces or 1, 1, queries, keys].
ValueId mask_of(CompositeCall& c, const Varlen& v, Reach reach) {
  const bool has_pieces = v.queries.is_of_pieces;
  if (c.failed() || (!has_pieces && reach.left < 0 && reach.right < 0)) return {};
  const ValueId query = c.tensor("query");
  const Numbers by_piece{-1, 1, 1, 1};
  const ValueId key = counted_to(c, v.keys.length, query);
  const ValueId apart = c.make("sub.Tensor", {key, c.make("unsqueeze", {counted_to(c, v.queries.length, query), 1})});
  ValueId unseen;
  PartArg ahead = 0;  // how many more keys than queries there are
  if (has_pieces) {
    const ValueId lengths = c.make("view", {v.keys.pieces.lengths, by_piece});
    unseen = c.make("ge.Tensor", {key, lengths});
    ahead = c.make("sub.Tensor", {lengths, c.make("view", {v.queries.pieces.lengths, by_piece})});
  } else {
    ahead = c.make("sub.Tensor", {c.make("full", {ArgList{}, v.keys.length, c.key("dtype", DType::i64)}),
                                  c.make("full", {ArgList{}, v.queries.length, c.key("dtype", DType::i64)})});
  }
  const auto moved = [&](int64_t by) { return c.make("add.Scalar", {ahead, by}); };
  if (reach.right >= 0) unseen = either(c, unseen, c.make("gt.Tensor", {apart, moved(reach.right)}));
  if (reach.left >= 0) unseen = either(c, unseen, c.make("lt.Tensor", {apart, moved(-reach.left)}));
  if (c.failed()) return {};
  const Arg count = has_pieces ? c.size(v.queries.pieces.lengths, 0) : Arg::integer(1);
  const ValueId zeros = c.zeros({count, Arg::integer(1), v.queries.length, v.keys.length}, query);
  return c.make("masked_fill.Scalar", {zeros, unseen, -std::numeric_limits<double>::infinity()});
}

Varlen varlen_of(CompositeCall& c, std::string_view query_offsets, std::string_view key_offsets, Reach reach) {
  Varlen v;
  v.queries = side_of(c, "query", query_offsets, "max_q");
  v.keys = side_of(c, "key", key_offsets, "max_k");
  if (v.queries.is_of_pieces != v.keys.is_of_pieces) c.fail("needs offsets of queries and of keys");
  if (c.failed()) return v;
  const int64_t heads = c.known_size(c.tensor("query"), -2), of_keys = c.known_size(c.tensor("key"), -2);
  if (c.failed()) return v;
  if (of_keys < 1 || heads % of_keys != 0) return c.fail("needs queries' heads that share the keys' evenly"), v;
  v.shared = heads / of_keys;
  if (c.flag("is_causal")) reach.right = 0;
  v.mask = mask_of(c, v, reach);
  return v;
}

// Keys or values, each head as often as queries' heads share it.
ValueId shared_heads(CompositeCall& c, ValueId rows, const Varlen& v) {
  const ValueId heads = heads_outside(c, rows, v.keys);
  if (v.shared == 1 || c.failed()) return heads;
  ArgList shape = c.shape(heads);
  shape.insert(shape.begin() + 2, Arg::integer(v.shared));
  const ValueId spread = c.make("expand", {c.make("unsqueeze", {heads, 2}), shape});
  return c.make("flatten.using_ints", {spread, 1, 2});
}

// The sum over the heads that share one, of a gradient.
ValueId gathered_heads(CompositeCall& c, ValueId grad, const Varlen& v, Arg rows) {
  if (v.shared != 1 && !c.failed()) {
    ArgList shape = c.shape(grad);
    shape[1] = Arg::integer(c.known_size(grad, 1) / v.shared);
    shape.insert(shape.begin() + 2, Arg::integer(v.shared));
    grad = c.make("sum.dim_IntList", {c.make("reshape", {grad, shape}), Numbers{2}});
  }
  return heads_inside(c, grad, v.keys, std::move(rows));
}

void give_forward(CompositeCall& c, const Varlen& v) {
  if (c.failed()) return;
  const ValueId query = c.tensor("query"), key = c.tensor("key"), value = c.tensor("value");
  const Arg rows = c.size(query, 0);
  PartArgs args{heads_outside(c, query, v.queries), shared_heads(c, key, v), shared_heads(c, value, v), 0.0, false};
  if (!v.mask.is_none()) args.push_back(c.key("attn_mask", v.mask));
  args.push_back(c.key("scale", c.arg("scale")));
  const Values found = c.make_all(kMaskedAttention, std::move(args));
  if (c.failed()) return;
  c.give(c.make("contiguous", {heads_inside(c, found[0], v.queries, rows)}));
  ValueId sums = found[1];  // [pieces, heads, length], as captures of torch 2.6 have them for rows of pieces, too
  const Type& recorded = c.recorded(1);
  const bool are_padded = recorded.kind == TypeKind::tensor && recorded.shape.size() == 3;
  if (v.queries.is_of_pieces && !are_padded)
    sums = c.make("transpose.int", {unpadded(c, c.make("transpose.int", {sums, 1, 2}), v.queries.pieces, rows), 0, 1});
  c.give(c.make("contiguous", {sums}));
}

void give_backward(CompositeCall& c, const Varlen& v, ValueId sums) {
  if (c.failed()) return;
  const ValueId query = c.tensor("query"), key = c.tensor("key"), value = c.tensor("value");
  if (v.queries.is_of_pieces && c.rank(sums) == 2) {
    const ValueId rows = c.make("transpose.int", {sums, 0, 1});
    sums = c.make("transpose.int", {padded(c, rows, v.queries.pieces, v.queries.length, 0.0), 1, 2});
  }
  PartArgs args{heads_outside(c, c.tensor("grad_out"), v.queries),
                heads_outside(c, query, v.queries),
                shared_heads(c, key, v),
                shared_heads(c, value, v),
                heads_outside(c, c.tensor("out"), v.queries),
                sums,
                0.0,
                false};
  if (!v.mask.is_none()) args.push_back(c.key("attn_mask", v.mask));
  args.push_back(c.key("scale", c.arg("scale")));
  const Values found = c.make_all(kMaskedAttentionBackward, std::move(args));
  if (c.failed()) return;
  c.give(c.make("contiguous", {heads_inside(c, found[0], v.queries, c.size(query, 0))}));
  c.give(c.make("contiguous", {gathered_heads(c, found[1], v, c.size(key, 0))}));
  c.give(c.make("contiguous", {gathered_heads(c, found[2], v, c.size(value, 0))}));
}

Reach reach_of(CompositeCall& c) {
  Reach w;
  if (c.has("window_size_left")) w.left = c.integer("window_size_left");
  if (c.has("window_size_right")) w.right = c.integer("window_size_right");
  return w;
}

Reach listed_reach_of(CompositeCall& c) {
  if (!c.has("window_size")) return {};
  const Numbers both = c.integers("window_size");
  if (both.size() != 2) return c.fail("needs two sizes of a window"), Reach{};
  return {both[0], both[1]};
}

bool is_plain(CompositeCall& c, std::initializer_list<std::string_view> others) {
  for (std::string_view name : others)
    if (c.has(name)) c.fail("has no recipe with " + std::string(name));
  return !c.failed();
}

ValueId numbers_of_seed(CompositeCall& c, ArgList shape) {
  return c.make("new_zeros", {c.tensor("query"), shape, c.key("dtype", DType::i64)});
}

}  // namespace

void flash_attention_with_heads_inside(CompositeCall& c) {
  if (c.number("dropout_p") != 0) c.fail("draws its dropout within the kernel");
  if (!is_plain(c, {"seqused_k", "alibi_slopes", "block_table"})) return;
  give_forward(c, varlen_of(c, "cum_seq_q", "cum_seq_k", reach_of(c)));
  if (c.failed()) return;
  c.give_own(numbers_of_seed(c, {Arg::integer(2)}));
  c.give_own(numbers_of_seed(c, {}));
  c.give_own(c.make("new_empty", {c.tensor("query"), Numbers{0}}));
}

void flash_attention_with_heads_inside_backward(CompositeCall& c) {
  if (c.number("dropout_p") != 0) return c.fail("draws its dropout within the kernel");
  give_backward(c, varlen_of(c, "cum_seq_q", "cum_seq_k", reach_of(c)), c.tensor("logsumexp"));
}

// torch.nn.attention.varlen
void varlen_attention(CompositeCall& c) {
  if (!is_plain(c, {"seqused_k", "block_table"})) return;
  give_forward(c, varlen_of(c, "cu_seq_q", "cu_seq_k", listed_reach_of(c)));
  if (!c.failed()) c.give_own(numbers_of_seed(c, {Arg::integer(2)}));
}

void varlen_attention_backward(CompositeCall& c) {
  give_backward(c, varlen_of(c, "cu_seq_q", "cu_seq_k", listed_reach_of(c)), c.tensor("lse"));
}

}  // namespace sg::composite
