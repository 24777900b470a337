// write_sample FILE CORPUS: writes the sample file of a release, and refreshes the corpus of the binary fuzzer.
#include <cstdio>
#include <fstream>
#include <string>

#include "libgraph/binary/binary.h"
#include "tests/support/random_job.h"
#include "tests/support/sample_job.h"

namespace {

bool write(const std::string& path, const std::string& bytes) {
  std::ofstream out(path, std::ios::binary);
  out << bytes;
  out.flush();
  return out.good();
}

// The bytes below the seal, where the fuzzer enters.
std::string body_of(const sg::Job& job) {
  std::string bytes = sg::write_binary(job).value();
  bytes.resize(bytes.size() - sg::kTrailerBytes);
  return bytes;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: write_sample FILE CORPUS\n");
    return 2;
  }
  std::string corpus = argv[2];
  bool ok = write(argv[1], sg::write_binary(sg::test::sample_job()).value()) &&
            write(corpus + "/sealed", sg::write_binary(sg::test::sample_job()).value()) &&
            write(corpus + "/sample", body_of(sg::test::sample_job()));
  sg::test::RandomJobOptions small;
  small.nodes = 12;
  for (uint64_t seed = 1; seed <= 3; ++seed)
    ok = ok && write(corpus + "/random-" + std::to_string(seed), body_of(sg::test::random_job(seed, small)));
  return ok ? 0 : 1;
}
