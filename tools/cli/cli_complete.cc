#include "tools/cli/cli_complete.h"

#include <algorithm>
#include <set>

#include "libgraph/sim/machine_texts.h"

namespace sg::cli {
namespace {

constexpr std::string_view kList = ",...";  // of an argument that is a comma-separated list

bool is_capital(char c) { return c >= 'A' && c <= 'Z'; }

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> out;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(at, begin), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

template <class Test>
const Option* option_where(const Tool& tool, const Test& is_meant) {
  for (std::span<const Option> table : {tool.options, common_options()})
    for (const Option& o : table)
      if (is_meant(o)) return &o;
  return nullptr;
}

const Option* option_named(const Tool& tool, std::string_view name) {
  return option_where(tool, [&](const Option& o) { return o.name == name; });
}

const Option* option_lettered(const Tool& tool, char letter) {
  return option_where(tool, [&](const Option& o) { return o.letter == letter; });
}

// "[GRAPH]", "GRAPH NODE", "[SOURCE]...": the name of the operand at `index`; empty = there is none.
std::string operand_kind(const Tool& tool, size_t index) {
  if (index >= tool.max_operands) return {};
  std::string last;
  for (std::string_view word : split(tool.operands, ' ')) {
    if (word.starts_with("-")) break;
    std::string kind;
    for (char c : word)
      if (is_capital(c)) kind += c;
    if (index == 0 || word.ends_with("...")) return kind;
    --index;
    last = kind;
  }
  return last;
}

// Walks the words as the parser does, to determine what the word under the cursor is.
class Scan {
 public:
  Scan(const Tool& tool, std::vector<std::string> words, size_t at, const std::string& graph) : tool_(tool) {
    line_.tool = &tool;
    line_.words = std::move(words);
    line_.at = at;
    line_.graph = graph;
    if (line_.at >= line_.words.size()) line_.words.resize(line_.at + 1);
    walk();
    if (line_.graph.empty()) find_graph();
  }

  Completion answer() {
    if (value_of_ != nullptr) {
      offer_value(*value_of_);
    } else if (is_option_) {
      offer_options();
    } else if (operand_ == 0 && !tool_.commands.empty()) {
      for (std::string_view c : tool_.commands) offer("", current(), std::string(c));
    } else {
      offer_kind(operand_kind(tool_, operand_), "", current());
    }
    return std::move(out_);
  }

 private:
  const std::string& current() const { return line_.words[line_.at]; }

  void walk() {
    bool ended = false;  // by `--`, or by an operand that ends options
    size_t operands = 0;
    for (size_t i = 0; i < line_.words.size(); ++i) {
      const std::string& word = line_.words[i];
      const bool here = i == line_.at;
      if (!ended && !here && word == "--") {
        ended = true;
      } else if (ended || word.empty() || word[0] != '-' || (word == "-" && !here)) {
        here ? void(operand_ = operands) : line_.operands.push_back(word);
        ++operands;
        ended |= tool_.stops_at_operand;
      } else {
        option_word(word, &i);
      }
    }
  }

  // An option, possibly with its value, in the same word or in the next.
  void option_word(const std::string& word, size_t* i) {
    const bool here = *i == line_.at;
    if (word.starts_with("--")) {
      const size_t equals = word.find('=');
      const Option* o =
          option_named(tool_, std::string_view(word).substr(2, equals == word.npos ? equals : equals - 2));
      if (here && equals == word.npos) is_option_ = true;
      else if (here) value_here(o, equals + 1);
      else note_given(o, equals == word.npos, i);
      return;
    }
    for (size_t k = 1; k < word.size(); ++k) {
      const Option* o = option_lettered(tool_, word[k]);
      if (o == nullptr || (o->argument.empty() && k + 1 < word.size())) continue;
      if (here && k + 1 < word.size()) return value_here(o, k + 1);
      if (!here) note_given(o, k + 1 == word.size(), i);
      break;
    }
    is_option_ |= here;
  }

  void value_here(const Option* o, size_t begin) {
    value_of_ = o == nullptr || o->argument.empty() ? &nothing_ : o;
    prefix_ = current().substr(0, begin);
    typed_ = current().substr(begin);
  }

  void note_given(const Option* o, bool value_follows, size_t* i) {
    if (o == nullptr) return;
    given_.insert(o->name);
    if (o->argument.empty() || !value_follows || *i + 1 >= line_.words.size()) return;
    ++*i;
    if (*i != line_.at) return;
    value_of_ = o;
    typed_ = current();
  }

  void find_graph() {
    size_t first = tool_.commands.empty() ? 0 : 1;
    if (first < line_.operands.size() && line_.operands[first] != "-") line_.graph = line_.operands[first];
  }

  bool offer(const std::string& prefix, const std::string& typed, const std::string& value,
             std::string_view help = {}) {
    const size_t before = out_.candidates.size();
    ValueRequest{{}, line_, prefix, typed, &out_}.offer(value, help);
    return out_.candidates.size() != before;
  }

  void offer_options() {
    const std::vector<Option> common = useful_common_options(tool_);
    for (std::span<const Option> table : {tool_.options, std::span<const Option>(common)})
      for (const Option& o : table)
        if (o.repeated || given_.count(o.name) == 0) offer("", current(), "--" + std::string(o.name), o.help);
  }

  void offer_value(const Option& o) {
    std::string_view argument = o.argument;
    if (argument.empty()) return;
    if (argument.ends_with(kList)) {  // what precedes the last comma is fixed
      argument.remove_suffix(kList.size());
      const size_t comma = typed_.rfind(',') + 1;  // npos + 1 = 0
      prefix_ += typed_.substr(0, comma);
      typed_.erase(0, comma);
    }
    for (std::string_view one : split(argument, '|')) offer_alternative(one, o.fallback);
  }

  // Alternatives such as `strict`, `seed:N`, `op=OP`, `FILE`, `SYMBOL=N`, `PATTERN[:OP]`.
  void offer_alternative(std::string_view one, std::string_view fallback) {
    const size_t begin = static_cast<size_t>(std::find_if(one.begin(), one.end(), is_capital) - one.begin());
    const std::string word(one.substr(0, begin));
    if (begin == one.size()) {
      offer(prefix_, typed_, word, one == fallback ? "the default" : "");
    } else if (!typed_.starts_with(word)) {
      out_.open |= offer(prefix_, typed_, word);
    } else {
      size_t end = begin;
      while (end < one.size() && is_capital(one[end])) ++end;
      offer_kind(one.substr(begin, end - begin), prefix_ + word, typed_.substr(word.size()));
    }
  }

  void offer_kind(std::string_view kind, const std::string& prefix, const std::string& typed) {
    constexpr std::string_view kFiles[] = {"FILE", "GRAPH", "SOURCE", "TEXT", "RECIPE", "EARLIER", "A", "B", "G"};
    const ValueRequest request{kind, line_, prefix, typed, &out_};
    if (std::ranges::count(kFiles, kind) != 0 || kind == "DIR") {
      (kind == "DIR" ? out_.folders : out_.files) = true;
      out_.prefix = prefix;
    } else if (kind == "MACHINE") {
      for (const MachineText& m : machine_texts()) request.offer(std::string(m.name));
    } else if (!offer_from_graph(request) && tool_.values != nullptr) {
      tool_.values(request);
    }
  }

  const Tool& tool_;
  TypedLine line_;
  Option nothing_{};
  const Option* value_of_ = nullptr;  // the cursor is in a value of this option
  bool is_option_ = false;
  size_t operand_ = 0;
  std::string prefix_, typed_;  // of a value: the part of the word before it; what has been typed of it
  std::set<std::string_view> given_;
  Completion out_;
};

}  // namespace

void ValueRequest::offer(const std::string& value, std::string_view help) const {
  if (value.starts_with(typed)) out->candidates.push_back({prefix + value, std::string(help)});
}

Completion complete(const Tool& tool, std::vector<std::string> words, size_t at, const std::string& graph) {
  return Scan(tool, std::move(words), at, graph).answer();
}

}  // namespace sg::cli
