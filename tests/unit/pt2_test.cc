// torch.export archives: expressions, zip bounds, refusals with their places, and mutated bytes.
// tests/numeric/run_pt2.py compares what programs compute with PyTorch.
#include <catch2/catch.hpp>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "libgraph/binary/binary.h"
#include "libgraph/data/constant_data.h"
#include "libgraph/data/safetensors.h"
#include "libgraph/import/pt2.h"
#include "libgraph/import/sympy_expr.h"
#include "libgraph/import/zip_archive.h"
#include "libgraph/verify/verify.h"
#include "tests/support/rng.h"

using namespace sg;
using sg::test::Rng;

namespace {

const std::string kCases = "tests/data/pt2/";

std::string file(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  REQUIRE(in.good());
  std::ostringstream out;
  out << in.rdbuf();
  return out.str();
}

std::string archive_of(const std::string& name) { return file(kCases + name + "/model.pt2"); }

std::string program_of(const std::string& name) {
  std::string bytes = archive_of(name);
  ZipArchive zip = ZipArchive::open(bytes, name).value();
  return zip.read(*zip.find("archive/models/model.json")).value();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  INFO(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

// --- a zip writer that can lie ---

uint32_t crc32_of(std::string_view data) {
  uint32_t crc = ~0u;
  for (unsigned char c : data) {
    crc ^= c;
    for (int i = 0; i < 8; ++i) crc = crc >> 1 ^ (0xEDB88320u & (0u - (crc & 1)));
  }
  return ~crc;
}

struct Part {
  std::string name, data;
  uint16_t method = 0, flags = 0;
  uint32_t claimed = 0xFFFFFFFFu;  // unpacked size; default: the data's
};

std::string le(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(value >> (8 * i));
  return out;
}

std::string zip_of(const std::vector<Part>& parts) {
  std::string out, directory;
  for (const Part& p : parts) {
    uint32_t size = p.claimed == 0xFFFFFFFFu ? static_cast<uint32_t>(p.data.size()) : p.claimed;
    std::string common = le(20, 2) + le(p.flags, 2) + le(p.method, 2) + le(0, 4) + le(crc32_of(p.data), 4) +
                         le(p.data.size(), 4) + le(size, 4) + le(p.name.size(), 2) + le(0, 2);
    directory +=
        "PK\x01\x02" + le(20, 2) + common + le(0, 2) + le(0, 2) + le(0, 2) + le(0, 4) + le(out.size(), 4) + p.name;
    out += "PK\x03\x04" + common + p.name + p.data;
  }
  return out + directory + "PK\x05\x06" + le(0, 4) + le(parts.size(), 2) + le(parts.size(), 2) +
         le(directory.size(), 4) + le(out.size(), 4) + le(0, 2);
}

std::string zip_error(const std::string& bytes) {
  auto zip = ZipArchive::open(bytes, "a.pt2");
  Error error;
  if (!zip.ok()) {
    error = zip.error();
  } else {
    for (const ZipEntry& entry : zip->entries())
      if (auto data = zip->read(entry); !data.ok()) error = data.error();
  }
  if (!error.message.empty()) CHECK(error.kind == ErrorKind::unreadable);
  return error.message.empty() ? "" : print_location(error.where) + ": " + error.message;
}

std::string program_error(const std::string& json) {
  auto job = import_exported_program(json, "m.json", nullptr);
  if (job.ok()) return "";
  CHECK(job.error().kind == ErrorKind::unreadable);
  CHECK(job.error().where.file == "m.json");
  return print_location(job.error().where) + ": " + job.error().message;
}

bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

// Any input gives a job that can be checked and written, or an error of the right kind.
void take(const Result<Job>& job) {
  if (!job.ok()) {
    CHECK(job.error().kind == ErrorKind::unreadable);
    CHECK(!job.error().message.empty());
    return;
  }
  Diagnostics found;
  verify(*job, {}, &found);
  if (!found.has_errors()) CHECK(write_binary(*job).ok());
}

std::string mutated(Rng& rng, std::string bytes) {
  switch (rng.below(4)) {
    case 0: bytes.resize(rng.below(bytes.size())); break;
    case 1: bytes[rng.below(bytes.size())] ^= static_cast<char>(1 << rng.below(8)); break;
    case 2: {
      size_t from = rng.below(bytes.size()), to = rng.below(bytes.size()), n = rng.below(64);
      bytes.insert(to, bytes.substr(from, n));
      break;
    }
    default: bytes.erase(rng.below(bytes.size()), rng.below(32)); break;
  }
  return bytes;
}

// Replaces one token by another of the text, so that JSON stays JSON.
std::string swapped_tokens(Rng& rng, std::string text) {
  auto token = [&](size_t* begin, size_t* end) {
    size_t at = rng.below(text.size());
    *begin = text.find_first_of("\"0123456789", at);
    if (*begin == std::string::npos) return false;
    *end = text[*begin] == '"' ? text.find('"', *begin + 1) : text.find_first_not_of("0123456789", *begin) - 1;
    return *end < text.size();
  };
  size_t a, b, c, d;
  if (!token(&a, &b) || !token(&c, &d)) return text;
  return text.replace(a, b - a + 1, text.substr(c, d - c + 1));
}

}  // namespace

TEST_CASE("sympy's constructor calls are read") {
  Pool pool;
  const std::pair<const char*, const char*> kCasesOfText[] = {
      {"Symbol('s17', positive=True, integer=True)", "s17"},
      {"Mul(Integer(16), Symbol('s17', positive=True, integer=True))", "16*s17"},
      {"Add(Mul(Integer(-1), Symbol('u0', integer=True)), Integer(3))", "3 - u0"},
      {"FloorDiv(Add(Symbol('s0'), Integer(1)), Integer(2))", "(s0 + 1)//2"},
      {"CeilDiv(Symbol('s0'), Integer(2))", "-((-s0)//2)"},
      {"CeilToInt(IntTrueDiv(Symbol('s0'), Integer(2)))", "-((-s0)//2)"},
      {"Add(FloorToInt(IntTrueDiv(Symbol('s0'), Integer(3))), Integer(1))", "s0//3 + 1"},
      {"ModularIndexing(Symbol('s0'), Integer(4), Integer(8))", "(s0//4)%8"},
      {"Max(Integer(1), Symbol('u0'))", "max(1, u0)"},
      {"Min(Integer(8), Mul(Symbol('u0'), Integer(8)))", "min(8, 8*u0)"},
      {"Pow(Symbol('s0'), Integer(2))", "s0**2"},
      {"PythonMod(Symbol('s0'), Integer(3))", "s0%3"},
      {"Integer(0)", "0"},
      {"s0 + 1", "s0 + 1"},
      {"2*s0", "2*s0"}};
  for (const auto& [text, want] : kCasesOfText) {
    INFO(text);
    auto e = parse_sympy(&pool, text);
    REQUIRE(e.ok());
    CHECK(*e == pool.exprs.parse(want).value());
  }
  auto guards =
      parse_sympy_guards(&pool, "And(GreaterThan(Symbol('u0'), Integer(2)), Equality(Symbol('u1'), Symbol('u0')))");
  REQUIRE(guards.ok());
  REQUIRE(guards->size() == 2);
  CHECK((*guards)[0].relation == Relation::ge);
  CHECK((*guards)[1].relation == Relation::eq);
}

TEST_CASE("what is no expression of ours is refused with its column") {
  Pool pool;
  std::string deep, wide = "Add(Integer(1)";
  for (int i = 0; i < 200; ++i) deep += "Add(Integer(1), ";
  for (int i = 0; i < 10000; ++i) wide += ", Integer(1)";
  const std::pair<std::string, const char*> kBad[] = {
      {"Rational(1, 2) + Symbol('s0')", "`Rational` of 2 is none of the functions"},
      {"Symbol(s0)", "quotes"},
      {"Symbol('s0", "not closed"},
      {"Symbol('a b')", "is not a symbol name"},
      {"Add(Symbol('s0'), Integer(1)", "expected `)`"},
      {"Integer(99999999999999999999)", "64 bits"},
      {"Integer(1) Integer(2)", "expected the end"},
      {"FloorDiv(Symbol('s0'), Integer(0))", "divides by zero"},
      {"Pow(Symbol('s0'), Integer(-1))", "`Pow`"},
      {deep, "too deep"},
      {wide, "longer than"},
      {"Mul(Integer(4611686018427387904), Integer(4))", "overflows"}};
  for (const auto& [text, want] : kBad) {
    INFO(text.substr(0, 100));
    auto e = parse_sympy(&pool, text);
    REQUIRE(!e.ok());
    CHECK(has(e.error().message, want));
  }
}

TEST_CASE("zip archives keep to their bounds") {
  CHECK(zip_error(zip_of({{"a/b", "hello"}, {"a/c", ""}})).empty());
  std::string good = zip_of({{"a/b", "hello"}});
  struct Case {
    std::string bytes;
    const char* want;
  };
  const Case kBad[] = {{zip_of({{"../x", "1"}}), "a.pt2: ../x: the entry has a path that leaves the archive"},
                       {zip_of({{"a/../../x", "1"}}), "leaves the archive"},
                       {zip_of({{"/etc/x", "1"}}), "absolute path"},
                       {zip_of({{"a\\x", "1"}}), "is not a path"},
                       {zip_of({{"a", "1"}, {"a", "2"}}), "a.pt2: a: the entry occurs twice"},
                       {zip_of({{"a", "1", 0, 1}}), "the entry is encrypted"},
                       {zip_of({{"a", "1", 12}}), "packed by method 12"},
                       {zip_of({{"a", "1", 8, 0, 0x70000000}}), "would unpack to"},
                       {zip_of({{"a", "xx", 0, 0, 100}}), "a"},
                       {replaced(good, "hello", "hallo"), "a.pt2: a/b: the entry is corrupt: CRC error"},
                       {good.substr(0, good.size() - 5), "not a whole zip archive"},
                       {"PK\x03\x04 and no more", "not a whole zip archive"}};
  for (const Case& c : kBad) {
    INFO(c.want);
    CHECK(has(zip_error(c.bytes), c.want));
  }
  std::vector<Part> bomb;  // many entries, each within its own bound
  for (int i = 0; i < 40; ++i) bomb.push_back({"e" + std::to_string(i), "xy", 8, 0, 60u << 20});
  CHECK(has(zip_error(zip_of(bomb)), "would unpack to"));
}

TEST_CASE("an archive becomes a job, its weights tensors") {
  std::string bytes = archive_of("views");
  Diagnostics notes;
  auto import = import_pt2(bytes, "views.pt2", {}, &notes);
  REQUIRE(import.ok());
  CHECK(notes.list().empty());
  Diagnostics found;
  verify(import->job, {}, &found);
  CHECK(!found.has_errors());
  CHECK(import->tensors.size() == 8);
  CHECK(tensor_file_bytes(import->tensors).ok());
  const Graph& graph = import->job.programs[0]->graph;
  CHECK(graph.inputs()[0].kind == InputKind::parameter);
  CHECK(import->job.pool->strings[graph.inputs()[0].fqn] == "p");
}

TEST_CASE("constants say what they hold, whatever the order in the file") {
  std::string bytes = archive_of("tied");
  auto import = import_pt2(bytes, "tied.pt2", {}, nullptr);
  REQUIRE(import.ok());
  size_t constants = 0;
  for (const Input& input : import->job.programs[0]->graph.inputs()) {
    if (input.kind != InputKind::constant) continue;
    ++constants;
    const auto tensor =
        std::ranges::find(import->tensors, import->job.pool->strings.str(input.fqn), &TensorToWrite::name);
    REQUIRE(tensor != import->tensors.end());
    const std::string_view data(static_cast<const char*>(tensor->data),
                                *contiguous_bytes(tensor->dtype, tensor->shape));
    CHECK(import->job.pool->strings[input.digest] == constant_data(data));
  }
  CHECK(constants == 1);
}

TEST_CASE("a few bytes that stand for any number are refused") {
  const std::string bytes = archive_of("views"), sizes = R"("sizes": [{"as_int": 4}, {"as_int": 3}])";
  ZipArchive zip = ZipArchive::open(bytes, "views").value();
  const auto with_size = [&](const std::string& size) {
    std::vector<Part> parts;
    for (const ZipEntry& entry : zip.entries()) {
      std::string data = zip.read(entry).value();
      const bool is_config = has(entry.name, "model_weights_config.json");
      if (is_config || has(entry.name, "models/model.json"))
        data = replaced(data, sizes, R"("sizes": [{"as_int": )" + size + R"(}, {"as_int": 3}])");
      if (is_config)
        data = replaced(data, R"("strides": [{"as_int": 1}, {"as_int": 4}])",
                        R"("strides": [{"as_int": 0}, {"as_int": 4}])");
      parts.push_back({std::string(entry.name), std::move(data)});
    }
    return import_pt2(zip_of(parts), "wide.pt2", {}, nullptr);
  };
  CHECK(with_size("1000000").ok());
  for (const char* size : {"68719476736", "4611686018427387904"}) {
    const auto wide = with_size(size);
    REQUIRE_FALSE(wide.ok());
    CHECK(wide.error().kind == ErrorKind::unreadable);
    CHECK(has(wide.error().message, "`p` repeats 52 bytes to more than 1073741824"));
  }
}

TEST_CASE("pickled weights are said, and not read") {
  for (const char* name : {"pickled_2_6", "pickled_2_8"}) {
    std::string bytes = archive_of(name);
    Diagnostics notes;
    auto import = import_pt2(bytes, name, {}, &notes);
    REQUIRE(import.ok());
    CHECK(import->tensors.empty());
    REQUIRE(notes.list().size() == 1);
    CHECK(has(notes.list()[0].message, "pickled"));
  }
}

TEST_CASE("broken programs are refused with the place") {
  const std::string good = program_of("two_sizes");
  REQUIRE(program_error(good).empty());
  std::string deep = "{\"as_none\":true}", many = "[";
  for (int i = 0; i < 100; ++i) deep = "{\"as_string_to_argument\":{\"k\":" + deep + "}}";
  const std::pair<std::string, const char*> kBad[] = {
      {"[]", "not an object"},
      {"{}", "`schema_version`"},
      {replaced(good, "\"major\": 8", "\"major\": 9"), "schema_version.major: the program has schema 9"},
      {replaced(good, "\"major\": 8", "\"major\": 9"), "newer than 8"},
      {replaced(good, "\"major\": 8", "\"major\": 7"), "older than 8"},
      {replaced(good, "\"target\": \"torch.ops.aten.linear.default\"", "\"target\": 3"), "nodes[1].target"},
      {replaced(good, "{\"as_tensor\": {\"name\": \"linear\"}}", "{\"as_tensor\": {\"name\": \"p_l_bias\"}}"),
       "the name `p_l_bias` is taken"},
      {replaced(good, "\"arg\": {\"as_tensor\": {\"name\": \"p_l_weight\"}}, \"kind\"",
                "\"arg\": {\"as_tensor\": {\"name\": \"sum_1\"}}, \"kind\""),
       "graph_module.graph.nodes[1]: `sum_1` is used before it is defined, at m.json: graph_module.graph.nodes["},
      {replaced(good, "\"arg\": {\"as_tensor\": {\"name\": \"p_l_weight\"}}, \"kind\"",
                "\"arg\": {\"as_tensor\": {\"name\": \"p_l_wait\"}}, \"kind\""),
       "no node or input is called `p_l_wait`"},
      {replaced(good, "\"arg\": {\"as_tensor\": {\"name\": \"p_l_weight\"}}, \"kind\"",
                "\"arg\": " + deep + ", \"kind\""),
       "nests too deep"},
      {replaced(good, "\"dtype\": 7", "\"dtype\": 77"), "element type of number 77"},
      {replaced(good, "\"dtype\": 7", "\"dtype\": 99999999999999999999999"), "m.json"},
      {replaced(good, "\"min_val\": 2", "\"min_val\": 70"), "is empty"},
      {replaced(good, "Symbol('s17', positive=True, integer=True)", "Symbol('s17'"), "expected `)`"},
      {replaced(good, "\"parameter\": {", "\"buffer_mutation\": 1, \"parameter\": {"), "a union with two values"},
      {replaced(good, "\"output_specs\": [", "\"output_specs\": [{\"user_output\": {\"arg\": {\"as_none\": true}}}, "),
       "the graph has 2 outputs, the signature 3"},
      {good.substr(0, good.size() / 2), "m.json:@"}};
  for (const auto& [json, want] : kBad) {
    INFO(want);
    std::string said = program_error(json);
    INFO(said);
    CHECK(has(said, want));
  }
}

TEST_CASE("infinities that torch 2.6 writes bare are read, in their place and outside of texts") {
  const std::string good = program_of("two_sizes"),
                    at = "\"arg\": {\"as_tensor\": {\"name\": \"p_l_weight\"}}, \"kind\"";
  for (const char* number : {"-Infinity", "Infinity", "NaN"})
    CHECK(program_error(replaced(good, at, "\"arg\": {\"as_float\": " + std::string(number) + "}, \"kind\"")).empty());
  CHECK(program_error(replaced(good, at, "\"arg\": {\"as_string\": \"a \\\" -Infinity\"}, \"kind\"")).empty());
  CHECK(has(program_error(replaced(good, at, "\"arg\": {\"as_float\": Infinit}, \"kind\"")), "not JSON"));
}

TEST_CASE("a list of a million numbers takes a moment") {
  std::string many;
  for (int i = 0; i < 1000000; ++i) many += i == 0 ? "1" : ",1";
  std::string json = replaced(program_of("two_sizes"), "\"arg\": {\"as_tensor\": {\"name\": \"p_l_weight\"}}, \"kind\"",
                              "\"arg\": {\"as_ints\": [" + many + "]}, \"kind\"");
  auto begin = std::chrono::steady_clock::now();
  take(import_exported_program(json, "m.json", nullptr));
  CHECK(std::chrono::steady_clock::now() - begin < std::chrono::seconds(20));
}

TEST_CASE("mutated archives and programs are jobs or errors") {
  Rng rng(5);
  for (const char* name : {"cond", "views", "unbacked", "joint", "several"}) {
    std::string bytes = archive_of(name), json = program_of(name);
    for (int i = 0; i < 400; ++i) {
      std::string broken = mutated(rng, bytes);
      auto import = import_pt2(broken, "m.pt2", {}, nullptr);
      if (import.ok()) CHECK(tensor_file_bytes(import->tensors).ok());
      take(import.ok() ? Result<Job>(std::move(import->job)) : Result<Job>(import.error()));
      take(import_exported_program(mutated(rng, json), "m.json", nullptr));
      take(import_exported_program(swapped_tokens(rng, json), "m.json", nullptr));
    }
  }
}
