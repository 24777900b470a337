#include "libgraph/base/escape.h"

#include <catch2/catch.hpp>

using namespace sg;

TEST_CASE("words of a shell are quoted where they must be") {
  CHECK(shell_word("--budget=1.5GiB") == "--budget=1.5GiB");
  CHECK(shell_word("") == "''");
  CHECK(shell_word("layers.*") == "'layers.*'");
  CHECK(shell_word("it's $HOME") == "'it'\\''s $HOME'");
}

TEST_CASE("markup has no marks of its own and no controls left") {
  CHECK(escaped_markup("a<b> & \"c\"\x1b\n") == "a&lt;b&gt; &amp; &quot;c&quot;  ");
  CHECK(escaped_markup("\xE2\x86\x92") == "\xE2\x86\x92");
}
