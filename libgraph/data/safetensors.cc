#include "libgraph/data/safetensors.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <tuple>

#include <simdjson.h>

#include "libgraph/base/json_read.h"
#include "libgraph/shape_text.h"

namespace sg {
namespace {

constexpr std::pair<DType, std::string_view> kDTypeNames[] = {
    {DType::f64, "F64"},
    {DType::f32, "F32"},
    {DType::f16, "F16"},
    {DType::bf16, "BF16"},
    {DType::f8e4m3fn, "F8_E4M3"},
    {DType::f8e5m2, "F8_E5M2"},
    {DType::f8e4m3fnuz, "F8_E4M3FNUZ"},
    {DType::f8e5m2fnuz, "F8_E5M2FNUZ"},
    {DType::i64, "I64"},
    {DType::i32, "I32"},
    {DType::i16, "I16"},
    {DType::i8, "I8"},
    {DType::u64, "U64"},
    {DType::u32, "U32"},
    {DType::u16, "U16"},
    {DType::u8, "U8"},
    {DType::boolean, "BOOL"},
    {DType::c64, "C64"},
};

std::optional<DType> dtype_of_name(std::string_view text) {
  for (const auto& [dtype, name] : kDTypeNames)
    if (name == text) return dtype;
  return std::nullopt;
}

// A complex number needs the alignment of its parts.
size_t alignment_of(DType t) { return static_cast<size_t>(is_complex(t) ? dtype_bytes(t) / 2 : dtype_bytes(t)); }

}  // namespace

std::string_view safetensors_dtype_name(DType t) {
  for (const auto& [dtype, name] : kDTypeNames)
    if (dtype == t) return name;
  return {};
}

std::optional<uint64_t> contiguous_bytes(DType dtype, std::span<const int64_t> shape) {
  int64_t bytes = dtype_bytes(dtype);
  bool empty = false;
  for (int64_t size : shape) {
    if (size < 0) return std::nullopt;
    if (size == 0) empty = true;
  }
  if (empty) return 0;
  for (int64_t size : shape)
    if (__builtin_mul_overflow(bytes, size, &bytes)) return std::nullopt;
  return static_cast<uint64_t>(bytes);
}

bool StoredTensor::aligned() const { return reinterpret_cast<uintptr_t>(data) % alignment_of(dtype) == 0; }

// One pass over the header, then one over the tensors in file order.
class SafetensorsReader {
 public:
  SafetensorsReader(std::string_view bytes, TensorFile* file) : bytes_(bytes), file_(file) {}

  Status run() {
    SG_TRY(find_header());
    simdjson::dom::parser parser;
    simdjson::dom::element root;
    if (auto code = parser.parse(header_.data(), header_.size(), true).get(root)) return not_json(code);
    simdjson::dom::object fields;
    if (root.get(fields)) return fail("the header is not a JSON object", 8);
    for (auto field : fields) {
      JsonPlace place = JsonPlace::at_key(nullptr, field.key);
      SG_TRY(field.key == "__metadata__" ? read_metadata(field.value, place) : read_tensor(field.value, place));
    }
    SG_TRY(check_cover());
    return sort_by_name();
  }

 private:
  Error fail(std::string message, uint64_t offset, std::string hint = {}) const {
    Error error{ErrorKind::unreadable, std::move(message), {file_->name_}, std::move(hint)};
    error.where.offset = offset;
    return error;
  }

  // An error at the value that `place` leads to.
  Error fail_at(const JsonPlace& place, std::string message) const {
    Error error = fail(std::move(message), 8 + offset_of(header_, &place).value_or(0));
    error.where.path = print_place(&place);
    return error;
  }

  // Recognises formats that other programs save tensors in, for a better message.
  Status refuse_others() const {
    if (bytes_.size() > 8 && bytes_[8] == '{') return ok_status();  // a header of 0x0280 bytes begins like a pickle
    const std::string_view in_python =
        "in Python: safetensors.torch.save_file({name: tensor.contiguous() for ...}, \"values.safetensors\")";
    if (bytes_.starts_with("PK\x03\x04"))
      return fail("a ZIP archive, as torch.save writes, and not a safetensors file", 0, std::string(in_python));
    // A header of 640 bytes begins with 80 02 as well, but zeros follow, which a pickle never has there.
    const bool is_pickle =
        bytes_.size() > 2 && bytes_[0] == '\x80' && bytes_[1] >= 2 && bytes_[1] <= 5 && bytes_[2] != 0;
    if (is_pickle) return fail("a Python pickle, and not a safetensors file", 0, std::string(in_python));
    if (bytes_.starts_with("\x93NUMPY"))
      return fail("a NumPy array, and not a safetensors file", 0,
                  "in Python: safetensors.numpy.save_file({name: array}, \"values.safetensors\")");
    return ok_status();
  }

  Status find_header() {
    SG_TRY(refuse_others());
    if (bytes_.size() < 8)
      return fail("not a safetensors file: it ends after " + std::to_string(bytes_.size()) + " bytes", bytes_.size());
    uint64_t size = 0;
    for (int i = 7; i >= 0; --i) size = size << 8 | static_cast<unsigned char>(bytes_[static_cast<size_t>(i)]);
    if (size > TensorFile::kMaxHeaderBytes)
      return fail("not a safetensors file: a header of " + std::to_string(size) + " bytes", 0);
    if (size > bytes_.size() - 8)
      return fail("the file ends within its header of " + std::to_string(size) + " bytes", bytes_.size(),
                  "the file was cut short: copy or download it again");
    header_ = bytes_.substr(8, size);
    data_begin_ = 8 + size;
    if (header_.empty() || header_[0] != '{')
      return fail("not a safetensors file: the header does not begin with {", 8);
    return ok_status();
  }

  Error not_json(simdjson::error_code code) const {
    if (auto fault = find_json_fault(header_))
      return fail("the header is not JSON: " + fault->message, 8 + fault->offset);
    return fail(std::string("the header is not JSON: ") + simdjson::error_message(code), 8);
  }

  Status read_metadata(simdjson::dom::element value, const JsonPlace& place) {
    if (has_metadata_) return fail_at(place, "__metadata__ occurs twice");
    has_metadata_ = true;
    simdjson::dom::object fields;
    if (value.get(fields)) return fail_at(place, "expected an object, not " + std::string(json_kind(value)));
    for (auto field : fields) {
      std::string_view text;
      JsonPlace inner = JsonPlace::at_key(&place, field.key);
      if (field.value.get(text)) return fail_at(inner, "expected a string, not " + std::string(json_kind(field.value)));
      file_->metadata_.emplace_back(field.key, text);
    }
    std::sort(file_->metadata_.begin(), file_->metadata_.end());
    return ok_status();
  }

  Status read_tensor(simdjson::dom::element value, const JsonPlace& place) {
    simdjson::dom::object fields;
    if (value.get(fields)) return fail_at(place, "expected an object, not " + std::string(json_kind(value)));
    StoredTensor tensor;
    tensor.name = place.key;
    bool has_dtype = false, has_shape = false, has_offsets = false;
    uint64_t end = 0;
    for (auto field : fields) {
      JsonPlace inner = JsonPlace::at_key(&place, field.key);
      bool* seen = field.key == "dtype"          ? &has_dtype
                   : field.key == "shape"        ? &has_shape
                   : field.key == "data_offsets" ? &has_offsets
                                                 : nullptr;
      if (seen == nullptr) return fail_at(inner, "a tensor has dtype, shape and data_offsets, nothing else");
      if (*seen) return fail_at(place, "`" + std::string(field.key) + "` occurs twice");
      *seen = true;
      SG_TRY(seen == &has_dtype   ? read_dtype(field.value, inner, &tensor)
             : seen == &has_shape ? read_shape(field.value, inner, &tensor)
                                  : read_offsets(field.value, inner, &tensor, &end));
    }
    if (!has_dtype || !has_shape || !has_offsets)
      return fail_at(place, std::string("the tensor has no ") + (!has_dtype   ? "dtype"
                                                                 : !has_shape ? "shape"
                                                                              : "data_offsets"));
    auto bytes = contiguous_bytes(tensor.dtype, tensor.shape);
    if (!bytes) return fail_at(place, "the shape " + shape_text(tensor.shape) + " is too large");
    if (*bytes != tensor.bytes)
      return fail_at(place, std::string(dtype_name(tensor.dtype)) + shape_text(tensor.shape) + " needs " +
                                std::to_string(*bytes) + " bytes, its data_offsets hold " +
                                std::to_string(tensor.bytes));
    file_->tensors_.push_back(std::move(tensor));
    return ok_status();
  }

  Status read_dtype(simdjson::dom::element value, const JsonPlace& place, StoredTensor* tensor) {
    std::string_view text;
    if (value.get(text)) return fail_at(place, "expected a string, not " + std::string(json_kind(value)));
    auto dtype = dtype_of_name(text);
    if (!dtype) return fail_at(place, "unknown element type `" + std::string(text.substr(0, 40)) + "`");
    tensor->dtype = *dtype;
    return ok_status();
  }

  Status read_natural(simdjson::dom::element value, const JsonPlace& place, int64_t* out) {
    if (!value.is_int64() || value.get(*out) || *out < 0)
      return fail_at(place, "expected an integer from 0 to 2^63 - 1");
    return ok_status();
  }

  Status read_shape(simdjson::dom::element value, const JsonPlace& place, StoredTensor* tensor) {
    simdjson::dom::array items;
    if (value.get(items)) return fail_at(place, "expected a list, not " + std::string(json_kind(value)));
    for (auto item : items) {
      JsonPlace inner = JsonPlace::at_index(&place, tensor->shape.size());
      if (tensor->shape.size() == TensorFile::kMaxRank) return fail_at(inner, "more than 64 dimensions");
      SG_TRY(read_natural(item, inner, &tensor->shape.emplace_back()));
    }
    return ok_status();
  }

  Status read_offsets(simdjson::dom::element value, const JsonPlace& place, StoredTensor* tensor, uint64_t* end) {
    simdjson::dom::array items;
    if (value.get(items) || items.size() != 2) return fail_at(place, "expected a list of two integers");
    int64_t range[2] = {};
    size_t i = 0;
    for (auto item : items) {
      JsonPlace inner = JsonPlace::at_index(&place, i);
      SG_TRY(read_natural(item, inner, &range[i++]));
    }
    uint64_t available = bytes_.size() - data_begin_;
    if (range[1] < range[0]) return fail_at(place, "the tensor ends before it begins");
    if (static_cast<uint64_t>(range[1]) > available)
      return fail_at(place, "the tensor ends at byte " + std::to_string(range[1]) + " of the data, which has " +
                                std::to_string(available));
    *end = static_cast<uint64_t>(range[1]);
    tensor->bytes = static_cast<uint64_t>(range[1] - range[0]);
    tensor->offset = data_begin_ + static_cast<uint64_t>(range[0]);
    tensor->data = bytes_.data() + tensor->offset;
    return ok_status();
  }

  // The tensors must fill the data without holes or overlaps. Empty ones are allowed at any boundary: they sort first.
  Status check_cover() {
    auto& list = file_->tensors_;
    std::sort(list.begin(), list.end(), [](const StoredTensor& a, const StoredTensor& b) {
      return std::tie(a.offset, a.bytes, a.name) < std::tie(b.offset, b.bytes, b.name);
    });
    uint64_t at = data_begin_;
    for (const StoredTensor& tensor : list) {
      if (tensor.offset < at) return fail("tensor `" + tensor.name + "` overlaps the one before it", tensor.offset);
      if (tensor.offset > at)
        return fail("a hole of " + std::to_string(tensor.offset - at) + " bytes before tensor `" + tensor.name + "`",
                    at);
      at += tensor.bytes;
    }
    if (at != bytes_.size())
      return fail(std::to_string(bytes_.size() - at) + " bytes after the last tensor belong to none", at);
    return ok_status();
  }

  Status sort_by_name() {
    auto& list = file_->tensors_;
    std::sort(list.begin(), list.end(), [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
    for (size_t i = 1; i < list.size(); ++i)
      if (list[i].name == list[i - 1].name)
        return fail("tensor `" + list[i].name + "` occurs twice", std::max(list[i].offset, list[i - 1].offset));
    return ok_status();
  }

  std::string_view bytes_, header_;
  uint64_t data_begin_ = 0;
  bool has_metadata_ = false;
  TensorFile* file_;
};

namespace {

constexpr std::string_view kMapped = "tensors are mapped, not read: write them to a file";

Error no_access(const std::string& path, const char* what, int error) {
  bool absent = error == ENOENT || error == EACCES || error == ENOTDIR;
  return {
      absent ? ErrorKind::unreadable : ErrorKind::missing, std::string(what) + ": " + std::strerror(error), {path}, {}};
}

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

// What to name in place of a folder: the files of tensors in it, of which a capture has two.
Error is_folder(const std::string& path) {
  std::vector<std::string> names;
  std::error_code problem;
  for (std::filesystem::directory_iterator entry(path, problem), end; !problem && entry != end;
       entry.increment(problem))
    if (entry->path().extension() == ".safetensors") names.push_back(entry->path().filename().string());
  std::ranges::sort(names);
  std::string hint = names.empty() ? "it has no file of tensors (.safetensors)" : "name a file in it: " + names[0];
  for (size_t i = 1; i < std::min<size_t>(names.size(), 3); ++i) hint += ", " + names[i];
  if (names.size() > 3) hint += ", ...";
  return Error{ErrorKind::unreadable, "it is a folder", {path}, std::move(hint)};
}

}  // namespace

Result<TensorFile> TensorFile::parse(std::string_view bytes, std::string name) {
  TensorFile out;
  out.name_ = std::move(name);
  SG_TRY(SafetensorsReader(bytes, &out).run());
  return out;
}

Result<TensorFile> TensorFile::open(const std::string& path, Access access) {
  Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0 && path == "-")
    return Error{ErrorKind::unreadable, "standard input holds no tensors here", {}, std::string(kMapped)};
  if (file.fd < 0) return no_access(path, "cannot read", errno);
  struct stat info;
  if (::fstat(file.fd, &info) != 0) return no_access(path, "cannot read", errno);
  if (S_ISDIR(info.st_mode)) return is_folder(path);
  if (!S_ISREG(info.st_mode)) return Error{ErrorKind::unreadable, "not a regular file", {path}, std::string(kMapped)};
  TensorFile out;
  out.name_ = path;
  auto mapping = MappedFile::map(file.fd, static_cast<size_t>(info.st_size), path, access);
  if (!mapping) return no_access(path, "cannot map the file", errno);
  out.mapping_ = std::move(*mapping);
  SG_TRY(SafetensorsReader(out.mapping_.bytes(), &out).run());
  return out;
}

}  // namespace sg
