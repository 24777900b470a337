// The captures of PyTorch in ../shared/traces, beside the clone. Where that folder is absent, a test says so aloud and
// unit_tests ends with 77, which ctest shows as skipped (SKIP_RETURN_CODE), unless a test has failed.
#pragma once

#include <optional>
#include <string>

namespace sg::test {

bool traces_are_here();
// The bytes of one; none where the folder is absent. One that is missing in it is a failure.
std::optional<std::string> trace(const std::string& path);

// Whether a test has asked in vain.
bool has_skipped();

}  // namespace sg::test
