#include "tools/recipe/tool_options.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>

#include "libgraph/base/nearest.h"
#include "libpasses/file_in.h"
#include "tools/cli/cli.h"
#include "tools/cli/cli_siblings.h"
#include "tools/recipe/process.h"

namespace sg::recipe {
namespace {

// Parses JSON with the YAML library, which recipes need anyway: JSON is YAML.
std::vector<OptionRow> rows_of(const std::string& json) {
  std::vector<OptionRow> out;
  for (const YAML::Node& o : YAML::Load(json)["options"]) {
    OptionRow row{o["name"].as<std::string>(), "", o["repeated"].as<bool>(false)};
    if (o["argument"].IsDefined()) row.argument = o["argument"].as<std::string>();
    out.push_back(std::move(row));
  }
  return out;
}

// Options that recipes express in another way, or have no use for.
bool is_left_out(std::string_view tool, std::string_view option) {
  constexpr std::pair<std::string_view, std::string_view> kLeftOut[] = {
      {"run", "outputs"},    {"run", "dump-inputs"}, {"run", "dump-state"}, {"run", "dump-nodes"},
      {"run", "nodes"},      {"run", "profile"},     {"run", "plan"},       {"run", "allocator"},
      {"run", "rendezvous"}, {"import", "list"},     {"import", "check"},   {"import", "data"}};
  return std::ranges::count(kLeftOut, std::pair(tool, option)) != 0;
}

bool is_whole_number(std::string_view s) {
  return !s.empty() && s.find_first_not_of("0123456789") == std::string_view::npos;
}

class Checker {
 public:
  Checker(const std::string& tool, Diagnostics* problems) : tool_(tool), problems_(problems) {}

  void add(const Setting& s, const OptionRow& row) {
    const bool has_mistake = std::ranges::any_of(s.values, &Word::is_mistake);
    has_all_ &= !has_mistake;
    if (has_mistake && row.argument.empty()) return;
    if (s.flag == Setting::Flag::no) return row.argument.empty() ? void() : has_no_value(s, row);
    if (row.argument.empty()) {
      if (s.flag != Setting::Flag::yes) return error(s.name.where, "`" + row.name + "` is a flag: `true` or `false`");
      values_.push_back({row.name, "", s.name.where, true});
      return;
    }
    if (s.flag == Setting::Flag::yes) return has_no_value(s, row);
    if (s.values.size() > 1 && !row.repeated)
      return error(s.values[1].where, "`" + row.name + "` is given once, not as a list");
    for (const Word& value : s.values)
      if (!value.is_mistake) add_value(row, value);
  }

  void unknown(const Word& name, const std::vector<OptionRow>& rows, std::span<const std::string_view> keys_beside) {
    has_all_ = false;
    if (is_left_out(std::string_view(tool_).substr(tool_.find('-') + 1), name.text))
      return problems_->error("option", "in a recipe " + tool_ + " takes no `" + name.text + "`", name.where,
                              "what it gives is of a single run: " + tool_ + " --" + name.text + " by hand");
    Nearest option(name.text), key(name.text);
    for (const OptionRow& r : rows) option.offer(r.name);
    for (const std::string_view k : keys_beside) key.offer(k);
    const bool is_beside = !key.best().empty() && (option.best().empty() || key.best() == name.text);
    const std::string hint = "`" + std::string(key.best()) + ":` stands beside the pass, on a line of its own below `" +
                             tool_.substr(tool_.find('-') + 1) + ":`, not among its options";
    problems_->error("option", tool_ + " has no option `" + name.text + "`", name.where,
                     is_beside ? hint : option.hint());
  }

  OptionValues take() { return std::move(values_); }
  bool has_all() const { return has_all_; }

 private:
  void add_value(const OptionRow& row, const Word& value) {
    if (row.argument == "N" && !is_whole_number(value.text))
      return error(value.where, "`" + row.name + "` takes a whole number, not `" + value.text + "`");
    std::vector<std::string_view> choices = cli::choices_of(row.argument);
    if (!choices.empty() && std::ranges::count(choices, value.text) == 0)
      return error(value.where, "`" + row.name + "` takes one of " + row.argument + ", not `" + value.text + "`",
                   nearest_hint(value.text, choices));
    OptionValue out{row.name, value.text, value.where, false, file_in(row.argument, value.text)};
    if (out.is_path()) out.value.replace(out.file_at, std::string::npos, beside(value.where.file, out.path()));
    values_.push_back(std::move(out));
  }

  void has_no_value(const Setting& s, const OptionRow& row) {
    error(s.name.where, "`" + row.name + "` has no value",
          "write `" + row.name + ": " + row.argument + "`; " + tool_ + " --help says what it is");
  }

  void error(const Location& where, const std::string& message, const std::string& hint = {}) {
    has_all_ = false;
    problems_->error("option", tool_ + ": " + message, where, hint);
  }

  const std::string& tool_;
  Diagnostics* problems_;
  OptionValues values_;
  bool has_all_ = true;
};

}  // namespace

Result<const std::vector<OptionRow>*> ToolTable::of_tool(const std::string& name) {
  auto at = rows_.find(name);
  if (at != rows_.end()) return &at->second;
  SG_ASSIGN(Finished done, run_process({cli::folder_of_this() + "sg-" + name, "--help-json"}, {}, "-"));
  if (done.code != 0)
    return Error{
        ErrorKind::missing, "sg-" + name + " --help-json failed: " + done.errors, {}, "is the installation complete?"};
  std::vector<OptionRow> rows = rows_of(done.output);
  std::erase_if(rows, [&](const OptionRow& r) { return is_left_out(name, r.name); });
  return &(rows_[name] = std::move(rows));
}

const std::vector<OptionRow>& ToolTable::of_pass(const PassInfo& pass) {
  auto [at, is_new] = rows_.try_emplace(std::string(pass.name));
  if (!is_new) return at->second;
  for (const PassOption& o : pass.options)
    at->second.push_back({std::string(o.name), std::string(o.argument), o.repeated});
  at->second.push_back({"best-effort", "", false});
  return at->second;
}

OptionValues values_of(const std::vector<Setting>& settings, const std::string& tool,
                       const std::vector<OptionRow>& rows, std::span<const std::string_view> keys_beside, bool* all,
                       Diagnostics* problems) {
  Checker checker(tool, problems);
  for (const Setting& s : settings) {
    auto row = std::ranges::find_if(rows, [&](const OptionRow& r) { return r.name == s.name.text; });
    if (row != rows.end()) checker.add(s, *row);
    else checker.unknown(s.name, rows, keys_beside);
  }
  *all = checker.has_all();
  return checker.take();
}

std::vector<std::string> command_words(const OptionValues& options) {
  std::vector<std::string> out;
  for (const OptionValue& o : options) {
    if (o.value.starts_with('@')) {  // alone it would stand for the words in that file
      out.push_back("--" + o.name + "=" + o.value);
      continue;
    }
    out.push_back("--" + o.name);
    if (!o.is_flag) out.push_back(o.value);
  }
  return out;
}

PassOptions pass_options(const OptionValues& options) {
  PassOptions out;
  for (const OptionValue& o : options)
    if (o.name != "best-effort") out.add(o.name, o.value);
  return out;
}

bool has_option(const OptionValues& options, std::string_view name) {
  return std::ranges::any_of(options, [&](const OptionValue& o) { return o.name == name; });
}

}  // namespace sg::recipe
