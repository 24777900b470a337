#include "libgraph/expr/size_binding.h"

#include "libgraph/base/read_number.h"

namespace sg {

Result<SizeBinding> parse_binding(std::string_view text) {
  SizeBinding out{std::string(text), {}, {}, 0};
  const size_t sign = text.rfind('=');
  std::string_view name = text.substr(0, sign);
  bool is_good = sign != std::string_view::npos && read_number(text.substr(sign + 1), &out.value);
  if (const size_t open = name.rfind('['); is_good && name.ends_with(']') && open != std::string_view::npos) {
    is_good = read_number(name.substr(open + 1, name.size() - open - 2), &out.dimension.emplace());
    name = name.substr(0, open);
  }
  if (name.starts_with('%')) name.remove_prefix(1);
  out.name = name;
  if (is_good && !name.empty()) return out;
  return option_error("bind", " cannot read '" + std::string(text) + "'",
                      "write SYMBOL=N or INPUT[DIM]=N, for example s0=16 or tokens[0]=16");
}

}  // namespace sg
