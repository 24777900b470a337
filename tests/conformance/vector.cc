#include "tests/conformance/vector.h"

#include <charconv>
#include <cstdlib>

namespace sg::test {
namespace {

std::string_view take_line(std::string_view* rest) {
  size_t end = std::min(rest->find('\n'), rest->size());
  std::string_view line = rest->substr(0, end);
  rest->remove_prefix(std::min(end + 1, rest->size()));
  return line;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> out;
  while (!line.empty()) {
    size_t end = std::min(line.find(' '), line.size());
    if (end > 0) out.push_back(line.substr(0, end));
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return out;
}

size_t natural(std::string_view word) {
  size_t value = 0;
  std::from_chars(word.data(), word.data() + word.size(), value);
  return value;
}

double real(std::string_view word) { return std::strtod(std::string(word).c_str(), nullptr); }

Error wrong(std::string_view line) {
  return {ErrorKind::unreadable, "no line of a vector: " + std::string(line.substr(0, 100)), {}, {}};
}

Result<Check> read_check(std::string_view line) {
  auto words = words_of(line);
  if (words.size() < 2 || words[0].size() < 2) return wrong(line);
  Check c;
  c.of_input = words[0][0] == 'i';
  c.index = natural(words[0].substr(1));
  std::string_view rule = words[1];
  if (rule == "exact" && words.size() == 4)
    c.rule = Check::Rule::positions, c.axis = static_cast<int>(natural(words[3]));
  else if (rule == "exact") c.rule = Check::Rule::exact;
  else if (rule == "close" && words.size() == 4)
    c.rule = Check::Rule::close, c.bound = real(words[2]), c.has_delta = words[3] == "1";
  else if (rule == "close" && words.size() == 6 && words[4] == "turned")
    c.rule = Check::Rule::close, c.bound = real(words[2]), c.has_delta = words[3] == "1", c.is_turned = true,
    c.axis = static_cast<int>(natural(words[5]));
  else if (rule == "number" && words.size() == 3) c.rule = Check::Rule::number, c.low = real(words[2]);
  else if (rule == "range" && words.size() == 4)
    c.rule = Check::Rule::range, c.low = real(words[2]), c.high = real(words[3]);
  else if (rule == "finite") c.rule = Check::Rule::finite;
  else if (rule != "any") return wrong(line);
  return c;
}

}  // namespace

Result<std::vector<Vector>> read_vectors(std::string_view bytes) {
  std::vector<Vector> out;
  while (!bytes.empty()) {
    std::string_view line = take_line(&bytes);
    auto words = words_of(line);
    if (words.size() != 7 || words[0] != "vector") return wrong(line);
    Vector v{words[1], words[2], words[3], {}, {}, {}, {}};
    for (size_t n = natural(words[6]); n > 0; --n) {
      SG_ASSIGN(Check check, read_check(take_line(&bytes)));
      v.checks.push_back(check);
    }
    size_t plus = std::min(words[4].find('+'), words[4].size());
    size_t text = natural(words[4]), data = natural(words[5]);
    size_t eager = plus < words[4].size() ? natural(words[4].substr(plus + 1)) : 0;
    if (text > bytes.size() || eager > bytes.size() - text || data > bytes.size() - text - eager) return wrong(line);
    v.text = bytes.substr(0, text);
    v.eager_text = bytes.substr(text, eager);
    v.data = bytes.substr(text + eager, data);
    bytes.remove_prefix(text + eager + data);
    out.push_back(std::move(v));
  }
  return out;
}

}  // namespace sg::test
