// A main for a fuzz target without libFuzzer: runs every file of the corpus as it is, then blind mutations of them from
// a fixed seed. It keeps past findings fixed with any compiler and under any sanitizer; it finds little that is new.
//
//   replay_FORM FOLDER [MUTATIONS [SEED]]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tests/support/rng.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
extern "C" __attribute__((weak)) size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size,
                                                                unsigned seed);

namespace {

constexpr size_t kMostBytes = 1 << 16;

std::vector<std::string> read_corpus(const char* folder) {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  std::vector<std::string> corpus;
  for (const auto& path : paths) {
    std::ifstream file(path, std::ios::binary);
    corpus.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  return corpus;
}

// Changes a byte, drops a piece, or inserts a piece of another input: needs no knowledge of the form.
void mutate_bytes(std::string& bytes, const std::vector<std::string>& corpus, sg::test::Rng& rng) {
  const std::string& other = corpus[rng.below(corpus.size())];
  size_t at = rng.below(bytes.size() + 1), length = rng.below(16);
  switch (rng.below(4)) {
    case 0:
      if (at < bytes.size()) bytes[at] = char(rng.below(256));
      break;
    case 1: bytes.erase(at, length); break;
    case 2:
      if (!other.empty()) bytes.insert(at, other, rng.below(other.size()), length);
      break;
    default:
      if (!other.empty()) bytes.replace(at, length, other, rng.below(other.size()), length);
  }
}

void mutate(std::string& bytes, const std::vector<std::string>& corpus, sg::test::Rng& rng) {
  if (LLVMFuzzerCustomMutator != nullptr) {
    size_t size = bytes.size();
    bytes.resize(kMostBytes);
    size = LLVMFuzzerCustomMutator(reinterpret_cast<uint8_t*>(bytes.data()), size, kMostBytes,
                                   unsigned(rng.below(1u << 31)));
    bytes.resize(size);
    return;
  }
  for (uint64_t edits = 1 + rng.below(4); edits > 0; --edits) mutate_bytes(bytes, corpus, rng);
}

// The input is written to a file first, so that it is there after a crash; the file is removed at the end.
void enter(const std::string& bytes, const char* kept) {
  std::ofstream(kept, std::ios::binary).write(bytes.data(), std::streamsize(bytes.size()));
  std::vector<uint8_t> exact(bytes.begin(), bytes.end());  // no terminating NUL past the end
  LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fprintf(stderr, "usage: replay_FORM FOLDER [MUTATIONS [SEED]]\n"), 2;
  const std::vector<std::string> corpus = read_corpus(argv[1]);
  const unsigned long mutations = argc > 2 ? std::strtoul(argv[2], nullptr, 10) : 0;
  sg::test::Rng rng(argc > 3 ? std::strtoul(argv[3], nullptr, 10) : 1);
  if (corpus.empty()) return std::fprintf(stderr, "%s is empty\n", argv[1]), 1;
  const std::string kept = std::filesystem::path(argv[0]).filename().string() + ".input";
  for (const std::string& bytes : corpus) enter(bytes, kept.c_str());
  for (unsigned long i = 0; i < mutations; ++i) {
    std::string bytes = corpus[i % corpus.size()];
    mutate(bytes, corpus, rng);
    if (bytes.size() <= kMostBytes) enter(bytes, kept.c_str());
  }
  std::filesystem::remove(kept);
  std::printf("%zu inputs and %lu mutations\n", corpus.size(), mutations);
  return 0;
}
