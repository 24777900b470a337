// Response files: `@FILE` on a command line stands for the words in FILE.
//
// Not recursive: a word @x inside a file is the literal word @x.
#include "libgraph/base/output_file.h"
#include "tools/cli/cli.h"
#include "tools/cli/cli_input.h"
#include "tools/cli/cli_words.h"

namespace sg::cli {
namespace {

constexpr size_t kMaxResponseBytes = size_t{16} << 20;

Result<std::vector<std::string>> words_of(const std::string& file) {
  Result<Bytes> bytes = read_bytes(file);
  std::string hint =
      "a word that begins with @ names a file of words; write ./@NAME or --option=@VALUE for one that does not";
  if (!bytes.ok())
    return Error{ErrorKind::usage, "cannot read the response file: " + bytes.error().message, {file}, hint};
  if (bytes->data.size() > kMaxResponseBytes)
    return Error{ErrorKind::usage, "the response file is larger than 16 MiB", {file}, hint};
  Result<std::vector<std::string>> words = split_words(bytes->data, "the response file");
  if (!words.ok()) words.error().where.file = file;
  return words;
}

}  // namespace

Result<CommandLine> expand_response_files(const Tool& tool, std::vector<std::string> words) {
  CommandLine out;
  auto add = [&out](std::string word, const std::string& file) {
    out.words.push_back(std::move(word));
    out.files.push_back(file);
  };
  bool ended = false;
  for (std::string& word : words) {
    if (ended || word.size() < 2 || word[0] != '@') {
      ended |= word == "--" || (tool.stops_at_operand && !word.starts_with('-'));
      add(std::move(word), {});
      continue;
    }
    const std::string file = word.substr(1);
    SG_ASSIGN(std::vector<std::string> more, words_of(file));
    keep_file(file, "is given as @" + file);
    for (std::string& m : more) add(std::move(m), file);
  }
  return out;
}

}  // namespace sg::cli
