#include "librun/defaults.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <optional>
#include <string>

namespace sg {
namespace {

std::optional<Scalar> parse_number(std::string_view text) {
  const char* end = text.data() + text.size();
  int64_t i;
  if (auto [p, error] = std::from_chars(text.data(), end, i); error == std::errc() && p == end)
    return Scalar::integer(i);
  double d;
  if (auto [p, error] = std::from_chars(text.data(), end, d); error == std::errc() && p == end)
    return Scalar::floating(d);
  if (text == "True" || text == "False") return Scalar::boolean(text == "True");
  if (text == "inf" || text == "-inf")
    return Scalar::floating(text == "inf" ? std::numeric_limits<double>::infinity()
                                          : -std::numeric_limits<double>::infinity());
  if (text == "Mean") return Scalar::integer(1);  // names that PyTorch's schemas give to reductions
  return std::nullopt;
}

ParamValue number(Scalar s) {
  ParamValue p;
  p.kind = ParamValue::Kind::scalar;
  p.scalar = s;
  return p;
}

ParamValue list_of(std::string_view text) {  // "[]", "[0, 1]"
  ParamValue p;
  p.kind = ParamValue::Kind::list;
  text = text.substr(1, text.size() - 2);
  while (!text.empty()) {
    size_t comma = std::min(text.find(','), text.size());
    std::string_view item = text.substr(0, comma);
    text.remove_prefix(std::min(comma + 1, text.size()));
    while (item.starts_with(' ')) item.remove_prefix(1);
    if (auto n = parse_number(item)) {
      p.items.push_back(number(*n));
      p.integers.push_back(n->to_int());
    }
  }
  return p;
}

}  // namespace

ParamValue default_of(const Param& param) {
  std::string_view text = param.default_text;
  if (!param.has_default || text == "None") return {};
  if (text.starts_with('[')) return list_of(text);
  ParamValue p;
  if (param.kind == ParamKind::integer_list) {  // `int[2] padding=0`: a list of that number
    if (auto n = parse_number(text)) return list_of("[" + std::string(text) + "]");
  } else if (auto n = parse_number(text)) {
    return number(*n);
  }
  if (text.starts_with('\'') || text.starts_with('"')) text = text.substr(1, text.size() - 2);
  p.kind = ParamValue::Kind::text;
  p.text = text;
  return p;
}

}  // namespace sg
