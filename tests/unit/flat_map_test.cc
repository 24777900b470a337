// The hash tables of libgraph/base/flat_map.h against std::map, and how their cost grows.
#include "libgraph/base/flat_map.h"

#include <catch2/catch.hpp>
#include <ctime>
#include <map>
#include <set>
#include <string>

#include "libgraph/expr/symbol_list.h"
#include "tests/support/linear_time.h"
#include "tests/support/rng.h"

namespace sg {
namespace {

using test::kLinearSeconds;
using test::Rng;
using test::seconds_since;

void check_same(const FlatMap<StrId, uint32_t>& map, const std::map<uint32_t, uint32_t>& model, uint32_t limit) {
  REQUIRE(map.size() == model.size());
  for (uint32_t key = 0; key < limit; ++key) {
    const uint32_t* value = map.find(StrId(key));
    auto it = model.find(key);
    REQUIRE((value != nullptr) == (it != model.end()));
    if (value) REQUIRE(*value == it->second);
  }
}

}  // namespace

TEST_CASE("an empty map holds nothing and forgets nothing") {
  FlatMap<StrId, uint32_t> map;
  CHECK(map.size() == 0);
  CHECK(!map.contains(StrId(0)));
  map.erase(StrId(3));
  map.clear();
  CHECK(map.try_emplace(StrId(3), 7).second);
  CHECK(*map.find(StrId(3)) == 7);
}

TEST_CASE("a map keeps the first value of a key") {
  FlatMap<StrId, uint32_t> map;
  CHECK(map.try_emplace(StrId(5), 1).second);
  auto [value, is_new] = map.try_emplace(StrId(5), 2);
  CHECK(!is_new);
  CHECK(*value == 1);
  *value = 9;
  CHECK(*map.find(StrId(5)) == 9);
}

TEST_CASE("random insertions and erasures give what std::map gives") {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    uint32_t limit = seed % 2 ? 40 : 2000;  // crowded tables have more displaced entries
    FlatMap<StrId, uint32_t> map;
    std::map<uint32_t, uint32_t> model;
    for (uint32_t step = 0; step < 4000; ++step) {
      uint32_t key = static_cast<uint32_t>(rng.below(limit));
      if (rng.percent(55)) CHECK(map.try_emplace(StrId(key), step).second == model.emplace(key, step).second);
      else map.erase(StrId(key)), model.erase(key);
    }
    check_same(map, model, limit);
    FlatMap<StrId, uint32_t> copy = map;
    map.clear();
    check_same(copy, model, limit);
  }
}

TEST_CASE("maps and indices take a million entries in linear time, whatever the distance of their keys") {
  for (uint32_t step : {1u, 8u, 1024u, 2047u}) {
    std::clock_t start = std::clock();
    FlatMap<StrId, uint32_t> map;
    for (uint32_t i = 0; i < 1'000'000; ++i) map.try_emplace(StrId(i * step), i);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < 1'000'000; ++i) sum += *map.find(StrId(i * step));
    CHECK(sum == uint64_t{999'999} * 1'000'000 / 2);
    for (uint32_t i = 0; i < 1'000'000; i += 2) map.erase(StrId(i * step));
    CHECK(map.size() == 500'000);
    CHECK(seconds_since(start) < kLinearSeconds);
  }
}

TEST_CASE("an index finds each record by hash and comparison, also where all hashes are the same") {
  FlatIndex index;
  std::vector<int> records;
  auto find = [&](uint64_t hash, int wanted) {
    return index.find(hash, [&](uint32_t i) { return records[i] == wanted; });
  };
  for (int v = 0; v < 300; ++v) {
    CHECK(find(42, v) == FlatIndex::kNone);
    records.push_back(v);
    index.insert(42, static_cast<uint32_t>(v));
  }
  for (int v = 0; v < 300; ++v) CHECK(find(42, v) == static_cast<uint32_t>(v));
  CHECK(find(43, 5) == FlatIndex::kNone);
  index.clear();
  CHECK(find(42, 5) == FlatIndex::kNone);
}

TEST_CASE("texts of every length are told apart") {
  FlatTextMap<size_t> map;
  std::vector<std::string> texts;
  for (size_t length = 0; length <= 70; ++length)
    for (size_t at = 0; at <= length; ++at) {
      texts.emplace_back(length, 'a');
      if (at < length) texts.back()[at] = 'b';
    }
  for (size_t i = 0; i < texts.size(); ++i) REQUIRE(map.try_emplace(texts[i], i).second);
  for (size_t i = 0; i < texts.size(); ++i) REQUIRE(*map.find(texts[i]) == i);
  CHECK(map.find("c") == nullptr);
}

TEST_CASE("hashes spread: no bit is the same for all, near texts are far apart") {
  std::set<uint64_t> seen;
  uint64_t all = ~uint64_t{0}, any = 0;
  for (int i = 0; i < 10'000; ++i) {
    uint64_t hash = hash_of_text("layers." + std::to_string(i) + ".weight");
    seen.insert(hash & 0xFFFFFFFF);
    all &= hash, any |= hash;
  }
  CHECK(all == 0);
  CHECK(any == ~uint64_t{0});
  CHECK(seen.size() > 9'990);
}

TEST_CASE("symbols are found by name; of two that share one, the first") {
  SymbolList list;
  for (uint32_t i = 0; i < 100; ++i)
    list.push_back({StrId(1000 + i), SymbolKind::data, {}, {}, int64_t{i}, 1, StrId()});
  list.push_back({StrId(1007), SymbolKind::data, {}, {}, 99, 1, StrId()});
  CHECK(list.find(StrId(1007))->hint == 7);
  CHECK(list.find(StrId(1)) == nullptr);
  list.pop_back();  // the second of that name
  CHECK(list.find(StrId(1007))->hint == 7);
  list.pop_back();
  CHECK(list.find(StrId(1099)) == nullptr);
  CHECK(list.size() == 99);
}

}  // namespace sg
