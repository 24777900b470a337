// The comments of FX text: annotations, recomputation tags, phase, source line.
#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "libgraph/base/json.h"
#include "libgraph/import/annotation_keys.h"
#include "libgraph/import/fx_notes.h"
#include "libgraph/import/fx_parse.h"
#include "libgraph/names.h"

namespace sg {
namespace {

constexpr size_t kCutLength = 40;  // FX cuts annotation values after this many characters

bool take(std::string_view* s, std::string_view part) {
  if (!s->starts_with(part)) return false;
  s->remove_prefix(part.size());
  return true;
}

std::string_view trim_line(std::string_view s) {
  while (!s.empty() && (s.front() == ' ' || s.front() == '\t')) s.remove_prefix(1);
  while (!s.empty() && (s.back() == ' ' || s.back() == '\r')) s.remove_suffix(1);
  return s;
}

template <class Number>
bool take_number(std::string_view* s, Number* out) {
  auto [end, code] = std::from_chars(s->data(), s->data() + s->size(), *out);
  if (code != std::errc()) return false;
  s->remove_prefix(static_cast<size_t>(end - s->data()));
  return true;
}

// The length of the bracketed text at the start of `s`, respecting quotes; 0 = not closed.
size_t bracketed_length(std::string_view s) {
  int depth = 0;
  char quote = 0;
  for (size_t i = 0; i < s.size(); ++i) {
    char c = s[i];
    if (quote != 0) {
      if (c == '\\') ++i;
      else if (c == quote) quote = 0;
    } else if (c == '\'' || c == '"') {
      quote = c;
    } else if (c == '{' || c == '[' || c == '(') {
      ++depth;
    } else if ((c == '}' || c == ']' || c == ')') && --depth == 0) {
      return i + 1;
    }
  }
  return 0;
}

std::string lower(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; });
  return out;
}

class CommentReader {
 public:
  CommentReader(FxFile* file, Pool* pool, FxGaps* gaps) : file_(file), pool_(pool), gaps_(gaps) {}

  FxContext read(std::string_view comment) {
    std::string_view s = comment;
    take(&s, "#");
    s = trim_line(s);
    more(&s);
    if (take(&s, "Annotation: ")) annotation(&s);
    s = trim_line(s);
    recompute(&s);
    s = trim_line(s);
    if (take(&s, "Backward of forward node: ")) out_.is_backward = true;
    if (take(&s, "File: ")) source(s);
    std::sort(extra_.begin(), extra_.end());
    for (const auto& [key, json] : extra_) out_.meta.extra.push_back({pool_->str(key), pool_->str(json)});
    return std::move(out_);
  }

 private:
  // A leading "key: value, key: value # ...", which print_readable was asked to add.
  void more(std::string_view* s) {
    size_t mark = s->find(" # ");
    if (s->starts_with("File: ") || s->starts_with("Annotation: ") || s->starts_with("No stacktrace")) return;
    if (mark == std::string_view::npos && s->ends_with(" #")) mark = s->size() - 2;
    if (mark == std::string_view::npos) return;
    std::string_view added = s->substr(0, mark);
    s->remove_prefix(std::min(s->size(), mark + 3));
    if (size_t at = added.find("autograd_backward: "); at != std::string_view::npos)
      out_.is_backward = added.substr(at + 19).starts_with("True");
    if (size_t at = added.find("seq_nr: "); at != std::string_view::npos) {
      std::string_view digits = added.substr(at + 8);
      uint64_t seq = 0;
      if (take_number(&digits, &seq)) out_.seq = seq;
    }
    extra_.emplace_back("additional_meta", json_string(added));
  }

  void annotation(std::string_view* s) {
    size_t length = s->starts_with("{") ? bracketed_length(*s) : 0;
    if (length == 0) return void(++gaps_->unread_annotations);
    auto dict = parse_fx_expression(file_, s->substr(0, length));
    s->remove_prefix(length);
    if (!dict.ok() || file_->expr(*dict).kind != FxKind::dict) return void(++gaps_->unread_annotations);
    const FxExpr d = file_->expr(*dict);
    std::unordered_map<std::string, uint32_t> last;  // of a key that comes twice the last value counts, as in Python
    const auto for_keys = [&](auto&& use) {
      for (uint32_t i = 0; i + 1 < d.count; i += 2)
        if (const FxExpr& key = file_->child(d, i); key.kind == FxKind::string) use(fx_string_value(key.text), i + 1);
    };
    for_keys([&](const std::string& key, uint32_t value) { last[key] = value; });
    for_keys([&](const std::string& key, uint32_t value) {
      if (last[key] == value) entry(key, file_->children[d.first + value]);
    });
    expert_parallel();
    if (out_.meta.chunk.region && !out_.meta.chunk.producer) out_.meta.chunk.producer = pool_->str("eager");
  }

  void entry(const std::string& key, uint32_t value_index) {
    const FxExpr& value = file_->expr(value_index);
    if (value.kind == FxKind::string) {
      std::string text = fx_string_value(value.text);
      if (text.size() == kCutLength + 3 && text.substr(kCutLength) == "...") ++gaps_->cut_annotations;
      if (key == "module_fqn") {
        if (!text.empty()) out_.module = pool_->str(text);
        return;
      }
      const auto* chunk_text = std::ranges::find(kChunkTexts, key, &ChunkTextKey::key);
      if (chunk_text != std::end(kChunkTexts)) return out_.meta.chunk.*(chunk_text->field) = pool_->str(text), void();
      if (key == "EP" || key.starts_with("EP_")) return ep_.emplace_back(key, text), void();
    }
    int32_t number = 0;
    std::string_view digits = value.text;
    if (key == kChunkIndex && value.kind == FxKind::integer && take_number(&digits, &number))
      out_.meta.chunk.index = number;
    else if (key == kChunkIsBackward && value.kind == FxKind::name) out_.meta.chunk.is_backward = value.text == "True";
    else extra_.emplace_back("custom." + key, fx_json(*file_, value_index));
  }

  // As in captures: EP names the region; each other key marks a step within it and repeats the region's word.
  void expert_parallel() {
    NodeMeta& meta = out_.meta;
    auto keep = [&](const auto& e) { extra_.emplace_back("custom." + e.first, json_string(e.second)); };
    for (const auto& e : ep_) {
      if (e.first != "EP") continue;
      auto role = enum_named<EpRole>(e.second);
      if (role && *role != EpRole::none) meta.ep_role = *role;
      else keep(e);
    }
    for (const auto& e : ep_) {
      if (e.first == "EP") continue;
      auto role = enum_named<EpRole>(e.second);
      const auto* step = std::ranges::find(kEpSteps, e.first, &EpStepKey::key);
      bool fits = step != std::end(kEpSteps) && role && *role != EpRole::none && meta.ep_step == EpStep::none &&
                  (meta.ep_role == *role || meta.ep_role == EpRole::none);
      if (!fits) {
        keep(e);
        continue;
      }
      meta.ep_role = *role;
      meta.ep_step = step->step;
    }
  }

  // Reads "ac_graph_id: 3 - MUST_SAVE", "ac_graph_id: 3" or "recompute: PREFER_RECOMPUTE".
  void recompute(std::string_view* s) {
    if (take(s, "ac_graph_id: ")) {
      int32_t region = 0;
      if (take_number(s, &region) && region >= 0) out_.meta.recompute_region = region;
      if (!take(s, " - ")) return;
    } else if (!take(s, "recompute: ")) {
      return;
    }
    size_t end = std::min(s->find(' '), s->size());
    std::string_view word = s->substr(0, end);
    s->remove_prefix(end);
    if (auto policy = enum_named<Recompute>(lower(word))) out_.meta.recompute = *policy;
    else extra_.emplace_back("recompute", json_string(word));
  }

  // Reads "a.py:3 in f, code: ...".
  void source(std::string_view s) {
    s = s.substr(0, s.find(", code: "));
    Source source;
    source.function = StringTable::kEmpty;
    if (size_t in = s.rfind(" in "); in != std::string_view::npos) {
      source.function = pool_->str(trim_line(s.substr(in + 4)));
      s = s.substr(0, in);
    }
    size_t colon = s.rfind(':');
    if (colon == std::string_view::npos) return;
    std::string_view digits = s.substr(colon + 1);
    if (!take_number(&digits, &source.line) || !trim_line(digits).empty()) return;
    source.file = pool_->str(s.substr(0, colon));
    out_.source = pool_->sources.intern(source);
  }

  FxFile* file_;
  Pool* pool_;
  FxGaps* gaps_;
  FxContext out_;
  std::vector<std::pair<std::string, std::string>> ep_, extra_;
};

void write_json(const FxFile& file, uint32_t index, JsonWriter* out) {
  const FxExpr& e = file.expr(index);
  int64_t integer = 0;
  double number = 0;
  const char* end = e.text.data() + e.text.size();
  if (e.kind == FxKind::string) {
    out->string(fx_string_value(e.text));
  } else if (e.kind == FxKind::name && (e.text == "True" || e.text == "False")) {
    out->boolean(e.text == "True");
  } else if (e.kind == FxKind::name && e.text == "None") {
    out->null();
  } else if (e.kind == FxKind::integer && std::from_chars(e.text.data(), end, integer).ec == std::errc()) {
    out->integer(integer);
  } else if (e.kind == FxKind::floating && std::from_chars(e.text.data(), end, number).ec == std::errc()) {
    out->floating(number);
  } else if (e.kind == FxKind::list || e.kind == FxKind::tuple) {
    out->begin_array();
    for (uint32_t c : file.children_of(e)) write_json(file, c, out);
    out->end_array();
  } else if (e.kind == FxKind::dict) {
    out->begin_object();
    for (uint32_t i = 0; i + 1 < e.count; i += 2) {
      const FxExpr& key = file.child(e, i);
      out->key(key.kind == FxKind::string ? fx_string_value(key.text) : std::string(key.text));
      write_json(file, file.children[e.first + i + 1], out);
    }
    out->end_object();
  } else {
    out->string(e.text);
  }
}

}  // namespace

FxContext read_fx_comment(FxFile* file, std::string_view comment, Pool* pool, FxGaps* gaps) {
  return CommentReader(file, pool, gaps).read(comment);
}

std::string fx_json(const FxFile& file, uint32_t expr) {
  JsonWriter out;
  write_json(file, expr, &out);
  return out.take();
}

}  // namespace sg
