#include "tools/recipe/expand.h"

#include <algorithm>
#include <functional>
#include <map>

#include "libgraph/base/chars.h"
#include "libgraph/sim/machine.h"
#include "libgraph/sim/machine_file.h"
#include "tools/recipe/name_hint.h"

namespace sg::recipe {
namespace {

using Values = std::map<std::string, std::string, std::less<>>;

constexpr size_t kMaxVariants = 10'000;

class Substitution {
 public:
  // `has_all`: whether what is not among the values is no parameter, instead of one that could not be read.
  Substitution(const Values& values, bool has_all, Diagnostics* problems)
      : values_(values), has_all_(has_all), problems_(problems) {}

  void apply(Word* word) {
    std::string out;
    const std::string& s = word->text;
    for (size_t i = 0; i < s.size(); ++i) {
      if (s[i] != '$') {
        out += s[i];
      } else if (i + 1 < s.size() && s[i + 1] == '$') {
        out += '$';
        ++i;
      } else {
        out += value_at(word, &i);
      }
    }
    word->text = std::move(out);
  }

 private:
  // Expects `*at` on the dollar; leaves it on the last character of the reference.
  std::string value_at(Word* word, size_t* at) {
    const std::string& s = word->text;
    bool braced = *at + 1 < s.size() && s[*at + 1] == '{';
    size_t begin = *at + (braced ? 2 : 1), end = begin;
    while (end < s.size() && is_word(s[end])) ++end;
    std::string name = s.substr(begin, end - begin);
    if (name.empty() || (braced && (end >= s.size() || s[end] != '}'))) {
      error(word, "`$` begins the name of a parameter", "write `$name`, `${name}`, or `$$` for a dollar");
      return "";
    }
    *at = braced ? end : end - 1;
    auto value = values_.find(name);
    if (value != values_.end()) return value->second;
    std::vector<std::string> names;
    for (const auto& [known, text] : values_) names.push_back(known);
    if (has_all_)
      error(word, "the recipe has no parameter `" + name + "`", name_hint(name, names, "its parameters are"));
    word->is_mistake = true;
    return "";
  }

  void error(Word* word, const std::string& message, const std::string& hint) {
    problems_->error("recipe", message, word->where, hint);
    word->is_mistake = true;
  }

  const Values& values_;
  bool has_all_;
  Diagnostics* problems_;
};

void make_path(Word* word) { word->text = beside(word->where.file, word->text); }

void substitute(Recipe* recipe, Substitution* with) {
  with->apply(&recipe->machine);
  if (is_machine_file(recipe->machine.text)) make_path(&recipe->machine);
  auto settings = [&](std::vector<Setting>* list) {
    for (Setting& s : *list)
      for (Word& w : s.values) with->apply(&w);
  };
  for (InputSpec& i : recipe->inputs) {
    with->apply(&i.source);
    make_path(&i.source);
    settings(&i.options);
  }
  for (StageSpec& s : recipe->stages) {
    for (Word* w : {&s.from, &s.expect, &s.ignore, &s.output}) with->apply(w);
    for (Word* w : {&s.expect, &s.output}) make_path(w);
    for (Word& w : s.asserts) with->apply(&w);
    settings(&s.options);
    for (RunSpec& r : s.runs) {
      with->apply(&r.bitwise_to);
      with->apply(&r.ranks);
      settings(&r.options);
    }
  }
}

class Expander {
 public:
  Expander(const Recipe& recipe, Diagnostics* problems) : recipe_(recipe), problems_(problems) {}

  std::vector<Variant> run(const std::vector<std::string>& set) {
    for (const Parameter& p : recipe_.parameters) values_[p.name.text] = plain(p.value);
    axes_ = recipe_.matrix;
    for (MatrixAxis& axis : axes_)
      for (Word& value : axis.values) value.text = plain(value);
    for (const std::string& assignment : set) assign(assignment);
    size_t count = 1;
    for (const MatrixAxis& a : axes_)
      count = count > kMaxVariants ? count : count * std::max<size_t>(1, a.values.size());
    if (count > kMaxVariants) {
      problems_->error("recipe", "the matrix has more than 10,000 cells", axes_[0].name.where);
      return {};
    }
    each_cell(0, "");
    return std::move(variants_);
  }

 private:
  // The value of a parameter, in which no other one stands.
  std::string plain(const Word& value) {
    std::string out;
    for (size_t i = 0; i < value.text.size(); ++i) {
      out += value.text[i];
      if (value.text[i] != '$') continue;
      if (i + 1 < value.text.size() && value.text[i + 1] == '$') ++i;
      else
        problems_->error("recipe", "the value of a parameter holds no other: `" + value.text + "`", value.where,
                         "write what it stands for, or `$$` for a dollar");
    }
    return out;
  }

  void assign(const std::string& assignment) {
    size_t equals = assignment.find('=');
    std::string name = assignment.substr(0, equals);
    Location where{"--set " + assignment, 0, 0, {}, {}, true};
    if (equals == std::string::npos || name.empty()) return problems_->error("recipe", "--set takes NAME=VALUE", where);
    std::string value = assignment.substr(equals + 1);
    if (size_t dot = name.rfind('.'); dot != std::string::npos)
      return override_option(
          {name.substr(0, dot), name.substr(dot + 1), {value, {"--set " + name, 0, 0, {}, {}, true}}});
    if (auto axis = std::ranges::find_if(axes_, [&](const MatrixAxis& a) { return a.name.text == name; });
        axis != axes_.end()) {
      axis->values = {{value, where}};
    } else if (values_.contains(name)) {
      values_[name] = value;
    } else {
      if (!recipe_.has_all_names) return;
      std::vector<std::string> names;
      for (const auto& [known, text] : values_) names.push_back(known);
      for (const MatrixAxis& a : axes_) names.push_back(a.name.text);
      problems_->error("recipe", "the recipe has no parameter `" + name + "`", where,
                       names.empty() ? "it has none: options of stages are set by STAGE.OPTION=VALUE"
                                     : name_hint(name, names, "its parameters are"));
    }
  }

  // An override of a stage's option: a value, a flag, or `-` to remove it.
  struct Override {
    std::string stage, option;
    Word value;
  };

  void override_option(Override o) {
    std::vector<std::string> names;
    for (const StageSpec& s : recipe_.stages) {
      if (s.name == o.stage) return overrides_.push_back(std::move(o));
      names.push_back(s.name);
    }
    if (recipe_.has_all_names)
      problems_->error("recipe", "the recipe has no stage `" + o.stage + "`", o.value.where,
                       name_hint(o.stage, names, "its stages are"));
  }

  static void apply(const Override& o, Recipe* recipe) {
    for (StageSpec& s : recipe->stages) {
      if (s.name != o.stage) continue;
      std::erase_if(s.options, [&](const Setting& old) { return old.name.text == o.option; });
      if (o.value.text == "-") return;
      Setting setting{{o.option, o.value.where}, {}, Setting::Flag::none};
      if (o.value.text == "true") setting.flag = Setting::Flag::yes;
      else if (o.value.text == "false") setting.flag = Setting::Flag::no;
      else setting.values.push_back(o.value);
      s.options.push_back(std::move(setting));
      return;
    }
  }

  void each_cell(size_t axis, const std::string& name) {
    if (axis == axes_.size()) {
      Variant variant{name, recipe_};
      Substitution substitution(values_, recipe_.has_all_names, problems_);
      substitute(&variant.recipe, &substitution);
      for (const Override& o : overrides_) apply(o, &variant.recipe);
      variants_.push_back(std::move(variant));
      return;
    }
    for (const Word& value : axes_[axis].values) {
      values_[axes_[axis].name.text] = value.text;
      each_cell(axis + 1, name + (name.empty() ? "" : ",") + axes_[axis].name.text + "=" + value.text);
    }
  }

  const Recipe& recipe_;
  Diagnostics* problems_;
  Values values_;
  std::vector<MatrixAxis> axes_;
  std::vector<Override> overrides_;
  std::vector<Variant> variants_;
};

}  // namespace

std::vector<Variant> expand(const Recipe& recipe, const std::vector<std::string>& set, Diagnostics* problems) {
  return Expander(recipe, problems).run(set);
}

}  // namespace sg::recipe
