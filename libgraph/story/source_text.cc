#include "libgraph/story/source_text.h"

namespace sg {

std::string source_text(const Pool& pool, SourceId id) {
  if (id.is_none()) return {};
  const Source& source = pool.sources[id];
  return std::string(pool.strings[source.file]) + ":" + std::to_string(source.line);
}

std::string short_source_text(const Pool& pool, SourceId id) {
  std::string out = source_text(pool, id);
  if (id) out.erase(0, pool.strings[pool.sources[id].file].rfind('/') + 1);
  return out;
}

}  // namespace sg
