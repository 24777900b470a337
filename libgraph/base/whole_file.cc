#include "libgraph/base/whole_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace sg {

Result<std::string> read_whole_file(const std::string& path, size_t most_bytes) {
  auto failed = [&](const std::string& message) {
    return Error{ErrorKind::unreadable, message, {path, 0, 0, {}, {}}, {}};
  };
  auto cannot_read = [&] { return failed(std::string("cannot read: ") + std::strerror(errno)); };
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return cannot_read();
  std::string bytes;
  char part[65536];
  for (size_t n; (n = std::fread(part, 1, sizeof part, file.get())) > 0;) {
    bytes.append(part, n);
    if (bytes.size() > most_bytes) return failed("has more than " + std::to_string(most_bytes >> 20) + " MiB");
  }
  if (std::ferror(file.get()) != 0) return cannot_read();
  return bytes;
}

}  // namespace sg
