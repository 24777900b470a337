// Text that FX prints to a tree: `print_readable()` in all its variants, `graph_module.code`, what tlparse and
// TORCH_LOGS show of graphs. Internal to the importers.
//
// Reads     classes with their forward, nested by indentation; a forward alone; statements, comments, annotations.
// Ignores   lines outside of all of them (the shell's prompt, a log's other lines); their number is kept.
// Errors    The first one ends the reading, with its place. A function that ends without a return is one: text is cut.
// Cost      Linear in the text. Nesting beyond kMaxFxDepth is refused.
#pragma once

#include "libgraph/import/fx_syntax.h"

namespace sg {

Result<FxFile> parse_fx(const FxText& text);  // `text` must outlive the result

// One expression that is the whole of `part`, a piece of `file`'s text: appended to the file's expressions.
Result<uint32_t> parse_fx_expression(FxFile* file, std::string_view part);

}  // namespace sg
