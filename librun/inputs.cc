#include "librun/inputs.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "libgraph/constant_data.h"
#include "libgraph/diag.h"
#include "libgraph/expr/input_sizes.h"
#include "libgraph/expr/sizes.h"
#include "libgraph/scheduled.h"
#include "libgraph/shape_text.h"
#include "libgraph/tangent.h"
#include "librun/constant_files.h"
#include "librun/data_name.h"
#include "librun/element.h"
#include "librun/input_match.h"
#include "librun/memory.h"

namespace sg {
namespace {

constexpr size_t kMaxNamed = 5;  // names listed in one message

bool is_scalar(const Type& type) {
  return type.kind == TypeKind::integer || type.kind == TypeKind::floating || type.kind == TypeKind::boolean;
}

// The bytes of a constant that is stored in the graph.
std::optional<std::string> held_of(const Graph& graph, const Input& input) {
  return input.digest ? held_bytes(graph.pool().strings[input.digest]) : std::nullopt;
}

// Whether a run needs a value for this input from outside.
bool needs_value(const Graph& graph, const Input& input) {
  const Type& type = graph.type(input.value);
  if (input.kind == InputKind::opaque || !graph.is_used(input.value) || held_of(graph, input)) return false;
  return type.kind == TypeKind::tensor || (is_scalar(type) && !type.has_value);
}

// Where to look for a missing value: the file, if there is only one.
std::string only_file(const InputSource& source) { return source.files.size() == 1 ? source.files[0] : std::string(); }

// Reports everything that is missing in one message.
Status check_missing(const Graph& graph, const InputMatch& matching, const InputSource& source) {
  std::string names;
  size_t count = 0;
  bool has_tangents = false, has_digests = false;
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    if (matching.of(i) != nullptr || !needs_value(graph, graph.inputs()[i])) continue;
    if (is_tangent_of_loss(graph, graph.inputs()[i])) continue;
    bool is_tensor = graph.type(graph.inputs()[i].value).kind == TypeKind::tensor;
    if (source.maker != nullptr && is_tensor && source.maker->can_make(i)) continue;
    has_digests |= !graph.inputs()[i].digest.is_none();
    has_tangents |= graph.inputs()[i].kind == InputKind::tangent;
    if (count++ < kMaxNamed) names += (count == 1 ? "" : ", ") + input_title(graph, graph.inputs()[i]);
  }
  if (count == 0) return ok_status();
  if (count > kMaxNamed) names += " and " + std::to_string(count - kMaxNamed) + " more";
  std::string what = count == 1 ? "1 graph input has" : std::to_string(count) + " graph inputs have";
  Error error{ErrorKind::unreadable, what + " no value: " + names, {only_file(source)}, {}};
  error.hint = source.maker == nullptr
                   ? "--inputs FILE gives values, --init seed:N makes up those that are left"
                   : "nothing in the graph bounds them, so --init cannot make them up; a file with these "
                     "alone is enough: --inputs FILE --init ...";
  if (has_digests) error.hint += "; --data FOLDER finds constants by their digests";
  if (has_tangents)
    error.hint +=
        has_tangent_of_loss(graph)
            ? "; a tangent of what is not the loss is 0 (so --init has it) unless something outside uses that output"
            : "; a tangent is the gradient that came back for an output: output.retain_grad(), then output.grad";
  return error;
}

// The number of a scalar input; none if the file has another type. REQUIRES: t has one element
std::optional<Scalar> scalar_of(const StoredTensor& t, const Type& type) {
  auto is = [&](DType d) { return t.dtype == d; };
  if (type.kind == TypeKind::floating && (is(DType::f64) || is(DType::f32))) {
    double value = 0;
    float narrow = 0;
    std::memcpy(is(DType::f64) ? static_cast<void*>(&value) : &narrow, t.data, t.bytes);
    return Scalar::floating(is(DType::f64) ? value : narrow);
  }
  if (type.kind == TypeKind::integer && (is(DType::i64) || is(DType::i32))) {
    int64_t value = 0;
    int32_t narrow = 0;
    std::memcpy(is(DType::i64) ? static_cast<void*>(&value) : &narrow, t.data, t.bytes);
    return Scalar::integer(is(DType::i64) ? value : narrow);
  }
  if (type.kind == TypeKind::boolean && is(DType::boolean))
    return Scalar::boolean(*static_cast<const char*>(t.data) != 0);
  return std::nullopt;
}

// Calls `each` with every element of a contiguous tensor at `from`, and its address in a tensor with any strides.
template <class Each>
void walk(const std::byte* from, const Tensor& to, Each each) {
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
bool spread(const std::byte* from, const Tensor& to) {
  walk(from, to, [](const std::byte* element, std::byte* place, size_t size) { std::memcpy(place, element, size); });
  bool is_kept = true;
  walk(from, to, [&](const std::byte* element, const std::byte* place, size_t size) {
    is_kept = is_kept && std::memcmp(place, element, size) == 0;
  });
  return is_kept;
}

class Loader {
 public:
  Loader(const Job& job, const Program& program, const InputSource& source)
      : job_(job),
        program_(program),
        graph_(program.graph),
        source_(source),
        matching_(graph_, source.may_spare, &findings_) {}

  Result<InputSet> run() {
    const size_t count = graph_.inputs().size();
    out_.tensors.resize(count);
    out_.scalars.resize(count);
    SG_TRY(open());
    SG_TRY(bind_sizes());
    for (size_t i = 0; i < count; ++i) {
      const StoredTensor* stored = matching_.of(i);
      if (is_kept(i)) out_.kept.push_back(i);
      if (stored != nullptr) SG_TRY(take_stored(i, *stored));
      else if (auto held = held_of(graph_, graph_.inputs()[i]); held && !source_.may_miss) SG_TRY(take_held(i, *held));
      else SG_TRY(make_up(i));
    }
    return std::move(out_);
  }

 private:
  std::string file_name(size_t i) const {
    return matching_.of(i) != nullptr ? out_.files[matching_.file_of(i)].name() : only_file(source_);
  }
  Location at(size_t i) const {
    Location where{file_name(i)};
    where.offset = matching_.of(i)->offset;
    return where;
  }
  std::string title(size_t i) const { return input_title(graph_, graph_.inputs()[i]); }
  const Type& type(size_t i) const { return graph_.type(graph_.inputs()[i].value); }
  // Whether each step should be given it, and is not.
  bool is_kept(size_t i) const {
    const bool is_of_step = matching_.of(i) != nullptr && matching_.file_of(i) >= source_.of_step;
    return is_scheduled(graph_, graph_.inputs()[i]) && !is_of_step;
  }

  Status open() {
    out_.files.reserve(source_.files.size());
    for (const std::string& name : source_.files) {
      SG_ASSIGN(TensorFile file, TensorFile::open(name, TensorFile::Access::copy_on_write));
      out_.files.push_back(std::move(file));
      const size_t number = out_.files.size() - 1;
      matching_.add(out_.files.back(), number, number < source_.of_step ? 0 : source_.of_step);
    }
    if (findings_.has_errors()) return findings_.as_error(ErrorKind::unreadable);
    if (!source_.constants.empty()) SG_TRY(find_constants(graph_, source_.constants, &matching_, &out_.files));
    return source_.may_miss ? ok_status() : check_missing(graph_, matching_, source_);
  }

  // Binds given sizes and those of the file first, then what follows from them, then (for made-up inputs) the captured
  // ones.
  Status bind_sizes() {
    InputSizes sizes(program_);
    SG_TRY(sizes.bind(source_.bindings));
    for (size_t i = 0; i < graph_.inputs().size(); ++i)  // numbers first: a tensor's sizes may be products of them
      if (const auto number = size_given(i)) sizes.learn({&type(i).value, 1}, {&*number, 1});
    for (size_t i = 0; i < graph_.inputs().size(); ++i) {
      const StoredTensor* stored = matching_.of(i);
      if (stored == nullptr || type(i).kind != TypeKind::tensor) continue;
      if (stored->shape.size() == type(i).shape.size()) sizes.learn(type(i).shape, stored->shape);
      else findings_.error("inputs", mismatch(i, *stored), at(i));
    }
    if (findings_.has_errors()) return findings_.as_error(ErrorKind::unreadable);
    sizes.follow_guards();
    sizes.take_hints();
    out_.symbols = sizes.values();
    for (size_t i = 0; i < graph_.inputs().size(); ++i) check_type(i);
    if (findings_.has_errors()) return findings_.as_error(ErrorKind::unreadable);
    if (source_.maker != nullptr) source_.maker->set_sizes(out_.symbols);
    return sizes.check();
  }

  // The number that a file has for an input that is a size of the graph.
  std::optional<int64_t> size_given(size_t i) const {
    const StoredTensor* stored = matching_.of(i);
    if (stored == nullptr || type(i).kind != TypeKind::integer || !type(i).has_value || !stored->shape.empty())
      return std::nullopt;
    const std::optional<Scalar> number = scalar_of(*stored, type(i));
    return number ? std::optional(number->to_int()) : std::nullopt;
  }

  std::string recorded(size_t i) const {
    std::string out = std::string(dtype_name(type(i).dtype)) + "[";
    for (size_t d = 0; d < type(i).shape.size(); ++d) {
      Expr e = type(i).shape[d];
      out += (d == 0 ? "" : ", ") + job_.pool->exprs.print(e);
      if (job_.pool->exprs.is_constant(e)) continue;
      if (auto value = out_.symbols.value(job_.pool->exprs, e)) out += " = " + std::to_string(*value);
    }
    return out + "]";
  }

  std::string mismatch(size_t i, const StoredTensor& t) const {
    return "input " + title(i) + " is " + recorded(i) + " in the graph, " + type_text(t.dtype, t.shape) +
           " in the file";
  }

  std::string one_file_for_all() const {
    if (job_.world < 2 || source_.files.size() != 1 || !source_.is_of_all_ranks) return "";
    return source_.files[0] + " is given to all " + std::to_string(job_.world) +
           " ranks: a file a rank is named with {r}, as 'rank{r}.safetensors'";
  }

  void check_type(size_t i) {
    const StoredTensor* stored = matching_.of(i);
    if (stored == nullptr) return;
    if (is_scalar(type(i))) {
      if (!stored->shape.empty() || !scalar_of(*stored, type(i)))
        findings_.error("inputs",
                        "input " + title(i) + " is a number, the file has " + type_text(stored->dtype, stored->shape),
                        at(i));
      if (const auto given = size_given(i)) check_size(i, *given);
      return;
    }
    bool same = type(i).kind == TypeKind::tensor && stored->dtype == type(i).dtype;
    for (size_t d = 0; same && d < stored->shape.size(); ++d)
      same = out_.symbols.value(job_.pool->exprs, type(i).shape[d]) == stored->shape[d];
    if (!same) findings_.error("inputs", mismatch(i, *stored), at(i), one_file_for_all());
  }

  void check_size(size_t i, int64_t given) {
    const Expr size = type(i).value;
    const auto known = out_.symbols.value(job_.pool->exprs, size);
    if (!known || *known == given) return;
    const std::string is = job_.pool->exprs.is_constant(size) ? "" : job_.pool->exprs.print(size) + " = ";
    findings_.error("inputs",
                    "input " + title(i) + " is " + is + std::to_string(*known) +
                        " by the sizes of the graph's inputs, " + std::to_string(given) + " in the file",
                    at(i));
  }

  // A tensor of the recorded shape and strides, without memory. Its storage begins `offset` elements before it.
  Result<Tensor> shaped(size_t i, int64_t* offset, int64_t* storage) const {
    const Type& t = type(i);
    auto refuse = [&](std::string why) {
      return Error{ErrorKind::cannot_apply, "input " + title(i) + ": " + why, {file_name(i)}, {}};
    };
    if (t.shape.size() > kMaxRank) return refuse("more than " + std::to_string(kMaxRank) + " dimensions");
    Tensor out;
    out.dtype = t.dtype;
    out.rank = static_cast<int>(t.shape.size());
    const SizeValues values = [&](StrId s) { return out_.symbols.value(s); };
    auto first = t.offset ? evaluate_size(*job_.pool, t.offset, values) : 0;
    auto bytes = storage_bytes(*job_.pool, t, values);
    bool known = first && bytes;
    for (size_t d = 0; d < t.shape.size(); ++d) {
      auto size = evaluate_size(*job_.pool, t.shape[d], values),
           stride = evaluate_size(*job_.pool, t.stride[d], values);
      known = known && size && stride;
      if (!known) break;
      out.shape[d] = *size;
      out.stride[d] = *stride;
    }
    if (!known) return refuse("its size " + recorded(i) + " has no value, or passes 63 bits");
    if (*first < 0) return refuse("its offset " + std::to_string(*first) + " lies before its memory");
    *offset = *first;
    *storage = *bytes;             // from the beginning of the storage to the last element
    if (*bytes == 0) *offset = 0;  // an empty tensor has no address
    return out;
  }

  Status take_stored(size_t i, const StoredTensor& stored) {
    if (is_scalar(type(i))) {
      out_.scalars[i] = *scalar_of(stored, type(i));  // check_type has seen it
      return ok_status();
    }
    if (stored.dtype == DType::boolean) SG_TRY(check_booleans(i, stored));
    int64_t offset = 0, storage = 0;
    SG_ASSIGN(Tensor tensor, shaped(i, &offset, &storage));
    if (tensor.is_contiguous() && offset == 0 && stored.aligned()) {
      tensor.data = static_cast<std::byte*>(out_.files[matching_.file_of(i)].writable(stored));
    } else {
      SG_ASSIGN(tensor.data, own(i, offset, storage, tensor.dtype));
      if (!spread(static_cast<const std::byte*>(stored.data), tensor)) return lost(i, tensor);
    }
    out_.tensors[i] = tensor;
    return ok_status();
  }

  Status take_held(size_t i, std::string_view bytes) {
    int64_t offset = 0, storage = 0;
    SG_ASSIGN(Tensor tensor, shaped(i, &offset, &storage));
    SG_ASSIGN(tensor.data, own(i, offset, storage, tensor.dtype));
    if (!spread(reinterpret_cast<const std::byte*>(bytes.data()), tensor)) return lost(i, tensor);
    out_.tensors[i] = tensor;
    return ok_status();
  }

  // Strides may be sizes that no shape of the file determines (part of a larger tensor, some of whose rows it skips).
  Error lost(size_t i, const Tensor& tensor) const {
    std::string strides, hint;
    std::vector<StrId> symbols;
    for (int d = 0; d < tensor.rank; ++d) {
      strides += (d == 0 ? "" : ", ") + std::to_string(tensor.stride[static_cast<size_t>(d)]);
      job_.pool->exprs.collect_symbols(type(i).stride[static_cast<size_t>(d)], &symbols);
    }
    for (StrId s : symbols) hint += (hint.empty() ? "--bind " : " --bind ") + std::string(job_.pool->strings[s]) + "=N";
    if (!hint.empty()) hint += " says how far apart they lie";
    return Error{ErrorKind::cannot_apply,
                 "input " + title(i) + ": its strides [" + strides + "] put elements that differ in one place",
                 {file_name(i)},
                 hint};
  }

  // A bool that is neither 0 nor 1 has no meaning in C++.
  Status check_booleans(size_t i, const StoredTensor& stored) const {
    const auto* bytes = static_cast<const uint8_t*>(stored.data);
    for (uint64_t k = 0; k < stored.bytes; ++k) {
      if (bytes[k] <= 1) continue;
      Location where{file_name(i)};
      where.offset = stored.offset + k;
      return Error{ErrorKind::unreadable,
                   "input " + title(i) + ": a bool with the value " + std::to_string(bytes[k]),
                   where,
                   {}};
    }
    return ok_status();
  }

  Result<std::byte*> own(size_t i, int64_t offset, int64_t storage, DType dtype) {
    auto memory = out_.memory.take(storage);
    if (!memory.ok()) {
      memory.error().message = "input " + title(i) + ": " + memory.error().message;
      return std::move(memory.error());
    }
    return *memory + offset * dtype_bytes(dtype);
  }

  Status make_up(size_t i) {
    const Type& t = type(i);
    if (is_scalar(t)) return t.has_value ? take_recorded_scalar(i) : ok_status();
    const bool is_made = source_.maker != nullptr && source_.maker->can_make(i);
    const bool is_one = !is_made && is_tangent_of_loss(graph_, graph_.inputs()[i]);
    if (!needs_value(graph_, graph_.inputs()[i]) || !(is_made || is_one)) return ok_status();
    int64_t offset = 0, storage = 0;
    SG_ASSIGN(Tensor tensor, shaped(i, &offset, &storage));
    SG_ASSIGN(tensor.data, own(i, offset, storage, tensor.dtype));
    if (is_one) out_.ones.push_back(i);
    if (is_one) visit_stored(tensor.dtype, [&]<class T>() { *tensor.as<T>() = T(1.0F); });
    else SG_TRY(source_.maker->make(i, tensor));
    out_.tensors[i] = tensor;
    return ok_status();
  }

  Status take_recorded_scalar(size_t i) {
    const Type& t = type(i);
    if (t.kind == TypeKind::floating) {
      out_.scalars[i] = Scalar::floating(t.float_value);
      return ok_status();
    }
    auto value = out_.symbols.value(job_.pool->exprs, t.value);
    if (!value && (source_.may_miss || !graph_.is_used(graph_.inputs()[i].value))) return ok_status();
    if (!value)
      return Error{ErrorKind::unreadable,
                   "input " + title(i) + " is the size " + job_.pool->exprs.print(t.value) + ", which no input tells",
                   {only_file(source_)},
                   "give it in --inputs"};
    out_.scalars[i] = t.kind == TypeKind::boolean ? Scalar::boolean(*value != 0) : Scalar::integer(*value);
    return ok_status();
  }

  const Job& job_;
  const Program& program_;
  const Graph& graph_;
  const InputSource& source_;
  Diagnostics findings_;
  InputMatch matching_;
  InputSet out_;
};

}  // namespace

Result<std::byte*> TensorMemory::take(int64_t bytes) {
  if (bytes > std::numeric_limits<int64_t>::max() / 2)
    return Error{ErrorKind::missing, std::to_string(bytes) + " bytes are more than any machine has", {}, {}};
  SG_TRY(require_memory(bytes));
  auto size = (static_cast<size_t>(bytes) + 63) / 64 * 64;
  auto* memory = static_cast<std::byte*>(std::aligned_alloc(64, std::max<size_t>(size, 64)));
  if (memory == nullptr)
    return Error{ErrorKind::missing, "not enough memory for " + std::to_string(bytes) + " bytes", {}, {}};
  blocks_.emplace_back(memory);
  bytes_ += bytes;
  return memory;
}

std::string input_title(const Graph& graph, const Input& input) {
  std::string name = "%" + std::string(graph.name(input.value));
  return input.fqn ? "`" + graph.pool().strings.str(input.fqn) + "` (" + name + ")" : name;
}

void set_files(const std::vector<std::string>& patterns, uint32_t rank, uint64_t step, InputSource* source) {
  source->files.clear();
  for (const bool is_of_step : {false, true}) {
    source->of_step = source->files.size();
    for (const std::string& pattern : patterns)
      if (has_step(pattern) == is_of_step) source->files.push_back(data_file_name(pattern, rank, step));
  }
}

Result<InputSet> load_inputs(const Job& job, uint32_t rank, const InputSource& source) {
  const Program* program = job.program_of(rank);
  if (program == nullptr)
    return Error{ErrorKind::cannot_apply, "the job does not hold rank " + std::to_string(rank), {}, {}};
  return Loader(job, *program, source).run();
}

}  // namespace sg
