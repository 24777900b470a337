#include <catch2/catch.hpp>
#include <set>

#include "libgraph/base/joined.h"
#include "libgraph/modules/module_path.h"
#include "libgraph/modules/module_pattern.h"
#include "libgraph/modules/module_ranges.h"
#include "tests/support/rng.h"

using sg::ModulePattern;

namespace {

bool matches(std::string_view pattern, std::string_view module) {
  auto p = ModulePattern::parse(pattern);
  INFO(pattern);
  REQUIRE(p.ok());
  return p->matches(module);
}

// Implements the pattern language again, by recursion over one alternative.
bool naive(const std::vector<std::string>& pattern, size_t i, const std::vector<std::string>& name, size_t k) {
  if (i == pattern.size()) return true;
  if (pattern[i] == "**") return naive(pattern, i + 1, name, k) || (k < name.size() && naive(pattern, i, name, k + 1));
  return k < name.size() && (pattern[i] == "*" || pattern[i] == name[k]) && naive(pattern, i + 1, name, k + 1);
}

}  // namespace

TEST_CASE("module pattern names a module and all inside it") {
  struct Case {
    const char* pattern;
    const char* module;
    bool expected;
  };
  const Case cases[] = {
      {"layers.0", "layers.0", true},
      {"layers.0", "layers.0.attention.wq", true},
      {"layers.0", "layers.01", false},
      {"layers.0", "layers", false},
      {"layers.*", "layers.3.moe", true},
      {"layers.*", "layers", false},
      {"layers.*.moe", "layers.3.moe", true},
      {"layers.*.moe", "layers.3.x.moe", false},
      {"**.moe", "moe", true},
      {"**.moe", "a.b.moe.c", true},
      {"a.**.b", "a.b", true},
      {"a.**.b", "a.x.y.b.z", true},
      {"a.**.b", "a.x", false},
      {"**", "", true},
      {"*", "", false},
      {"layers.{0,1}.moe", "layers.1.moe", true},
      {"layers.{0,1}.moe", "layers.2.moe", false},
      {"w{q,k,v}", "wk", true},
      {"{layers.*.moe,norm}", "norm.weight", true},
      {"{layers.*.moe,norm}", "layers.9.moe", true},
      {"{a,b{c,d}}.e", "bd.e", true},
      {"w{,q}", "w", true},
      {"{*,**}.x", "a.b.x", true},
      {"a b.\xC3\xA9", "a b.\xC3\xA9.x", true},
      {"layers.{0..5}.moe", "layers.5.moe.router", true},
      {"layers.{0..5}.moe", "layers.6.moe", false},
      {"layers.{2..11}", "layers.1", false},
      {"layers.{2..11}", "layers.9.attention", true},
      {"layers.{2..11}", "layers.x", false},
      {"layers.{0..5}", "layers.00", false},
      {"layers.{0,3..5,norm}", "layers.norm", true},
      {"{{0..1},norm}", "1.wq", true},
      {"h.{7..7}", "h.7", true},
      {"h.{0..4294967294}", "h.4000000000", true},
  };
  for (const Case& c : cases) {
    INFO(c.pattern << " on " << c.module);
    CHECK(matches(c.pattern, c.module) == c.expected);
  }
}

TEST_CASE("module pattern errors have a column") {
  struct Case {
    std::string pattern;
    uint32_t column;
    const char* part;
  };
  const Case cases[] = {
      {"", 1, "empty"},
      {"a..b", 3, "empty component"},
      {".a", 1, "empty component"},
      {"a.", 3, "empty component"},
      {"a.b*", 4, "'*'"},
      {"{a,b", 1, "without '}'"},
      {"a}", 2, "without '{'"},
      {"a,b", 2, "outside"},
      {"a.{b,***}", 6, "'*'"},
      {"layers.{0,}", 12, "empty component"},
      {"layers.0..5", 10, "empty component"},
      {"layers.{0..}", 11, "empty component"},
      {"layers.{5..0}", 9, "goes down"},
      {"block{0..3}", 7, "whole component"},
      {"a{b,{c}", 2, "without '}'"},
      {std::string(5000, 'a'), 4097, "longer"},
      {std::string(40, '{') + std::string(40, '}'), 17, "deep"},
  };
  for (const Case& c : cases) {
    INFO(c.pattern.substr(0, 60));
    auto p = ModulePattern::parse(c.pattern);
    REQUIRE_FALSE(p.ok());
    CHECK(p.error().kind == sg::ErrorKind::usage);
    CHECK(p.error().where.column == c.column);
    CHECK(p.error().message.find(c.part) != std::string::npos);
  }
}

TEST_CASE("module pattern stays bounded on hostile input") {
  std::string choices, nested = "a";
  for (int i = 0; i < 40; ++i) choices += "{a,b}";
  CHECK_FALSE(ModulePattern::parse(choices).ok());
  std::string wide = "{";
  for (int i = 0; i < 1500; ++i) wide += "a,";
  CHECK_FALSE(ModulePattern::parse(wide + "b}").ok());
  std::string stars = "**", name = "a";
  for (int i = 0; i < 600; ++i) stars += ".*.**", name += ".a";
  CHECK_FALSE(matches(stars + ".b", name));
}

TEST_CASE("module pattern agrees with a naive matcher") {
  sg::test::Rng rng(11);
  const std::vector<std::string> words = {"a", "b", "*", "**"}, names = {"a", "b", "c"};
  int matched = 0;
  for (int i = 0; i < 4000; ++i) {
    std::vector<std::string> pattern, name;
    for (uint64_t k = 1 + rng.below(5); k > 0; --k) pattern.push_back(rng.pick(words));
    for (uint64_t k = rng.below(6); k > 0; --k) name.push_back(rng.pick(names));
    INFO(sg::joined(pattern, ".") << " on " << sg::joined(name, "."));
    bool expected = naive(pattern, 0, name, 0);
    matched += expected;
    REQUIRE(matches(sg::joined(pattern, "."), sg::joined(name, ".")) == expected);
  }
  CHECK(matched > 500);
  CHECK(matched < 3500);
}

TEST_CASE("a printed range, read as a pattern, matches exactly its modules") {
  sg::test::Rng rng(12);
  for (int i = 0; i < 300; ++i) {
    const std::string stack = rng.below(4) ? "model.layers." : "", inside = rng.below(2) ? ".moe" : "";
    std::set<uint64_t> layers;
    for (uint64_t k = 1 + rng.below(20); k > 0; --k) layers.insert(rng.below(30));
    const std::string first = stack + std::to_string(*layers.begin()) + inside;
    const std::string printed = sg::with_layers(sg::layer_name(first).pattern, layers);
    INFO(printed);
    for (uint64_t layer = 0; layer < 40; ++layer) {
      CHECK(matches(printed, stack + std::to_string(layer) + inside) == layers.contains(layer));
      CHECK_FALSE(matches(printed, "other." + stack + std::to_string(layer) + inside));
    }
  }
}

TEST_CASE("a name's first number parts it into stack, layer and what is inside") {
  struct Case {
    const char* module;
    const char* stack;
    int32_t number;
    const char* layer;
    const char* inside;
  };
  const Case cases[] = {
      {"encoder.layers.3.ff.0", "encoder.layers", 3, "encoder.layers.3", "ff.0"},
      {"layers.12", "layers", 12, "layers.12", ""},
      {"0.weight", "", 0, "0", "weight"},
      {"7", "", 7, "7", ""},
      {"layers.x1.norm", "", -1, "", ""},
      {"layers.1234567890.norm", "", -1, "", ""},  // more digits than a module number has
      {"a..2", "a.", 2, "a..2", ""},
      {"", "", -1, "", ""},
  };
  for (const Case& c : cases) {
    INFO(c.module);
    const sg::NumberedModule got = sg::numbered_module(c.module);
    CHECK(got.stack == c.stack);
    CHECK(got.number == c.number);
    CHECK(got.layer == c.layer);
    CHECK(got.inside == c.inside);
  }
}

TEST_CASE("parents, what lies in a module, and patterns of names") {
  CHECK(sg::parent_module("encoder.layers.3") == "encoder.layers");
  CHECK(sg::parent_module("encoder") == "");
  CHECK(sg::parent_module("") == "");
  CHECK(sg::is_in_module("layers.1.moe", "layers.1"));
  CHECK(sg::is_in_module("layers.1", "layers.1"));
  CHECK(sg::is_in_module("norm", ""));
  CHECK_FALSE(sg::is_in_module("layers.10", "layers.1"));
  CHECK_FALSE(sg::is_in_module("layers", "layers.1"));
  CHECK(sg::common_module("layers.1.moe.router", "layers.1.moe.experts") == "layers.1.moe");
  CHECK(sg::common_module("layers.1", "layers.10") == "layers");
  CHECK(sg::common_module("encoder", "decoder") == "");
  CHECK(sg::pattern_of_module("layers.3.experts.11.w1") == "layers.*.experts.*.w1");
  CHECK(sg::pattern_of_module("") == "");
}

TEST_CASE("the parts of a name join to it") {
  sg::test::Rng rng(11);
  for (int i = 0; i < 200; ++i) {
    std::vector<std::string> words(1 + rng.below(5));
    for (std::string& word : words)
      word = rng.below(2) ? "w" + std::to_string(rng.below(3)) : std::to_string(rng.below(99));
    const std::string module = sg::joined(words, ".");
    const std::vector<sg::ModulePart> parts = sg::parts_of_module(module);
    REQUIRE(parts.size() == words.size());
    for (size_t k = 0; k < parts.size(); ++k) {
      CHECK(parts[k].name == words[k]);
      CHECK(sg::parent_module(parts[k].path) == (k == 0 ? "" : parts[k - 1].path));
      CHECK(sg::is_in_module(module, parts[k].path));
    }
    CHECK(parts.back().path == module);
  }
  CHECK(sg::parts_of_module("").empty());
}
