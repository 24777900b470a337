// The fixed part of an exported module: what it imports, how steps are started, and its main. Text of Python.
#pragma once

#include <string_view>

namespace sg::python {

extern const std::string_view kImports;       // what every module imports
extern const std::string_view kProgramClass;  // the row type of the tables
extern const std::string_view kBuilderClass;  // --fx: a torch.fx.Graph under construction
extern const std::string_view kGroups;        // opens process groups; for jobs that talk
extern const std::string_view kDraws;         // random draws that are made again
extern const std::string_view kConditions;    // sizes and data that the step was captured for
extern const std::string_view kLayout;        // results that lie as the graph has them
extern const std::string_view kProgramOf;     // program_of(): whose program a process runs
extern const std::string_view kStep;          // step() of functions
extern const std::string_view kGraphStep;     // graph_module() and step() of builders
extern const std::string_view kMain;          // files in, files out

// All names that these texts define or use at the level of the module, blank-separated.
extern const std::string_view kRuntimeNames;

}  // namespace sg::python
