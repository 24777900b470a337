// A diff as text for people, as JSON, and as what CI systems read. All are made from one JobDiff.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "libgraph/diff/diff.h"
#include "libgraph/diff/diff_cost.h"
#include "libgraph/diff/diff_hunks.h"

namespace sg {

struct DiffTextOptions {
  std::string name_a, name_b;  // how the user calls the two
  std::string uri_a;           // name_a as a URI reference, for SARIF
  HunkOptions hunks;
  bool color = false;
  size_t columns = 160;  // of a side-by-side report
  std::vector<CostRow> costs;
  std::vector<std::string> ignored;  // for the JSON
  // The line of A's text that defines a name, from 1; 0 = not known. For annotations; may be empty.
  std::function<size_t(const std::string& name)> line_of;
};

// Empty when nothing differs.
std::string print_diff(const JobDiff& diff, const DiffTextOptions& options);
std::string print_diff_side_by_side(const JobDiff& diff, const DiffTextOptions& options);
std::string print_diff_stat(const JobDiff& diff,
                            const DiffTextOptions& options);  // a line a block of modules, and the sum
std::string print_diff_names(const JobDiff& diff);            // a line an edit: "changed %x"

std::string diff_json(const JobDiff& diff, const DiffTextOptions& options);    // schema/sg-diff.schema.json
std::string diff_github(const JobDiff& diff, const DiffTextOptions& options);  // workflow commands
std::string diff_junit(const JobDiff& diff, const DiffTextOptions& options);
std::string diff_sarif(const JobDiff& diff, const DiffTextOptions& options);

}  // namespace sg
