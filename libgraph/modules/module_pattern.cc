#include "libgraph/modules/module_pattern.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <span>

#include "libgraph/modules/module_path.h"

namespace sg {
namespace {

// A range of numbers is one Char, '#', so that it stands for a whole component.
struct Char {
  char c;
  uint32_t column;
  std::string_view range = {};  // "0..5"; empty = a plain character
};
using Text = std::vector<Char>;

// A module's number: no sign, nor zeros before it.
std::optional<uint64_t> module_number(std::string_view text) {
  uint64_t out = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), out);
  if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return text[0] != '0' || text.size() == 1 ? std::optional(out) : std::nullopt;
}

struct Range {
  uint64_t first, last;
};
std::optional<Range> range_of(std::string_view text) {
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) return std::nullopt;
  const std::optional<uint64_t> first = module_number(text.substr(0, dots));
  const std::optional<uint64_t> last = module_number(text.substr(dots + 2));
  return first && last ? std::optional(Range{*first, *last}) : std::nullopt;
}

}  // namespace

// Expands the choices first, so that only plain components remain; each character keeps its column.
struct PatternParser {
  std::string_view text;
  size_t at = 0;
  size_t written = 0;  // characters in all alternatives: bounds the work
  std::optional<Error> error;

  bool fail(size_t column, std::string message, std::string hint = {}) {
    if (!error) {
      error = Error{
          ErrorKind::usage, "module pattern '" + std::string(text) + "': " + std::move(message), {}, std::move(hint)};
      error->where.column = static_cast<uint32_t>(column);
    }
    return false;
  }

  // Appends every item of `tails` to every item of `heads`.
  bool cross(std::vector<Text>* heads, const std::vector<Text>& tails, size_t column) {
    if (heads->size() * tails.size() > ModulePattern::kMaxAlternatives)
      return fail(column, "more than " + std::to_string(ModulePattern::kMaxAlternatives) + " alternatives");
    std::vector<Text> out;
    for (const Text& head : *heads)
      for (const Text& tail : tails) {
        out.push_back(head);
        out.back().insert(out.back().end(), tail.begin(), tail.end());
        written += out.back().size();
      }
    if (written > (size_t{1} << 22)) return fail(column, "the choices write out to too long a pattern");
    *heads = std::move(out);
    return true;
  }

  // Reads up to the end; inside a choice, up to `,` or `}`.
  bool sequence(size_t depth, std::vector<Text>* out) {
    out->assign(1, {});
    std::vector<Text> run(1);  // a run of literal characters, joined in one step
    size_t start = at;
    auto flush = [&] {
      bool fine = run[0].empty() || cross(out, run, start + 1);
      run[0].clear();
      return fine;
    };
    for (; at < text.size(); ++at) {
      char c = text[at];
      if (depth > 0 && (c == ',' || c == '}')) break;
      if (c == '}') return fail(at + 1, "'}' without '{'");
      if (c == ',') return fail(at + 1, "',' outside of braces", "write {a,b} for a choice");
      if (c != '{') {
        run[0].push_back({c, static_cast<uint32_t>(at + 1)});
        continue;
      }
      if (!flush()) return false;
      std::vector<Text> chosen;
      size_t open = at;
      if (!choice(depth + 1, &chosen) || !cross(out, chosen, open + 1)) return false;
    }
    return flush();
  }

  // Expects `at` on '{'; leaves it on the matching '}'.
  bool choice(size_t depth, std::vector<Text>* out) {
    size_t open = at + 1;
    if (depth > ModulePattern::kMaxDepth) return fail(open, "choices nested too deep");
    while (true) {
      ++at;
      std::vector<Text> one;
      const size_t begin = at;
      if (!sequence(depth, &one) || !range(begin, &one)) return false;
      out->insert(out->end(), one.begin(), one.end());
      if (out->size() > ModulePattern::kMaxAlternatives)
        return fail(open, "more than " + std::to_string(ModulePattern::kMaxAlternatives) + " alternatives");
      if (at >= text.size()) return fail(open, "'{' without '}'");
      if (text[at] == '}') return true;
    }
  }

  // Makes the alternative that was read from `begin` on a range, if it is one.
  bool range(size_t begin, std::vector<Text>* one) {
    const std::string_view words = text.substr(begin, at - begin);
    const std::optional<Range> found = range_of(words);
    if (!found) return true;
    if (found->last < found->first) return fail(begin + 1, "a range goes down", "the smaller number stands first");
    one->assign(1, {{'#', static_cast<uint32_t>(begin + 1), words}});
    return true;
  }

  bool components(const Text& chars, ModulePattern::Alternative* out) {
    using Kind = ModulePattern::Component::Kind;
    size_t begin = 0;
    for (size_t i = 0; i <= chars.size(); ++i) {
      if (i < chars.size() && chars[i].c != '.') continue;
      std::string name;
      for (size_t k = begin; k < i; ++k) name += chars[k].c;
      uint32_t column = begin < chars.size() ? chars[begin].column : static_cast<uint32_t>(text.size() + 1);
      if (name.empty())
        return fail(column, "an empty component", "components are separated by single dots; a range stands in braces");
      const auto part = std::span(chars).subspan(begin, i - begin);
      const auto ranged = std::ranges::find_if(part, [](const Char& c) { return !c.range.empty(); });
      if (ranged != part.end()) {
        if (part.size() > 1)
          return fail(ranged->column, "a range stands for a whole component, not for a part of one",
                      "write {a,b} for a choice of names");
        out->push_back({Kind::range, std::string(ranged->range)});
        begin = i + 1;
        continue;
      }
      Kind kind = name == "*" ? Kind::one : name == "**" ? Kind::any : Kind::name;
      if (size_t star = name.find('*'); kind == Kind::name && star != std::string::npos)
        return fail(chars[begin + star].column, "'*' stands for a whole component, not for a part of one",
                    "write {a,b} for a choice of names");
      bool repeats = kind == Kind::any && !out->empty() && out->back().kind == Kind::any;
      if (!repeats) out->push_back({kind, kind == Kind::name ? name : std::string()});
      begin = i + 1;
    }
    return true;
  }
};

Result<ModulePattern> ModulePattern::parse(std::string_view text) {
  PatternParser parser{text.substr(0, kMaxLength)};
  std::vector<Text> plain;
  ModulePattern out;
  out.text_ = std::string(text);
  bool fine = true;
  if (text.empty()) fine = parser.fail(1, "it is empty");
  if (text.size() > kMaxLength)
    fine = parser.fail(kMaxLength + 1, "longer than " + std::to_string(kMaxLength) + " bytes");
  fine = fine && parser.sequence(0, &plain);
  for (size_t i = 0; fine && i < plain.size(); ++i) {
    out.alternatives_.emplace_back();
    fine = parser.components(plain[i], &out.alternatives_.back());
  }
  if (!fine) return std::move(*parser.error);
  return out;
}

bool ModulePattern::Component::matches(std::string_view component) const {
  if (kind != Kind::range) return kind != Kind::name || component == name;
  const std::optional<Range> range = range_of(name);
  const std::optional<uint64_t> number = module_number(component);
  return range && number && range->first <= *number && *number <= range->last;
}

bool ModulePattern::matches(std::string_view module) const {
  using Kind = Component::Kind;
  const std::vector<ModulePart> names = parts_of_module(module);
  for (const Alternative& parts : alternatives_) {
    // reached[i]: the first i parts can match the names so far
    std::vector<uint8_t> reached(parts.size() + 1, 0);
    auto skip_any = [&] {
      for (size_t i = 0; i < parts.size(); ++i)
        if (reached[i] && parts[i].kind == Kind::any) reached[i + 1] = 1;
    };
    reached[0] = 1;
    skip_any();
    for (size_t k = 0; k < names.size() && !reached.back(); ++k) {
      std::vector<uint8_t> next(parts.size() + 1, 0);
      for (size_t i = 0; i < parts.size(); ++i) {
        if (!reached[i]) continue;
        if (parts[i].kind == Kind::any) next[i] = 1;
        else if (parts[i].matches(names[k].name)) next[i + 1] = 1;
      }
      reached = std::move(next);
      skip_any();
    }
    if (reached.back()) return true;
  }
  return false;
}

}  // namespace sg
