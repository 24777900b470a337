#include <algorithm>
#include <functional>

#include "libgraph/base/json.h"
#include "libgraph/base/utf8.h"
#include "libgraph/data/safetensors.h"

namespace sg {
namespace {

using Sink = std::function<Status(std::string_view)>;

Error refuse(const TensorToWrite& tensor, std::string_view why) {
  return {ErrorKind::cannot_apply, "cannot write tensor `" + tensor.name + "`: " + std::string(why), {}, {}};
}

// Larger element types first, then by name.
Result<std::vector<const TensorToWrite*>> in_order(std::span<const TensorToWrite> tensors) {
  std::vector<const TensorToWrite*> list;
  for (const TensorToWrite& tensor : tensors) list.push_back(&tensor);
  std::sort(list.begin(), list.end(), [](auto* a, auto* b) { return a->name < b->name; });
  for (size_t i = 0; i < list.size(); ++i) {
    if (i != 0 && list[i]->name == list[i - 1]->name) return refuse(*list[i], "the name occurs twice");
    if (list[i]->name == "__metadata__") return refuse(*list[i], "the format keeps this name for itself");
    if (!is_utf8(list[i]->name)) return refuse(*list[i], "the name is not UTF-8");
    if (safetensors_dtype_name(list[i]->dtype).empty())
      return refuse(*list[i], "the format has no " + std::string(dtype_name(list[i]->dtype)));
    if (!list[i]->stride.empty() && list[i]->stride.size() != list[i]->shape.size())
      return refuse(*list[i], "as many strides as dimensions are needed");
  }
  std::stable_sort(list.begin(), list.end(),
                   [](auto* a, auto* b) { return dtype_bytes(a->dtype) > dtype_bytes(b->dtype); });
  return list;
}

Result<std::string> print_header(const std::vector<const TensorToWrite*>& list, const WriteOptions& options) {
  JsonWriter out;
  out.begin_object();
  if (!options.metadata.empty()) {
    auto sorted = options.metadata;
    std::sort(sorted.begin(), sorted.end());
    out.key("__metadata__").begin_object();
    for (const auto& [key, value] : sorted) out.member(key, value);
    out.end_object();
  }
  uint64_t at = 0;
  for (const TensorToWrite* tensor : list) {
    auto bytes = contiguous_bytes(tensor->dtype, tensor->shape);
    uint64_t end = 0;
    if (!bytes || __builtin_add_overflow(at, *bytes, &end) || end > INT64_MAX)
      return refuse(*tensor, "it is too large");
    out.key(tensor->name).begin_object().member("dtype", safetensors_dtype_name(tensor->dtype));
    out.key("shape").begin_array();
    for (int64_t size : tensor->shape) out.integer(size);
    out.end_array().key("data_offsets").begin_array().natural(at).natural(end).end_array().end_object();
    at = end;
  }
  std::string text = out.end_object().take();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // aligns the data in the file
  if (text.size() > TensorFile::kMaxHeaderBytes)
    return Error{ErrorKind::cannot_apply,
                 "too many tensors for one file: a header of " + std::to_string(text.size()) +
                     " bytes, the format allows 104857600",
                 {},
                 {}};
  return text;
}

bool is_contiguous(const TensorToWrite& tensor) {
  if (tensor.stride.empty()) return true;
  int64_t expected = 1;
  for (size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] != 1 && tensor.stride[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

// Gathers rows of the innermost dimension into pieces of a fixed size.
Status write_strided(const TensorToWrite& tensor, const Sink& sink) {
  constexpr size_t kPieceBytes = 1 << 16;
  const size_t bytes = static_cast<size_t>(dtype_bytes(tensor.dtype));
  const char* at = static_cast<const char*>(tensor.data);
  std::vector<int64_t> index(tensor.shape.size(), 0);
  std::string piece;
  piece.reserve(kPieceBytes + bytes);
  for (;;) {
    piece.append(at, bytes);
    if (piece.size() >= kPieceBytes) {
      SG_TRY(sink(piece));
      piece.clear();
    }
    size_t d = index.size();
    while (d-- > 0) {
      at += tensor.stride[d] * static_cast<int64_t>(bytes);
      if (++index[d] < tensor.shape[d]) break;
      at -= tensor.stride[d] * static_cast<int64_t>(bytes) * tensor.shape[d];
      index[d] = 0;
    }
    if (d == SIZE_MAX) return sink(piece);
  }
}

Status write_all(std::span<const TensorToWrite> tensors, const WriteOptions& options, const Sink& sink) {
  SG_ASSIGN(auto list, in_order(tensors));
  SG_ASSIGN(std::string header, print_header(list, options));
  std::string length(8, '\0');
  for (size_t i = 0; i < 8; ++i) length[i] = static_cast<char>(header.size() >> 8 * i & 0xFF);
  SG_TRY(sink(length));
  SG_TRY(sink(header));
  for (const TensorToWrite* tensor : list) {
    uint64_t bytes = *contiguous_bytes(tensor->dtype, tensor->shape);
    if (bytes == 0) continue;
    SG_TRY(is_contiguous(*tensor) ? sink({static_cast<const char*>(tensor->data), bytes})
                                  : write_strided(*tensor, sink));
  }
  return ok_status();
}

}  // namespace

Result<OutputFile> stage_tensors(const std::string& path, std::span<const TensorToWrite> tensors,
                                 const WriteOptions& options) {
  SG_ASSIGN(OutputFile file, OutputFile::open(path, options.make_folders));
  SG_TRY(write_all(tensors, options, [&](std::string_view bytes) { return file.write(bytes); }));
  SG_TRY(file.close(true));
  return file;
}

Status write_tensors(const std::string& path, std::span<const TensorToWrite> tensors, const WriteOptions& options) {
  SG_ASSIGN(OutputFile file, stage_tensors(path, tensors, options));
  return file.commit();
}

Result<std::string> tensor_file_bytes(std::span<const TensorToWrite> tensors, const WriteOptions& options) {
  std::string out;
  SG_TRY(write_all(tensors, options, [&](std::string_view bytes) {
    out += bytes;
    return ok_status();
  }));
  return out;
}

}  // namespace sg
