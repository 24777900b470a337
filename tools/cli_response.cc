// Response files: `@FILE` on a command line stands for the words in FILE.
//
// Words are separated by white space; '...' keeps everything, "..." everything but \\ and \", and a \\ outside takes the
// next character as it is. A word that begins with # is a comment to the end of its line. What a file holds is not looked
// into again: a word @x in it is the word @x.
#include "tools/cli.h"
#include "tools/cli_input.h"

namespace sg::cli {
namespace {

constexpr size_t kMaxBytes = size_t{16} << 20;

bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

class Words {
 public:
  Words(const std::string& file, std::string_view text) : file_(file), text_(text) {}

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
    if (quote != 0) return wrong(std::string("a ") + quote + " has no end");
    return word;
  }

  Error wrong(const std::string& what) const {
    return {ErrorKind::usage, "the response file cannot be read: " + what, {file_}, {}};
  }

  const std::string& file_;
  std::string_view text_;
  size_t at_ = 0;
};

Result<std::vector<std::string>> words_of(const std::string& file) {
  Result<Bytes> bytes = read_bytes(file);
  std::string hint = "a word that begins with @ names a file of words; write ./@NAME or --option=@VALUE for one that does not";
  if (!bytes.ok()) return Error{ErrorKind::usage, "the response file: " + bytes.error().message, {file}, hint};
  if (bytes->data.size() > kMaxBytes) return Error{ErrorKind::usage, "the response file is larger than 16 MiB", {file}, hint};
  return Words(file, bytes->data).split();
}

}  // namespace

Result<std::vector<std::string>> expand_response_files(const Tool& tool, std::vector<std::string> words) {
  std::vector<std::string> out;
  for (size_t i = 0; i < words.size(); ++i) {
    bool is_file = words[i].size() > 1 && words[i][0] == '@';
    if (!is_file) {
      bool ends = words[i] == "--" || (tool.stops_at_operand && words[i].rfind('-', 0) != 0);
      out.push_back(std::move(words[i]));
      if (!ends) continue;
      out.insert(out.end(), words.begin() + static_cast<ptrdiff_t>(i) + 1, words.end());
      break;
    }
    SG_ASSIGN(std::vector<std::string> more, words_of(words[i].substr(1)));
    out.insert(out.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
  }
  return out;
}

}  // namespace sg::cli
