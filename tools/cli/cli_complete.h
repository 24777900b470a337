// What may stand where the cursor is: options from the tool's table, values by what the table calls their argument.
//
//     sg-print --complete bash POINT LINE BREAKS      a line as readline has it, the cursor's place, COMP_WORDBREAKS
//     sg-print --complete zsh|fish INDEX WORD...      the words behind the program's name, and which one is meant
//
// The answer is a line of flags (`-`, `files`, `folders`, `open`: the word may go on) and a line a candidate, as the
// shell's script (cli_shells.cc) takes them. A malformed line is not an error: completion just offers fewer candidates.
//
// Arguments   `fast|strict` and `N|auto` offer their words, `seed:N` its beginning; a name in capitals stands for
//             values: FILE GRAPH (files), DIR, MACHINE, NODE, PATTERN (of modules), OP, SYMBOL; others are the tool's
//             own (Tool::values). `...,...` is a list with commas. NODE and the like come from the line's graph.
// Cost        a graph on the line is read without the verifier, up to 256 MiB of it; 20,000 nodes take some 10 ms.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/cli.h"

namespace sg::cli {

struct Candidate {
  std::string text, help;  // help: one line; may be empty
};

struct Completion {
  std::vector<Candidate> candidates;    // those that begin with what is typed; whole words
  bool files = false, folders = false;  // names of files (folders) as well, behind `prefix`
  bool open = false;                    // no space behind a candidate
  std::string prefix;                   // of the word: "--output=", what stands before the name of a file
};

// A line as it was typed so far, options and operands told apart; behind the cursor too.
struct TypedLine {
  const Tool* tool = nullptr;
  std::vector<std::string> words;     // behind the program's name
  size_t at = 0;                      // the word under the cursor, up to the cursor
  std::vector<std::string> operands;  // all but the one under the cursor
  std::string graph;                  // the first operand that may be a graph; empty = none yet
};

Completion complete(const Tool& tool, std::vector<std::string> words, size_t at, const std::string& graph = {});

// Where values of one kind are asked for: the line, what stands before the value in its word, what of it is typed.
struct ValueRequest {
  std::string_view kind;
  const TypedLine& line;
  std::string prefix, typed;
  Completion* out;

  // Adds the value if what is typed may become it.
  void offer(const std::string& value, std::string_view help = {}) const;
};

// Adds values that come from the graph on the line: NODE, PATTERN, OP, SYMBOL. False: it is none of these.
bool offer_from_graph(const ValueRequest& request);

// A line of a shell, as words: quotes and backslashes are undone, a quote that is not closed ends with the line.
struct ShellLine {
  std::vector<std::string> words;
  size_t at = 0;   // the word that `point` is in or behind; it ends there
  char quote = 0;  // it is open at `point`
};
ShellLine split_shell_line(std::string_view line, size_t point);

// `--complete words INDEX WORD...` is how a tool asks another, and this reads the answer.
void read_answer(std::string_view answer, Completion* out);

// What `--complete` prints for the words behind it; empty for what no shell asks.
std::string completion_answer(const Tool& tool, const std::vector<std::string>& words);

// What a shell reads so that it asks the programs of these names.
std::string completion_script(std::span<const std::string> names, std::string_view shell);

}  // namespace sg::cli
