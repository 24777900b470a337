#include "libgraph/base/sha256.h"

#include <catch2/catch.hpp>

#include "tests/support/rng.h"

namespace {

std::string random_bytes(sg::test::Rng& rng, size_t size) {
  std::string out(size, '\0');
  for (char& c : out) c = static_cast<char>(rng.next());
  return out;
}

}  // namespace

TEST_CASE("sha256 gives the published digests") {
  struct Case {
    std::string text, digest;
  };
  std::string two_blocks =
      "abcdefghbcdefghicdefghijdefghijkefghijklfghijklmghijklmnhijklmnoijklmnopjklmnopqklmnopqrlmnopqrs"
      "mnopqrstnopqrstu";
  for (const Case& c : std::vector<Case>{
           {"", "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
           {"abc", "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
           {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
           {two_blocks, "cf5b16a778af8380036ce59e7b0492370b249b11e8f07a51afac45037afee9d1"},
           {std::string(1000000, 'a'), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
       }) {
    CHECK(sg::hex(sg::sha256(c.text)) == c.digest);
    CHECK(sg::hex(sg::sha256_portable(c.text)) == c.digest);
    CHECK(sg::sha256_tag(c.text) == "sha256:" + c.digest);
  }
}

TEST_CASE("sha256 gives the same digest on both paths and for every way to cut the input") {
  sg::test::Rng rng(1);
  for (size_t size = 0; size < 260; ++size) {
    std::string bytes = random_bytes(rng, size);
    sg::Sha256::Digest whole = sg::sha256(bytes);
    CHECK(whole == sg::sha256_portable(bytes));
    sg::Sha256 parts;
    for (size_t at = 0; at < size;) {
      size_t step = 1 + rng.below(90);
      parts.update(std::string_view(bytes).substr(at, step));
      at += step;
    }
    CHECK(parts.finish() == whole);
  }
}
