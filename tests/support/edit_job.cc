// edit_job NODES PERCENT SEED A B: a random graph of about NODES nodes in layers, and a copy with PERCENT of its nodes
// edited: what the benchmarks of sg-diff compare.
#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "libgraph/binary/binary.h"
#include "tests/support/edited_graph.h"

using namespace sg;

int main(int argc, char** argv) {
  if (argc != 6) return std::fprintf(stderr, "edit_job NODES PERCENT SEED A B\n"), 2;
  size_t nodes = std::strtoul(argv[1], nullptr, 10), percent = std::strtoul(argv[2], nullptr, 10);
  test::Rng rng(std::strtoul(argv[3], nullptr, 10));
  constexpr size_t kLayer = 200;
  test::GraphSketch before = test::random_sketch(rng, (nodes + kLayer - 1) / kLayer, kLayer, 10), after = before;
  for (size_t i = 0; i < before.nodes.size() * percent / 100; ++i)
    plant(&after, static_cast<test::Planted>(rng.below(test::kPlantedKinds)), rng);
  int i = 4;
  for (const test::GraphSketch* sketch : {&before, &after}) {
    Result<std::string> bytes = write_binary(sketch->job());
    if (!bytes.ok()) return std::fprintf(stderr, "%s\n", bytes.error().message.c_str()), 1;
    std::ofstream(argv[i++], std::ios::binary) << *bytes;
  }
  return 0;
}
