// Constants that no input file provides: found by digest in safetensors files, usually beside the graph.
#pragma once

#include <string>
#include <vector>

#include "libgraph/data/safetensors.h"
#include "libgraph/graph.h"
#include "librun/values/input_match.h"

namespace sg {

// `place`: a file, or a folder whose *.safetensors are searched in name order; unreadable files are ignored. Files that
// hold a constant are appended to `files`, which `matching` indexes.
Status find_constants(const Graph& graph, const std::string& place, InputMatch* matching,
                      std::vector<TensorFile>* files);

}  // namespace sg
