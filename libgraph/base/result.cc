#include "libgraph/base/result.h"

namespace sg {

ErrorKind error_kind_of(uint64_t number) {
  for (ErrorKind kind : {ErrorKind::negative, ErrorKind::usage, ErrorKind::unreadable, ErrorKind::cannot_apply,
                         ErrorKind::missing, ErrorKind::rank_failed})
    if (number == static_cast<uint64_t>(kind)) return kind;
  return ErrorKind::internal;
}

std::string print_location(const Location& where) {
  std::string out = where.file;
  if (where.line != 0) {
    out += ":" + std::to_string(where.line);
    if (where.column != 0) out += ":" + std::to_string(where.column);
  }
  if (where.offset) out += ":@" + std::to_string(*where.offset);
  if (!where.path.empty()) out += (out.empty() ? "" : ": ") + where.path;
  return out;
}

Error option_error(std::string_view option, std::string_view what, std::string hint) {
  const std::string name(option);
  return {ErrorKind::usage, "--" + name + std::string(what), {}, std::move(hint), name};
}

}  // namespace sg
