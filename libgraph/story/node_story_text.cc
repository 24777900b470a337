#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/base/joined.h"
#include "libgraph/base/json.h"
#include "libgraph/story/node_story.h"
#include "libgraph/story/ranks_text.h"

namespace sg {
namespace {

constexpr size_t kMostLines = 12;

// Two columns: a topic, and what is said about it; long lists are cut.
class Page {
 public:
  void line(const std::string& topic, const std::string& text) {
    out_ += topic == last_ ? std::string(11, ' ') : topic + std::string(11 - std::min<size_t>(10, topic.size()), ' ');
    out_ += one_line(text) + "\n";
    last_ = topic;
  }

  template <class List, class Text>
  void list(const std::string& topic, const List& list, const Text& text_of) {
    for (size_t i = 0; i < std::min(list.size(), kMostLines); ++i) line(topic, text_of(list[i]));
    if (list.size() > kMostLines) line(topic, std::to_string(list.size() - kMostLines) + " more (--json lists them)");
  }

  std::string take() { return std::move(out_); }

 private:
  std::string out_, last_;
};

std::string value_text(const StoryValue& v) {
  if (v.op == "output") return "output " + v.name + (v.type.empty() ? "" : " " + v.type);
  std::string out = "%" + v.name + "  " + v.op + (v.type.empty() ? "" : " : " + v.type);
  if (!v.phase.empty()) out += "  " + v.phase;
  return v.module.empty() ? out : out + (v.phase.empty() ? "  " : " ") + v.module;
}

std::string collective_text(const StoryCollective& c) {
  std::string out = "%" + c.name + "  " + c.kind + " @" + c.group;
  if (c.payload_bytes > 0) out += ", " + human_bytes(c.payload_bytes);
  return out + ", " + plural(c.steps, "node") + " away";
}

std::string names_text(const std::vector<std::string>& names) {
  return joined(first_of(names, kMostLines), ", ", [](const std::string& name) { return "%" + name; }) +
         (names.size() > kMostLines ? " and " + std::to_string(names.size() - kMostLines) + " more" : "");
}

void put_memory(const StoryMemory& m, const std::string& name, Page* page) {
  if (m.place == "none") return page->line("memory", "none: it holds no tensor");
  if (m.place == "input") return page->line("memory", "that of an input, outside of the plan");
  std::string what = m.bytes < 0 ? "a size that only the data decides" : human_bytes(static_cast<double>(m.bytes));
  if (m.offset >= 0) what += " at offset " + std::to_string(m.offset) + " of the " + m.place;
  else what += ", from the pool";
  if (m.first != name && m.owner != name) what += ", in the memory of %" + m.owner;
  if (!m.takes_over.empty()) what += ", which may be that of %" + m.takes_over;
  page->line("memory", what);
  std::string until = m.last.empty()                        ? "to the end: it is an output"
                      : m.last_position == m.first_position ? "and no longer"
                                                            : "to %" + m.last;
  uint32_t end = m.last.empty() ? m.positions : m.last_position + 1;
  page->line("memory", "in use from %" + m.first + " " + until + " (nodes " + std::to_string(m.first_position + 1) +
                           " to " + std::to_string(end) + " of " + std::to_string(m.positions) +
                           (m.at_peak ? ", at the peak)" : ", not at the peak)"));
}

void put_values(JsonWriter* json, std::string_view key, const std::vector<StoryValue>& list) {
  json->key(key).begin_array();
  for (const StoryValue& v : list) {
    json->begin_object().member("name", v.name).member("op", v.op).member("type", v.type);
    json->member("phase", v.phase).member("module", v.module).end_object();
  }
  json->end_array();
}

void put_names(JsonWriter* json, std::string_view key, const std::vector<std::string>& list) {
  json->key(key).begin_array();
  for (const std::string& s : list) json->string(s);
  json->end_array();
}

void put_collectives(JsonWriter* json, std::string_view key, const std::vector<StoryCollective>& list) {
  json->key(key).begin_array();
  for (const StoryCollective& c : list) {
    json->begin_object().member("name", c.name).member("kind", c.kind).member("group", c.group);
    json->key("payload_bytes").count(c.payload_bytes).member("steps", c.steps).end_object();
  }
  json->end_array();
}

}  // namespace

std::string print_story(const NodeStory& s) {
  Page page;
  page.line(s.is_input ? "input" : "node", s.line);
  if (!s.is_input)
    page.line("where", s.phase + (s.module.empty() ? "" : " " + s.module) + (s.source.empty() ? "" : ", " + s.source));
  page.list("made by", s.made_by, [](const StoryReason& r) { return r.by + ": " + r.what; });
  page.list("from", s.from, value_text);
  if (!s.forward.empty()) page.line("backward of", "%" + s.forward);
  page.list("used by", s.used_by, value_text);
  if (s.used_by.empty()) page.line("used by", "nothing");
  if (!s.backward.empty()) page.line("backward", names_text(s.backward));
  if (!s.copies.empty()) page.line("copies", names_text(s.copies));
  for (const StorySymbol& symbol : s.symbols) {
    page.line("symbols", symbol.line + (symbol.defined_by.empty() ? "" : ", defined by " + symbol.defined_by));
    for (const std::string& guard : symbol.guards) page.line("symbols", "  " + guard);
  }
  if (s.memory) put_memory(*s.memory, s.name, &page);
  page.list("fed by", s.fed_by, collective_text);
  page.list("feeds", s.feeds, collective_text);
  return page.take();
}

std::string story_json(const NodeStory& s) {
  JsonWriter json;
  json.begin_object().member("schema", "sg-explain").member("version", 1).member("name", s.name);
  json.member("kind", s.is_input ? "input" : "node").member("line", s.line).member("op", s.op);
  json.member("phase", s.phase).member("module", s.module).member("source", s.source);
  write_ranks(s.ranks, &json);
  json.key("made_by").begin_array();
  for (const StoryReason& r : s.made_by) json.begin_object().member("by", r.by).member("what", r.what).end_object();
  json.end_array();
  put_values(&json, "from", s.from), put_values(&json, "used_by", s.used_by);
  json.member("forward", s.forward);
  put_names(&json, "backward", s.backward), put_names(&json, "copies", s.copies);
  json.key("symbols").begin_array();
  for (const StorySymbol& symbol : s.symbols) {
    json.begin_object().member("line", symbol.line).member("defined_by", symbol.defined_by);
    put_names(&json, "guards", symbol.guards);
    json.end_object();
  }
  json.end_array().key("memory");
  if (const auto& m = s.memory) {
    json.begin_object()
        .member("place", m->place)
        .member("owner", m->owner)
        .member("bytes", m->bytes)
        .member("offset", m->offset);
    json.member("first", m->first).member("last", m->last).member("first_position", m->first_position);
    json.member("last_position", m->last_position)
        .member("takes_over", m->takes_over)
        .member("at_peak", m->at_peak)
        .end_object();
  } else {
    json.null();
  }
  put_collectives(&json, "fed_by", s.fed_by), put_collectives(&json, "feeds", s.feeds);
  return json.end_object().take();
}

}  // namespace sg
