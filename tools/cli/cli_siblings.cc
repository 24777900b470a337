#include "tools/cli/cli_siblings.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "libgraph/base/escape.h"

namespace sg::cli {
namespace {

std::string path_of(std::string_view command) { return folder_of_this() + "sg-" + std::string(command); }

Result<std::string> output_of_command(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr)
    return Error{ErrorKind::missing, std::string("cannot run a tool: ") + std::strerror(errno), {}, {}};
  std::string out;
  char part[4096];
  for (size_t n; (n = std::fread(part, 1, sizeof part, pipe)) > 0;) out.append(part, n);
  if (::pclose(pipe) != 0) return Error{ErrorKind::missing, "failed: " + command, {}, "is the installation complete?"};
  return out;
}

}  // namespace

std::string folder_of_this() {
  char path[4096];
  ssize_t n = ::readlink("/proc/self/exe", path, sizeof path);
  std::string self(path, n > 0 ? static_cast<size_t>(n) : 0);
  return self.substr(0, self.rfind('/') + 1);
}

Error run_sibling(std::vector<std::string> words) {
  std::string program = path_of(words[0]);
  words[0] = "sg-" + words[0];
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  ::execv(program.c_str(), arguments.data());
  return Error{ErrorKind::missing, "cannot run " + words[0] + ": " + std::strerror(errno), {}, {}};
}

bool has_sibling(std::string_view command) { return ::access(path_of(command).c_str(), X_OK) == 0; }

Result<std::string> output_of_sibling(const std::vector<std::string>& words) {
  std::string command = shell_word(path_of(words[0]));
  for (size_t i = 1; i < words.size(); ++i) command += " " + shell_word(words[i]);
  return output_of_command(command);
}

}  // namespace sg::cli
