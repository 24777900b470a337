// The sizes of a rank's inputs, and whether the files' tensors are of them.
#include "libgraph/expr/input_sizes.h"

#include "libgraph/shape_text.h"
#include "librun/values/input_load.h"

namespace sg {
namespace {

class SizesOfInputs {
 public:
  explicit SizesOfInputs(InputLoad* load) : load_(*load) {}

  Status run() {
    InputSizes sizes(load_.program);
    SG_TRY(sizes.bind(load_.source.bindings));
    for (size_t i = 0; i < load_.count(); ++i)  // numbers first: a tensor's sizes may be products of them
      if (const auto number = size_given(i)) sizes.learn({&load_.type(i).value, 1}, {&*number, 1});
    for (size_t i = 0; i < load_.count(); ++i) {
      const StoredTensor* stored = load_.stored(i);
      if (stored == nullptr || load_.type(i).kind != TypeKind::tensor) continue;
      if (stored->shape.size() == load_.type(i).shape.size()) sizes.learn(load_.type(i).shape, stored->shape);
      else load_.findings.error("inputs", mismatch(i, *stored), load_.at(i));
    }
    if (load_.findings.has_errors()) return load_.findings.as_error(ErrorKind::unreadable);
    sizes.follow_guards();
    sizes.take_hints();
    load_.out.symbols = sizes.values();
    for (size_t i = 0; i < load_.count(); ++i) check_type(i);
    if (load_.findings.has_errors()) return load_.findings.as_error(ErrorKind::unreadable);
    if (load_.source.maker != nullptr) load_.source.maker->set_sizes(load_.out.symbols);
    return sizes.check();
  }

 private:
  // The number that a file has for an input that is a size of the graph.
  std::optional<int64_t> size_given(size_t i) const {
    const StoredTensor* stored = load_.stored(i);
    if (stored == nullptr || load_.type(i).kind != TypeKind::integer || !load_.type(i).has_value ||
        !stored->shape.empty())
      return std::nullopt;
    const std::optional<Scalar> number = number_in(*stored, load_.type(i));
    return number ? std::optional(number->to_int()) : std::nullopt;
  }

  std::string mismatch(size_t i, const StoredTensor& t) const {
    return "input " + load_.title(i) + " is " + load_.recorded(i) + " in the graph, " + type_text(t.dtype, t.shape) +
           " in the file";
  }

  std::string one_file_for_all() const {
    if (load_.job.world < 2 || load_.source.files.size() != 1 || !load_.source.is_of_all_ranks) return "";
    return load_.source.files[0] + " is given to all " + std::to_string(load_.job.world) +
           " ranks: a file a rank is named with {r}, as 'rank{r}.safetensors'";
  }

  void check_type(size_t i) {
    const StoredTensor* stored = load_.stored(i);
    if (stored == nullptr) return;
    if (is_number(load_.type(i))) {
      if (!stored->shape.empty() || !number_in(*stored, load_.type(i)))
        load_.findings.error(
            "inputs",
            "input " + load_.title(i) + " is a number, the file has " + type_text(stored->dtype, stored->shape),
            load_.at(i));
      if (const auto given = size_given(i)) check_size(i, *given);
      return;
    }
    bool same = load_.type(i).kind == TypeKind::tensor && stored->dtype == load_.type(i).dtype;
    for (size_t d = 0; same && d < stored->shape.size(); ++d)
      same = load_.out.symbols.value(load_.job.pool->exprs, load_.type(i).shape[d]) == stored->shape[d];
    if (!same) load_.findings.error("inputs", mismatch(i, *stored), load_.at(i), one_file_for_all());
  }

  void check_size(size_t i, int64_t given) {
    const Expr size = load_.type(i).value;
    const auto known = load_.out.symbols.value(load_.job.pool->exprs, size);
    if (!known || *known == given) return;
    const std::string is = load_.job.pool->exprs.is_constant(size) ? "" : load_.job.pool->exprs.print(size) + " = ";
    load_.findings.error("inputs",
                         "input " + load_.title(i) + " is " + is + std::to_string(*known) +
                             " by the sizes of the graph's inputs, " + std::to_string(given) + " in the file",
                         load_.at(i));
  }

  InputLoad& load_;
};

}  // namespace

Status bind_sizes(InputLoad* load) { return SizesOfInputs(load).run(); }

}  // namespace sg
