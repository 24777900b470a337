// compare_oracle OURS EXPECTED ORACLE [--all]: three safetensors files of one rank's values, by name. Exits 1 if a
// tensor of OURS is not within twice PyTorch's own error, 3 if a file is unreadable, 2 on wrong usage.
#include <cstdio>
#include <cstring>

#include "tests/numeric/oracle.h"

int main(int argc, char** argv) {
  const bool all = argc == 5 && std::strcmp(argv[4], "--all") == 0;
  if (argc != 4 && !all) {
    std::fprintf(stderr, "usage: compare_oracle OURS EXPECTED ORACLE [--all]\n");
    return 2;
  }
  std::vector<sg::TensorFile> files;
  for (int i = 1; i <= 3; ++i) {
    auto file = sg::TensorFile::open(argv[i]);
    if (!file.ok()) {
      std::fprintf(stderr, "compare_oracle: %s: %s\n", sg::print_location(file.error().where).c_str(),
                   file.error().message.c_str());
      return 3;
    }
    files.push_back(std::move(*file));
  }
  const auto rows = sg::test::compare_with_oracle(files[0], files[1], files[2]);
  std::fputs(sg::test::oracle_table(rows, all).c_str(), stdout);
  for (const auto& row : rows)
    if (!row.passed()) return 1;
  return 0;
}
