#include "librun/check/precision.h"

#include <catch2/catch.hpp>

#include "tests/support/parse.h"

using namespace sg;
using sg::test::parse_programs;

namespace {

// The narrowest float that %NAME depends on.
std::string narrowest(const Job& job, std::string_view name) {
  const Program& program = *job.programs[0];
  AliasAnalysis alias(program, program.graph);
  return std::string(dtype_name(narrowest_floats(program, alias)[program.graph.find_value(name).index]));
}

}  // namespace

TEST_CASE("what is stored as f32 but came through bf16 counts as bf16") {
  Job job = parse_programs(R"(graph rank *
  input %x : f32[4]
  input %h : f16[4]
  input %d : f64[4]
  input %i : i64[4]

  forward -
    %a = aten.mul.Tensor(%x, %x)             : f32[4]
    %b = aten._to_copy(%a, dtype=bf16)       : bf16[4]
    %c = aten._to_copy(%b, dtype=f32)        : f32[4]
    %e = aten.add.Tensor(%c, %a)             : f32[4]
    %f = aten._to_copy(%h, dtype=f32)        : f32[4]
    %g = aten.add.Tensor(%f, %e)             : f32[4]
    %k = aten.neg(%i)                        : i64[4]
    %l = aten.neg(%d)                        : f64[4]
    %m = aten._to_copy(%d, dtype=f32)        : f32[4]
    %o = aten._to_copy(%m, dtype=i64)        : i64[4]

  output %g
)");
  CHECK(narrowest(job, "a") == "f32");
  CHECK(narrowest(job, "b") == "bf16");
  CHECK(narrowest(job, "e") == "bf16");
  CHECK(narrowest(job, "f") == "f16");
  CHECK(narrowest(job, "g") == "bf16");
  CHECK(narrowest(job, "k") == "none");
  CHECK(narrowest(job, "l") == "f64");
  CHECK(narrowest(job, "m") == "f32");
  CHECK(narrowest(job, "o") == "f32");  // an integer that depends on floats
}

TEST_CASE("what is written into memory counts for those who read it later") {
  Job job = parse_programs(R"(graph rank *
  input %x : f32[4]
  input %h : bf16[4]
  buffer %sum : f32[4] "sum"

  forward -
    %before = aten.neg(%sum)                 : f32[4]
    %v = aten.slice.Tensor(%sum, 0, 0, 2)    : f32[2]
    %s = aten.slice.Tensor(%h, 0, 0, 2)      : bf16[2]
    %w = aten.copy_(%v, %s)                  : f32[2]
    %after = aten.neg(%sum)                  : f32[4]
    %other = aten.neg(%x)                    : f32[4]

  output %after
)");
  CHECK(narrowest(job, "before") == "f32");
  CHECK(narrowest(job, "after") == "bf16");
  CHECK(narrowest(job, "other") == "f32");
  CHECK(narrowest(job, "sum") == "bf16");  // as the run leaves it
  CHECK(narrowest(job, "x") == "f32");
}

TEST_CASE("an output is what has been written to it in the end, also by the body of a call") {
  Job job = parse_programs(R"(graph rank *
  input %x : f32[4]

  forward -
    %all = aten.zeros([4], dtype=f64)        : f64[4]
    %alone = aten.zeros([4], dtype=f64)      : f64[4]
    %w, = sg.call(graph:body, [%x, %all])    : f64[4]

  output %all
  output %alone

graph rank * nested "body"
  input %a : f32[4]
  input %to : f64[4]

  %wide = aten._to_copy(%a, dtype=f64)       : f64[4]
  %done = aten.copy_(%to, %wide)             : f64[4]

  output %done
)");
  CHECK(narrowest(job, "all") == "f32");
  CHECK(narrowest(job, "alone") == "f64");
}

TEST_CASE("types count by what they can hold") {
  CHECK(significand_bits(DType::c64) == 24);
  CHECK(significand_bits(DType::bf16) == 8);
  CHECK(significand_bits(DType::f16) == 11);
  CHECK(significand_bits(DType::f64) == 53);
  CHECK(significand_bits(DType::i64) == 0);
}
