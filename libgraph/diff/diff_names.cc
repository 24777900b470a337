#include "libgraph/diff/diff_names.h"

#include <algorithm>
#include <iterator>

#include "libgraph/base/chars.h"

namespace sg {
namespace {

// The index after the name, quoted or not, that begins at i.
size_t end_of_name(std::string_view line, size_t i) {
  if (i < line.size() && line[i] == '"') {
    for (++i; i < line.size() && line[i] != '"'; ++i) i += line[i] == '\\';
    return i + 1;
  }
  while (i < line.size() && is_dotted_word(line[i])) ++i;
  return i;
}

}  // namespace

std::string without_names(std::string_view line) {
  // Words of the text form before a node's name, or before a number that is specific to each node.
  constexpr std::string_view kBefore[] = {" label ",      " remat_of ", " copy_of ", " chunk_of ",
                                          " offload_of ", " original ", " stream "};
  std::string out;
  const size_t extra = line.find(" extra {");  // numbers there belong to the producer: lines, calls
  for (size_t i = 0; i < line.size();) {
    if (i > extra && is_digit(line[i])) {
      ++i;
      continue;
    }
    const auto before =
        std::ranges::find_if(kBefore, [&](std::string_view w) { return line.substr(i).starts_with(w); });
    if (i < extra && before != std::end(kBefore)) {
      out += *before;
      i = end_of_name(line, i + before->size());
    } else if (line[i] == '%') {
      out += line[i];
      i = end_of_name(line, i + 1);
    } else {
      out += line[i++];
    }
  }
  return out;
}

}  // namespace sg
