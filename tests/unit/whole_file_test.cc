// Files that are read at once: whole, or an error; and never more than the limit.
#include "libgraph/base/whole_file.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "tests/support/temp_folder.h"

using namespace sg;

TEST_CASE("a file is read whole or not at all") {
  test::TempFolder folder;
  const std::string path = folder.path() + "/text";
  const std::string text = std::string(100'000, 'a') + std::string("\0b", 2);
  std::ofstream(path, std::ios::binary) << text;
  CHECK(read_whole_file(path, text.size()).value() == text);
  CHECK(read_whole_file("/dev/null", 0).value().empty());
  for (const auto& [name, most, message] :
       {std::tuple(path, text.size() - 1, "has more than 0 MiB"),
        std::tuple(std::string("/dev/zero"), size_t{3} << 20, "has more than 3 MiB"),
        std::tuple(folder.path(), size_t{9}, "cannot read: Is a directory"),
        std::tuple(path + ".none", size_t{9}, "cannot read: No such file or directory")}) {
    Result<std::string> read = read_whole_file(name, most);
    REQUIRE(!read.ok());
    CHECK(read.error().message == message);
    CHECK(read.error().where.file == name);
    CHECK(read.error().kind == ErrorKind::unreadable);
  }
}
