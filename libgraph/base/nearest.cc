#include "libgraph/base/nearest.h"

#include <algorithm>
#include <vector>

namespace sg {
namespace {

constexpr size_t kLongestWord = 80;  // typos occur in shorter words; bounds the cost

size_t edits(std::string_view a, std::string_view b) {
  size_t width = b.size() + 1;
  std::vector<size_t> rows(3 * width);
  size_t *before = rows.data(), *last = before + width, *now = last + width;
  for (size_t j = 0; j < width; ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j < width; ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) now[j] = std::min(now[j], before[j - 2] + 1);
    }
    size_t* spare = before;
    before = last, last = now, now = spare;
  }
  return last[width - 1];
}

size_t allowed(std::string_view word) { return std::max<size_t>(1, word.size() / 3); }

// A first letter is seldom mistyped: where it differs too, little else may.
size_t allowed(std::string_view word, std::string_view candidate) {
  return word.substr(0, 1) == candidate.substr(0, 1) ? allowed(word) : std::max<size_t>(1, word.size() / 6);
}

// Edits must be few within each dotted part, so that "aten.foo.default" does not suggest "aten.floor.default". Names
// with different numbers of parts are compared as a whole.
bool is_near_in_each_part(std::string_view a, std::string_view b) {
  if (std::count(a.begin(), a.end(), '.') != std::count(b.begin(), b.end(), '.')) return true;
  for (;;) {
    size_t end_a = a.find('.'), end_b = b.find('.');
    const std::string_view part = a.substr(0, end_a), other = b.substr(0, end_b);
    if (edits(part, other) > allowed(part, other)) return false;
    if (end_a == std::string_view::npos) return true;
    a.remove_prefix(end_a + 1), b.remove_prefix(end_b + 1);
  }
}

}  // namespace

Nearest::Nearest(std::string_view word) : word_(word), limit_(allowed(word)) {
  if (word.empty() || word.size() > kLongestWord) limit_ = 0;
}

void Nearest::offer(std::string_view candidate) {
  size_t a = word_.size(), b = candidate.size();
  if (limit_ == 0 || b == 0 || (a > b ? a - b : b - a) > limit_) return;
  size_t distance = edits(word_, candidate);
  if (distance > limit_ || distance >= std::max(a, b) || !is_near_in_each_part(word_, candidate)) return;
  best_ = candidate;
  limit_ = distance == 0 ? 0 : distance - 1;
}

std::string Nearest::hint(std::string_view prefix) const {
  if (best_.empty()) return {};
  return "did you mean `" + std::string(prefix) + best_ + "`?";
}

}  // namespace sg
