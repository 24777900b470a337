// One module of a traced text, lowered to a source's graph. Internal to the importers.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/flat_map.h"
#include "libgraph/import/fx_lower.h"

namespace sg {

// The nested graphs of a program, by the module that they come from.
struct FxNestedIndex {
  std::map<uint32_t, uint32_t> of_module;
  std::map<uint32_t, std::string> names;  // unique
};

class FxModuleLowering {
 public:
  FxModuleLowering(const FxLowering& lowering, FxUnit* unit, uint32_t unit_index, FxProgram* program,
                   FxNestedIndex* nested_index)
      : lowering_(lowering), unit_(unit), unit_index_(unit_index), program_(program), nested_index_(nested_index) {}

  Status read(uint32_t module, SourceGraph* graph, bool is_main);

 private:
  struct InputText {
    std::string_view name;
    uint32_t at;
    uint32_t annotation = kNoFx;
    std::string_view descriptor;
  };
  struct Declared {
    uint32_t annotation;
    std::string_view descriptor;
  };

  const FxFile& file() const { return unit_->file; }
  Pool& pool() { return *lowering_.job->pool; }
  SourcePlace place(uint32_t at) const { return {at, unit_index_}; }
  Error error(uint32_t at, std::string message, std::string hint = {}) const {
    return unit_->text.error(at, std::move(message), std::move(hint));
  }
  const FxExpr* target(const FxStatement& s, uint32_t i = 0) const {
    return i < s.target_count ? &file().expr(file().targets[s.first_target + i]) : nullptr;
  }
  std::string_view callee_of(const FxStatement& s) const {
    if (s.value == kNoFx || file().expr(s.value).kind != FxKind::call) return {};
    const FxExpr& callee = file().child(file().expr(s.value), 0);
    return callee.kind == FxKind::name ? callee.text : std::string_view();
  }

  // Inputs, attributes and outputs (fx_module_ports.cc).
  void collect_declarations(const FxModule& m);
  bool is_header(const FxStatement& s) const;
  Status header(const FxStatement& s);
  Status add_input(const InputText& text);
  void mark_opaque_inputs();
  uint32_t child_module(std::string_view path) const;
  Status attribute(const FxStatement& s, std::string_view name, std::string_view path);
  Result<uint32_t> nested(uint32_t module);
  Status outputs(const FxStatement& s);
  Status output(uint32_t index);

  // Statements (fx_module.cc).
  Status statement(const FxStatement& s);
  Status named(const FxStatement& s, std::string_view name, const FxExpr& value);
  Status operation(const FxExpr& value, SourceNode* node);
  Status call(const FxExpr& value, const FxExpr& callee, FxArgs* args, SourceNode* node);
  Status set_result(const FxStatement& s, SourceNode* node);
  void set_context(const FxStatement& s, SourceNode* node);
  void assert_without_token(SourceNode* node);
  bool is_token_again(std::string_view name, const FxExpr& value);
  void foreign(std::string what, uint32_t at);

  const FxLowering& lowering_;
  FxUnit* unit_;
  uint32_t unit_index_;
  FxProgram* program_;
  FxNestedIndex* nested_index_;
  uint32_t module_ = 0;
  SourceGraph* graph_ = nullptr;
  bool is_main_ = false;
  uint32_t leaf_count_ = 0;
  std::vector<InputText> inputs_;
  FlatTextMap<Declared> declared_;
  FlatTextMap<FxName> names_;
  FlatTextMap<std::string_view> attributes_;
  FlatTextMap<std::string_view> effects_;  // assertions under with_effects: the token that each returns
};

}  // namespace sg
