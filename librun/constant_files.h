// Constants that no file of inputs gives: found by their digests in safetensors files, beside the graph as a rule.
#pragma once

#include <string>
#include <vector>

#include "libgraph/graph.h"
#include "libgraph/safetensors.h"
#include "librun/input_match.h"

namespace sg {

// `place`: a file, or a folder whose *.safetensors are looked through by name; those that cannot be read are none of
// ours. Files that hold a constant join `files`, which `matching` counts.
Status find_constants(const Graph& graph, const std::string& place, InputMatch* matching,
                      std::vector<TensorFile>* files);

}  // namespace sg
