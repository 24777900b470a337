// make_job: writes a random job for benchmarks and CLI tests, or only reads a binary one.
//
//   make_job --nodes N --seed S [--world W] [--plain] [--bare] [--text] [--inputs FILE] -o FILE
//       --plain: no opaque ops, no odd names; --bare: no metadata, no undefined memory
//   make_job --read FILE                     for the resident memory of a job that was read
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

#include "libgraph/binary/binary.h"
#include "libgraph/text/text.h"
#include "tests/support/random_inputs.h"
#include "tests/support/random_job.h"

using namespace sg;

namespace {

int fail(const std::string& message) {
  std::fprintf(stderr, "make_job: %s\n", message.c_str());
  return 2;
}

int read_only(const char* file) {
  std::ifstream in(file, std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  Result<Job> job = read_binary(bytes, file);
  return job.ok() ? 0 : fail(job.error().message);
}

}  // namespace

int main(int argc, char** argv) {
  test::RandomJobOptions options;
  uint64_t seed = 1;
  bool text = false;
  const char *output = nullptr, *inputs = nullptr;
  for (int i = 1; i < argc; ++i) {
    std::string name = argv[i];
    if (name == "--plain") options.opaque_ops = options.odd_names = false;
    else if (name == "--bare") options.metadata = options.undefined_memory = false;
    else if (name == "--text") text = true;
    else if (i + 1 == argc) return fail("no value for " + name);
    else if (name == "--read") return read_only(argv[i + 1]);
    else if (name == "--nodes") options.nodes = std::strtoull(argv[++i], nullptr, 10);
    else if (name == "--seed") seed = std::strtoull(argv[++i], nullptr, 10);
    else if (name == "--world") options.world = static_cast<uint32_t>(std::strtoul(argv[++i], nullptr, 10));
    else if (name == "--inputs") inputs = argv[++i];
    else if (name == "-o") output = argv[++i];
    else return fail("unknown option " + name);
  }
  if (output == nullptr) return fail("no -o FILE");
  options.ranks_apart = false;
  Job job = test::random_job(seed, options);
  if (inputs != nullptr)
    if (Status written = test::write_random_inputs(job, seed, inputs); !written.ok())
      return fail(written.error().message);
  Result<std::string> bytes = text ? Result<std::string>(print_text(job)) : write_binary(job);
  if (!bytes.ok()) return fail(bytes.error().message);
  std::ofstream out(output, std::ios::binary);
  out.write(bytes->data(), static_cast<std::streamsize>(bytes->size()));
  out.close();
  return out ? 0 : fail(std::string("cannot write ") + output);
}
