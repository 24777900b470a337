#include "tools/cli/cli_words.h"

#include <algorithm>

namespace sg::cli {
namespace {

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

class Words {
 public:
  Words(std::string_view text, const std::string& what) : text_(text), what_(what) {}

  Result<std::vector<std::string>> split() {
    std::vector<std::string> out;
    for (;;) {
      while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
      if (at_ == text_.size()) return out;
      if (text_[at_] == '#') {
        at_ = std::min(text_.find('\n', at_), text_.size());
        continue;
      }
      SG_ASSIGN(std::string word, next());
      out.push_back(std::move(word));
    }
  }

 private:
  Result<std::string> next() {
    std::string word;
    char quote = 0;
    for (; at_ < text_.size() && (quote != 0 || !is_blank(text_[at_])); ++at_) {
      char c = text_[at_];
      if (c == 0) return wrong("it holds a zero byte");
      if (quote != 0 && c == quote) quote = 0;
      else if (quote == 0 && (c == '\'' || c == '"')) quote = c;
      else if (c == '\\' && quote != '\'' && at_ + 1 < text_.size()) word += text_[++at_];
      else word += c;
    }
    if (quote != 0) return wrong(std::string("a ") + quote + " is not closed");
    return word;
  }

  Error wrong(const std::string& what) const { return {ErrorKind::usage, what_ + " cannot be read: " + what, {}, {}}; }

  std::string_view text_;
  const std::string& what_;
  size_t at_ = 0;
};

}  // namespace

Result<std::vector<std::string>> split_words(std::string_view text, const std::string& what) {
  return Words(text, what).split();
}

std::string command_about(std::string_view command, std::string_view name) {
  constexpr std::string_view kPlace = "{}";
  std::string out;
  size_t begin = 0;
  for (size_t at; (at = command.find(kPlace, begin)) != command.npos; begin = at + kPlace.size())
    out.append(command.substr(begin, at - begin)).append(name);
  out += command.substr(begin);
  return begin == 0 ? out + " " + std::string(name) : out;
}

}  // namespace sg::cli
