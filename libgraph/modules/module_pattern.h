// The pattern language for module names, used wherever an option names modules.
//
// Names    are dotted components: `layers.0.attention.wq`.
// Patterns are dotted components too, where `*` stands for exactly one component, `**` for any number of them (none
//          included), and `{a,b}` for either alternative, which may span components and nest: `layers.{0,1}.moe`,
//          `w{q,k,v}`, `{layers.*.moe,norm}`. `*` does not match a part of a component. In a choice, `0..5` stands for
//          the components that are numbers from 0 to 5, so that what reports print is read as well: `layers.{0..5,8}`.
// A pattern names the modules it matches and everything inside them: `layers.0` names `layers.0.attention.wq`.
//
// Parsing and matching are bounded: hostile patterns get an error with its column.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/result.h"

namespace sg {

class ModulePattern {
 public:
  static constexpr size_t kMaxLength = 4096;
  static constexpr size_t kMaxAlternatives = 1024;  // after writing out all choices
  static constexpr size_t kMaxDepth = 16;           // of choices within choices

  // An error is of kind `usage`, and where.column is the 1-based byte column within `text`.
  static Result<ModulePattern> parse(std::string_view text);

  bool matches(std::string_view module) const;
  const std::string& text() const { return text_; }

 private:
  struct Component {
    enum class Kind : uint8_t { name, one, any, range } kind;
    std::string name;  // of a range: "0..5"
    bool matches(std::string_view component) const;
  };
  using Alternative = std::vector<Component>;
  friend struct PatternParser;

  std::string text_;
  std::vector<Alternative> alternatives_;
};

}  // namespace sg
