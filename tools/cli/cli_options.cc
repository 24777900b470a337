// The option parser: turns words into Args, or a usage error with the nearest match.
#include <algorithm>
#include <cassert>
#include <charconv>
#include <optional>
#include <thread>

#include "libgraph/base/human.h"
#include "libgraph/base/nearest.h"
#include "tools/cli/cli.h"

namespace sg::cli {
namespace {

constexpr int64_t kMaxThreads = 256;

constexpr Option kCommon[] = {
    {"output",
     'o',
     "FILE",
     "write to FILE (- is standard output; 'rank{r}.sg' writes one file per rank)",
     {},
     false,
     true},
    {"quiet", 'q', "", "print errors only, no summary and no warnings"},
    {"verbose", 'v', "", "report each phase of the work and how long it took", {}, true},
    {"jobs", 'j', "N", "read and verify up to N ranks or files at once", "all cores"},
    {"json", 0, "", "print the report as JSON"},
    {"text", 0, "", "write a graph as text, whatever the name of the output"},
    {"help", 'h', "", "print this help and exit"},
    {"version", 'V', "", "print versions and exit"},
    {"help-all", 0, "", "print every option and exit"},
    {"help-json", 0, "", "print every option as JSON and exit"},
    {"help-man", 0, "", "print the manual page and exit"},
    {"help-markdown", 0, "", "print the section of docs/tools.md and exit"},
    {"completions", 0, "bash|zsh|fish", "print the shell completion script of this tool and exit"},
    {"explain", 0, "", "explain on standard error what was decided, and why"},
    {"best-effort", 0, "", "skip what cannot be read or done, with a warning"},
    {"force-tty", 'f', "", "write binary output to a terminal"},
    {"in-place", 0, "", "allow the graph written to replace the one read; without -o, replace it"},
    {"dry-run", 0, "", "stop before anything is written or run, and report what would be"},
    {"print-config", 0, "", "print the value of every option and where it comes from, and exit"},
    {"color", 0, "auto|always|never", "colour messages", "auto"},
    {"error-format", 0, "text|json|sarif|github", "format of messages", "text"},
};

Error usage(std::string message, std::string hint) {
  return {ErrorKind::usage, std::move(message), {}, std::move(hint)};
}

std::string help_hint(const Tool& tool) { return "`" + std::string(tool.name) + " --help` lists the options"; }

const Option* find_option(const Tool& tool, std::string_view name) {
  for (std::span<const Option> table : {tool.options, common_options()})
    for (const Option& o : table)
      if (o.name == name) return &o;
  return nullptr;
}

const Option* find_letter(const Tool& tool, char letter) {
  for (std::span<const Option> table : {tool.options, common_options()})
    for (const Option& o : table)
      if (o.letter == letter) return &o;
  return nullptr;
}

// The one option that begins so; empty if there is none, or several.
std::string begun_option_hint(const Tool& tool, const std::string& name) {
  std::vector<std::string_view> found;
  for (std::span<const Option> table : {tool.options, common_options()})
    for (const Option& o : table)
      if (!name.empty() && o.name.starts_with(name)) found.push_back(o.name);
  return found.size() == 1 ? "did you mean `--" + std::string(found[0]) + "`?" : "";
}

Error unknown_option(const Tool& tool, const std::string& name) {
  Nearest nearest(name);
  for (std::span<const Option> table : {tool.options, common_options()})
    for (const Option& o : table) nearest.offer(o.name);
  std::string hint = nearest.hint("--");
  if (hint.empty()) hint = begun_option_hint(tool, name);
  return usage("unknown option `--" + name + "`", hint.empty() ? help_hint(tool) : hint);
}

std::optional<uint64_t> whole_number(std::string_view s) {
  uint64_t v = 0;
  auto [end, problem] = std::from_chars(s.data(), s.data() + s.size(), v);
  if (problem != std::errc() || end != s.data() + s.size()) return std::nullopt;
  return v;
}

Status check_value(const Option& o, const std::string& value) {
  std::string name = "`--" + std::string(o.name) + "`";
  if (o.argument == "N" && !whole_number(value))
    return usage(name + " takes a whole number, not `" + value + "`", "for example --" + std::string(o.name) + "=4");
  if (o.name == "jobs" && value == "0") return usage("`--jobs` takes at least 1", "leave it out to use all cores");
  std::vector<std::string_view> choices = choices_of(o.argument);
  if (choices.empty() || std::find(choices.begin(), choices.end(), value) != choices.end()) return ok_status();
  std::string hint = nearest_hint(value, choices);
  return usage(name + " takes one of " + std::string(o.argument) + ", not `" + value + "`", hint);
}

// Walks the words and fills `values` and `operands`.
class Parser {
 public:
  Parser(const Tool& tool, std::span<const std::string> words) : tool_(tool), words_(words) {}

  std::map<std::string, std::vector<std::string>, std::less<>> values;
  std::map<std::string, size_t, std::less<>> word_of;  // by option: the word that holds its last value
  std::vector<std::string> operands;

  Status parse() {
    while (next_ < words_.size()) {
      const std::string& word = words_[next_++];
      if (word == "--") break;
      if (word.size() < 2 || word[0] != '-') {
        operands.push_back(word);
        if (tool_.stops_at_operand) break;
      } else if (word[1] == '-') {
        SG_TRY(long_option(word.substr(2)));
      } else {
        SG_TRY(letters(word));
      }
    }
    operands.insert(operands.end(), words_.begin() + static_cast<ptrdiff_t>(next_), words_.end());
    return check_operands();
  }

 private:
  Status long_option(const std::string& word) {
    size_t equals = word.find('=');
    std::string name = word.substr(0, equals);
    const Option* o = find_option(tool_, name);
    if (o == nullptr) return unknown_option(tool_, name);
    if (equals != std::string::npos) {
      if (o->argument.empty()) return usage("`--" + name + "` takes no value", "write --" + name);
      return set(*o, word.substr(equals + 1));
    }
    return with_next_word(*o);
  }

  Status letters(const std::string& word) {
    for (size_t i = 1; i < word.size(); ++i) {
      const Option* o = find_letter(tool_, word[i]);
      if (o == nullptr) return usage("unknown option `-" + word.substr(i, 1) + "`", help_hint(tool_));
      if (o->argument.empty()) {
        SG_TRY(set(*o, ""));
      } else {
        return i + 1 < word.size() ? set(*o, word.substr(i + 1)) : with_next_word(*o);
      }
    }
    return ok_status();
  }

  Status with_next_word(const Option& o) {
    if (o.argument.empty()) return set(o, "");
    std::string name = "--" + std::string(o.name);
    if (next_ == words_.size())
      return usage("`" + name + "` needs a value", "write " + name + "=" + std::string(o.argument));
    return set(o, words_[next_++]);
  }

  Status set(const Option& o, std::string value) {
    std::vector<std::string>& given = values[std::string(o.name)];
    if (!given.empty() && !o.repeated) return usage("`--" + std::string(o.name) + "` is given twice", "give it once");
    SG_TRY(check_value(o, value));
    given.push_back(std::move(value));
    word_of[std::string(o.name)] = next_ - 1;
    return ok_status();
  }

  Status check_operands() const {
    if (std::ranges::count(operands, "") != 0 && !tool_.stops_at_operand)
      return usage("an argument is empty", "name a file, or - for standard input");
    if (std::ranges::count(operands, "-") > 1 && !tool_.stops_at_operand)
      return usage("standard input is named twice, and can be read once", "give one of the two as a file");
    if (operands.size() <= tool_.max_operands) return ok_status();
    return usage("unexpected argument `" + operands[tool_.max_operands] + "`",
                 "usage: " + std::string(tool_.name) + " [OPTION]... " + std::string(tool_.operands));
  }

  const Tool& tool_;
  std::span<const std::string> words_;
  size_t next_ = 0;
};

// Two options with the same name or letter are a bug in the table; debug builds detect it at startup.
[[maybe_unused]] bool table_is_sound(const Tool& tool) {
  for (const Option& o : tool.options)
    if (find_option(tool, o.name) != &o || (o.letter != 0 && find_letter(tool, o.letter) != &o)) return false;
  for (const Option& o : common_options())
    if (find_option(tool, o.name) != &o || (o.letter != 0 && find_letter(tool, o.letter) != &o)) return false;
  return true;
}

}  // namespace

// The allowed values; empty if any text is allowed: no `|`, an alternative in capitals (a placeholder), or a list.
std::vector<std::string_view> choices_of(std::string_view argument) {
  std::vector<std::string_view> out;
  bool names_text = std::any_of(argument.begin(), argument.end(), [](char c) { return c >= 'A' && c <= 'Z'; });
  if (names_text || argument.ends_with(",...") || argument.find('|') == std::string_view::npos) return out;
  std::string_view rest = argument;
  for (size_t bar; (bar = rest.find('|')) != std::string_view::npos; rest.remove_prefix(bar + 1))
    out.push_back(rest.substr(0, bar));
  out.push_back(rest);
  return out;
}

std::span<const Option> common_options() { return kCommon; }

std::vector<Option> useful_common_options(const Tool& tool) {
  std::vector<Option> out;
  for (Option o : kCommon) {
    const bool is_for_graphs = o.name == "text" || o.name == "force-tty" || o.name == "in-place";
    if (is_for_graphs && tool.writes != Writes::graph) continue;
    if (o.name == "output" && tool.writes == Writes::report) o.help = "write to FILE (- is standard output)";
    out.push_back(o);
  }
  return out;
}

Result<Args> parse_options(const Tool& tool, std::span<const std::string> words, Reporter& report) {
  assert(table_is_sound(tool));
  Parser parser(tool, words);
  SG_TRY(parser.parse());
  Args args(tool, report);
  args.values_ = std::move(parser.values);
  args.words_ = std::move(parser.word_of);
  args.operands_ = std::move(parser.operands);
  return args;
}

bool Args::has(std::string_view name) const { return count(name) != 0; }

size_t Args::count(std::string_view name) const {
  assert(find_option(*tool_, name) != nullptr);
  auto it = values_.find(name);
  return it == values_.end() ? 0 : it->second.size();
}

std::string Args::text(std::string_view name) const {
  return has(name) ? values_.find(name)->second.back() : std::string(find_option(*tool_, name)->fallback);
}

std::vector<std::string> Args::all(std::string_view name) const {
  return has(name) ? values_.find(name)->second : std::vector<std::string>();
}

size_t Args::word_of(std::string_view name) const { return words_.find(name)->second; }

int64_t Args::number(std::string_view name, int64_t fallback) const {
  const uint64_t value = natural(name, static_cast<uint64_t>(fallback));
  return has(name) ? static_cast<int64_t>(std::min<uint64_t>(value, INT64_MAX)) : fallback;
}

uint64_t Args::natural(std::string_view name, uint64_t fallback) const {
  return has(name) ? whole_number(text(name)).value_or(fallback) : fallback;
}

Result<int64_t> Args::bytes(std::string_view name) const {
  Result<int64_t> out = parse_bytes(text(name));
  if (!out.ok()) out.error().message = "--" + std::string(name) + ": " + out.error().message;
  return out;
}

size_t Args::threads() const {
  size_t cores = std::max(1u, std::thread::hardware_concurrency());
  return has("jobs") ? static_cast<size_t>(std::min<int64_t>(number("jobs", 1), kMaxThreads)) : cores;
}

std::vector<std::pair<std::string, std::string>> Args::given() const {
  std::vector<std::pair<std::string, std::string>> out;
  for (std::span<const Option> table : {tool_->options, common_options()})
    for (const Option& o : table)
      for (const std::string& value : all(o.name)) out.emplace_back(o.name, value);
  return out;
}

}  // namespace sg::cli
