#include "libpasses/chunk/chunk_torchtitan.h"

namespace sg {
namespace {

Error refuse(std::string why, std::string hint) { return option_error("torchtitan", ": " + why, std::move(hint)); }

Result<bool> read_bool(std::string_view key, std::string_view value) {
  if (value == "true" || value == "True") return true;
  if (value == "false" || value == "False") return false;
  return refuse(std::string(key) + " is true or false, not `" + std::string(value) + "`", {});
}

Status read_one(std::string_view key, std::string_view value, TorchTitanChunking* out) {
  if (key == "enabled") {
    SG_ASSIGN(out->enabled, read_bool(key, value));
  } else if (key == "disable_early_grad_accumulation") {
    SG_ASSIGN(const bool disabled, read_bool(key, value));
    out->options.early_sums = !disabled;
  } else if (key == "strategy") {
    if (value == "eager")
      return refuse("eager chunks are made where the step is captured, not in its graph",
                    "strategy=graph; docs/capture-reference.md says how to capture chunks");
    if (value != "graph") return refuse("strategy is graph or eager, not `" + std::string(value) + "`", {});
  } else if (key == "chunk_dim") {
    if (value != "batch" && value != "seq")
      return refuse("chunk_dim is batch or seq, not `" + std::string(value) + "`", {});
    out->options.along = value == "seq" ? ChunkAlong::sequence : ChunkAlong::batch;
  } else if (key == "module_fqn") {
    if (value.empty()) return refuse("module_fqn is empty", "module_fqn=layers.*.moe");
    if (value != "layers.*" && value != "layers.*.moe")
      return refuse("module_fqn is layers.* or layers.*.moe, not `" + std::string(value) + "`",
                    "--modules takes any pattern");
    out->options.modules = value;
  } else {
    return refuse("there is no option \"" + std::string(key) + "\"",
                  "enabled, strategy, chunk_dim, module_fqn, disable_early_grad_accumulation");
  }
  return ok_status();
}

}  // namespace

Result<TorchTitanChunking> parse_torchtitan(const std::vector<std::string>& words) {
  TorchTitanChunking out;
  out.options.modules = "layers.*";
  out.options.only_exchanges = true;
  for (const std::string& word : words) {
    std::string_view key = word;
    const size_t equals = key.find('=');
    if (equals == std::string_view::npos) return refuse("\"" + word + "\" is not KEY=VALUE", {});
    const std::string_view value = key.substr(equals + 1);
    key = key.substr(0, equals);
    if (key.starts_with("ep_overlap.")) key.remove_prefix(11);
    SG_TRY(read_one(key, value, &out));
  }
  if (out.options.along == ChunkAlong::sequence && out.options.modules != "layers.*.moe")
    return refuse("chunk_dim=seq needs module_fqn=layers.*.moe: attention needs the whole sequence", {});
  return out;
}

}  // namespace sg
