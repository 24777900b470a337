#include "tools/cli/cli_provenance.h"

#include <algorithm>

#include "libgraph/base/json.h"

namespace sg::cli {

void add_provenance(const Args& args, const std::vector<std::string>& options, const std::string& digest, Job* job) {
  Pool& pool = *job->pool;
  Provenance entry{pool.str(args.tool().name), pool.str(kVersion), {}, pool.str(digest)};
  std::vector<std::string> sorted = options;
  std::sort(sorted.begin(), sorted.end());
  for (const std::string& name : sorted) {
    if (!args.has(name)) continue;
    std::string value = args.text(name);
    entry.options.push_back({pool.str(name), pool.str(value.empty() ? "true" : json_string(value))});
  }
  job->provenance.push_back(std::move(entry));
}

}  // namespace sg::cli
