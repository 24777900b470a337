// The Python that FX prints, as a tree: what parse_fx makes and the importer reads. Internal to the importers.
//
//   fx_lexer.h      characters to tokens           fx_parse.h        tokens to this tree
//   fx_notes.h      annotations and comments       fx_import.h       the tree to a graph
//
// Everything refers to the text, which must outlive the tree. Expressions lie in one list; an expression's children are
// a range of another. Nesting is bounded by kMaxFxDepth, so that walking may recurse.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/result.h"

namespace sg {

inline constexpr uint32_t kMaxFxDepth = 100;
inline constexpr uint32_t kNoFx = 0xFFFFFFFFu;

// A text, or the part of a file that one is: places are those in the file.
struct FxText {
  std::string file;  // for messages
  std::string_view whole;
  size_t begin = 0, end = 0;  // the part

  static FxText of(std::string file, std::string_view whole) { return {std::move(file), whole, 0, whole.size()}; }
  Location where(size_t offset) const;
  Error error(size_t offset, std::string message, std::string hint = {}) const;  // unreadable, at that place
  std::string line_of(size_t offset) const;                                      // for the caret
};

enum class FxKind : uint8_t {
  name,       // dotted: "torch.ops.aten.mm.default", "self.w", "mm_3"; None, True and False too
  attribute,  // child, then `text`: what follows something else than a name
  integer,
  floating,
  imaginary,
  string,
  ellipsis,
  list,
  tuple,
  set,
  dict,       // key, value, key, value, ...
  call,       // callee, then the arguments
  keyword,    // an argument `text = child`
  subscript,  // container, index
  slice,      // begin, end, step: those left out are `none` names
  unary,
  binary,  // `text` is the sign; a chain of comparisons is binary too
  opaque,  // <...>: what Python prints of an object that has no literal
};

struct FxExpr {
  FxKind kind = FxKind::opaque;
  uint8_t depth = 0;
  uint32_t at = 0;  // offset in the whole text
  uint32_t first = 0, count = 0;
  std::string_view text;  // of a string with its quotes
};

enum class FxStatementKind : uint8_t {
  assign,   // targets = value
  declare,  // target: annotation
  change,   // target += value, target[index] = value
  expression,
  returns,
};

struct FxStatement {
  FxStatementKind kind = FxStatementKind::expression;
  bool is_first = true;  // of its line: what follows `;` frees values
  uint32_t at = 0;
  uint32_t first_target = 0, target_count = 0;  // FxFile::targets
  uint32_t annotation = kNoFx;                  // an expression; a string holds a type
  uint32_t value = kNoFx;
  uint32_t context = kNoFx;  // FxFile::comments: the one that stands for all that follows it
};

struct FxParam {
  std::string_view name;
  uint32_t at = 0;
  uint32_t annotation = kNoFx, value = kNoFx;
  std::string_view descriptor;  // the comment behind it
};

struct FxModule {
  std::string_view name;  // "<lambda>", "fw_graph0"; empty for a function that no class holds
  uint32_t at = 0;
  uint32_t parent = kNoFx;
  uint32_t indent = 0;
  bool has_forward = false;
  std::vector<FxParam> params;  // `self` left out
  std::vector<FxStatement> statements;
};

struct FxFile {
  struct Described {  // an expression with a comment behind it: "getitem_4,  # PlainAOTOutput(idx=0)"
    uint32_t expr;
    std::string_view text;
  };
  const FxText* text = nullptr;
  std::vector<FxModule> modules;  // a module before those inside it
  std::vector<FxExpr> exprs;
  std::vector<uint32_t> children;
  std::vector<uint32_t> targets;  // expressions
  std::vector<std::string_view> comments;
  std::vector<Described> described;  // by `expr`
  size_t ignored_lines = 0;          // outside of all modules

  const FxExpr& expr(uint32_t i) const { return exprs[i]; }
  std::span<const uint32_t> children_of(const FxExpr& e) const { return {children.data() + e.first, e.count}; }
  const FxExpr& child(const FxExpr& e, uint32_t i) const { return exprs[children[e.first + i]]; }
  std::string_view descriptor_of(uint32_t expr) const;  // empty = none
  bool is_none(uint32_t expr) const { return exprs[expr].kind == FxKind::name && exprs[expr].text == "None"; }
};

// What a string literal says; `literal` with its quotes and prefix.
std::string fx_string_value(std::string_view literal);

}  // namespace sg
