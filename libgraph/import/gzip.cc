#include "libgraph/import/gzip.h"

#include <algorithm>
#include <memory>
#include <optional>

#ifdef SG_HAVE_LIBDEFLATE
#include <libdeflate.h>
#endif
#include <zlib.h>

#include "libgraph/base/large_pages.h"

namespace sg {
namespace {

constexpr uint64_t kLikelyRatio = 64;  // captures unpack to about twenty times their size
constexpr size_t kSpareBytes = 256;    // after the text: simdjson reads past the end
constexpr size_t kScratchBytes = size_t{256} << 10;
constexpr uint64_t kWindow = uint64_t{1} << 30;  // zlib counts in 32 bits

struct Inflater {
  z_stream stream{};
  bool ready = false;
  Inflater() { ready = inflateInit2(&stream, 15 + 16) == Z_OK; }  // 16: gzip only
  ~Inflater() {
    if (ready) inflateEnd(&stream);
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
};

Error gzip_error(std::string message, uint64_t offset, std::string hint) {
  Error error{ErrorKind::unreadable, std::move(message), {}, std::move(hint)};
  error.where.offset = offset;
  return error;
}

uint64_t allowed_bytes(uint64_t packed, const GzipLimits& limits) {
  uint64_t by_ratio = packed > UINT64_MAX / limits.max_ratio ? UINT64_MAX : packed * limits.max_ratio;
  return std::min(limits.max_bytes, std::max(limits.free_bytes, by_ratio));
}

// The unpacked size that a single-member file states in its last four bytes, trusted up to a plausible ratio.
size_t first_guess(std::string_view bytes, uint64_t allowed) {
  uint64_t said = 0;
  for (size_t i = 0; i < 4 && bytes.size() >= 4; ++i)
    said |= uint64_t{static_cast<unsigned char>(bytes[bytes.size() - 4 + i])} << (8 * i);
  return static_cast<size_t>(std::min({allowed, said + kSpareBytes, bytes.size() * kLikelyRatio + kSpareBytes}));
}

// The total size that the members of `bytes` unpack to in `out`, in half of zlib's time. None if anything is unusual,
// such as damage or an `out` too small: zlib then starts over and reports what is wrong and where.
#ifdef SG_HAVE_LIBDEFLATE
std::optional<size_t> unpack_quickly(std::string_view bytes, std::string* out) {
  constexpr size_t kFlagsAt = 3;
  constexpr char kHasHeaderSum = 2;  // libdeflate skips the header checksum, zlib verifies it
  std::unique_ptr<libdeflate_decompressor, decltype(&libdeflate_free_decompressor)> machine(
      libdeflate_alloc_decompressor(), libdeflate_free_decompressor);
  if (machine == nullptr) return std::nullopt;
  size_t read = 0, used = 0;
  while (read < bytes.size()) {
    std::string_view rest = bytes.substr(read);
    if (rest.size() <= kFlagsAt || (rest[kFlagsAt] & kHasHeaderSum) != 0) return std::nullopt;
    size_t taken = 0, given = 0;
    if (libdeflate_gzip_decompress_ex(machine.get(), rest.data(), rest.size(), out->data() + used, out->size() - used,
                                      &taken, &given) != LIBDEFLATE_SUCCESS)
      return std::nullopt;
    read += taken;
    used += given;
  }
  return used;
}
#else
std::optional<size_t> unpack_quickly(std::string_view, std::string*) { return std::nullopt; }
#endif

// Unpacks all members into `room`: one piece after the other, or each over the last when they are only counted. The
// total size.
Result<uint64_t> unpack(std::string_view bytes, uint64_t allowed, std::string* room, bool is_counted) {
  Inflater inflater;
  if (!inflater.ready) return Error{ErrorKind::internal, "zlib did not start", {}, {}};
  z_stream& z = inflater.stream;
  uint64_t used = 0, read = 0;
  for (;;) {
    const uint64_t at = is_counted ? 0 : used;
    const uint64_t give = std::min<uint64_t>(bytes.size() - read, kWindow);
    const uint64_t free = std::min<uint64_t>(room->size() - at, kWindow);
    z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data() + read));
    z.avail_in = static_cast<uInt>(give);
    z.next_out = reinterpret_cast<Bytef*>(room->data() + at);
    z.avail_out = static_cast<uInt>(free);
    int state = inflate(&z, Z_NO_FLUSH);
    read += give - z.avail_in;
    used += free - z.avail_out;
    if (used > allowed)
      return gzip_error("the gzip data unpacks to more than " + std::to_string(allowed) + " bytes", read,
                        "unpack it yourself if it is to be trusted: gunzip FILE");
    if (state == Z_STREAM_END) {
      if (bytes.find_first_not_of('\0', read) == bytes.npos) return used;  // zeros may fill it up, as gzip has it
      if (inflateReset(&z) != Z_OK) return Error{ErrorKind::internal, "zlib did not start again", {}, {}};
    } else if (state == Z_BUF_ERROR || (state == Z_OK && read == bytes.size() && z.avail_out != 0)) {
      return gzip_error("the gzip data ends early", read, "copy the file again: it is truncated");
    } else if (state != Z_OK) {
      return gzip_error(std::string("corrupt gzip data") + (z.msg ? std::string(": ") + z.msg : ""), read,
                        "check it with: gzip -t FILE");
    }
  }
}

}  // namespace

bool is_gzip(std::string_view bytes) {
  return bytes.size() >= 2 && static_cast<unsigned char>(bytes[0]) == 0x1F &&
         static_cast<unsigned char>(bytes[1]) == 0x8B;
}

std::string gunzip_head(std::string_view bytes, size_t most) {
  std::string out(most, '\0');
  Inflater inflater;
  if (!inflater.ready) return {};
  z_stream& z = inflater.stream;
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(std::min<uint64_t>(bytes.size(), kWindow));
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(std::min<uint64_t>(most, kWindow));
  (void)inflate(&z, Z_NO_FLUSH);  // what is wrong is told when all is unpacked
  out.resize(most - z.avail_out);
  return out;
}

// What a file says of its size is believed up to a likely one. Else the size is counted first, without memory.
Result<std::string> gunzip(std::string_view bytes, const GzipLimits& limits) {
  const uint64_t allowed = allowed_bytes(bytes.size(), limits);
  std::string out;
  size_t guess = first_guess(bytes, allowed);
  out.reserve(guess);
  advise_large_pages(out.data(), out.capacity());
  out.resize(guess);
  if (std::optional<size_t> size = unpack_quickly(bytes, &out)) {
    out.resize(*size);
    return out;
  }
  std::string().swap(out);
  std::string scratch(kScratchBytes, '\0');
  SG_ASSIGN(const uint64_t size, unpack(bytes, allowed, &scratch, true));
  out.resize(static_cast<size_t>(size) + kSpareBytes);
  SG_TRY(unpack(bytes, allowed, &out, false));
  out.resize(static_cast<size_t>(size));
  return out;
}

}  // namespace sg
