#include "tools/recipe/key.h"

#include <fstream>
#include <sstream>

#include "libgraph/sha256.h"
#include "tools/cli.h"
#include "tools/cli_input.h"

namespace sg::recipe {
namespace {

Result<std::string> bytes_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  std::ostringstream bytes;
  bytes << in.rdbuf();
  if (!in) return Error{ErrorKind::unreadable, "cannot read", {file, 0, 0, {}, {}}, {}};
  return std::move(bytes).str();
}

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += (out.empty() ? "" : " ") + w;
  return out;
}

// Options without the paths of files: what these hold is a part of its own.
Status add_options(const std::vector<std::string>& words, const std::vector<std::string>& files, Key* key) {
  std::vector<std::string> plain;
  for (const std::string& w : words) plain.push_back(std::find(files.begin(), files.end(), w) == files.end() ? w : "FILE");
  key->parts["options"] = joined(plain);
  for (const std::string& file : files) {
    SG_ASSIGN(key->parts["file " + file], digest_of_files(file));
  }
  return ok_status();
}

void seal_key(Key* key) { key->digest = hex(sha256(key->text())); }

std::string escaped(const std::string& s) {
  std::string out;
  for (char c : s) out += c == '\n' ? std::string("\\n") : c == '\\' ? std::string("\\\\") : std::string(1, c);
  return out;
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

Result<std::string> digest_of_files(const std::string& file_or_pattern) {
  SG_ASSIGN(std::vector<std::string> files, cli::files_of(file_or_pattern));
  Sha256 all;
  for (const std::string& file : files) {
    SG_ASSIGN(std::string bytes, bytes_of(file));
    all.update(sha256_tag(bytes));
  }
  return hex(all.finish());
}

const std::string& version_of_tools() {
  static const std::string version = [] {
    Result<std::string> program = bytes_of("/proc/self/exe");
    return std::string(cli::kVersion) + (program.ok() ? " " + hex(sha256(*program)).substr(0, 16) : "");
  }();
  return version;
}

Result<Key> key_of(const Step& step, const std::string& input) {
  Key key;
  key.parts = {{"tool", step.tool}, {"version", version_of_tools()}};
  SG_TRY(add_options(step.words, step.files, &key));
  if (step.kind == StepKind::pass) {
    key.parts["input"] = input;
  } else {
    SG_ASSIGN(key.parts["input"], digest_of_files(step.source));
  }
  seal_key(&key);
  return key;
}

Result<Key> key_of_check(const RunCheck& check, const std::string& graph, const std::string& reference) {
  Key key;
  key.parts = {{"tool", "sg-run"}, {"version", version_of_tools()}, {"input", graph}, {"reference", reference}};
  SG_TRY(add_options(check.words, check.files, &key));
  seal_key(&key);
  return key;
}

std::string what_changed(const std::map<std::string, std::string>& before, const Key& now) {
  std::string out;
  auto say = [&](const std::string& text) { out += (out.empty() ? "" : "; ") + text; };
  for (const auto& [name, value] : parts_of(now.text())) {
    auto old = before.find(name);
    if (old != before.end() && old->second == value) continue;
    if (name == "options") say("options were `" + (old == before.end() ? "" : old->second) + "`, are `" + value + "`");
    else say((name == "input" ? "the input" : name == "version" ? "the tools" : name) + " changed");
  }
  return out;
}

}  // namespace sg::recipe
