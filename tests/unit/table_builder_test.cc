// TableBuilder's own search for equal layouts gives the same bytes as FlatBuffers.
#include "libgraph/binary/table_builder.h"

#include <catch2/catch.hpp>
#include <string>
#include <vector>

#include "tests/support/rng.h"

namespace sg {
namespace {

using test::Rng;
using Table = flatbuffers::Offset<flatbuffers::Table>;

// A table of fields chosen by `rng`; every eighth also refers to an earlier one.
Table add_table(flatbuffers::FlatBufferBuilder& builder, Rng& rng, const std::vector<Table>& earlier) {
  auto text = rng.percent(20) ? builder.CreateString("text") : 0;
  auto start = builder.StartTable();
  for (flatbuffers::voffset_t field = 0; field < 12; ++field) {
    auto place = static_cast<flatbuffers::voffset_t>(4 + 2 * field);
    uint64_t value = rng.below(3);
    if (field == 3) builder.AddOffset(place, text);
    else if (field == 7 && !earlier.empty() && rng.percent(12)) builder.AddOffset(place, rng.pick(earlier));
    else if (field % 3 == 0) builder.AddElement<uint8_t>(place, static_cast<uint8_t>(value), 0);
    else if (field % 3 == 1) builder.AddElement<uint32_t>(place, static_cast<uint32_t>(value), 0);
    else builder.AddElement<uint64_t>(place, value, 0);
  }
  return Table(builder.EndTable(start));
}

template <class Share>
std::string bytes_of(flatbuffers::FlatBufferBuilder& builder, uint64_t seed, const Share& share) {
  Rng rng(seed);
  std::vector<Table> tables;
  for (size_t i = rng.below(3000) + 1; i > 0; --i) tables.push_back(share(add_table(builder, rng, tables)));
  builder.Finish(tables.back());
  return {reinterpret_cast<const char*>(builder.GetBufferPointer()), builder.GetSize()};
}

}  // namespace

TEST_CASE("layouts are shared as FlatBuffers shares them, byte for byte") {
  for (uint64_t seed = 0; seed < 30; ++seed) {
    flatbuffers::FlatBufferBuilder theirs;
    TableBuilder ours(64);  // grows many times
    std::string expected = bytes_of(theirs, seed, [](Table t) { return t; });
    CHECK(bytes_of(ours, seed, [&](Table t) { return ours.share(t); }) == expected);
  }
}

}  // namespace sg
