#include "libgraph/import/gzip.h"

#include <catch2/catch.hpp>

#include <zlib.h>

using namespace sg;

namespace {

std::string pack(std::string_view text, bool sum_of_header = false) {
  z_stream z{};
  REQUIRE(deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) == Z_OK);
  gz_header header{};
  header.hcrc = sum_of_header ? 1 : 0;
  REQUIRE(deflateSetHeader(&z, &header) == Z_OK);
  std::string out(deflateBound(&z, text.size()), '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  z.avail_in = static_cast<uInt>(text.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&z, Z_FINISH) == Z_STREAM_END);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

std::string pattern(size_t n) {
  std::string out;
  for (size_t i = 0; out.size() < n; ++i) out += std::to_string(i * 2654435761u) + ",";
  return out;
}

}  // namespace

TEST_CASE("gzip members unpack one after the other") {
  for (std::string text : {std::string(), std::string("a"), pattern(100000)}) {
    auto one = gunzip(pack(text));
    REQUIRE(one.ok());
    CHECK(one.value() == text);
    auto two = gunzip(pack(text) + pack("tail"));
    REQUIRE(two.ok());
    CHECK(two.value() == text + "tail");
  }
}

TEST_CASE("every truncation and every damaged bit of a gzip file is an error or the same text") {
  const std::string text = pattern(300), packed = pack(text);
  for (size_t n = 2; n < packed.size(); ++n) CHECK(!gunzip(packed.substr(0, n)).ok());
  for (size_t bit = 16; bit < packed.size() * 8; ++bit) {
    std::string damaged = packed;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    auto out = gunzip(damaged);
    if (out.ok()) CHECK(out.value() == text);  // some bits of the header do not affect the text
  }
}

TEST_CASE("a wrong checksum of the header is an error, wherever the member stands") {
  const std::string text = pattern(300), plain = pack(text), packed = pack(text, true);
  CHECK(gunzip(packed).value() == text);
  CHECK(gunzip(plain + packed).value() == text + text);
  std::string damaged = packed;
  damaged[10] = static_cast<char>(damaged[10] ^ 1);
  CHECK(!gunzip(damaged).ok());
  CHECK(!gunzip(plain + damaged).ok());
}

TEST_CASE("what follows the last member is an error with its place") {
  const std::string packed = pack(pattern(300));
  auto out = gunzip(packed + "tail");
  REQUIRE(!out.ok());
  CHECK(out.error().where.offset.value_or(0) >= packed.size());
}

TEST_CASE("a gzip file may not unpack to more than its limits") {
  const std::string bomb = pack(std::string(1 << 20, 'x'));
  const GzipLimits kByRatio{.free_bytes = 1000, .max_ratio = 10}, kByBytes{.max_bytes = 1000},
      kFree{.free_bytes = 1 << 20, .max_ratio = 1};
  CHECK(gunzip(bomb, kByRatio).error().message.find("unpacks to more than") != std::string::npos);
  CHECK(gunzip(bomb, kByBytes).error().message.find("more than 1000 bytes") != std::string::npos);
  CHECK(gunzip(bomb, kFree).ok());
}

TEST_CASE("what unpacks to far more than is likely unpacks all the same, and its beginning is there first") {
  const std::string text = "begin" + std::string(10 << 20, 'x') + pattern(3000);
  CHECK(gunzip(pack(text)).value() == text);
  CHECK(gunzip(pack(text) + pack(text)).value() == text + text);
  CHECK(gunzip_head(pack(text), 7) == "beginxx");
  CHECK(gunzip_head(pack("ab"), 7) == "ab");
  CHECK(gunzip_head(pack(text).substr(0, 4), 7).empty());
}

TEST_CASE("zeros may follow the last gzip member") {
  auto filled = gunzip(pack("text") + std::string(512, '\0'));
  REQUIRE(filled.ok());
  CHECK(filled.value() == "text");
  CHECK(!gunzip(pack("text") + std::string(512, '\0') + "x").ok());
}
