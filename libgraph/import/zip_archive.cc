#include "libgraph/import/zip_archive.h"

#include <zip.h>

#include <algorithm>

namespace sg {
namespace {

std::string text_of(zip_error_t* error) {
  std::string text = zip_error_strerror(error);
  zip_error_fini(error);
  return text;
}

// What is wrong with a name; empty if nothing.
std::string_view fault_of(std::string_view name) {
  if (name.empty()) return "has no name";
  if (name.find('\\') != std::string_view::npos || name.find('\0') != std::string_view::npos)
    return "has a name that is not a path";
  if (name[0] == '/') return "has an absolute path";
  for (size_t begin = 0; begin <= name.size();) {
    size_t end = std::min(name.find('/', begin), name.size());
    if (name.substr(begin, end - begin) == "..") return "has a path that leaves the archive";
    begin = end + 1;
  }
  return {};
}

uint64_t allowed(uint64_t packed, const ZipLimits& limits) {
  uint64_t most = packed > (limits.max_bytes - limits.free_bytes) / limits.max_ratio
                      ? limits.max_bytes
                      : limits.free_bytes + packed * limits.max_ratio;
  return std::min(most, limits.max_bytes);
}

// A name made safe for a message.
std::string shown(std::string_view name) {
  std::string out;
  for (char c : name.substr(0, 200)) out += static_cast<unsigned char>(c) < 32 || c == 127 ? '?' : c;
  return out;
}

}  // namespace

struct ZipArchive::Handle {
  zip_t* zip = nullptr;
  ~Handle() {
    if (zip != nullptr) zip_discard(zip);
  }
};

Error ZipArchive::error(std::string message, std::string entry) const {
  Error error{ErrorKind::unreadable, std::move(message), {name_}, {}};
  error.where.path = std::move(entry);
  return error;
}

Result<ZipArchive> ZipArchive::open(std::string_view bytes, std::string name, const ZipLimits& limits) {
  ZipArchive out;
  out.name_ = std::move(name);
  out.handle_ = std::make_shared<Handle>();
  zip_error_t problem;
  zip_error_init(&problem);
  zip_source_t* source = zip_source_buffer_create(bytes.data(), bytes.size(), 0, &problem);
  if (source == nullptr) return out.error("cannot read the archive: " + text_of(&problem));
  out.handle_->zip = zip_open_from_source(source, ZIP_RDONLY, &problem);
  if (out.handle_->zip == nullptr) {
    zip_source_free(source);
    return out.error("not a whole zip archive: " + text_of(&problem));
  }
  zip_error_fini(&problem);
  zip_int64_t count = zip_get_num_entries(out.handle_->zip, 0);
  if (count < 0 || static_cast<uint64_t>(count) > limits.max_entries)
    return out.error("the archive holds " + std::to_string(count) + " entries; at most " +
                     std::to_string(limits.max_entries) + " are read");
  uint64_t total = 0;
  for (uint64_t i = 0; i < static_cast<uint64_t>(count); ++i) {
    SG_ASSIGN(ZipEntry entry, out.check_entry(i, limits));
    total += entry.bytes;  // each is below 2^37, and there are at most 2^20
    out.entries_.push_back(std::move(entry));
  }
  if (total > allowed(bytes.size(), limits))
    return out.error("the archive of " + std::to_string(bytes.size()) + " bytes would unpack to " +
                     std::to_string(total));
  std::stable_sort(out.entries_.begin(), out.entries_.end(),
                   [](const ZipEntry& a, const ZipEntry& b) { return a.name < b.name; });
  auto twice = std::adjacent_find(out.entries_.begin(), out.entries_.end(),
                                  [](const ZipEntry& a, const ZipEntry& b) { return a.name == b.name; });
  if (twice != out.entries_.end()) return out.error("the entry occurs twice", shown(twice->name));
  return out;
}

Result<ZipEntry> ZipArchive::check_entry(uint64_t index, const ZipLimits& limits) const {
  zip_stat_t stat;
  zip_stat_init(&stat);
  if (zip_stat_index(handle_->zip, index, ZIP_FL_ENC_RAW, &stat) != 0)
    return error("cannot read the archive's directory: " + std::string(zip_strerror(handle_->zip)));
  constexpr zip_uint64_t kNeeded =
      ZIP_STAT_NAME | ZIP_STAT_SIZE | ZIP_STAT_COMP_SIZE | ZIP_STAT_COMP_METHOD | ZIP_STAT_ENCRYPTION_METHOD;
  if ((stat.valid & kNeeded) != kNeeded)
    return error("the directory says too little of entry " + std::to_string(index));
  ZipEntry entry{stat.name, index, stat.size};
  if (std::string_view fault = fault_of(entry.name); !fault.empty())
    return error("the entry " + std::string(fault), shown(entry.name));
  if (stat.encryption_method != ZIP_EM_NONE) return error("the entry is encrypted", shown(entry.name));
  if (stat.comp_method != ZIP_CM_STORE && stat.comp_method != ZIP_CM_DEFLATE)
    return error("the entry is packed by method " + std::to_string(stat.comp_method) + ", which is not read",
                 shown(entry.name));
  if (stat.size > allowed(stat.comp_size, limits))
    return error(
        "the entry of " + std::to_string(stat.comp_size) + " bytes would unpack to " + std::to_string(stat.size),
        shown(entry.name));
  return entry;
}

const ZipEntry* ZipArchive::find(std::string_view name) const {
  auto it = std::lower_bound(entries_.begin(), entries_.end(), name,
                             [](const ZipEntry& e, std::string_view n) { return e.name < n; });
  return it != entries_.end() && it->name == name ? &*it : nullptr;
}

Result<std::string> ZipArchive::read(const ZipEntry& entry) const {
  struct Closer {
    void operator()(zip_file_t* f) const { zip_fclose(f); }
  };
  std::unique_ptr<zip_file_t, Closer> file(zip_fopen_index(handle_->zip, entry.index, 0));
  if (!file) return error("cannot unpack the entry: " + std::string(zip_strerror(handle_->zip)), shown(entry.name));
  constexpr uint64_t kStep = 1 << 22;
  std::string out;
  while (out.size() < entry.bytes) {  // allocates only as bytes arrive, whatever size the archive claims
    size_t used = out.size();
    out.resize(used + std::min(kStep, entry.bytes - used));
    zip_int64_t n = zip_fread(file.get(), out.data() + used, out.size() - used);
    if (n < 0) return error("the entry is corrupt: " + std::string(zip_file_strerror(file.get())), shown(entry.name));
    out.resize(used + static_cast<size_t>(n));
    if (n == 0) return error("the entry ends early", shown(entry.name));
  }
  char more;
  zip_int64_t rest = zip_fread(file.get(), &more, 1);  // this read verifies the checksum
  if (rest < 0) return error("the entry is corrupt: " + std::string(zip_file_strerror(file.get())), shown(entry.name));
  if (rest > 0) return error("the entry is longer than the directory says", shown(entry.name));
  return out;
}

}  // namespace sg
