#include <catch2/catch.hpp>

#include <cstdlib>
#include <string>

#include "libgraph/export/export_python.h"
#include "libgraph/export/python_words.h"
#include "tests/support/random_job.h"

using namespace sg;
using namespace sg::python;

TEST_CASE("identifiers are near to the name, and each is given once") {
  Scope module;
  REQUIRE(module.claim("torch") == "torch");
  Scope scope(&module);
  const std::pair<const char*, const char*> cases[] = {{"mm", "mm"},
                                                       {"mm", "mm_1"},
                                                       {"mm_1", "mm_1_1"},
                                                       {"mm", "mm_2"},
                                                       {"lambda", "lambda_1"},
                                                       {"sum", "sum_1"},
                                                       {"torch", "torch_1"},
                                                       {"a b", "a_b"},
                                                       {"a.b", "a_b_1"},
                                                       {"1st", "_1st"},
                                                       {"", "__1"},
                                                       {"_", "__2"},
                                                       {"\xC3\xA9t\xC3\xA9", "_t_"},
                                                       {"x\n;y", "x__y"}};
  for (auto [wish, identifier] : cases) REQUIRE(scope.claim(wish) == identifier);
}

TEST_CASE("text is one literal, whatever its bytes") {
  REQUIRE(string_literal("plain") == "\"plain\"");
  REQUIRE(string_literal("a\"b\\c\nd\x01") == "\"a\\\"b\\\\c\\nd\\x01\"");
  REQUIRE(string_literal("\xC3\xA9") == "\"\xC3\xA9\"");
  REQUIRE(string_literal("\xFF") == "\"\\udcff\"");          // not UTF-8: as Python's surrogateescape
  REQUIRE(string_literal("\xE2\x80\xAE") == "\"\\u202e\"");  // changes the direction of the text after it
  REQUIRE(string_literal("\xC2\x85") == "\"\\u0085\"");      // a line end for some readers
}

TEST_CASE("floats read back to the same bits") {
  for (double v : {0.1, -0.0, 5e-324, 1.7976931348623157e308, 3.0})
    REQUIRE(std::strtod(float_literal(v).c_str(), nullptr) == v);
  REQUIRE(float_literal(3.0) == "3.0");
  REQUIRE(float_literal(-1.0 / 0.0) == "-inf");
}

TEST_CASE("names of ops are dotted identifiers") {
  for (const char* good : {"aten.add.Tensor", "aten.__and__.Scalar", "my_lib.op"}) REQUIRE(is_dotted_name(good));
  for (const char* bad : {"", "aten.", ".x", "a b.c", "aten.lambda.x", "x;y.z", "1a.b", "a..b"})
    REQUIRE_FALSE(is_dotted_name(bad));
}

TEST_CASE("long calls are broken inside their brackets only") {
  std::string code = "x = f(", out;
  for (int i = 0; i < 40; ++i) code += "argument" + std::to_string(i) + "," + kBreak;
  code += "\"text, with ( and a long tail that is not broken\")";
  append_line(4, code, "f32[2]", &out);
  REQUIRE(out.starts_with("    x = f(  # f32[2]\n        argument0, argument1,"));
  REQUIRE(out.ends_with("not broken\")\n"));
  REQUIRE(out.find(kBreak) == out.npos);
  for (size_t begin = 0, end; (end = out.find('\n', begin)) != out.npos; begin = end + 1) REQUIRE(end - begin <= 122);
}

TEST_CASE("the same job gives the same module") {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    test::RandomJobOptions options;
    options.opaque_ops = false;
    Job a = test::random_job(seed, options), b = test::random_job(seed, options);
    Result<std::string> one = export_python(a), two = export_python(b), again = export_python(a);
    REQUIRE(one.ok() == two.ok());
    if (!one.ok()) continue;
    REQUIRE(*one == *two);
    REQUIRE(*one == *again);
  }
}
