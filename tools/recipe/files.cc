#include "tools/recipe/files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>

namespace sg::recipe {

Result<std::string> read_file(const std::string& path) {
  auto failed = [&] { return Error{ErrorKind::unreadable, std::string("cannot read: ") + std::strerror(errno), {path, 0, 0, {}, {}}, {}}; };
  std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) return failed();
  std::string bytes;
  char part[65536];
  for (size_t n; (n = std::fread(part, 1, sizeof part, file.get())) > 0;) bytes.append(part, n);
  if (std::ferror(file.get()) != 0) return failed();
  return bytes;
}

}  // namespace sg::recipe
