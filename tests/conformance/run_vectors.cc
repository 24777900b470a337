// run_vectors [--backend NAME] [--every N] [--listed FILE]... [--ops TEXT] [--show N] [--print] [--column-order]
// FOLDER: every vector of FOLDER/*.sgv.gz through the type rules and the kernels. Exit 0: all agree with PyTorch except
// those that FILE lists, and none of the listed ones agrees.
//
// --backend cuda runs them on CUDA, and counts the ops without a kernel there; --every N takes each N-th vector. A line
// of FILE is "OP DTYPE KIND reason": KIND is type, refused or value. --print shows the texts of the vectors that
// failed. With --column-order kernels write results whose first axis is the innermost one.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "libgraph/import/gzip.h"
#include "librun/backend_plugin.h"
#include "tests/conformance/vector.h"

using namespace sg;
using namespace sg::test;

namespace {

std::string_view g_now;  // the vector that runs, for the message of a crash

void last_words(int signal_number) {
  const char head[] = "run_vectors: crashed in:\n";
  ssize_t ignored = write(2, head, sizeof head - 1) + write(2, g_now.data(), g_now.size());
  (void)ignored;
  std::signal(signal_number, SIG_DFL);
  std::raise(signal_number);
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

const char* name_of(Fault fault) {
  return fault == Fault::type ? "type" : fault == Fault::refused ? "refused" : "value";
}

struct Options {
  std::string folder, ops, backend = "cpu";
  std::vector<std::string> listed;  // files
  size_t show = 3, every = 1;
  bool print = false, column_order = false;
};

struct Totals {
  std::set<std::string> listed, met;  // "op dtype kind"
  std::map<std::string, size_t> failures;
  std::set<std::string> without_kernel;  // ops
  size_t count = 0, not_run = 0, listed_failures = 0;

  void read_listed(const std::string& path) {
    std::istringstream lines(read_file(path));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string op, dtype, kind;
      if (words >> op >> dtype >> kind && op[0] != '#') listed.insert(op + " " + dtype + " " + kind);
    }
  }

  void note(const Vector& v, const Outcome& outcome, const Options& options) {
    if (outcome.fault == Fault::no_kernel) return ++not_run, void(without_kernel.insert(std::string(v.op)));
    ++count;
    if (outcome.fault == Fault::none) return;
    std::string key = std::string(v.op) + " " + std::string(v.dtype) + " " + name_of(outcome.fault);
    if (listed.count(key) != 0) {
      met.insert(key), ++listed_failures;
      return;
    }
    if (failures[std::string(v.op)]++ >= options.show) return;
    std::printf("FAIL %s (%.*s): %s\n", key.c_str(), static_cast<int>(v.origin.size()), v.origin.data(),
                outcome.message.c_str());
    if (options.print) std::printf("%.*s", static_cast<int>(v.text.size()), v.text.data());
  }

  size_t stale(bool all) {  // listed keys without a failure
    size_t n = 0;
    for (const std::string& key : listed)
      if (all && met.count(key) == 0) std::printf("FAIL %s: is listed, and right\n", key.c_str()), ++n;
    return n;
  }
};

bool run_file(const std::filesystem::path& path, const Options& options, BackendMaker* backends, Totals* totals) {
  auto bytes = gunzip(read_file(path));
  auto vectors = bytes.ok() ? read_vectors(bytes.value()) : Result<std::vector<Vector>>(bytes.error());
  if (!vectors.ok()) {
    std::fprintf(stderr, "run_vectors: %s: %s\n", path.c_str(), vectors.error().message.c_str());
    return false;
  }
  size_t turn = 0;
  for (const Vector& v : vectors.value()) {
    if (v.op.find(options.ops) == std::string_view::npos) continue;
    if (++turn % options.every != 0) continue;
    g_now = v.text;
    Manner manner{turn % 4 == 0 ? 2 : 1, turn % 16 == 0, options.column_order,
                  backends};  // planning is the slowest part
    totals->note(v, run_vector(v, manner), options);
  }
  return true;
}

bool parse(int argc, char** argv, Options* o) {
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    if (word == "--listed" && i + 1 < argc) o->listed.emplace_back(argv[++i]);
    else if (word == "--ops" && i + 1 < argc) o->ops = argv[++i];
    else if (word == "--show" && i + 1 < argc) o->show = std::stoul(argv[++i]);
    else if (word == "--backend" && i + 1 < argc) o->backend = argv[++i];
    else if (word == "--every" && i + 1 < argc) o->every = std::max(1ul, std::stoul(argv[++i]));
    else if (word == "--print") o->print = true;
    else if (word == "--column-order") o->column_order = true;
    else if (o->folder.empty() && word[0] != '-') o->folder = word;
    else return false;
  }
  return !o->folder.empty();
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  if (!parse(argc, argv, &options))
    return std::fprintf(stderr,
                        "usage: run_vectors [--backend cuda] [--every N] [--listed FILE]... [--ops TEXT] [--show N] "
                        "[--print] [--column-order] FOLDER\n"),
           2;
  for (int s : {SIGSEGV, SIGABRT, SIGFPE, SIGBUS}) std::signal(s, last_words);
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(options.folder))
    if (entry.path().extension() == ".gz") files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  std::unique_ptr<BackendMaker> backends;
  if (options.backend != "cpu") {
    auto loaded = load_backend(options.backend, {});
    if (!loaded.ok()) return std::fprintf(stderr, "run_vectors: %s\n", loaded.error().message.c_str()), 5;
    backends = std::move(loaded).value();
  }
  Totals totals;
  for (const std::string& path : options.listed) totals.read_listed(path);
  for (const auto& path : files)
    if (!run_file(path, options, backends.get(), &totals)) return 3;
  const bool all = options.ops.empty() && options.every == 1 && !backends;
  size_t stale = totals.stale(all), failed = 0;
  for (const auto& [op, n] : totals.failures) failed += n, std::printf("  %5zu %s\n", n, op.c_str());
  for (const std::string& op : totals.without_kernel) std::printf("  no kernel %s\n", op.c_str());
  if (backends)
    std::printf("%zu vectors of %zu ops were not run: no kernel\n", totals.not_run, totals.without_kernel.size());
  std::printf("%zu vectors: %zu are not as PyTorch has them in %zu ops, %zu more are listed\n", totals.count, failed,
              totals.failures.size(), totals.listed_failures);
  return failed + stale != 0 || totals.count == 0 ? 1 : 0;
}
