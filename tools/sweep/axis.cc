#include "tools/sweep/axis.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace sg::sweep {
namespace {

constexpr size_t kMaxValues = 1000;

// A number and its unit.
struct Quantity {
  double number = 0;
  std::string unit;
  bool is_whole = false;
};

std::optional<Quantity> quantity_of(std::string_view text) {
  Quantity out;
  auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), out.number);
  if (problem != std::errc() || !std::isfinite(out.number)) return {};
  out.unit = std::string(end, text.data() + text.size());
  if (std::ranges::any_of(out.unit,
                          [](char c) { return !(c >= 'a' && c <= 'z') && !(c >= 'A' && c <= 'Z') && c != '%'; }))
    return {};
  const std::string_view digits = text.substr(0, text.size() - out.unit.size());
  out.is_whole = digits.find_first_not_of("0123456789-") == digits.npos;
  return out;
}

// Whole numbers with all their digits; of others as many as leave out what adding up steps has rounded.
std::string spelled(double number, const std::string& unit) {
  constexpr int kDigits = 12;
  constexpr double kExact = 1e15;
  char text[40];
  if (number == std::floor(number) && std::abs(number) < kExact)
    return std::to_string(static_cast<int64_t>(number)) + unit;
  auto [end, problem] = std::to_chars(text, text + sizeof text, number, std::chars_format::general, kDigits);
  return std::string(text, problem == std::errc() ? end : text) + unit;
}

Error wrong(const std::string& text, const std::string& why) {
  return {ErrorKind::usage,
          "--over " + text + ": " + why,
          {},
          "for example --over chunks=2,4,8 or --over remat.budget=0..1:0.25"};
}

Result<std::vector<std::string>> range_of(const std::string& whole, std::string_view text, size_t dots) {
  std::string_view last = text.substr(dots + 2), step_text = "1";
  const size_t colon = last.find(':');
  if (colon != last.npos) step_text = last.substr(colon + 1), last = last.substr(0, colon);
  std::optional<Quantity> a = quantity_of(text.substr(0, dots)), b = quantity_of(last), step = quantity_of(step_text);
  if (!a || !b || !step) return wrong(whole, "a range is FIRST..LAST or FIRST..LAST:STEP, of numbers");
  if (step->unit.empty()) step->unit = b->unit;
  if (a->unit.empty()) a->unit = b->unit;
  if (a->unit != b->unit || b->unit != step->unit) return wrong(whole, "the range has more than one unit");
  if (!(step->number > 0) || b->number < a->number) return wrong(whole, "the range is empty");
  const double count = std::floor((b->number - a->number) / step->number + 1e-9);
  if (count >= static_cast<double>(kMaxValues)) return wrong(whole, "the range has more than 1000 values");
  std::vector<std::string> out;
  for (double i = 0; i <= count; ++i) out.push_back(spelled(a->number + i * step->number, b->unit));
  return out;
}

}  // namespace

Result<Axis> parse_axis(const std::string& text) {
  const size_t equals = text.find('=');
  if (equals == text.npos || equals == 0) return wrong(text, "it is NAME=VALUES");
  Axis out{text.substr(0, equals), {}, false};
  const std::string_view all = std::string_view(text).substr(equals + 1);
  for (size_t begin = 0; begin <= all.size();) {
    const size_t end = std::min(all.find(',', begin), all.size());
    const std::string_view one = all.substr(begin, end - begin);
    const size_t dots = one.find("..");
    if (one.empty()) return wrong(text, "a value is empty");
    if (dots != one.npos && dots != 0 && quantity_of(one.substr(0, dots))) {
      SG_ASSIGN(std::vector<std::string> values, range_of(text, one, dots));
      out.values.insert(out.values.end(), values.begin(), values.end());
    } else {
      out.values.emplace_back(one);
    }
    begin = end + 1;
  }
  out.whole = std::ranges::all_of(out.values, [](const std::string& v) {
    const std::optional<Quantity> q = quantity_of(v);
    return q && q->is_whole && q->unit.empty();
  });
  std::vector<std::string> sorted = out.values;
  std::ranges::sort(sorted);
  if (auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end())
    return wrong(text, "the value " + *twice + " is there twice");
  return out;
}

bool are_numbers(const std::string& a, const std::string& b) {
  const std::optional<Quantity> x = quantity_of(a), y = quantity_of(b);
  return x && y && x->unit == y->unit;
}

double distance(const std::string& a, const std::string& b) {
  return std::abs(quantity_of(a)->number - quantity_of(b)->number);
}

std::optional<std::string> middle_of(const std::string& a, const std::string& b, bool whole) {
  const std::optional<Quantity> x = quantity_of(a), y = quantity_of(b);
  if (!x || !y || x->unit != y->unit) return {};
  const double gap = std::abs(x->number - y->number);
  double middle = (x->number + y->number) / 2;
  if (whole) {
    middle = std::floor(middle);
    if (gap < 2) return {};
  } else if (gap <= 1e-3 * std::max(std::abs(x->number), std::abs(y->number))) {
    return {};
  }
  return spelled(middle, x->unit);
}

}  // namespace sg::sweep
