#include <bit>
#include <catch2/catch.hpp>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "libgraph/base/json.h"

using sg::json_float;
using sg::json_string;
using sg::JsonWriter;

TEST_CASE("json writes the one compact spelling") {
  JsonWriter w;
  w.begin_object().key("a").integer(-1).key("b").begin_array().string("x").null().boolean(true).floating(1).end_array();
  w.key("c").begin_object().end_object().key("d").begin_array().end_array().key("e").raw("[1]").end_object();
  CHECK(w.text() == R"({"a":-1,"b":["x",null,true,1.0],"c":{},"d":[],"e":[1]})");
}

TEST_CASE("json writes the pretty form") {
  JsonWriter w(JsonWriter::Style::pretty);
  w.begin_object().key("a").integer(1).key("b").begin_array().natural(2).natural(3).end_array();
  w.key("c").begin_object().end_object().end_object();
  CHECK(w.text() == "{\n  \"a\": 1,\n  \"b\": [\n    2,\n    3\n  ],\n  \"c\": {}\n}");
}

TEST_CASE("json floats read back to the same bits and look like floats") {
  CHECK(json_float(1) == "1.0");
  CHECK(json_float(-0.0) == "-0.0");
  CHECK(json_float(0.1) == "0.1");
  CHECK(json_float(1e30) == "1e+30");
  CHECK(json_float(std::numeric_limits<double>::infinity()) == "\"inf\"");
  CHECK(json_float(-std::numeric_limits<double>::infinity()) == "\"-inf\"");
  CHECK(json_float(std::nan("")) == "\"nan\"");
  uint64_t state = 7;
  for (int i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    double v = std::bit_cast<double>(state ^ (state >> 29));
    if (!std::isfinite(v)) continue;
    std::string text = json_float(v);
    REQUIRE(text.find_first_of(".e") != std::string::npos);
    REQUIRE(std::bit_cast<uint64_t>(std::strtod(text.c_str(), nullptr)) == std::bit_cast<uint64_t>(v));
  }
}

TEST_CASE("json counts are whole while they can be") {
  JsonWriter w;
  w.begin_array().count(0).count(123456789012345.0).count(9.5e18).count(0.5).end_array();
  CHECK(w.text() == "[0,123456789012345,9.5e+18,0.5]");
}

TEST_CASE("json strings are valid whatever the bytes") {
  CHECK(json_string("a\"b\\c\n\t\x01\x7f") == "\"a\\\"b\\\\c\\n\\t\\u0001\\u007f\"");
  CHECK(json_string("\u200b\u202e\u2066\ufeff\u2014") == "\"\\u200b\\u202e\\u2066\\ufeff\u2014\"");
  CHECK(json_string("\xC2\x80\xC2\x85\xC2\x9F\xC2\xA0") == "\"\\u0080\\u0085\\u009f\xC2\xA0\"");
  CHECK(json_string("\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80") == "\"\xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80\"");
  const char* broken[] = {"\x80", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xFF", "\xE2\x82"};
  for (const char* bytes : broken) {
    std::string out = json_string(bytes);
    INFO(out);
    CHECK(out.find("\xEF\xBF\xBD") == 1);
    CHECK(out.size() == 2 + 3 * std::string_view(bytes).size());
  }
}
