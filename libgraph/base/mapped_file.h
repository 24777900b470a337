// A file mapped into memory.
//
// Others may shorten the file meanwhile; to touch what is gone is SIGBUS. A handler tells by `mapped_file_at` whose
// fault that is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace sg {

class MappedFile {
 public:
  // copy_on_write: memory may be written; the file stays as it is, and only pages that are written cost memory.
  enum class Access : uint8_t { read, copy_on_write };

  // The first `size` bytes of an open file; none where the system cannot map them: errno. `name` is for messages.
  static std::optional<MappedFile> map(int descriptor, size_t size, std::string_view name, Access access);

  MappedFile() = default;
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::string_view bytes() const { return {static_cast<const char*>(at_), size_}; }

 private:
  void* at_ = nullptr;
  size_t size_ = 0;
  int entry_ = -1;  // in the list of mapped_file_at; -1: none was left
};

// The file that this address is mapped from, fit for a message; null if there is none. For signal handlers.
const char* mapped_file_at(const void* address);

}  // namespace sg
