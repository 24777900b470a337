#include "tests/numeric/oracle.h"

#include <catch2/catch.hpp>

#include <cmath>

using namespace sg;
using namespace sg::test;

namespace {

struct Named {
  std::string bytes;
  TensorFile file;
  explicit Named(const std::vector<TensorToWrite>& list)
      : bytes(tensor_file_bytes(list).value()), file(TensorFile::parse(bytes, "test").value()) {}
};

OracleRow row_of(float ours, float torch, double oracle) {
  Named a({{"x", DType::f32, {}, {}, &ours}}), b({{"x", DType::f32, {}, {}, &torch}}),
      c({{"x", DType::f64, {}, {}, &oracle}});
  return compare_with_oracle(a.file, b.file, c.file)[0];
}

}  // namespace

TEST_CASE("an error of ours may be twice PyTorch's and a unit in the last place") {
  const double ulp = std::ldexp(1.0, -23);  // at 1.5
  CHECK(row_of(1.5f, 1.5f, 1.5).passed());
  CHECK(row_of(static_cast<float>(1.5 + ulp), 1.5f, 1.5).passed());
  CHECK(!row_of(static_cast<float>(1.5 + 2 * ulp), 1.5f, 1.5).passed());
  CHECK(row_of(1.5f + 0.002f, 1.5f - 0.001f, 1.5).passed());
  CHECK(!row_of(1.5f + 0.0021f, 1.5f - 0.001f, 1.5).passed());
  OracleRow row = row_of(1.25f, 1.5f, 1.0);
  CHECK((row.our_error == 0.25 && row.torch_error == 0.5 && row.difference == 0.25 && row.scale == 1));
}

TEST_CASE("NaNs and infinities stand where PyTorch has them") {
  CHECK(row_of(NAN, NAN, 1).passed());
  CHECK(row_of(INFINITY, INFINITY, 1).passed());
  CHECK(!row_of(NAN, 1, 1).passed());
  CHECK(!row_of(1, NAN, 1).passed());
  CHECK(!row_of(-INFINITY, INFINITY, 1).passed());
}

TEST_CASE("integers equal PyTorch's; what is missing or of another type has failed; the worst comes first") {
  int64_t i = 3, j = 4;
  float x = 1, y = 2;
  double o = 1;
  Named ours({{"a", DType::i64, {}, {}, &i}, {"b", DType::f32, {}, {}, &x}, {"c", DType::f32, {1}, {}, &x}});
  Named expected({{"a", DType::i64, {}, {}, &i},
                  {"b", DType::f32, {}, {}, &y},
                  {"c", DType::f32, {}, {}, &x},
                  {"d", DType::f32, {}, {}, &x}});
  Named oracle({{"b", DType::f64, {}, {}, &o}, {"c", DType::f64, {}, {}, &o}, {"d", DType::f64, {}, {}, &o}});
  auto rows = compare_with_oracle(ours.file, expected.file, oracle.file);
  REQUIRE(rows.size() == 4);
  CHECK((rows[0].name == "c" && rows[0].problem == "ours has another dtype or shape"));
  CHECK((rows[1].name == "d" && rows[1].problem == "ours is missing"));
  CHECK((rows[2].passed() && rows[3].passed()));
  CHECK(oracle_table(rows, false).find("4 tensors, 2 beyond") != std::string::npos);

  Named other({{"a", DType::i64, {}, {}, &j}});
  Named only_a({{"a", DType::i64, {}, {}, &i}}), none({});
  CHECK(compare_with_oracle(other.file, only_a.file, none.file)[0].problem == "differs from PyTorch's");
  CHECK(compare_with_oracle(ours.file, expected.file, none.file)[0].problem == "the oracle is missing");
}
