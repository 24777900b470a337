// Response files: `@FILE` on a command line stands for the words in FILE.
//
// What a file holds is not looked into again: a word @x in it is the word @x.
#include "tools/cli.h"
#include "tools/cli_input.h"
#include "tools/cli_words.h"

namespace sg::cli {
namespace {

constexpr size_t kMaxBytes = size_t{16} << 20;

Result<std::vector<std::string>> words_of(const std::string& file) {
  Result<Bytes> bytes = read_bytes(file);
  std::string hint =
      "a word that begins with @ names a file of words; write ./@NAME or --option=@VALUE for one that does not";
  if (!bytes.ok()) return Error{ErrorKind::usage, "the response file: " + bytes.error().message, {file}, hint};
  if (bytes->data.size() > kMaxBytes)
    return Error{ErrorKind::usage, "the response file is larger than 16 MiB", {file}, hint};
  Result<std::vector<std::string>> words = split_words(bytes->data, "the response file");
  if (!words.ok()) words.error().where.file = file;
  return words;
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
