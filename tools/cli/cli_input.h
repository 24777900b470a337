// Input of the tools: bytes of a file or of standard input, what form they have, and rank patterns.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/diag.h"
#include "libgraph/base/result.h"

namespace sg::cli {

// What the bytes of an input are, told by their content and never by a name.
enum class Form : uint8_t { empty, binary, text, json, gzip, zip, other };

Form form_of(std::string_view bytes);

struct Bytes {
  std::string name;  // as the user named it; "<stdin>"
  std::string data;
  Form form = Form::empty;
};

// The whole of a file, or of standard input for "-". Fails (unreadable) for what is missing, a folder, empty, or larger
// than any input may be. What has no known form is read only as far as needed to know that, unless `wants` says of its
// beginning that it is wanted.
Result<Bytes> read_bytes(const std::string& operand, const std::function<bool(std::string_view head)>& wants = {});

bool is_folder(const std::string& operand);
// Whether it can be read without waiting and has an end: no pipe, no device. A link is what it points to.
bool is_plain_file(const std::string& path);
bool is_link(const std::string& path);
// The names in a folder, sorted; without . and ..
Result<std::vector<std::string>> entries_of(const std::string& folder);

// Whether `operand` is a rank pattern: "rank{r}/step.json".
bool is_rank_pattern(std::string_view operand);
std::string file_of_rank(std::string_view pattern, uint32_t rank);

// The files of a rank pattern, by rank from 0; the operand itself when it is no pattern. A gap is an error, or with
// `left_out` a warning there.
Result<std::vector<std::string>> files_of(const std::string& operand, Diagnostics* left_out = nullptr);

// --best-effort, where others can be read: the warning that a file cannot be, and is left out.
void leave_out(const Error& why, Diagnostics* said);

}  // namespace sg::cli
