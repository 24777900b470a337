// Sizes that follow from inputs and groups of other sizes: another batch size, a wider model, more ranks.
#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>
#include <optional>
#include <string_view>
#include <utility>

#include "libgraph/base/chars.h"
#include "libgraph/base/human.h"
#include "libgraph/diff/diff_explain.h"

namespace sg {
namespace {

constexpr size_t kMostSeeds = 16, kShownSeeds = 4;

struct Change {
  int64_t before = 0, after = 0;
  friend auto operator<=>(const Change&, const Change&) = default;
};

// A free-standing integer at `*at`, which then points after it; the digits of u4 and 1e-05 are none.
std::optional<int64_t> number_at(std::string_view text, size_t* at) {
  if (!is_digit(text[*at]) || (*at > 0 && is_dotted_word(text[*at - 1]))) return std::nullopt;
  int64_t out = 0;
  const auto [end, error] = std::from_chars(text.data() + *at, text.data() + text.size(), out);
  const size_t behind = static_cast<size_t>(end - text.data());
  if (error != std::errc() || (behind < text.size() && is_dotted_word(text[behind]))) return std::nullopt;
  *at = behind;
  return out;
}

// The integers in which two texts differ. False if they differ in anything else.
bool other_numbers(std::string_view before, std::string_view after, std::vector<Change>* out) {
  size_t i = 0, j = 0;
  while (i < before.size() && j < after.size()) {
    const size_t begin = i;
    const std::optional<int64_t> p = number_at(before, &i), q = number_at(after, &j);
    if (p && q) {
      if (*p != *q) out->push_back({*p, *q});
    } else if (p || q || before[begin] != after[j]) {
      return false;
    } else {
      ++i, ++j;
    }
  }
  return i == before.size() && j == after.size();
}

// Changes of sizes, and what follows from them: a change in proportion to the product of up to three of them, or a
// difference equal to one of theirs.
class SizeChanges {
 public:
  void add(const Change& c) {
    if (c.before > 0 && c.after > 0 && !follows(c) && seeds_.size() < kMostSeeds) seeds_.push_back(c);
  }
  bool empty() const { return seeds_.empty(); }

  bool follows(const Change& c) const {
    if (c.before > 0 && c.after > 0 && is_in_proportion(c, 0, 3)) return true;
    return std::ranges::any_of(
        seeds_, [&](const Change& s) { return c.before > s.before && c.after - c.before == s.after - s.before; });
  }

  std::string text() const {
    std::string out;
    for (size_t i = 0; i < std::min(seeds_.size(), kShownSeeds); ++i)
      out += (i ? ", " : "") + std::to_string(seeds_[i].before) + " -> " + std::to_string(seeds_[i].after);
    return out + (seeds_.size() > kShownSeeds ? " and " + std::to_string(seeds_.size() - kShownSeeds) + " more" : "");
  }

 private:
  // Whether before:after equals the product of at most `most` of the changes' ratios.
  bool is_in_proportion(Change c, size_t from, int most) const {
    const int64_t common = std::gcd(c.before, c.after);
    c = {c.before / common, c.after / common};
    if (c.before == c.after) return true;
    for (size_t i = from; i < seeds_.size() && most > 0; ++i) {
      Change rest;
      if (__builtin_mul_overflow(c.before, seeds_[i].after, &rest.before)) continue;
      if (__builtin_mul_overflow(c.after, seeds_[i].before, &rest.after)) continue;
      if (is_in_proportion(rest, i, most - 1)) return true;
    }
    return false;
  }

  std::vector<Change> seeds_;
};

// Groups of one axis that differ in their number of ranks.
void add_groups(const Job& a, const Job& b, SizeChanges* out) {
  // By axis and ordinal. Names are found as texts, for the jobs have a pool each.
  std::map<std::pair<std::string_view, uint32_t>, const Group*> of_b;
  for (const Group& h : b.groups) of_b.try_emplace({b.pool->strings[h.axis], h.ordinal}, &h);
  for (const Group& g : a.groups) {
    auto found = of_b.find({a.pool->strings[g.axis], g.ordinal});
    if (found == of_b.end() || g.parts.empty() || found->second->parts.empty()) continue;
    const Change c{static_cast<int64_t>(g.parts[0].ranks.size()),
                   static_cast<int64_t>(found->second->parts[0].ranks.size())};
    if (c.before != c.after) out->add(c);
  }
}

// The changes of groups and inputs; groups and smaller numbers first, as the others follow from them.
SizeChanges sizes_given(const ExplainState& state) {
  SizeChanges out;
  add_groups(state.job(0), state.job(1), &out);
  std::vector<Change> all;
  const GraphDiff& diff = state.diff();
  for (const ItemEdit& item : diff.items)
    if (item.subject == "input" && item.kind == EditKind::changed)
      for (const Difference& c : item.changes)
        if (std::vector<Change> found; c.aspect == Aspect::type && other_numbers(c.before, c.after, &found))
          all.insert(all.end(), found.begin(), found.end());
  std::ranges::sort(all);
  for (const Change& c : all) out.add(c);
  return out;
}

// Whether the op's schema declares an argument ("argument size") as a size, not as a dimension or count.
bool is_size(const OpInfo* info, std::string_view what) {
  constexpr std::string_view kArgument = "argument ", kSize = "SymInt";
  if (what == "argument group_size") return true;
  if (info == nullptr || !what.starts_with(kArgument)) return false;
  const std::string name = " " + std::string(what.substr(kArgument.size()));
  for (size_t at = info->schema.find(kSize); at != std::string_view::npos; at = info->schema.find(kSize, at + 1)) {
    const std::string_view rest = info->schema.substr(at);
    const size_t space = rest.find(' ');
    if (space == std::string_view::npos || !rest.substr(space).starts_with(name)) continue;
    if (space + name.size() == rest.size() || !is_dotted_word(rest[space + name.size()])) return true;
  }
  return false;
}

}  // namespace

void explain_sizes(ExplainState* state) {
  if (state->diff().edits.empty()) return;
  const SizeChanges sizes = sizes_given(*state);
  if (sizes.empty()) return;
  std::vector<uint32_t> nodes;
  const uint32_t id = state->next();
  for (uint32_t x = 0; x < state->count(0); ++x) {
    if (state->is_free(0, x) || !state->is_open(0, x)) continue;
    const OpInfo* info = state->info(0, x);
    const size_t told = state->tell(x, id, [&](const Difference& c) {
      if (c.aspect != Aspect::type && (c.aspect != Aspect::attribute || !is_size(info, c.what))) return false;
      std::vector<Change> found;
      return other_numbers(c.before, c.after, &found) &&
             std::ranges::all_of(found, [&](const Change& f) { return sizes.follows(f); });
    });
    if (told != 0) nodes.push_back(x);
  }
  if (nodes.empty()) return;
  state->add(ExplanationKind::resized,
             plural(nodes.size(), "node") + " of other sizes, as inputs and groups have them: " + sizes.text(),
             state->blocks(0, nodes), nodes.size(), nodes.size(), {{"nodes", nodes.size()}});
}

}  // namespace sg
