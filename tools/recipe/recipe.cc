#include "tools/recipe/recipe.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "libgraph/base/nearest.h"
#include "libgraph/base/whole_file.h"
#include "libgraph/sim/yaml_document.h"
#include "libpasses/pass.h"
#include "tools/cli/cli_input.h"
#include "tools/recipe/yaml_reader.h"

namespace sg::recipe {
namespace {

constexpr std::string_view kTopKeys[] = {"recipe", "about",  "include", "parameters",
                                         "matrix", "inputs", "stages",  "machine"};
const std::string kOptionsHint =
    "put options in braces after the colon, as in `- offload: {budget: 1GiB, all: true}`, or indented on the next "
    "lines";
const std::string kQuotesHint = "in braces a text with ${NAME} stands in quotes: `{policy: \"${NAME}\"}`";
constexpr size_t kMaxIncludes = 64;  // over all files
constexpr size_t kMaxTextBytes = 4 << 20;
constexpr size_t kMaxStages = 1000;

class RecipeReader {
 public:
  RecipeReader(Recipe* recipe, Diagnostics* problems) : recipe_(*recipe), problems_(*problems) {}

  void read(const std::string& file, const Location& asked_by, size_t depth) {
    if (std::ranges::count(open_, file) != 0) return unread(file + " includes itself", asked_by);
    if (++files_read_ > kMaxIncludes) return unread("more than 64 files are included", asked_by);
    open_.push_back(file);
    read_open(file, asked_by, depth);
    open_.pop_back();
  }

  void finish() {
    name_stages();
    if (recipe_.name.empty()) recipe_.name = std::filesystem::path(recipe_.file).stem().string();
    if (recipe_.stages.empty() && !problems_.has_errors())
      problems_.error("recipe", "the recipe has no stages", {recipe_.file, 1, 1, {}, {}});
  }

 private:
  void unread(const std::string& message, const Location& where, const std::string& hint = {},
              const std::string& rule = "recipe") {
    recipe_.has_all_names = false;
    problems_.error(rule, message, where, hint);
  }

  void read_open(const std::string& file, const Location& asked_by, size_t depth) {
    const bool is_included = !asked_by.file.empty();
    Result<std::string> text = text_of(file);
    if (!text.ok()) {
      const std::string what = is_included ? "cannot include " + file + ": " : "";
      const Location where = is_included ? asked_by : Location{file, 0, 0, {}, {}};
      return unread(what + text.error().message, where, text.error().hint);
    }
    if (file != kStdin) recipe_.files.push_back(file);
    YamlReader yaml(file, *text, &problems_);
    try {
      read_top(&yaml, only_document(*text), depth);
    } catch (const YAML::Exception& e) {  // how the library reports that a text is not YAML
      unread(e.msg, {file, static_cast<uint32_t>(e.mark.line + 1), static_cast<uint32_t>(e.mark.column + 1), {}, {}},
             hint_for(e, *text), "yaml");
    }
  }

  static std::string hint_for(const YAML::Exception& e, const std::string& text) {
    if (e.msg == YAML::ErrorMsg::MAP_VALUE) return kOptionsHint;
    const bool is_cut = e.msg == YAML::ErrorMsg::END_OF_MAP_FLOW || e.msg == YAML::ErrorMsg::END_OF_SEQ_FLOW;
    const size_t before = std::min(text.size(), static_cast<size_t>(std::max(e.mark.pos, 0)));
    const size_t opened = text.rfind("${", before);
    const bool is_near = opened != std::string::npos && text.find('\n', opened) >= before;
    return is_cut && is_near ? kQuotesHint : yaml_hint(text, static_cast<size_t>(std::max(e.mark.line, 0)));
  }

  // Only the recipe itself may come from standard input; includes are files.
  Result<std::string> text_of(const std::string& file) const {
    const bool is_stdin = file == kStdin && open_.size() == 1;
    std::error_code problem;
    if (!is_stdin && !std::filesystem::exists(file, problem) && !problem)
      return Error{ErrorKind::unreadable, "no such file", {}, {}};
    if (!is_stdin && is_graph(head_of(file))) return graph_error(file);
    Result<std::string> text = read_whole_file(is_stdin ? "/dev/stdin" : file, kMaxTextBytes);
    return text.ok() && is_graph(*text) ? graph_error(file) : text;
  }

  // The first bytes of a regular file: a graph may be larger than any recipe. Empty = of anything else.
  static std::string head_of(const std::string& file) {
    std::error_code problem;
    if (!std::filesystem::is_regular_file(file, problem)) return {};
    std::string head(64, '\0');
    std::ifstream in(file, std::ios::binary);
    in.read(head.data(), static_cast<std::streamsize>(head.size()));
    head.resize(static_cast<size_t>(in.gcount()));
    return head;
  }

  static bool is_graph(std::string_view bytes) {
    const cli::Form form = cli::form_of(bytes);
    return form == cli::Form::binary || form == cli::Form::text;
  }

  static Error graph_error(const std::string& file) {
    return {ErrorKind::unreadable,
            "this is a graph, not a recipe",
            {},
            "a recipe reads it as `inputs: {step: " + file + "}`"};
  }

  void read_top(YamlReader* yaml, const YAML::Node& root, size_t depth) {
    yaml->each(root, "a recipe", [&](const Word& key, const YAML::Node& value) {
      const std::string name = yaml->known_key(key, "a recipe", kTopKeys);
      if (name == "include") return include(yaml, value, depth);
      if (name == "recipe" || name == "about") {
        const Word word = yaml->word(value, "`" + name + "`");
        if (depth == 0) (name == "recipe" ? recipe_.name : recipe_.about) = word.text;
        return;
      }
      if (name == "machine") return void(recipe_.machine = yaml->word(value, "`machine`"));
      if (name == "stages") return read_stages(yaml, value);
      recipe_.has_all_names &= value.IsMap() || value.IsNull() || name.empty();
      if (name == "parameters") return read_parameters(yaml, value);
      if (name == "matrix") return read_matrix(yaml, value);
      if (name == "inputs") return read_inputs(yaml, value);
    });
  }

  // The contents of an included recipe precede what follows the include.
  void include(YamlReader* yaml, const YAML::Node& value, size_t depth) {
    for (const Word& w : yaml->words(value, "`include`")) {
      if (w.empty()) continue;
      read(beside(yaml->file(), w.text), w.where, depth + 1);
    }
  }

  // The including file overrides parameters and axes.
  void read_parameters(YamlReader* yaml, const YAML::Node& map) {
    yaml->each(map, "`parameters`", [&](const Word& key, const YAML::Node& value) {
      Word w = yaml->word(value, "a parameter");
      if (key.text.find('.') != key.text.npos)
        return yaml->error(key.where, "a parameter's name has no dot: `" + key.text + "` is an option of a stage");
      auto at = std::ranges::find_if(recipe_.parameters, [&](const Parameter& p) { return p.name.text == key.text; });
      if (at == recipe_.parameters.end()) recipe_.parameters.push_back({key, w});
      else at->value = w;
    });
  }

  void read_matrix(YamlReader* yaml, const YAML::Node& map) {
    yaml->each(map, "`matrix`", [&](const Word& key, const YAML::Node& value) {
      MatrixAxis axis{key, yaml->words(value, "`" + key.text + "`")};
      if (axis.values.empty()) yaml->error(value, "`" + key.text + "` has no values");
      std::set<std::string> seen;
      for (const Word& w : axis.values)
        if (!seen.insert(w.text).second)
          yaml->error(w.where, "`" + key.text + "` has the value `" + w.text + "` twice");
      auto at = std::ranges::find_if(recipe_.matrix, [&](const MatrixAxis& a) { return a.name.text == key.text; });
      if (at == recipe_.matrix.end()) recipe_.matrix.push_back(std::move(axis));
      else *at = std::move(axis);
    });
  }

  void read_inputs(YamlReader* yaml, const YAML::Node& map) {
    yaml->each(map, "`inputs`", [&](const Word& key, const YAML::Node& value) {
      InputSpec input{key, {}, false, {}};
      if (value.IsMap()) {
        constexpr std::string_view kSource[] = {"import"};
        YAML::Node source = value["import"];
        if (!source.IsDefined()) {
          yaml->error(value, "an input is a graph's file, or `{import: SOURCE}`");
          input.source = {"", yaml->place(value), true};
          return recipe_.inputs.push_back(std::move(input));
        }
        input.source = yaml->word(source, "`import`");
        input.imported = true;
        input.options = yaml->settings(value, "an input", kSource);
      } else {
        input.source = yaml->word(value, "an input");
      }
      recipe_.inputs.push_back(std::move(input));
    });
  }

  void read_stages(YamlReader* yaml, const YAML::Node& list) {
    recipe_.has_all_names &= list.IsSequence();
    if (!list.IsSequence()) return yaml->error(list, "`stages` is a list");
    if (recipe_.stages.size() + list.size() > kMaxStages) return yaml->error(list, "more than 1,000 stages");
    for (const YAML::Node& item : list) {
      StageSpec stage;
      if (item.IsScalar() && !item.Scalar().empty()) stage.tool = yaml->word(item, "a stage");
      else if (item.IsMap()) read_stage(yaml, item, &stage);
      else yaml->error(item, "a stage is a tool's name, or a map with one");
      recipe_.stages.push_back(std::move(stage));
    }
  }

  void read_stage(YamlReader* yaml, const YAML::Node& map, StageSpec* stage) {
    std::vector<std::pair<Word, YAML::Node>> others;  // the pass, and what does not belong here
    yaml->each(map, "a stage", [&](const Word& key, const YAML::Node& value) {
      if (std::ranges::count(kStageKeys, key.text) != 0) read_stage_key(yaml, key.text, value, stage);
      else others.emplace_back(key, value);
    });
    if (others.empty())
      return yaml->error(map, "the stage has no tool", "a pass comes first: `- clean: {}`, and this below it");
    const auto is_pass = [](const auto& other) { return find_pass(other.first.text) != nullptr; };
    auto tool = std::ranges::find_if(others, is_pass);
    if (tool == others.end()) tool = others.begin();
    read_tool(yaml, tool->first, tool->second, stage);
    for (auto other = others.begin(); other != others.end(); ++other)
      if (other != tool) read_stray_key(yaml, other->first, other->second, stage);
  }

  void read_stage_key(YamlReader* yaml, std::string_view key, const YAML::Node& value, StageSpec* stage) {
    if (key == "name") stage->name = yaml->word(value, "`name`").text;
    else if (key == "from") stage->from = yaml->word(value, "`from`");
    else if (key == "expect") stage->expect = yaml->word(value, "`expect`");
    else if (key == "ignore") stage->ignore = yaml->word(value, "`ignore`");
    else if (key == "output") stage->output = yaml->word(value, "`output`");
    else if (key == "assert") std::ranges::move(yaml->words(value, "`assert`"), std::back_inserter(stage->asserts));
    else if (key == "run") read_runs(yaml, value, stage);
  }

  static void read_tool(YamlReader* yaml, const Word& key, const YAML::Node& value, StageSpec* stage) {
    stage->tool = key;
    stage->tool.is_mistake = value.IsScalar();
    if (value.IsScalar()) yaml->error(value, "`" + key.text + "` is followed by its options", kOptionsHint);
    else stage->options = yaml->settings(value, "`" + key.text + "`");
    stage->has_all_options = value.IsMap() || value.IsNull();
  }

  // A key of a stage that is mistyped, an option of the pass that stands beside it, or a second pass.
  void read_stray_key(YamlReader* yaml, const Word& key, const YAML::Node& value, StageSpec* stage) {
    Nearest meant(key.text);
    for (const std::string_view known : kStageKeys) meant.offer(known);
    if (!meant.best().empty() && !find_pass(key.text)) {
      const std::string name(meant.best());
      yaml->error(key.where, "a stage has no `" + key.text + "`", meant.hint());
      return read_stage_key(yaml, name, value, stage);
    }
    stage->has_all_options = false;
    yaml->error(key.where, "a stage has one tool: `" + stage->tool.text + "` or `" + key.text + "`",
                "what else it may have: name, from, expect, ignore, assert, run, output; " + kOptionsHint);
  }

  void read_runs(YamlReader* yaml, const YAML::Node& value, StageSpec* stage) {
    if (value.IsSequence()) {
      for (const YAML::Node& item : value) read_run(yaml, item, stage);
    } else {
      read_run(yaml, value, stage);
    }
  }

  void read_run(YamlReader* yaml, const YAML::Node& map, StageSpec* stage) {
    constexpr std::string_view kOwn[] = {"bitwise_to", "ranks"};
    RunSpec run{yaml->place(map), yaml->settings(map, "`run`", kOwn), map.IsMap() || map.IsNull(), {}, {}};
    if (map.IsMap() && map["bitwise_to"].IsDefined()) run.bitwise_to = yaml->word(map["bitwise_to"], "`bitwise_to`");
    if (map.IsMap() && map["ranks"].IsDefined()) run.ranks = yaml->word(map["ranks"], "`ranks`");
    stage->runs.push_back(std::move(run));
  }

  // Names stages "clean", "clean:2", ...; explicit names must be unique.
  void name_stages() {
    std::map<std::string, Location> taken;
    for (const InputSpec& i : recipe_.inputs)
      if (!taken.emplace(i.name.text, i.name.where).second)
        problems_.error("recipe", "there are two inputs `" + i.name.text + "`", i.name.where);
    std::map<std::string, int> uses;
    for (StageSpec& s : recipe_.stages) {
      if (s.name.empty()) {
        int nth = ++uses[s.tool.text];
        s.name = nth == 1 ? s.tool.text : s.tool.text + ":" + std::to_string(nth);
      }
      if (!taken.emplace(s.name, s.tool.where).second)
        problems_.error("recipe", "there are two stages or inputs `" + s.name + "`", s.tool.where,
                        "give one of them a `name`");
    }
  }

  Recipe& recipe_;
  Diagnostics& problems_;
  std::vector<std::string> open_;  // files being read
  size_t files_read_ = 0;
};

}  // namespace

std::string beside(const std::string& file, const std::string& path) {
  if (path.empty() || path[0] == '/') return path;
  return (std::filesystem::path(file).parent_path() / path).lexically_normal().string();
}

Recipe read_recipe(const std::string& file, Diagnostics* problems) {
  Recipe recipe;
  recipe.file = file;
  RecipeReader reader(&recipe, problems);
  reader.read(file, {}, 0);
  reader.finish();
  return recipe;
}

}  // namespace sg::recipe
