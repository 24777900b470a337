#include "librun/values/inputs.h"

#include "libgraph/facts/scheduled.h"
#include "libgraph/facts/tangent.h"
#include "librun/element.h"
#include "librun/values/constant_files.h"
#include "librun/values/data_name.h"
#include "librun/values/input_layout.h"
#include "librun/values/input_load.h"

namespace sg {
namespace {

Status open_files(InputLoad* load) {
  const InputSource& source = load->source;
  std::vector<TensorFile>& files = load->out.files;
  files.reserve(source.files.size());
  for (const std::string& name : source.files) {
    SG_ASSIGN(TensorFile file, TensorFile::open(name, TensorFile::Access::copy_on_write));
    files.push_back(std::move(file));
    const size_t number = files.size() - 1;
    const size_t first = number >= source.of_step ? source.of_step : number >= source.of_state ? source.of_state : 0;
    load->matching.add(files.back(), number, first);
  }
  if (load->findings.has_errors()) return load->findings.as_error(ErrorKind::unreadable);
  return source.constants.empty() ? ok_status()
                                  : find_constants(load->graph, source.constants, &load->matching, &files);
}

// A bool that is neither 0 nor 1 has no meaning in C++.
Status check_booleans(const InputLoad& load, size_t i, const StoredTensor& stored) {
  const auto* bytes = static_cast<const uint8_t*>(stored.data);
  for (uint64_t k = 0; k < stored.bytes; ++k) {
    if (bytes[k] <= 1) continue;
    Location where{load.file_name(i)};
    where.offset = stored.offset + k;
    return Error{ErrorKind::unreadable,
                 "input " + load.title(i) + ": a bool with the value " + std::to_string(bytes[k]),
                 where,
                 {}};
  }
  return ok_status();
}

// Values of inputs, once their sizes are known.
class InputValues {
 public:
  explicit InputValues(InputLoad* load) : load_(*load), out_(load->out) {}

  Status take_all() {
    for (size_t i = 0; i < load_.count(); ++i) {
      if (is_kept(i)) out_.kept.push_back(i);
      if (load_.stored(i) != nullptr) SG_TRY(take_stored(i, *load_.stored(i)));
      else if (auto held = load_.held(i); held && !load_.source.may_miss) SG_TRY(take_held(i, *held));
      else SG_TRY(make_up(i));
    }
    return ok_status();
  }

 private:
  // Whether each step should be given it, and is not.
  bool is_kept(size_t i) const {
    const bool is_of_step = load_.stored(i) != nullptr && load_.matching.file_of(i) >= load_.source.of_step;
    return is_scheduled(load_.graph, load_.input(i)) && !is_of_step;
  }

  Status take_stored(size_t i, const StoredTensor& stored) {
    if (is_number(load_.type(i))) {
      out_.scalars[i] = *number_in(stored, load_.type(i));  // bind_sizes has seen it
      return ok_status();
    }
    if (stored.dtype == DType::boolean) SG_TRY(check_booleans(load_, i, stored));
    SG_ASSIGN(const InputLayout layout, layout_of(load_, i));
    if (!layout.is_plain() || !stored.aligned()) return copy(i, layout, stored.data);
    out_.tensors[i] = layout.tensor;
    out_.tensors[i].data = static_cast<std::byte*>(out_.files[load_.matching.file_of(i)].writable(stored));
    return ok_status();
  }

  Status take_held(size_t i, std::string_view bytes) {
    SG_ASSIGN(const InputLayout layout, layout_of(load_, i));
    return copy(i, layout, bytes.data());
  }

  Status copy(size_t i, const InputLayout& layout, const void* elements) {
    SG_ASSIGN(out_.tensors[i], with_memory(&load_, i, layout));
    return spread(load_, i, elements, out_.tensors[i]);
  }

  Status make_up(size_t i) {
    const Type& t = load_.type(i);
    if (is_number(t)) return t.has_value ? take_recorded_number(i) : ok_status();
    InputMaker* maker = load_.source.maker;
    const bool is_made = maker != nullptr && maker->can_make(i);
    const bool is_one = !is_made && is_tangent_of_loss(load_.graph, load_.input(i));
    if (!load_.needs_value(i) || !(is_made || is_one)) return ok_status();
    SG_ASSIGN(const InputLayout layout, layout_of(load_, i));
    SG_ASSIGN(const Tensor tensor, with_memory(&load_, i, layout));
    if (is_one) out_.ones.push_back(i);
    if (is_one) visit_stored(tensor.dtype, [&]<class T>() { *tensor.as<T>() = T(1.0F); });
    else SG_TRY(maker->make(i, tensor));
    out_.tensors[i] = tensor;
    return ok_status();
  }

  Status take_recorded_number(size_t i) {
    const Type& t = load_.type(i);
    if (t.kind == TypeKind::floating) {
      out_.scalars[i] = Scalar::floating(t.float_value);
      return ok_status();
    }
    const ExprPool& exprs = load_.job.pool->exprs;
    auto value = out_.symbols.value(exprs, t.value);
    if (!value && (load_.source.may_miss || !load_.graph.is_used(load_.input(i).value))) return ok_status();
    if (!value)
      return Error{ErrorKind::unreadable,
                   "input " + load_.title(i) + " is the size " + exprs.print(t.value) + ", which no input tells",
                   {load_.only_file()},
                   "give it in --inputs"};
    out_.scalars[i] = t.kind == TypeKind::boolean ? Scalar::boolean(*value != 0) : Scalar::integer(*value);
    return ok_status();
  }

  InputLoad& load_;
  InputSet& out_;
};

}  // namespace

std::string input_title(const Graph& graph, const Input& input) {
  std::string name = "%" + std::string(graph.name(input.value));
  return input.fqn ? "`" + graph.pool().strings.str(input.fqn) + "` (" + name + ")" : name;
}

void set_files(const std::vector<std::string>& patterns, const std::string& state, uint32_t rank, uint64_t step,
               InputSource* source) {
  const auto add = [&](bool is_of_step) {
    for (const std::string& pattern : patterns)
      if (has_step(pattern) == is_of_step) source->files.push_back(data_file_name(pattern, rank, step));
  };
  source->files.clear();
  add(false);
  source->of_state = source->files.size();
  if (!state.empty()) source->files.push_back(data_file_name(state, rank, 0));
  source->of_step = source->files.size();
  add(true);
}

Result<InputSet> load_inputs(const Job& job, uint32_t rank, const InputSource& source) {
  const Program* program = job.program_of(rank);
  if (program == nullptr)
    return Error{ErrorKind::cannot_apply, "the job does not hold rank " + std::to_string(rank), {}, {}};
  InputLoad load(job, *program, source);
  SG_TRY(open_files(&load));
  if (!source.may_miss) SG_TRY(check_missing(load));
  SG_TRY(bind_sizes(&load));
  SG_TRY(InputValues(&load).take_all());
  return std::move(load.out);
}

}  // namespace sg
