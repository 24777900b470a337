#include "tools/recipe/key.h"

#include <algorithm>
#include <mutex>
#include <sstream>

#include "libgraph/base/escape.h"
#include "libgraph/base/sha256.h"
#include "libgraph/sim/machine.h"
#include "tools/cli/cli.h"
#include "tools/cli/cli_input.h"
#include "tools/cli/cli_siblings.h"
#include "tools/recipe/files.h"

namespace sg::recipe {
namespace {

// A file's bytes; for a folder (of traces) the names of all entries and the bytes of its files. Entries that are
// neither files nor folders are never read.
Status add_digest(const std::string& path, int depth, Sha256* all) {
  constexpr int kMostFolders = 8;
  if (!cli::is_folder(path)) {
    SG_ASSIGN(std::string bytes, read_regular_file(path));
    all->update(sha256_tag(bytes));
    return ok_status();
  }
  SG_ASSIGN(std::vector<std::string> entries, cli::entries_of(path));
  std::ranges::sort(entries);
  for (const std::string& entry : entries) {
    const std::string inside = path + "/" + entry;
    all->update(entry + "\n");
    if (depth < kMostFolders && (cli::is_folder(inside) || cli::is_plain_file(inside)))
      SG_TRY(add_digest(inside, depth + 1, all));
  }
  return ok_status();
}

// Digest of a file's bytes; of those of all ranks and steps for a pattern.
Result<std::string> digest_of_files(const std::string& file_or_pattern) {
  SG_ASSIGN(std::vector<std::string> files, files_named(file_or_pattern));
  Sha256 all;
  for (const std::string& file : files) SG_TRY(add_digest(file, 0, &all));
  return hex(all.finish());
}

// For a machine file also the resulting machine, as it may take most of its numbers from another file.
Result<std::string> digest_of(const OptionValue& option) {
  SG_ASSIGN(std::string digest, digest_of_files(option.path()));
  if (option.name != "machine") return digest;
  SG_ASSIGN(const Machine machine, find_machine(option.path()));
  return hex(sha256(digest + machine_yaml(machine)));
}

// The options as text, with file names replaced by digests of the files.
Result<std::string> options_text(const OptionValues& options) {
  std::string out;
  for (const OptionValue& o : options) {
    out += (out.empty() ? "--" : " --") + o.name;
    if (o.is_flag) continue;
    std::string value = shell_word(o.value);  // different lists of options have different texts
    if (o.is_path()) {
      SG_ASSIGN(std::string digest, digest_of(o));
      value = o.value.substr(0, o.file_at) + "sha256:" + digest;
    }
    out += " " + value;
  }
  return out;
}

void seal_key(Key* key) { key->digest = hex(sha256(key->text())); }

std::string escaped(const std::string& s) {
  std::string out;
  for (char c : s) out += c == '\n' ? std::string("\\n") : c == '\\' ? std::string("\\\\") : std::string(1, c);
  return out;
}

// Of the text of options: "--policy full", "--drop-asserts".
std::vector<std::string> parts_of_options(const std::string& text) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(" --", begin + 1), text.size());
    out.push_back(text.substr(begin, end - begin));
    begin = end + (end < text.size() ? 1 : 0);
  }
  return out;
}

// "`--policy default` is now `--policy full`, `--budget 0.5` is new": what only one of the two has.
std::string changed_options(const std::string& before, const std::string& now) {
  std::vector<std::string> gone = parts_of_options(before), added = parts_of_options(now);
  std::erase_if(added, [&](const std::string& part) {
    const auto same = std::ranges::find(gone, part);
    if (same == gone.end()) return false;
    gone.erase(same);
    return true;
  });
  std::string out;
  const auto say = [&](const std::string& text) { out += (out.empty() ? "" : ", ") + text; };
  for (const std::string& part : added) {
    const std::string name = part.substr(0, part.find(' '));
    const auto old = std::ranges::find(gone, name, [](const std::string& g) { return g.substr(0, g.find(' ')); });
    if (old == gone.end()) {
      say("`" + part + "` is new");
      continue;
    }
    say("`" + *old + "` is now `" + part + "`");
    gone.erase(old);
  }
  for (const std::string& part : gone) say("`" + part + "` is gone");
  return out.empty() ? "the order of the options changed" : out;
}

}  // namespace

std::string Key::text() const {
  std::string out;
  for (const auto& [name, value] : parts) out += escaped(name) + "\t" + escaped(value) + "\n";
  return out;
}

std::map<std::string, std::string> parts_of(const std::string& text) {
  std::map<std::string, std::string> out;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    size_t tab = line.find('\t');
    if (tab != std::string::npos) out[line.substr(0, tab)] = line.substr(tab + 1);
  }
  return out;
}

Result<std::string> version_of(const std::string& program) {
  static std::mutex mutex;
  static std::map<std::string, std::string> known;
  std::lock_guard lock(mutex);
  auto at = known.find(program);
  if (at != known.end()) return at->second;
  SG_ASSIGN(std::string bytes, read_regular_file(program));
  return known[program] = std::string(cli::kVersion) + " " + hex(sha256(bytes)).substr(0, 16);
}

Result<Key> key_of(const Step& step, const std::string& input) {
  Key key;
  key.parts = {{"tool", step.tool}};
  std::string program = step.kind == StepKind::pass
                            ? "/proc/self/exe"
                            : cli::folder_of_this() + (step.kind == StepKind::import ? "sg-import" : "sg-parse");
  SG_ASSIGN(key.parts["version"], version_of(program));
  SG_ASSIGN(key.parts["options"], options_text(step.options));
  key.parts["input"] = input;
  if (step.kind != StepKind::pass) {
    std::string& digests = key.parts["input"];
    for (const std::string& source : step.sources) {
      SG_ASSIGN(std::string digest, digest_of_files(source));
      digests += (digests.empty() ? "" : " ") + digest;
    }
  }
  seal_key(&key);
  return key;
}

Result<Key> key_of_check(const RunCheck& check, const std::string& graph, const std::string& reference) {
  Key key;
  key.parts = {{"tool", "sg-run"}, {"input", graph}, {"reference", reference}};
  SG_ASSIGN(key.parts["version"], version_of(cli::folder_of_this() + "sg-run"));
  SG_ASSIGN(key.parts["options"], options_text(check.options));
  seal_key(&key);
  return key;
}

std::string what_changed(const std::map<std::string, std::string>& before, const Key& now) {
  std::string out;
  auto say = [&](const std::string& text) { out += (out.empty() ? "" : "; ") + text; };
  for (const auto& [name, value] : parts_of(now.text())) {
    auto old = before.find(name);
    if (old != before.end() && old->second == value) continue;
    if (name == "options") say(changed_options(old == before.end() ? "" : old->second, value));
    else say((name == "input" ? "the input" : name == "version" ? "the tools" : name) + " changed");
  }
  return out;
}

}  // namespace sg::recipe
