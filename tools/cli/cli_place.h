// Where in a text a finding stands: the verifier names a graph and a node, an input, a guard; people want the line.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "libgraph/base/diag.h"

namespace sg::cli {

// One text that a job was read from, and the ranks whose graphs it holds.
struct SourceText {
  std::string file;  // as the user named it
  std::string text;
  std::vector<uint32_t> ranks;  // ascending; empty = every rank
};

// Gives each finding the file, line and column of what it is about, and the line itself. What has no place in a text
// (a job as a whole) gets the file alone when there is one text. One walk over each text for all findings.
void place_in_texts(const std::vector<SourceText>& texts, std::vector<Diagnostic>* findings);

}  // namespace sg::cli
