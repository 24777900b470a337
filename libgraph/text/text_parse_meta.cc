#include <algorithm>

#include "libgraph/text/text_parser.h"

namespace sg::text {

bool TextParser::metadata(PendingNode* node) {
  std::vector<std::string_view> seen;
  while (!lexer_.at_end()) {
    const char* at = lexer_.cursor();
    std::string_view w = lexer_.word();
    std::string_view slot = w;
    node->has_meta = true;
    if (w == "unshard" || w == "reduce") slot = "collective";
    if (w == "remat_of" || w == "chunk_of" || w == "offload_of") slot = "copy_of";
    if (w.empty()) return lexer_.expected("metadata or the end of the line");
    if (!once(slot, at, &seen) || !metadata_word(w, node)) return false;
  }
  return true;
}

bool TextParser::metadata_word(std::string_view w, PendingNode* node) {
  NodeMeta& m = node->meta;
  if (w == "of") return value_name(&node->forward, &node->forward_at);
  if (w == "label") {
    node->label_at = (lexer_.peek(), lexer_.cursor());
    lexer_.take('%');
    if (!word("a label", &node->label)) return false;
    return (node->label && node->label != StringTable::kEmpty) ||
           lexer_.error_at(node->label_at, "parse-name", "a label may not be empty");
  }
  if (w == "recompute") return one_of("a recompute policy", &m.recompute);
  if (w == "recompute_region") return small_number("a region number", &m.recompute_region);
  if (w == "ep") return ep(&m);
  if (w == "chunk") return chunk(&m.chunk);
  if (w == "chunks") return result_chunks(&m.result_chunks);
  if (w == "collective") return collective(CollectiveRole::none, &m.collective);
  if (w == "unshard") return collective(CollectiveRole::unshard, &m.collective);
  if (w == "reduce") return collective(CollectiveRole::reduce, &m.collective);
  if (w.ends_with("_of")) {
    std::string_view kind = w.substr(0, w.size() - 3);
    if (auto k = enum_named<CopyKind>(kind == "copy" ? "none" : kind); k && kind != "none") {
      m.copy.kind = *k;
      lexer_.take('%');
      return word("the name of the original", &m.copy.of);
    }
  }
  if (w == "stream") return random(&m.random);
  if (w == "also") return word_list("modules", &m.more_modules);
  if (w == "binds") return word_list("symbols", &m.binds.emplace());
  if (w == "extra") return key_values(&m.extra);
  static constexpr std::string_view kWords[] = {"of",       "label",   "recompute",  "recompute_region", "ep",
                                                "chunk",    "chunks",  "collective", "unshard",          "reduce",
                                                "remat_of", "copy_of", "chunk_of",   "offload_of",       "stream",
                                                "also",     "binds",   "extra",      "stride",           "on"};
  lexer_.back_to(w.data());
  return lexer_.error("parse-metadata", "`" + std::string(w.substr(0, 40)) + "` is not metadata", choices(w, kWords));
}

bool TextParser::ep(NodeMeta* m) {
  if (!one_of("a part of expert parallelism", &m->ep_role)) return false;
  if (!enum_named<EpStep>(lexer_.peek_word())) return true;
  return one_of("a step of the exchange", &m->ep_step);
}

// --- chunks ---

bool TextParser::small_number(std::string_view what, int32_t* out) {
  const char* at = (lexer_.peek(), lexer_.cursor());
  int64_t v;
  if (!lexer_.integer(what, &v)) return false;
  if (v < INT32_MIN || v > INT32_MAX) return lexer_.error_at(at, "parse-number", "this number does not fit in 32 bits");
  *out = static_cast<int32_t>(v);
  return true;
}

bool TextParser::chunk_index(int32_t* out) {
  if (!skip_word("all")) return small_number("the index of a chunk or `all`", out);
  *out = -1;
  return true;
}

bool TextParser::chunk(ChunkInfo* c) {
  if (!chunk_index(&c->index)) return false;
  std::vector<std::string_view> seen;
  for (;;) {
    const char* at = (lexer_.peek(), lexer_.cursor());
    std::string_view w = lexer_.peek_word();
    if (w != "in" && w != "role" && w != "from" && w != "original" && w != "backward") return true;
    lexer_.word();
    if (!once(w, at, &seen) || !chunk_detail(w, c)) return false;
  }
}

bool TextParser::chunk_detail(std::string_view w, ChunkInfo* c) {
  if (w == "in") return word("the region of the chunk", &c->region);
  if (w == "role") return word("a role", &c->role);
  if (w == "from") return word("who made the chunk", &c->producer);
  if (w == "original") return word("the name of the original", &c->original);
  bool is_true = skip_word("true");
  if (!is_true && !skip_word("false")) return lexer_.expected("`true` or `false`");
  c->is_backward = is_true ? 1 : 0;
  return true;
}

bool TextParser::result_chunks(std::vector<ResultChunk>* out) {
  if (!lexer_.expect('[', "before the chunks of the results")) return false;
  if (lexer_.take(']')) return true;
  do {
    ResultChunk r;
    if (!chunk_index(&r.index)) return false;
    if (skip_word("original") && !word("the name of the original", &r.original)) return false;
    out->push_back(r);
  } while (lexer_.take(','));
  return lexer_.expect(']', "or `,` after the chunk of a result");
}

// --- collectives, random numbers ---

bool TextParser::collective(CollectiveRole role, CollectiveInfo* info) {
  info->role = role;
  std::vector<std::string_view> seen;
  for (;;) {
    const char* at = (lexer_.peek(), lexer_.cursor());
    std::string_view w = lexer_.peek_word();
    auto direction = enum_named<BucketDirection>(w);
    bool is_direction = direction && *direction != BucketDirection::none;
    if (w != "bucket" && w != "plan" && !is_direction) return true;
    lexer_.word();
    if (!once(is_direction ? "direction" : w, at, &seen)) return false;
    if (is_direction) info->direction = *direction;
    else if (w == "bucket" && !small_number("the number of a bucket", &info->bucket)) return false;
    else if (w == "plan" && !word_list("modules", &info->plan)) return false;
  }
}

bool TextParser::random(RandomInfo* info) {
  if (!lexer_.natural("the number of a random stream", &info->stream)) return false;
  if (skip_word("shared")) info->rank_local = false;
  if (!skip_word("origin")) return true;
  if (!exprs(&info->origin_shape)) return false;
  if (!skip_word("at")) return lexer_.expected("`at` and the offset, as in: origin [64, 32] at [0, 16]");
  return exprs(&info->origin_offset);
}

// --- sharding ---

bool TextParser::sharding(Sharding* s) {
  if (!exprs(&s->global_shape)) return false;
  if (lexer_.at_end() || is_metadata_word(lexer_.peek_word())) {
    const char* before = lexer_.cursor();
    lexer_.word();
    char next = lexer_.peek();  // an axis may have the name of a keyword: then a placement follows
    lexer_.back_to(before);
    bool is_axis = next == 'S' || next == 'R' || next == 'P';
    if (lexer_.at_end() || !is_axis) return true;
  }
  do {
    StrId axis, place;
    if (!text<is_axis_char>("a mesh axis", &axis) || !placement(&place)) return false;
    if (axis) s->mesh_axes.push_back(axis);
    if (place) s->placements.push_back(place);
  } while (lexer_.take(','));
  return true;
}

bool TextParser::placement(StrId* out) {
  *out = StrId();
  if (lexer_.take('-')) return true;
  if (lexer_.peek() == '"') return string(out);
  std::string_view w = lexer_.word();
  if (w.empty()) return lexer_.expected("a placement", "R, S(0) or P(sum), as PyTorch writes them");
  const char* end = w.data() + w.size();
  if (end != lexer_.end() && *end == '(') {
    while (end != lexer_.end() && *end != ')') ++end;
    if (end == lexer_.end()) return lexer_.error("parse", "this `(` has no `)`");
    ++end;
  }
  std::string_view text(w.data(), static_cast<size_t>(end - w.data()));
  if (!is_plain_placement(text))
    return lexer_.error_at(w.data(), "parse", "this is not a placement", "R, S(0) or P(sum), as PyTorch writes them");
  lexer_.back_to(end);
  *out = pool_.str(text);
  return true;
}

// --- lists and JSON ---

bool TextParser::word_list(std::string_view what, std::vector<StrId>* out) {
  if (!lexer_.expect('[', "before the " + std::string(what))) return false;
  if (lexer_.take(']')) return true;
  do {
    out->emplace_back();
    if (!word(what, &out->back())) return false;
  } while (lexer_.take(','));
  return lexer_.expect(']', "or `,` after the " + std::string(what));
}

// Keys may come in any order; they are stored sorted, as the IR requires.
bool TextParser::key_values(std::vector<KeyValue>* out) {
  const char* at = (lexer_.peek(), lexer_.cursor());
  if (!lexer_.expect('{', "before keys and values")) return false;
  if (lexer_.take('}')) return true;
  do {
    KeyValue kv;
    if (!word("a key", &kv.key) || !lexer_.expect(':', "after a key") || !json(&kv.json)) return false;
    if (!kv.key) kv.key = StringTable::kEmpty;
    out->push_back(kv);
  } while (lexer_.take(','));
  std::stable_sort(out->begin(), out->end(),
                   [&](const KeyValue& a, const KeyValue& b) { return pool_.strings[a.key] < pool_.strings[b.key]; });
  for (size_t i = 1; i < out->size(); ++i)
    if ((*out)[i].key == (*out)[i - 1].key)
      return lexer_.error_at(at, "parse-twice", "the key \"" + pool_.strings.str((*out)[i].key) + "\" comes twice");
  return lexer_.expect('}', "or `,` after a value");
}

bool TextParser::json(StrId* out) {
  if (skip_word("raw")) return string(out);
  std::string compact;
  if (!lexer_.json(&compact)) return false;
  *out = pool_.str(compact);
  return true;
}

}  // namespace sg::text
