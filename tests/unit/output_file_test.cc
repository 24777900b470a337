// Output files: at every moment there is the old file or the new one; a file that is not kept was never there.
#include <catch2/catch.hpp>

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "libgraph/base/output_file.h"
#include "libgraph/base/temp_folder.h"
#include "tests/support/temp_folder.h"

using namespace sg;

namespace {

std::string content(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path).rdbuf();
  return out.str();
}

OutputFile written(const std::string& path, std::string_view bytes) {
  OutputFile file = OutputFile::open(path).value();
  REQUIRE(file.write(bytes).ok());
  REQUIRE(file.close().ok());
  return file;
}

size_t files_in(const std::string& folder) {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

}  // namespace

TEST_CASE("an output file that is placed and not kept leaves what was there before") {
  test::TempFolder folder;
  const std::string path = folder.path() + "/out";
  {
    OutputFile file = written(path, "new");
    REQUIRE(file.place().ok());
    CHECK(content(path) == "new");
  }
  CHECK(files_in(folder.path()) == 0);
  { REQUIRE(written(path, "old").commit().ok()); }
  {
    OutputFile file = written(path, "new");
    CHECK(content(path) == "old");
    REQUIRE(file.place().ok());
    CHECK(content(path) == "new");
  }
  CHECK(content(path) == "old");
  CHECK(files_in(folder.path()) == 1);
  {
    OutputFile file = written(path, "new");
    REQUIRE(file.place().ok());
    file.keep();
  }
  CHECK(content(path) == "new");
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("the files of a set get their places together") {
  test::TempFolder folder;
  const std::string one = folder.path() + "/one", two = folder.path() + "/two";
  for (const std::string& path : {one, two}) REQUIRE(written(path, "old").commit().ok());
  {
    OutputSet files;
    REQUIRE(files.stage(one, "new").ok());
    REQUIRE(!files.stage(folder.path() + "/none/x", "new").ok());
  }
  CHECK(content(one) == "old");
  {
    OutputSet files;
    REQUIRE(files.stage(one, "new").ok());
    REQUIRE(files.stage(two, "new").ok());
    CHECK(content(one) + content(two) == "oldold");
    std::filesystem::remove(two);
    std::filesystem::create_directory(two);  // the last cannot be placed any more
    REQUIRE(!files.place().ok());
    CHECK(content(one) == "old");
    std::filesystem::remove(two);
  }
  OutputSet files;
  REQUIRE(files.stage(one, "new").ok());
  REQUIRE(files.stage(two, "new").ok());
  REQUIRE(files.commit().ok());
  CHECK(content(one) + content(two) == "newnew");
  CHECK(files.empty());
  REQUIRE(files.stage(one, "newer").ok());
  REQUIRE(files.commit().ok());
  CHECK((files.empty() && content(one) == "newer"));
  CHECK(files_in(folder.path()) == 2);
}

TEST_CASE("pending output files are taken back at a signal, placed ones too") {
  test::TempFolder folder;
  const std::string path = folder.path() + "/out", other = folder.path() + "/other";
  { REQUIRE(written(path, "old").commit().ok()); }
  OutputFile placed = written(path, "new"), waiting = written(other, "new");
  REQUIRE(placed.place().ok());
  remove_pending_outputs();
  CHECK(content(path) == "old");
  CHECK(files_in(folder.path()) == 1);
}

TEST_CASE("folders for the time of a run go with their owner, and at a signal") {
  test::TempFolder where;
  ::setenv("TMPDIR", where.path().c_str(), 1);
  { REQUIRE(sg::TempFolder::make("sg-test").ok()); }
  CHECK(std::filesystem::is_empty(where.path()));
  Result<sg::TempFolder> folder = sg::TempFolder::make("sg-test");
  ::unsetenv("TMPDIR");
  REQUIRE(folder.ok());
  for (int i = 0; i < 500; ++i)  // more than one read of a folder returns
    std::ofstream(folder->file("a-name-of-some-length-" + std::to_string(i))) << "x";
  remove_pending_outputs();
  CHECK(std::filesystem::is_empty(where.path()));
}

TEST_CASE("a file that cannot be placed leaves what was there before") {
  test::TempFolder folder;
  const std::string path = folder.path() + "/out";
  OutputFile file = written(path, "new");
  std::filesystem::create_directories(path + "/inside");
  CHECK(!file.place().ok());
  CHECK(std::filesystem::is_directory(path + "/inside"));
}

TEST_CASE("files whose long names differ late, or that a killed process left, are in nobody's way") {
  test::TempFolder folder;
  const std::string path = folder.path() + "/" + std::string(120, 'a');
  {
    OutputFile first = written(path + "0", "one"), second = written(path + "1", "two");
    CHECK(first.commit().ok());
    CHECK(second.commit().ok());
  }
  CHECK(content(path + "0") == "one");
  CHECK(content(path + "1") == "two");
  for (int i = 0; i < 100; ++i)
    std::ofstream(folder.path() + "/.sg-tmp-" + std::to_string(::getpid()) + "-" + std::to_string(i) + "-out") << "old";
  CHECK(written(folder.path() + "/out", "new").commit().ok());
  CHECK(content(folder.path() + "/out") == "new");
}

TEST_CASE("an output goes where a link leads, also if nothing is there yet") {
  test::TempFolder folder;
  std::filesystem::create_directory(folder.path() + "/there");
  std::filesystem::create_symlink("there/file", folder.path() + "/link");
  std::filesystem::create_symlink("link", folder.path() + "/second");
  CHECK(written(folder.path() + "/second", "new").commit().ok());
  CHECK(std::filesystem::is_symlink(folder.path() + "/second"));
  CHECK(content(folder.path() + "/there/file") == "new");
  std::filesystem::create_symlink("round", folder.path() + "/round");  // leads to itself
  CHECK(written(folder.path() + "/round", "new").commit().ok());
}

TEST_CASE("a file that is read is not replaced, whatever it is called, until it no longer counts as read") {
  const test::TempFolder folder;
  const std::string file = folder.file("read"), link = folder.file("link"), other = folder.file("other");
  std::ofstream(file) << "old";
  std::filesystem::create_symlink(file, link);
  keep_file(file, "is the input");
  for (const std::string& name : {file, link}) {
    const Result<OutputFile> refused = OutputFile::open(name);
    REQUIRE(!refused.ok());
    CHECK(refused.error().kind == ErrorKind::usage);
    CHECK(refused.error().message == name + " would replace " + file + ", which is the input");
  }
  CHECK(OutputFile::open(other).ok());
  stop_keeping(link);
  CHECK(written(file, "new").commit().ok());
  CHECK(content(file) == "new");
}

TEST_CASE("a pipe is written to by its name in /dev/fd, which leads to no file") {
  int ends[2];
  REQUIRE(::pipe(ends) == 0);
  CHECK(written("/dev/fd/" + std::to_string(ends[1]), "through").commit().ok());
  char got[8] = {};
  CHECK(::read(ends[0], got, 7) == 7);
  CHECK(std::string(got) == "through");
  for (int end : ends) ::close(end);
}
