#include "librun/values/input_layout.h"

#include <array>
#include <cstring>

#include "libgraph/expr/sizes.h"

namespace sg {
namespace {

// Calls `each` with every element of a contiguous tensor at `from`, and its address in a tensor with any strides.
template <class Each>
void for_elements(const std::byte* from, const Tensor& to, Each each) {
  const auto size = static_cast<size_t>(dtype_bytes(to.dtype));
  std::array<int64_t, kMaxRank> index{};
  int64_t place = 0;
  for (int64_t i = 0, n = to.elements(); i < n; ++i, from += size) {
    each(from, to.data + place * static_cast<int64_t>(size), size);
    for (int d = to.rank - 1; d >= 0; --d) {
      auto axis = static_cast<size_t>(d);
      place += to.stride[axis];
      if (++index[axis] < to.shape[axis]) break;
      place -= to.stride[axis] * to.shape[axis];
      index[axis] = 0;
    }
  }
}

// False if strides map different elements to one address, so that some would be lost.
bool spread_elements(const std::byte* from, const Tensor& to) {
  for_elements(from, to,
               [](const std::byte* element, std::byte* place, size_t size) { std::memcpy(place, element, size); });
  bool is_kept = true;
  for_elements(from, to, [&](const std::byte* element, const std::byte* place, size_t size) {
    is_kept = is_kept && std::memcmp(place, element, size) == 0;
  });
  return is_kept;
}

// Strides may be sizes that no shape of the file determines (part of a larger tensor, some of whose rows it skips).
Error lost(const InputLoad& load, size_t i, const Tensor& tensor) {
  std::string strides, hint;
  std::vector<StrId> symbols;
  for (int d = 0; d < tensor.rank; ++d) {
    strides += (d == 0 ? "" : ", ") + std::to_string(tensor.stride[static_cast<size_t>(d)]);
    load.job.pool->exprs.collect_symbols(load.type(i).stride[static_cast<size_t>(d)], &symbols);
  }
  for (StrId s : symbols)
    hint += (hint.empty() ? "--bind " : " --bind ") + std::string(load.job.pool->strings[s]) + "=N";
  if (!hint.empty()) hint += " says how far apart they lie";
  return Error{ErrorKind::cannot_apply,
               "input " + load.title(i) + ": its strides [" + strides + "] put elements that differ in one place",
               {load.file_name(i)},
               hint};
}

// A symbol of the type that neither a file nor a hint gives a number; none = all have one.
StrId symbol_without_value(const InputLoad& load, const Type& t) {
  std::vector<StrId> symbols;
  for (const auto* list : {&t.shape, &t.stride})
    for (const Expr e : *list) load.job.pool->exprs.collect_symbols(e, &symbols);
  if (t.offset) load.job.pool->exprs.collect_symbols(t.offset, &symbols);
  for (const StrId s : symbols)
    if (!load.out.symbols.value(s)) return s;
  return StrId();
}

}  // namespace

Result<InputLayout> layout_of(const InputLoad& load, size_t i) {
  const Type& t = load.type(i);
  auto refuse = [&](std::string why) {
    return Error{ErrorKind::cannot_apply, "input " + load.title(i) + ": " + why, {load.file_name(i)}, {}};
  };
  if (t.shape.size() > kMaxRank) return refuse("more than " + std::to_string(kMaxRank) + " dimensions");
  InputLayout layout;
  Tensor& out = layout.tensor;
  out.dtype = t.dtype;
  out.rank = static_cast<int>(t.shape.size());
  const SizeValues values = [&](StrId s) { return load.out.symbols.value(s); };
  auto first = t.offset ? evaluate_size(*load.job.pool, t.offset, values) : 0;
  auto bytes = storage_bytes(*load.job.pool, t, values);
  bool known = first && bytes;
  for (size_t d = 0; d < t.shape.size(); ++d) {
    auto size = evaluate_size(*load.job.pool, t.shape[d], values),
         stride = evaluate_size(*load.job.pool, t.stride[d], values);
    known = known && size && stride;
    if (!known) break;
    out.shape[d] = *size;
    out.stride[d] = *stride;
  }
  if (!known) {
    Error error = refuse("its size " + load.recorded(i) + " passes 63 bits");
    if (const StrId open = symbol_without_value(load, t)) {
      const std::string name(load.job.pool->strings[open]);
      error.message = "input " + load.title(i) + " is " + load.recorded(i) + ", and " + name + " has no value";
      error.hint = "give it a number: --bind " + name + "=N";
    }
    return error;
  }
  if (*first < 0) return refuse("its offset " + std::to_string(*first) + " lies before its memory");
  layout.offset = *bytes == 0 ? 0 : *first;  // an empty tensor has no address
  layout.bytes = *bytes;
  return layout;
}

Result<Tensor> with_memory(InputLoad* load, size_t i, const InputLayout& layout) {
  auto memory = load->out.memory.take(layout.bytes);
  if (!memory.ok()) {
    memory.error().message = "input " + load->title(i) + ": " + memory.error().message;
    return std::move(memory.error());
  }
  Tensor out = layout.tensor;
  out.data = *memory + layout.offset * dtype_bytes(out.dtype);
  return out;
}

Status spread(const InputLoad& load, size_t i, const void* elements, const Tensor& to) {
  if (!spread_elements(static_cast<const std::byte*>(elements), to)) return lost(load, i, to);
  return ok_status();
}

}  // namespace sg
