// safetensors: named tensors in one file. What inputs, outputs, expectations and large constants are kept in.
//
//   [8 bytes: N, little endian][N bytes: JSON header][data]
//   {"wq":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}, ..., "__metadata__":{"key":"text"}}
//
// Reading  The file is mapped, never copied: a tensor's `data` points into the mapping and is valid as long as the
//          TensorFile. Nothing of the file is trusted: the header is at most kMaxHeaderBytes and lies within the file,
//          names are unique, each tensor's bytes are exactly what its type and shape need (checked arithmetic), and
//          the tensors cover the data from its first byte to its last without a hole or an overlap. Errors are
//          `unreadable` and carry the byte offset in the file.
//          The format does not align tensors: `aligned()` says whether one may be read as its type.
//          Where the file is shortened meanwhile, to touch what is gone is SIGBUS (mapped_file.h).
// Writing  Same tensors, same bytes: the larger element types first (so that all are aligned), then by name. Whole or
//          not at all (output_file.h), on the disk before it takes its name.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "libgraph/base/mapped_file.h"
#include "libgraph/base/output_file.h"
#include "libgraph/base/result.h"
#include "libgraph/dtype.h"

namespace sg {

std::string_view safetensors_dtype_name(DType t);  // "F32"; empty = the format has none

// Bytes of a contiguous tensor; none when a size is negative or the result passes 63 bits.
std::optional<uint64_t> contiguous_bytes(DType dtype, std::span<const int64_t> shape);

struct StoredTensor {
  std::string name;
  DType dtype = DType::none;
  std::vector<int64_t> shape;
  const void* data = nullptr;  // contiguous, little endian; not null, even of no bytes
  uint64_t bytes = 0;
  uint64_t offset = 0;  // of `data` in the file

  bool aligned() const;  // `data` is a multiple of what its element type needs
};

class TensorFile {
 public:
  static constexpr uint64_t kMaxHeaderBytes = 100 << 20;  // the format's own limit
  static constexpr size_t kMaxRank = 64;

  using Access = MappedFile::Access;
  static Result<TensorFile> open(const std::string& path, Access access = Access::read);
  // Over bytes that the caller keeps; `name` is for messages.
  static Result<TensorFile> parse(std::string_view bytes, std::string name);

  const std::string& name() const { return name_; }
  const std::vector<StoredTensor>& tensors() const { return tensors_; }                           // sorted by name
  const std::vector<std::pair<std::string, std::string>>& metadata() const { return metadata_; }  // sorted by key
  // REQUIRES: opened with copy_on_write, `tensor` is one of tensors()
  void* writable(const StoredTensor& tensor) const { return const_cast<void*>(tensor.data); }

 private:
  friend class SafetensorsReader;
  TensorFile() = default;

  std::string name_;
  MappedFile mapping_;  // none = the caller's bytes
  std::vector<StoredTensor> tensors_;
  std::vector<std::pair<std::string, std::string>> metadata_;
};

struct TensorToWrite {
  std::string name;
  DType dtype = DType::none;
  std::vector<int64_t> shape;
  std::vector<int64_t> stride;  // in elements, may be 0 or negative; empty = contiguous
  const void* data = nullptr;   // element [0, ..., 0]; may be null when the tensor has no elements
};

struct WriteOptions {
  std::vector<std::pair<std::string, std::string>> metadata;
  bool make_folders = false;
};

// A full disk is `missing`; a name that occurs twice or a type that the format lacks is `cannot_apply`.
Status write_tensors(const std::string& path, std::span<const TensorToWrite> tensors, const WriteOptions& options = {});
// The same without the name: written and on the disk, but not in its place before `commit()`. For files that must
// appear together with others.
Result<OutputFile> stage_tensors(const std::string& path, std::span<const TensorToWrite> tensors,
                                 const WriteOptions& options = {});
// What write_tensors puts into the file.
Result<std::string> tensor_file_bytes(std::span<const TensorToWrite> tensors, const WriteOptions& options = {});

}  // namespace sg
