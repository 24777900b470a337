// What stands beside the code: types in annotations, and the comments that say where nodes come from. Internal to the
// importers.
//
//   "f32[4, s0][s0, 1]cuda:0"   "Sym(s0*4)"   "DTensor(bf16[8, 64], S(0))"
//   # Annotation: {'module_fqn': 'layers.0'} ac_graph_id: 1 - MUST_SAVE Backward of forward node: File: a.py:3 in f
#pragma once

#include <optional>
#include <string_view>

#include "libgraph/base/flat_map.h"
#include "libgraph/import/computed_sizes.h"
#include "libgraph/import/fx_syntax.h"

namespace sg {

// What text leaves out; said once at the end.
struct FxGaps {
  uint64_t strides = 0, devices = 0;  // tensors without
  uint64_t odd_types = 0;             // what the IR has no type for: travel opaque, or are inferred
  uint64_t subclasses = 0;            // DTensor(...): read as the tensor inside
  uint64_t untyped_inputs = 0;
  uint64_t cut_annotations = 0;     // values that were cut after 40 characters
  uint64_t unread_annotations = 0;  // those that are no literals
  uint64_t unread_guards = 0;       // of a log, about sizes
};

struct FxType {
  TypeId type = Pool::kUnknownType;
  bool is_guess = false;  // the strides are made up, or a whole number is in words that cannot be read
};

class FxTypes {
 public:
  // `device` is that of tensors whose annotation has none.
  FxTypes(Pool* pool, std::string_view device, FxGaps* gaps, ComputedSizes* computed)
      : pool_(pool), device_(pool->str(device)), gaps_(gaps), computed_(computed) {}

  // The annotation of a value: a string literal, or anything else, which says nothing (`torch.Tensor`).
  Result<FxType> read(const FxFile& file, uint32_t annotation);

 private:
  struct Reading {
    const FxFile* file;
    uint32_t at;
    std::string_view text;  // of the whole annotation
    Error error(std::string message, std::string hint = {}) const;
  };
  Result<FxType> read_text(const Reading& r, std::string_view text);
  Result<FxType> tensor(const Reading& r, std::string_view text);
  Result<FxType> scalar(std::string_view text);
  // The sizes of "[a, b]" at the beginning of `text`, which moves behind them; none = one of them cannot be expressed.
  Result<std::optional<std::vector<Expr>>> sizes(const Reading& r, std::string_view* text);
  Result<Expr> size(const Reading& r, std::string_view text);

  struct Known {
    FxType type;
    FxGaps gaps;  // what counts again at every use
  };
  Pool* pool_;
  StrId device_;
  FxGaps* gaps_;
  ComputedSizes* computed_;
  FxGaps own_;  // of the annotation being read
  FlatTextMap<Known> types_;
  FlatTextMap<Expr> sizes_;
};

// What a comment says of the nodes behind it.
struct FxContext {
  bool is_backward = false;
  StrId module;
  SourceId source;
  NodeMeta meta;
  std::optional<uint64_t> seq;
};

// `comment` is one of the file's; expressions that it holds are added to the file. A comment that says something else
// is no error: it says nothing.
FxContext read_fx_comment(FxFile* file, std::string_view comment, Pool* pool, FxGaps* gaps);

// The literal as canonical JSON; what is none becomes the string of its text.
std::string fx_json(const FxFile& file, uint32_t expr);

}  // namespace sg
