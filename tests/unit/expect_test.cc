#include "librun/check/expect.h"

#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>

#include "librun/check/compare.h"
#include "librun/element.h"
#include "tests/support/parse.h"
#include "tests/support/temp_folder.h"

using namespace sg;
using sg::test::parse;
using sg::test::TempFolder;

namespace {

// One comparison of f32 lists.
ExpectRow compare(std::vector<float> value, std::vector<float> expected, DType narrowest = DType::f32,
                  ExpectOptions options = {}) {
  const std::vector<int64_t> shape = {static_cast<int64_t>(value.size())};
  StoredTensor stored{"out0",          DType::f32,          {static_cast<int64_t>(expected.size())},
                      expected.data(), expected.size() * 4, 0};
  ExpectRow row;
  row.narrowest = narrowest;
  compare_tensor(make_tensor(reinterpret_cast<std::byte*>(value.data()), DType::f32, shape), stored, options, &row);
  return row;
}

template <class T>
ExpectRow compare_as(DType dtype, std::vector<T> value, std::vector<T> expected, ExpectOptions options = {}) {
  const std::vector<int64_t> shape = {static_cast<int64_t>(value.size())};
  StoredTensor stored{"out0", dtype, shape, expected.data(), expected.size() * sizeof(T), 0};
  ExpectRow row;
  compare_tensor(make_tensor(reinterpret_cast<std::byte*>(value.data()), dtype, shape), stored, options, &row);
  return row;
}

const char* const kExpectedGraph = R"(sg 1.0 job "t" world 1

graph rank *
  param %w : f32[2, 2] "layer.weight"
  buffer %count : i64[2] "layer.count"
  input %x : f32[2, 2] "x"

  forward -
    %y = aten.mm(%x, %w)                     : f32[2, 2]
    %loss = aten.sum(%y)                     : f32[]
    %more = aten.add_.Scalar(%count, 1)      : i64[2]
  backward -
    %h = aten._to_copy(%x, dtype=bf16)       : bf16[2, 2]
    %g = aten._to_copy(%h, dtype=f32)        : f32[2, 2]
    %n = aten.sym_numel(%g)                  : int 4

  loss %loss
  grad %g of %w
  output %n
)";

// The graph's values, by name.
struct Values {
  float loss = 10;
  float g[4] = {1, 2, 3, 4};
  int64_t count[2] = {5, 6};

  RunValues of(const Job& job) {
    const Graph& graph = job.programs[0]->graph;
    auto tensor = [this, &graph](ValueId v) {
      const int64_t shape[2] = {2, 2};
      if (graph.name(v) == "loss") return make_tensor(reinterpret_cast<std::byte*>(&loss), DType::f32, {});
      if (graph.name(v) == "g") return make_tensor(reinterpret_cast<std::byte*>(g), DType::f32, shape);
      return make_tensor(reinterpret_cast<std::byte*>(count), DType::i64, {shape, 1});
    };
    return {tensor, [](ValueId) { return Scalar::integer(4); }};
  }
};

Result<ExpectReport> report_of(const std::vector<TensorToWrite>& expected, ExpectOptions options = {},
                               Values values = {}) {
  TempFolder folder;
  REQUIRE(write_tensors(folder.file("e"), expected).ok());
  Job job = parse(kExpectedGraph);
  AliasAnalysis alias(*job.programs[0], job.programs[0]->graph);
  SG_ASSIGN(Expectation expectation, Expectation::open(*job.programs[0], alias, folder.file("e"), options));
  return expectation.compare(values.of(job));
}

bool mentions(const std::string& text, std::string_view part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("f32 values may differ by 1e-5 + 1e-4 of what is expected") {
  CHECK(compare({1.0f, 100.0f}, {1.0001f, 100.009f}).passed());
  ExpectRow row = compare({1.0f, 101.0f, 0.0f}, {1.0f, 100.0f, 0.00002f});
  CHECK(row.beyond == 2);
  CHECK(row.count == 3);
  CHECK(row.where == std::vector<int64_t>{1});
  CHECK(row.max_abs == Approx(1));
  CHECK(row.max_rel == Approx(1));
  CHECK((row.value_there == 101 && row.expected_there == 100));
  CHECK(row.worst == Approx(1 / (1e-5 + 1e-2)));
}

TEST_CASE("values that came through a narrow type may differ by 1e-2 of the largest") {
  for (DType narrow : {DType::bf16, DType::f16}) {
    CHECK(compare({0.9f, 100.0f, NAN}, {0.0f, 100.0f, NAN}, narrow).passed());
    CHECK(!compare({1.1f, 100.0f}, {0.0f, 100.0f}, narrow).passed());
    CHECK(compare({102.5f}, {100.0f}, narrow).passed());
    CHECK(!compare({102.7f}, {100.0f}, narrow).passed());
    CHECK(compare({0.9f, INFINITY}, {0.0f, INFINITY}, narrow).beyond == 1);  // an infinity is not the largest
  }
}

TEST_CASE("given tolerances replace the defaults, each its own") {
  CHECK(compare({1.5f}, {1.0f}, DType::f32, {.rtol = 0.5}).passed());
  CHECK(!compare({1.6f}, {1.0f}, DType::f32, {.rtol = 0.5}).passed());
  CHECK(compare({1.5f}, {1.0f}, DType::bf16, {.atol = 0.5}).passed());
  CHECK(compare({1.0f}, {1.0f}, DType::f32, {.rtol = 0.0, .atol = 0.0}).passed());
  ExpectRow row = compare({std::nextafter(1.0f, 2.0f)}, {1.0f}, DType::f32, {.rtol = 0.0, .atol = 0.0});
  CHECK(row.beyond == 1);
  CHECK(std::isinf(row.worst));
}

TEST_CASE("values that only a rounding as large as they are lets pass are told") {
  auto row_of = [](float now, double rounding) {
    const float expected = 1;
    const StoredTensor stored{"out0", DType::f32, {1}, &expected, 4, 0};
    ExpectRow row;
    row.narrowest = DType::f32, row.rounding = rounding;
    compare_tensor(make_tensor(reinterpret_cast<std::byte*>(&now), DType::f32, std::vector<int64_t>{1}), stored, {},
                   &row);
    return row;
  };
  CHECK(row_of(2, 1e9).only_rounding);
  CHECK(row_of(2, 1e9).passed());
  CHECK(!row_of(1, 1e9).only_rounding);      // as expected without it
  CHECK(!row_of(1.01f, 0.1).only_rounding);  // a tenth of the value still shows something
  CHECK(!row_of(9, 1).only_rounding);        // has not passed
}

TEST_CASE("a file's own rounding widens the tolerance of f32 and of narrower types, threefold") {
  const float value[4] = {1, 2, 3.25f, 4}, off[4] = {1, 2, 3.5f, 4};
  const std::vector<TensorToWrite> file = {{"out1", DType::f32, {2, 2}, {}, value}};
  auto row_of = [&](const float* now, double rounding, DType narrowest, ExpectOptions options) {
    ExpectRow row;
    row.narrowest = narrowest, row.rounding = rounding;
    const int64_t shape[2] = {2, 2};
    std::vector<float> copy(now, now + 4);
    StoredTensor expected{"out1", DType::f32, {2, 2}, value, 16, 0};
    compare_tensor(make_tensor(reinterpret_cast<std::byte*>(copy.data()), DType::f32, shape), expected, options, &row);
    return row;
  };
  CHECK(row_of(off, 0.1, DType::f32, {}).passed());
  CHECK(!row_of(off, 0.08, DType::f32, {}).passed());
  CHECK(!row_of(off, 0.1, DType::f64, {}).passed());
  CHECK(row_of(off, 0.1, DType::bf16, {}).passed());
  CHECK(!row_of(off, 0.02, DType::bf16, {}).passed());
  CHECK(!row_of(off, 0.1, DType::f32, {.rtol = 1e-4}).passed());
  CHECK(!row_of(off, 0.1, DType::f32, {.bitwise = true}).passed());
  Job job = parse(kExpectedGraph);
  AliasAnalysis alias(*job.programs[0], job.programs[0]->graph);
  for (const char* text : {"-1", "nan", "1e999", "0.1x", ""}) {
    TempFolder folder;
    REQUIRE(write_tensors(folder.file("e"), file, {.metadata = {{"rounding.out1", text}}}).ok());
    auto opened = Expectation::open(*job.programs[0], alias, folder.file("e"), {});
    REQUIRE(!opened.ok());
    CHECK(opened.error().kind == ErrorKind::unreadable);
    CHECK(mentions(opened.error().message, "rounding.out1"));
  }
}

TEST_CASE("NaN equals NaN and infinities equal themselves, nothing else does") {
  const float nan = std::nanf(""), inf = INFINITY;
  CHECK(compare({nan, inf, -inf}, {nan, inf, -inf}).passed());
  CHECK(compare({nan, nan}, {nan, nan}).only_nan);
  CHECK(compare({nan, nan}, {nan, nan}, DType::f32, {.bitwise = true}).only_nan);
  CHECK(!compare({nan, 1}, {nan, 1}).only_nan);
  CHECK(!compare({nan, 1}, {nan, nan}).only_nan);
  for (auto [value, expected] :
       std::vector<std::pair<float, float>>{{nan, 1}, {1, nan}, {inf, 1}, {1, inf}, {inf, -inf}, {nan, inf}}) {
    ExpectRow row = compare({value}, {expected});
    CHECK(row.beyond == 1);
    CHECK(std::isinf(row.max_abs));
  }
}

TEST_CASE("bitwise means the same bits, whatever the NaN") {
  const ExpectOptions bitwise{.bitwise = true};
  CHECK(compare({1.0f, -0.0f, std::nanf("1")}, {1.0f, -0.0f, -std::nanf("2")}, DType::f32, bitwise).passed());
  CHECK(!compare({0.0f}, {-0.0f}, DType::f32, bitwise).passed());
  CHECK(!compare({std::nextafter(1.0f, 2.0f)}, {1.0f}, DType::bf16, bitwise).passed());
  CHECK(!compare({INFINITY}, {-INFINITY}, DType::f32, bitwise).passed());
  CHECK(compare({INFINITY}, {INFINITY}, DType::f32, bitwise).passed());
}

TEST_CASE("integers and bools are exact, complex numbers go part by part") {
  const int64_t big = (int64_t{1} << 60) + 1;
  CHECK(compare_as<int64_t>(DType::i64, {big}, {big}).passed());
  CHECK(compare_as<int64_t>(DType::i64, {big}, {big - 1}).beyond == 1);  // equal as doubles
  ExpectRow flags = compare_as<uint8_t>(DType::boolean, {1, 0, 1}, {1, 1, 0});
  CHECK((flags.beyond == 2 && flags.where == std::vector<int64_t>{1}));
  CHECK(compare_as<C64>(DType::c64, {{1, 2}}, {{1, 2.0001f}}).passed());
  CHECK(compare_as<C64>(DType::c64, {{1, 2}, {1, 2}}, {{1, 2}, {1, 3}}).where == std::vector<int64_t>{1});
  CHECK(compare_as<uint16_t>(DType::bf16, {0x3F80}, {0x3F80}).passed());
}

TEST_CASE("strided, expanded and conjugated tensors are read as they are meant") {
  float memory[6] = {0, 1, 2, 3, 4, 5};
  float transposed[6] = {0, 3, 1, 4, 2, 5};
  Tensor t;
  t.data = reinterpret_cast<std::byte*>(memory);
  t.dtype = DType::f32;
  t.rank = 2;
  t.shape = {3, 2};
  t.stride = {1, 3};
  StoredTensor expected{"out0", DType::f32, {3, 2}, transposed, 24, 0};
  ExpectRow row;
  compare_tensor(t, expected, {}, &row);
  CHECK((row.passed() && row.count == 6));
  transposed[3] = 9;
  compare_tensor(t, expected, {}, &row);
  CHECK(row.where == std::vector<int64_t>{1, 1});

  C64 number(1, 2), conjugate(1, -2);
  Tensor c = make_tensor(reinterpret_cast<std::byte*>(&number), DType::c64, {});
  c.conjugate = true;
  ExpectRow of_conjugate;
  compare_tensor(c, {"out0", DType::c64, {}, &conjugate, 8, 0}, {}, &of_conjugate);
  CHECK(of_conjugate.passed());

  std::vector<float> expanded(3 * 1500, 7.0f);
  float one = 7;
  Tensor e = make_tensor(reinterpret_cast<std::byte*>(&one), DType::f32, {});
  e.rank = 2;
  e.shape = {3, 1500};
  ExpectRow of_expanded;
  compare_tensor(e, {"out0", DType::f32, {3, 1500}, expanded.data(), expanded.size() * 4, 0}, {}, &of_expanded);
  CHECK((of_expanded.passed() && of_expanded.count == 4500));
}

TEST_CASE("other shapes are a problem, empty tensors are none") {
  CHECK(compare({1, 2}, {1}).problem == "is f32[2], expected f32[1]");
  CHECK(compare({}, {}).passed());
}

TEST_CASE("a file names outputs by position, kind or input; the rest is counted") {
  Values v;
  int64_t four = 4;
  std::vector<TensorToWrite> all = {{"loss", DType::f32, {}, {}, &v.loss},
                                    {"gradient:layer.weight", DType::f32, {2, 2}, {}, v.g},
                                    {"out1", DType::f32, {2, 2}, {}, v.g},
                                    {"mutated.count", DType::i64, {2}, {}, v.count},
                                    {"out2", DType::i64, {}, {}, &four}};
  auto report = report_of(all);
  REQUIRE(report.ok());
  CHECK(report->passed());
  CHECK(report->rows.size() == 5);
  CHECK(report->not_compared == 0);
  CHECK(report_of({all[0]})->not_compared == 3);
  all[1].name = "gradient:w";
  all[3].name = "mutated.layer.count";
  CHECK(report_of(all)->passed());
}

TEST_CASE("names that the graph lacks are unreadable, with the nearest") {
  float x = 1;
  auto error_of = [&](const char* name) {
    auto report = report_of({{name, DType::f32, {}, {}, &x}});
    REQUIRE(!report.ok());
    CHECK(report.error().kind == ErrorKind::unreadable);
    return report.error().message + " " + report.error().hint;
  };
  CHECK(mentions(error_of("out3"), "the graph has no output `out3`"));
  CHECK(mentions(error_of("out01"), "no output `out01`"));
  CHECK(mentions(error_of("out18446744073709551616"), "no output `out"));
  CHECK(mentions(error_of("gradient:layer.wieght"), "gradient:layer.weight"));
  CHECK(mentions(error_of("mutated.layer.cuont"), "mutated.layer.count"));
}

TEST_CASE("failures come first, worst first") {
  Values v;
  float loss = 10.01f, g[4] = {1, 2, 3, 4.01f};
  int64_t count[2] = {5, 7};
  std::vector<TensorToWrite> all = {{"out0", DType::f32, {}, {}, &loss},
                                    {"out1", DType::f32, {2, 2}, {}, g},
                                    {"mutated.count", DType::i64, {2}, {}, count},
                                    {"out2", DType::f32, {}, {}, &loss}};
  auto report = report_of(all);
  REQUIRE(report.ok());
  CHECK(report->failed == 3);
  std::vector<std::string> names;
  for (const ExpectRow& row : report->rows) names.push_back(row.name);
  CHECK(names == std::vector<std::string>{"out2", "out0", "mutated.count", "out1"});
  CHECK(report->rows[0].problem == "is i64[], expected f32[]");
  CHECK(report->rows[3].narrowest == DType::bf16);  // 4.01 for 4 is within bf16's tolerance
  const std::string text = expect_text(*report);
  CHECK(mentions(text, "FAIL  out0"));
  CHECK(mentions(text, "worst at [1]: 6, expected 7  (written input layer.count)"));
  CHECK(mentions(text, "3 of 4 compared values are not as expected\n"));
  JsonWriter json;
  write_expect(*report, &json);
  CHECK(mentions(json.text(), R"({"passed":false,"compared":4,"failed":3,"not_compared":0,"outputs":[{"name":"out2")"));
}

TEST_CASE("a run in double is compared with what was recorded, or with doubles") {
  double g[4] = {1, 2, 3, 4};
  Job job = parse(kExpectedGraph);
  AliasAnalysis alias(*job.programs[0], job.programs[0]->graph);
  const int64_t shape[2] = {2, 2};
  RunValues wide{[&](ValueId) { return make_tensor(reinterpret_cast<std::byte*>(g), DType::f64, shape); }, {}};
  TempFolder folder;
  float narrow[4] = {1, 2, 3, 4};
  uint16_t half[4] = {};
  auto check = [&](DType dtype, const void* data, ExpectOptions options = {}) {
    std::vector<TensorToWrite> list = {{"out1", dtype, {2, 2}, {}, data}};
    REQUIRE(write_tensors(folder.file("e"), list).ok());
    auto expectation = Expectation::open(*job.programs[0], alias, folder.file("e"), options);
    REQUIRE(expectation.ok());
    return expectation->compare(wide).passed();
  };
  CHECK(check(DType::f32, narrow));
  CHECK(check(DType::f64, g));
  CHECK(!check(DType::bf16, half));
  CHECK(!check(DType::f32, narrow, {.bitwise = true}));
}

TEST_CASE("doubles are an oracle for a run in the recorded dtype, unless bits are asked for") {
  float g[4] = {1, 2, 3, 4};
  double expected[4] = {1, 2, 3, 4};
  Job job = parse(kExpectedGraph);
  AliasAnalysis alias(*job.programs[0], job.programs[0]->graph);
  const int64_t shape[2] = {2, 2};
  RunValues run{[&](ValueId) { return make_tensor(reinterpret_cast<std::byte*>(g), DType::f32, shape); }, {}};
  TempFolder folder;
  auto passes = [&](ExpectOptions options = {}) {
    std::vector<TensorToWrite> list = {{"out1", DType::f64, {2, 2}, {}, expected}};
    REQUIRE(write_tensors(folder.file("e"), list).ok());
    auto expectation = Expectation::open(*job.programs[0], alias, folder.file("e"), options);
    REQUIRE(expectation.ok());
    return expectation->compare(run).passed();
  };
  CHECK(passes());
  CHECK_FALSE(passes({.bitwise = true}));
  expected[3] = 5;
  CHECK_FALSE(passes());
}

TEST_CASE("saved outputs are what is expected of the same run") {
  TempFolder folder;
  Job job = parse(kExpectedGraph);
  AliasAnalysis alias(*job.programs[0], job.programs[0]->graph);
  Values v;
  auto staged = stage_outputs(folder.file("a/b"), job.programs[0]->graph, alias, v.of(job));
  REQUIRE(staged.ok());
  CHECK(!TensorFile::open(folder.file("a/b")).ok());
  REQUIRE(staged->commit().ok());
  auto file = TensorFile::open(folder.file("a/b"));
  REQUIRE(file.ok());
  std::vector<std::string> names;
  for (const StoredTensor& t : file->tensors()) names.push_back(t.name);
  CHECK(names == std::vector<std::string>{"mutated.count", "out0", "out1", "out2"});
  auto expectation = Expectation::open(*job.programs[0], alias, folder.file("a/b"), {.bitwise = true});
  REQUIRE(expectation.ok());
  CHECK(expectation->compare(v.of(job)).passed());
  v.g[2] += 1e-6f;
  CHECK(!expectation->compare(v.of(job)).passed());
}

TEST_CASE("rows in another order have the same slices, other rows have not") {
  const std::vector<float> rows = {1, 2, 3, 4, 5, 6};
  const std::vector<int64_t> shape = {3, 2};
  const auto along = [&](int axis, std::vector<float> values) {
    return slice_digest_of(make_tensor(reinterpret_cast<std::byte*>(values.data()), DType::f32, shape), axis);
  };
  CHECK(along(0, {5, 6, 1, 2, 3, 4}) == along(0, rows));
  CHECK(along(1, {5, 6, 1, 2, 3, 4}) != along(1, rows));
  CHECK(along(0, {1, 4, 3, 2, 5, 6}) != along(0, rows));
  CHECK(along(0, {1, 2, 1, 2, 5, 6}) != along(0, rows));
  CHECK(along(1, {2, 1, 4, 3, 6, 5}) == along(1, rows));
  CHECK(along(0, {2, 1, 4, 3, 6, 5}) != along(0, rows));
}
