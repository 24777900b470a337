#include "tools/run/run_shards.h"

#include <set>
#include <string>

#include "libgraph/base/chars.h"
#include "libgraph/base/human.h"
#include "libgraph/data/safetensors.h"
#include "libgraph/facts/port_names.h"
#include "librun/values/data_name.h"
#include "librun/values/shard.h"

namespace sg::cli {
namespace {

// The names of the inputs in shards to which a tensor of the file goes.
std::set<std::string> shards_in(const TensorFile& file, const Job& job) {
  std::set<std::string_view> names;
  for (const StoredTensor& tensor : file.tensors()) names.insert(tensor.name);
  std::set<std::string> out;
  for (const auto& program : job.programs) {
    const uint32_t rank = program->ranks.empty() ? 0 : program->ranks.front();
    for (const Input& input : program->graph.inputs()) {
      const std::string_view name = program->graph.name(input.value);
      const std::string_view stated = port_name(program->graph, input);
      if ((names.contains(name) || names.contains(stated)) && is_in_shards(job, rank, input.sharding))
        out.emplace(stated);
    }
  }
  return out;
}

// "capture/rank0/inputs.safetensors" -> "capture/rank{r}/inputs.safetensors"
std::string with_rank(const std::string& file) {
  const size_t rank = file.rfind("rank"), digits = rank == std::string::npos ? rank : rank + 4;
  size_t end = digits;
  while (end < file.size() && is_digit(file[end])) ++end;
  if (rank == std::string::npos || end == digits) return "rank{r}/inputs.safetensors";
  return file.substr(0, digits) + "{r}" + file.substr(end);
}

}  // namespace

void warn_of_one_shard(const Args& args, const Job& job) {
  if (job.world < 2) return;
  std::vector<std::string> patterns = args.all("inputs");
  if (args.has("state")) patterns.push_back(args.text("state"));
  for (const std::string& pattern : patterns) {
    if (pattern.find("{r}") != std::string::npos) continue;
    const Result<TensorFile> file = TensorFile::open(data_file_name(pattern, 0, 0));
    if (!file.ok()) continue;  // told where it is read for the run
    const std::set<std::string> shards = shards_in(*file, job);
    if (shards.empty()) continue;
    std::string what = "`" + *shards.begin() + "`";
    if (shards.size() > 1) what += " and " + std::to_string(shards.size() - 1) + " more";
    Diagnostics warning;
    warning.warning("one-shard",
                    "one file gives all " + plural(job.world, "rank") + " the same values of " + what +
                        ", of which each rank holds another shard",
                    {pattern}, "a file for each rank: --inputs '" + with_rank(pattern) + "'");
    args.report().add(warning);
    return;
  }
}

}  // namespace sg::cli
