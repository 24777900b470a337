// The shell side of completion: parses the shells' lines, formats answers, and contains the scripts.
#include <algorithm>
#include <charconv>

#include "libgraph/base/chars.h"
#include "libgraph/base/joined.h"
#include "tools/cli/cli_complete.h"

namespace sg::cli {
namespace {

// --- scripts: the same for every tool, apart from its name ---

constexpr std::string_view kBash = R"(_stepgraph_complete() {
  local lines
  mapfile -t lines < <(command "$1" --complete bash "$COMP_POINT" "$COMP_LINE" "$COMP_WORDBREAKS" 2>/dev/null)
  COMPREPLY=("${lines[@]:1}")
  case " ${lines[0]} " in
    *" files "*) ;;
    *" folders "*) compopt +o default -o dirnames ;;
    *) compopt +o default ;;
  esac
  case " ${lines[0]} " in *" open "*) compopt -o nospace ;; esac
}
complete -o default -F _stepgraph_complete @NAMES@
)";

constexpr std::string_view kZsh = R"(#compdef @NAMES@
_stepgraph_complete() {
  local -a lines typed
  local flags
  typed=("${(@Q)words}")
  typed[CURRENT]=${(Q)PREFIX}
  lines=("${(@f)$(command ${~words[1]} --complete zsh $((CURRENT - 2)) "${(@)typed[2,-1]}" 2>/dev/null)}")
  flags=" ${lines[1]} "
  shift lines
  if [[ $flags == *' open '* ]]; then
    _describe -t values value lines -S ''
  elif (( ${#lines} > 0 )); then
    _describe -t values value lines
  fi
  if [[ $flags == *' files '* ]]; then
    compset -P '--[^=]##='
    _files
  elif [[ $flags == *' folders '* ]]; then
    compset -P '--[^=]##='
    _files -/
  fi
}
if [[ ${funcstack[1]} == _stepgraph ]]; then
  compdef _stepgraph_complete @NAMES@
  _stepgraph_complete "$@"
else
  compdef _stepgraph_complete @NAMES@
fi
)";

// fish gives completions no words after the cursor.
constexpr std::string_view kFish = R"(function __stepgraph_complete
  set -l before (commandline -opc)
  set -l current (commandline -ct)
  set -l lines (command $before[1] --complete fish (math (count $before) - 1) $before[2..] "$current" 2>/dev/null)
  printf '%s\n' $lines[2..]
  set -l prefix (string match -r -- '^--[^=]*=' $current)
  set -l rest (string sub -s (math (string length -- "$prefix") + 1) -- "$current")
  if string match -q -- '*files*' $lines[1]
    for path in (__fish_complete_path "$rest")
      printf '%s\n' "$prefix$path"
    end
  else if string match -q -- '*folders*' $lines[1]
    for path in (__fish_complete_directories "$rest")
      printf '%s\n' "$prefix$path"
    end
  end
end
)";

std::string with_names(std::string_view text, std::string_view names) {
  std::string out;
  constexpr std::string_view kMark = "@NAMES@";
  for (size_t mark; (mark = text.find(kMark)) != text.npos; text.remove_prefix(mark + kMark.size()))
    out += std::string(text.substr(0, mark)) + std::string(names);
  return out + std::string(text);
}

// --- answers ---

std::string flags_of(const Completion& completion) {
  std::string out = "-";  // shells lose empty lines
  for (auto [is_set, name] :
       {std::pair(completion.files, "files"), {completion.folders, "folders"}, {completion.open, "open"}})
    if (is_set) out += " " + std::string(name);
  return out + "\n";
}

// What readline inserts after its last word-breaking character, escaped as it has to be typed.
std::string readline_form(const std::string& text, size_t settled, char quote) {
  std::string out;
  for (char c : text.substr(std::min(settled, text.size()))) {
    const bool special =
        quote == 0 && std::string_view(" \t\n\\'\"`$&|;<>()[]{}*?!#~").find(c) != std::string_view::npos;
    out += special ? std::string("\\") + c : std::string(1, c);
  }
  return out;
}

std::string bash_answer(const Completion& completion, const ShellLine& line, std::string_view breaks) {
  size_t settled = 0;
  const std::string& typed = line.words[line.at];
  for (size_t i = 0; line.quote == 0 && i < typed.size(); ++i)
    if (!is_space(typed[i]) && breaks.find(typed[i]) != breaks.npos) settled = i + 1;
  std::string out = flags_of(completion);
  for (const Candidate& c : completion.candidates) out += readline_form(c.text, settled, line.quote) + "\n";
  return out;
}

std::string zsh_answer(const Completion& completion) {
  std::string out = flags_of(completion);
  for (const Candidate& c : completion.candidates) {
    for (char at : c.text) out += at == ':' || at == '\\' ? std::string("\\") + at : std::string(1, at);
    out += (c.help.empty() ? "" : ":" + c.help) + "\n";
  }
  return out;
}

std::string fish_answer(const Completion& completion) {
  std::string out = flags_of(completion);
  for (const Candidate& c : completion.candidates) out += c.text + (c.help.empty() ? "" : "\t" + c.help) + "\n";
  return out;
}

// As for fish, plus the prefix for files, which the tools themselves need.
std::string words_answer(const Completion& completion) {
  return fish_answer(completion) + "\t" + completion.prefix + "\n";
}

size_t number_of(const std::string& text) {
  size_t n = 0;
  std::from_chars(text.data(), text.data() + text.size(), n);
  return n;
}

}  // namespace

ShellLine split_shell_line(std::string_view line, size_t point) {
  ShellLine out;
  point = std::min(point, line.size());
  std::string word;
  bool inside = false;
  char quote = 0;
  auto end_word = [&] {
    if (inside) out.words.push_back(std::move(word));
    word.clear();
    inside = false;
  };
  auto at_point = [&] {  // what follows the cursor is another word
    out.quote = quote;
    out.at = out.words.size();
    inside = true;
    end_word();
    quote = 0;
  };
  for (size_t i = 0; i < line.size(); ++i) {
    if (i == point) at_point();
    const char c = line[i];
    if (quote == 0 && is_space(c)) {
      end_word();
      continue;
    }
    inside = true;
    const bool escapes = c == '\\' && quote != '\'' && i + 1 < line.size() && i + 1 != point;
    if (escapes && (quote == 0 || std::string_view("\\\"$`").find(line[i + 1]) != std::string_view::npos))
      word += line[++i];
    else if (c == quote) quote = 0;
    else if (quote == 0 && (c == '\'' || c == '"')) quote = c;
    else word += c;
  }
  if (point == line.size()) at_point();
  end_word();
  return out;
}

void read_answer(std::string_view answer, Completion* out) {
  for (size_t begin = 0, line = 0; begin < answer.size(); ++line) {
    const size_t end = std::min(answer.find('\n', begin), answer.size());
    const std::string_view text = answer.substr(begin, end - begin);
    const size_t tab = std::min(text.find('\t'), text.size());
    const std::string help(text.substr(std::min(tab + 1, text.size())));
    if (line == 0) {
      out->files |= text.find(" files") != text.npos;
      out->folders |= text.find(" folders") != text.npos;
      out->open |= text.find(" open") != text.npos;
    } else if (tab == 0) {
      out->prefix = help;
    } else {
      out->candidates.push_back({std::string(text.substr(0, tab)), help});
    }
    begin = end + 1;
  }
}

std::string completion_answer(const Tool& tool, const std::vector<std::string>& words) {
  if (words.size() < 3) return {};
  const std::string& shell = words[0];
  if (shell == "bash") {
    ShellLine line = split_shell_line(words[2], number_of(words[1]));
    if (line.at == 0) return {};
    std::vector<std::string> behind(line.words.begin() + 1, line.words.end());
    return bash_answer(complete(tool, std::move(behind), line.at - 1), line, words.size() > 3 ? words[3] : "");
  }
  std::vector<std::string> behind(words.begin() + 2, words.end());
  const size_t at = number_of(words[1]);
  if (at >= behind.size()) return {};
  if (shell == "zsh") return zsh_answer(complete(tool, std::move(behind), at));
  if (shell == "words") return words_answer(complete(tool, std::move(behind), at));
  if (shell != "fish") return {};
  const ShellLine current = split_shell_line(behind[at], behind[at].size());  // as it was typed
  behind[at] = current.words[current.at];
  return fish_answer(complete(tool, std::move(behind), at));
}

std::string completion_script(std::span<const std::string> names, std::string_view shell) {
  const std::string list = joined(names, " ");
  if (shell != "fish") return with_names(shell == "bash" ? kBash : kZsh, list);
  std::string out(kFish);
  for (const std::string& name : names) out += "complete -c " + name + " -f -a '(__stepgraph_complete)'\n";
  return out;
}

}  // namespace sg::cli
