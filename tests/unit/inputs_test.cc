#include "librun/values/inputs.h"

#include <catch2/catch.hpp>

#include <fstream>
#include <numeric>

#include "libgraph/base/sha256.h"
#include "librun/values/data_name.h"
#include "tests/support/parse.h"
#include "tests/support/temp_folder.h"

using namespace sg;
using sg::test::parse;
using sg::test::TempFolder;

namespace {

const char* const kInputGraph = R"(sg 1.0 job "t" world 1

graph rank *
  symbol s0 input [2, 64] hint 4
  symbol s1 input [2, inf] hint 4
  guard s0 == s1
  param %w : f32[3, 2] "layer.weight"
  param %wt : f32[3, 2] stride [1, 3] "layer.other"
  buffer %count : i64[] "layer.count"
  input %x : f32[s0, 3] "x"
  input %y : f32[s1, 3] "y"
  input %unused : f32[5]

  forward -
    %a = aten.add.Tensor(%x, %y)      : f32[s0, 3]
    %b = aten.mm(%a, %w)              : f32[s0, 2]
    %c = aten.mm(%a, %wt)             : f32[s0, 2]
    %d = aten.add.Tensor(%b, %c)      : f32[s0, 2]
    %e = aten.mul.Tensor(%d, %count)  : f32[s0, 2]

  output %e
)";

struct Values {
  float w[6] = {0, 1, 2, 3, 4, 5};
  float x[12] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
  int64_t count = 7;

  std::vector<TensorToWrite> all() {
    return {{"layer.weight", DType::f32, {3, 2}, {}, w},
            {"wt", DType::f32, {3, 2}, {}, w},
            {"count", DType::i64, {}, {}, &count},
            {"x", DType::f32, {4, 3}, {}, x},
            {"y", DType::f32, {4, 3}, {}, x}};
  }
};

Result<InputSet> load(const std::vector<TensorToWrite>& tensors, const char* graph = kInputGraph) {
  static TempFolder folder;
  const std::string file = folder.file("inputs.safetensors");
  REQUIRE(write_tensors(file, tensors).ok());
  Job job = parse(graph);
  return load_inputs(job, 0, {.files = {file}});
}

std::string error_of(const std::vector<TensorToWrite>& tensors, ErrorKind kind = ErrorKind::unreadable) {
  auto set = load(tensors);
  REQUIRE(!set.ok());
  CHECK(set.error().kind == kind);
  return set.error().message;
}

bool mentions(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("inputs are taken by name or FQN, without a copy where strides allow") {
  Values values;
  auto set = load(values.all());
  REQUIRE(set.ok());
  CHECK(set->tensors[0].as<float>()[3] == 3);
  CHECK(set->tensors[2].as<int64_t>()[0] == 7);
  CHECK(set->tensors[3].dim(0) == 4);
  CHECK(set->tensors[5].is_none());
  CHECK(set->memory.bytes() == 24);  // only %wt
  const Tensor& wt = set->tensors[1];
  CHECK((wt.step(0) == 1 && wt.step(1) == 3));
  for (int64_t i = 0; i < 3; ++i)
    for (int64_t j = 0; j < 2; ++j) CHECK(wt.as<float>()[i + 3 * j] == values.w[2 * i + j]);
}

TEST_CASE("writing to an input changes neither the file nor another rank's tensors") {
  Values values;
  auto first = load(values.all());
  REQUIRE(first.ok());
  first->tensors[0].as<float>()[0] = 100;
  auto second = load(values.all());
  REQUIRE(second.ok());
  CHECK(second->tensors[0].as<float>()[0] == 0);
  CHECK(first->tensors[0].as<float>()[0] == 100);
}

TEST_CASE("missing inputs are all named") {
  Values values;
  auto list = values.all();
  list.erase(list.begin() + 2, list.begin() + 4);
  const std::string message = error_of(list);
  CHECK(mentions(message, "2 graph inputs have no value"));
  CHECK(mentions(message, "`layer.count` (%count)"));
  CHECK(mentions(message, "`x` (%x)"));

  TempFolder folder;
  REQUIRE(write_tensors(folder.file("x"), list).ok());
  auto rest = load_inputs(parse(kInputGraph), 0, {.files = {folder.file("x")}, .may_miss = true});
  REQUIRE(rest.ok());
  CHECK((rest->tensors[2].is_none() && rest->tensors[3].is_none() && rest->tensors[4].dim(0) == 4));
}

TEST_CASE("inputs may come in several files, each in one of them") {
  Values values;
  const auto list = values.all();
  const std::vector<TensorToWrite> first(list.begin(), list.begin() + 2), second(list.begin() + 2, list.end());
  TempFolder folder;
  REQUIRE(write_tensors(folder.file("weights"), first).ok());
  REQUIRE(write_tensors(folder.file("batch"), second).ok());
  const Job job = parse(kInputGraph);
  auto set = load_inputs(job, 0, {.files = {folder.file("weights"), folder.file("batch")}});
  REQUIRE(set.ok());
  auto whole = load(list);
  REQUIRE(whole.ok());
  for (size_t i = 0; i < whole->tensors.size(); ++i) CHECK(same_shape(set->tensors[i], whole->tensors[i]));
  auto twice = load_inputs(job, 0, {.files = {folder.file("weights"), folder.file("batch"), folder.file("weights")}});
  REQUIRE(!twice.ok());
  CHECK(mentions(twice.error().message, "are the same graph input"));
}

TEST_CASE("inputs that the graph does not have, or that come twice, are errors") {
  Values values;
  auto list = values.all();
  list.push_back({"layer.wieght", DType::f32, {3, 2}, {}, values.w});
  auto set = load(list);
  REQUIRE(!set.ok());
  CHECK(mentions(set.error().message, "no input `layer.wieght`"));
  CHECK(mentions(set.error().hint, "layer.weight"));
  list.back().name = "w";
  CHECK(mentions(error_of(list), "`layer.weight` and `w` are the same graph input"));
}

TEST_CASE("tensors that the graph has no input for are passed over where that is asked for") {
  Values values;
  auto all = values.all();
  all.push_back({"gone", DType::f32, {3, 2}, {}, values.w});
  TempFolder folder;
  const std::string file = folder.file("inputs.safetensors");
  REQUIRE(write_tensors(file, all).ok());
  Job job = parse(kInputGraph);
  InputSource source{.files = {file}};
  REQUIRE_FALSE(load_inputs(job, 0, source).ok());
  source.may_spare = true;
  auto set = load_inputs(job, 0, source);
  REQUIRE(set.ok());
  CHECK(set->tensors[2].as<int64_t>()[0] == 7);
}

TEST_CASE("what the file says that the model calls a tensor counts more than its name in another graph") {
  Values values;
  auto all = values.all();
  all[0].name = "x", all[3].name = "w";  // as in another graph of the same model
  TempFolder folder;
  const std::string file = folder.file("inputs.safetensors");
  Job job = parse(kInputGraph);
  REQUIRE(write_tensors(file, all).ok());
  CHECK_FALSE(load_inputs(job, 0, {.files = {file}}).ok());
  REQUIRE(write_tensors(file, all, {.metadata = {{"fqn.w", "x"}, {"fqn.x", "layer.weight"}}}).ok());
  auto set = load_inputs(job, 0, {.files = {file}});
  REQUIRE(set.ok());
  CHECK(set->tensors[0].as<float>()[3] == 3);
  CHECK(set->tensors[3].dim(0) == 4);
}

TEST_CASE("the tangent of the loss is 1 where nobody gives it; of another output nobody knows") {
  const std::string graph = R"(sg 1.0 job "t" world 1
graph rank *
  input %x : f32[3]
  tangent %t : f32[]
  forward -
    %loss = aten.sum(%x) : f32[]
  backward -
    %dx = aten.expand(%t, [3]) : f32[3]
  loss %loss
  grad %dx of %x
)";
  const float x[3] = {1, 2, 3}, two = 2;
  auto set = load({{"x", DType::f32, {3}, {}, x}}, graph.c_str());
  REQUIRE(set.ok());
  CHECK(*set->tensors[1].as<float>() == 1);
  CHECK(set->ones == std::vector<size_t>{1});
  auto given = load({{"x", DType::f32, {3}, {}, x}, {"t", DType::f32, {}, {}, &two}}, graph.c_str());
  REQUIRE(given.ok());
  CHECK(*given->tensors[1].as<float>() == 2);
  CHECK(given->ones.empty());
  std::string other = graph;
  other.replace(other.find("loss %loss"), 4, "output");
  auto missing = load({{"x", DType::f32, {3}, {}, x}}, other.c_str());
  REQUIRE_FALSE(missing.ok());
  CHECK(mentions(missing.error().message, "%t"));
  CHECK(mentions(missing.error().hint, "retain_grad"));
  std::string beside = graph;
  beside.insert(beside.find("  forward -"), "  tangent %u : f32[3]\n");
  beside.replace(beside.find("%dx = aten.expand(%t, [3])"), 26, "%dx = aten.mul(%u, %t)");
  auto asks = load({{"x", DType::f32, {3}, {}, x}}, beside.c_str());
  REQUIRE_FALSE(asks.ok());
  CHECK(asks.error().message == "1 graph input has no value: %u");
  CHECK(mentions(asks.error().hint, "0 (so --init has it)"));
}

TEST_CASE("a wrong dtype, shape or size says what is there and what is expected") {
  Values values;
  auto wrong = [&](size_t i, DType dtype, std::vector<int64_t> shape) {
    auto list = values.all();
    list[i].dtype = dtype;
    list[i].shape = std::move(shape);
    return list;
  };
  CHECK(error_of(wrong(0, DType::i32, {3, 2})) ==
        "input `layer.weight` (%w) is f32[3, 2] in the graph, i32[3, 2] in the file");
  CHECK(mentions(error_of(wrong(0, DType::f32, {2, 3})), "is f32[3, 2] in the graph, f32[2, 3] in the file"));
  CHECK(mentions(error_of(wrong(0, DType::f32, {6})), "f32[6] in the file"));
  CHECK(mentions(error_of(wrong(3, DType::f32, {4, 2})), "is f32[s0 = 4, 3] in the graph, f32[4, 2] in the file"));
  CHECK(mentions(error_of(wrong(3, DType::f32, {1, 3}), ErrorKind::cannot_apply),
                 "the size s0 is 1, the graph takes 2 or more"));
  CHECK(mentions(error_of(wrong(3, DType::f32, {3, 3}), ErrorKind::cannot_apply),
                 "the graph needs s0 == s1; the inputs make it 3 and 4"));
}

TEST_CASE("strides that put elements which differ in one place are refused") {
  const char* const graph = R"(sg 1.0 job "t" world 1
graph rank *
  symbol rows input [2, inf] hint 2
  symbol length input [2, inf] hint 3
  symbol apart input [2, inf] hint 4
  input %x : f32[rows, length] stride [apart, 1] "x"
  input %same : f32[rows, 3] stride [0, 1] "same"
  forward -
    %y = aten.neg(%x) : f32[rows, length] stride [apart, 1]
    %z = aten.neg(%same) : f32[rows, 3] stride [0, 1]
  output %y
  output %z
)";
  const float x[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, same[6] = {1, 2, 3, 1, 2, 3};
  auto given = [&](int64_t length, const float* rows) {
    return load({{"x", DType::f32, {2, length}, {}, x}, {"same", DType::f32, {2, 3}, {}, rows}}, graph);
  };
  auto fits = given(4, same);
  REQUIRE(fits.ok());
  CHECK(fits->tensors[0].as<float>()[4] == 4);
  auto larger = given(6, same);  // no shape determines `apart`: it is 4, as in the capture
  REQUIRE(!larger.ok());
  CHECK(larger.error().kind == ErrorKind::cannot_apply);
  CHECK(larger.error().message == "input `x` (%x): its strides [4, 1] put elements that differ in one place");
  CHECK(larger.error().hint == "--bind apart=N says how far apart they lie");
  auto differ = given(4, x);
  REQUIRE(!differ.ok());
  CHECK(differ.error().message == "input `same` (%same): its strides [0, 1] put elements that differ in one place");
  CHECK(differ.error().hint.empty());
}

TEST_CASE("what is made up fits the sizes that the file gives") {
  struct Ones : InputMaker {
    bool can_make(size_t) const override { return true; }
    Status make(size_t, const Tensor& t) override {
      for (int64_t i = 0; i < t.elements(); ++i) t.as<float>()[i] = 1;
      return ok_status();
    }
  } ones;
  Values values;
  TempFolder folder;
  auto list = values.all();
  list[3].shape = {2, 3};
  list.pop_back();
  REQUIRE(write_tensors(folder.file("x"), list).ok());
  Job job = parse(kInputGraph);
  auto set = load_inputs(job, 0, {.files = {folder.file("x")}, .maker = &ones});
  REQUIRE(set.ok());
  CHECK(set->tensors[4].dim(0) == 2);  // s1 follows s0 through the guard
}

TEST_CASE("unaligned tensors are copied") {
  TempFolder folder;
  const std::string header =
      R"({"flag":{"dtype":"BOOL","shape":[1],"data_offsets":[0,1]},"x":{"dtype":"F32","shape":[1],"data_offsets":[1,5]}})";
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  float one = 1;
  bytes += header + '\1' + std::string(reinterpret_cast<char*>(&one), 4);
  std::ofstream(folder.file("x"), std::ios::binary) << bytes;
  Job job = parse(R"(sg 1.0 job "t" world 1
graph rank *
  input %flag : bool[1]
  input %x : f32[1]
  forward -
    %y = aten.masked_fill.Scalar(%x, %flag, 0.0) : f32[1]
  output %y
)");
  auto set = load_inputs(job, 0, {.files = {folder.file("x")}});
  REQUIRE(set.ok());
  CHECK(set->tensors[1].as<float>()[0] == 1);
  CHECK(reinterpret_cast<uintptr_t>(set->tensors[1].data) % 4 == 0);
  bytes[8 + header.size()] = 2;
  std::ofstream(folder.file("x"), std::ios::binary) << bytes;
  auto bad = load_inputs(job, 0, {.files = {folder.file("x")}});
  REQUIRE(!bad.ok());
  CHECK(mentions(bad.error().message, "%flag: a bool with the value 2"));
  CHECK(bad.error().where.offset == 8 + header.size());
}

TEST_CASE("numbers among the inputs come from the file, their type, or the sizes") {
  TempFolder folder;
  Job job = parse(R"(sg 1.0 job "t" world 1
graph rank *
  symbol s0 input [0, 9]
  input %n : int s0
  input %half : float 0.5
  input %scale : float
  input %x : f32[s0]
  forward -
    %y = aten.mul.Scalar(%x, %scale) : f32[s0]
    %z = aten.view(%y, [%n]) : f32[s0]
  output %z
)");
  float x[3] = {}, scale = 0.25f;
  std::vector<TensorToWrite> list = {{"x", DType::f32, {3}, {}, x}, {"scale", DType::f32, {}, {}, &scale}};
  REQUIRE(write_tensors(folder.file("x"), list).ok());
  auto set = load_inputs(job, 0, {.files = {folder.file("x")}});
  REQUIRE(set.ok());
  CHECK(set->scalars[0].to_int() == 3);
  CHECK(set->scalars[1].to_double() == 0.5);
  CHECK(set->scalars[2].to_double() == 0.25);
  list[1].shape = {1};
  REQUIRE(write_tensors(folder.file("x"), list).ok());
  auto wrong = load_inputs(job, 0, {.files = {folder.file("x")}});
  REQUIRE(!wrong.ok());
  CHECK(mentions(wrong.error().message, "%scale is a number, the file has f32[1]"));
}

TEST_CASE("a size among the inputs binds its symbol, and contradicts no tensor") {
  TempFolder folder;
  Job job = parse(R"(sg 1.0 job "t" world 1
graph rank *
  symbol s0 input [0, 99]
  symbol s1 input [0, 99]
  input %n : int s0
  input %m : int s1
  input %x : f32[s0*s1]
  forward -
    %y = aten.view(%x, [%n, %m]) : f32[s0, s1]
  output %y
)");
  float x[6] = {};
  int64_t n = 3, m = 2;
  std::vector<TensorToWrite> list = {
      {"n", DType::i64, {}, {}, &n}, {"m", DType::i64, {}, {}, &m}, {"x", DType::f32, {6}, {}, x}};
  REQUIRE(write_tensors(folder.file("x"), list).ok());
  auto set = load_inputs(job, 0, {.files = {folder.file("x")}});
  REQUIRE(set.ok());
  CHECK(set->tensors[2].shape[0] == 6);
  n = 17;
  REQUIRE(write_tensors(folder.file("y"), list).ok());
  auto wrong = load_inputs(job, 0, {.files = {folder.file("y")}});
  REQUIRE(!wrong.ok());
  CHECK(mentions(wrong.error().message, "%x is f32[s0*s1 = 34] in the graph, f32[6] in the file"));
  const std::vector<SizeBinding> bound = {{"s0=3", "s0", {}, 3}};
  auto other = load_inputs(job, 0, {.files = {folder.file("y")}, .bindings = bound});
  REQUIRE(!other.ok());
  CHECK(mentions(other.error().message, "%n is s0 = 3 by the sizes of the graph's inputs, 17 in the file"));
}

TEST_CASE("names of data files hold the rank and the step") {
  CHECK(data_file_name("a{r}/s{step}-{x}.st", 3, 12) == "a3/s12-{x}.st");
  TempFolder folder;
  const std::string pattern = folder.file("r{r}");
  CHECK(mentions(check_input_files(pattern, 2, "--inputs").error().message, "no file for any of 2 ranks"));
  std::ofstream(folder.file("r0")).flush();
  CHECK(mentions(check_input_files(pattern, 2, "--inputs").error().message, "no file for rank 1 of 2"));
  CHECK(check_input_files(pattern, 1, "--inputs").ok());
  std::ofstream(folder.file("r1")).flush();
  CHECK(
      mentions(check_input_files(pattern, 1, "--inputs").error().message, "a file for rank 1, but the job has 1 rank"));
  CHECK(check_output_pattern("x", 1, 1, "--outputs").ok());
  CHECK(check_output_pattern("x", 2, 1, "--outputs").error().kind == ErrorKind::usage);
  CHECK(check_output_pattern("x{r}", 2, 3, "--outputs").error().hint == "put {step} into the name");
  CHECK(check_output_pattern("x{r}.{step}", 2, 3, "--outputs").ok());
}

namespace {

// sha256 of the 65 floats 0 to 64: one more than a graph holds.
std::string constants_graph(const std::string& digest) {
  return R"(sg 1.0 job "t" world 1

graph rank *
  input %x : f32[2] "x"
  constant %scale : f32[2, 1] stride [1, 1] data bytes:0000803f00000040
  constant %large : f32[65] data )" +
         digest + R"(

  forward -
    %a = aten.mul.Tensor(%x, %scale)  : f32[2, 2]
    %b = aten.sum(%large)             : f32[]

  output %a
  output %b
)";
}

}  // namespace

TEST_CASE("a small constant is in the graph, and a file goes before it") {
  float x[2] = {1, 2}, other[2] = {5, 6};
  std::vector<float> large(65, 1.0F);
  const std::string digest = sha256_tag({reinterpret_cast<const char*>(large.data()), 65 * sizeof(float)});
  const std::string graph = constants_graph(digest);
  std::vector<TensorToWrite> given = {{"x", DType::f32, {2}, {}, x}, {"large", DType::f32, {65}, {}, large.data()}};
  auto set = load(given, graph.c_str());
  REQUIRE(set.ok());
  CHECK((set->tensors[1].as<float>()[0] == 1 && set->tensors[1].as<float>()[1] == 2));
  given.push_back({"scale", DType::f32, {2, 1}, {}, other});
  set = load(given, graph.c_str());
  REQUIRE(set.ok());
  CHECK(set->tensors[1].as<float>()[1] == 6);
}

TEST_CASE("a large constant is found by its digest among the files of a folder") {
  float x[2] = {1, 2};
  std::vector<float> large(65);
  std::iota(large.begin(), large.end(), 0.0F);
  std::vector<float> other(65, 7.0F);
  const Job job = parse(constants_graph(sha256_tag({reinterpret_cast<const char*>(large.data()), 65 * sizeof(float)})));
  TempFolder folder;
  const std::string inputs = folder.file("inputs.tensors");
  const auto write = [&](const std::string& file, const std::vector<TensorToWrite>& tensors) {
    REQUIRE(write_tensors(folder.file(file), tensors).ok());
  };
  write("inputs.tensors", {{"x", DType::f32, {2}, {}, x}});
  const InputSource source{.files = {inputs}, .constants = folder.path()};

  auto set = load_inputs(job, 0, source);
  REQUIRE(!set.ok());
  CHECK(mentions(set.error().message, "1 graph input has no value: %large"));
  CHECK(mentions(set.error().hint, "--data FOLDER finds constants by their digests"));

  std::ofstream(folder.file("a.safetensors")) << "no tensors";
  write("b.safetensors", {{"one", DType::f32, {65}, {}, other.data()}, {"two", DType::f32, {5, 13}, {}, large.data()}});
  CHECK(!load_inputs(job, 0, source).ok());  // the same bytes in another shape are another tensor

  write("c.safetensors", {{"one", DType::f32, {65}, {}, other.data()}, {"two", DType::f32, {65}, {}, large.data()}});
  set = load_inputs(job, 0, source);
  REQUIRE(set.ok());
  CHECK(set->tensors[2].as<float>()[64] == 64);

  // A file that is itself named must be readable.
  set = load_inputs(job, 0, {.files = {inputs}, .constants = folder.file("a.safetensors")});
  REQUIRE(!set.ok());
  CHECK(set.error().where.file == folder.file("a.safetensors"));
}
