// Any bytes give a safetensors file or an error; the tensors read lie within the bytes, and are written back unchanged.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "libgraph/data/safetensors.h"
#include "tests/support/find_tensor.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  auto file = sg::TensorFile::parse(bytes, "fuzz");
  if (!file.ok()) {
    if (!file.error().where.offset || *file.error().where.offset > size) std::abort();
    return 0;
  }
  std::vector<sg::TensorToWrite> list;
  for (const sg::StoredTensor& t : file->tensors()) {
    auto at = static_cast<const char*>(t.data);
    if (at < bytes.data() || t.bytes > size || at + t.bytes > bytes.data() + size) std::abort();
    if (t.name != "__metadata__") list.push_back({t.name, t.dtype, t.shape, {}, t.data});
  }
  auto written = sg::tensor_file_bytes(list, {.metadata = file->metadata()});
  if (!written.ok()) std::abort();
  auto again = sg::TensorFile::parse(*written, "written");
  if (!again.ok() || again->tensors().size() != list.size()) std::abort();
  for (const sg::TensorToWrite& t : list) {
    const sg::StoredTensor* same = sg::test::find_tensor(*again, t.name);
    if (same == nullptr || same->dtype != t.dtype || same->shape != t.shape) std::abort();
    if (std::memcmp(same->data, t.data, same->bytes) != 0) std::abort();
  }
  return 0;
}
