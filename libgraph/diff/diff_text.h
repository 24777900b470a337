// A diff as text for people, as JSON, and as what CI systems read. All are made from one JobDiff.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "libgraph/diff/diff.h"
#include "libgraph/diff/diff_cost.h"
#include "libgraph/diff/diff_hunks.h"

namespace sg {

// Where a text says something.
struct TextPlace {
  std::string file, uri;  // as the user calls it; as a URI reference
  size_t line = 0;        // from 1; 0 = not known
};

struct DiffTextOptions {
  std::string name_a, name_b;  // how the user calls the two
  std::string uri_a;           // name_a as a URI reference, for SARIF
  HunkOptions hunks;
  bool color = false;
  size_t columns = 160;  // of a side-by-side report
  std::vector<CostRow> costs;
  std::vector<std::string> ignored;  // for the JSON
  // Where A's texts define what places (of place_of) name, one each. For annotations; may be empty.
  std::function<std::vector<TextPlace>(const std::vector<std::string>& places)> find_places;
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
