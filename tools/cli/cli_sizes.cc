#include "tools/cli/cli_sizes.h"

namespace sg::cli {

Result<std::vector<SymbolValues>> assumed_values(const Args& args, const Job& job) {
  const std::vector<std::string> words = args.all("assume");
  SG_ASSIGN(Assumption assumption, parse_assume(std::vector<std::string_view>(words.begin(), words.end())));
  return assume_values(job, infer_ranges(job), assumption);
}

Result<std::optional<std::vector<SymbolValues>>> assumed_values_if_known(const Args& args, const Job& job) {
  Result<std::vector<SymbolValues>> values = assumed_values(args, job);
  if (values.ok()) return std::optional(std::move(*values));
  if (!args.has("assume")) return std::optional<std::vector<SymbolValues>>();
  return values.error();
}

Result<SizeValues> assumed_sizes_if_known(const Args& args, const Job& job, const Program* program) {
  SG_ASSIGN(auto values, assumed_values_if_known(args, job));
  if (!values) return SizeValues([](StrId) -> std::optional<int64_t> { return std::nullopt; });
  return SizeValues([program, sizes = sizes_of(job, std::move(*values))](StrId s) { return sizes(*program, s); });
}

}  // namespace sg::cli
