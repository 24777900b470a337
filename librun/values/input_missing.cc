// The inputs that have no value, and what would give them one.
#include "libgraph/facts/tangent.h"
#include "librun/values/input_load.h"

namespace sg {
namespace {

constexpr size_t kMaxNamed = 5;  // names listed in one message

}  // namespace

Status check_missing(const InputLoad& load) {
  const InputMaker* maker = load.source.maker;
  std::string names;
  size_t count = 0;
  bool has_tangents = false, has_digests = false;
  for (size_t i = 0; i < load.count(); ++i) {
    if (load.stored(i) != nullptr || !load.needs_value(i)) continue;
    if (is_tangent_of_loss(load.graph, load.input(i))) continue;
    if (maker != nullptr && load.type(i).kind == TypeKind::tensor && maker->can_make(i)) continue;
    has_digests |= !load.input(i).digest.is_none();
    has_tangents |= load.input(i).kind == InputKind::tangent;
    if (count++ < kMaxNamed) names += (count == 1 ? "" : ", ") + load.title(i);
  }
  if (count == 0) return ok_status();
  if (count > kMaxNamed) names += " and " + std::to_string(count - kMaxNamed) + " more";
  std::string what = count == 1 ? "1 graph input has" : std::to_string(count) + " graph inputs have";
  Error error{ErrorKind::unreadable, what + " no value: " + names, {load.only_file()}, {}};
  error.hint = maker == nullptr ? "--inputs FILE gives values, --init seed:N makes up those that are left"
                                : "nothing in the graph bounds them, so --init cannot make them up; a file with these "
                                  "alone is enough: --inputs FILE --init ...";
  if (has_digests) error.hint += "; --data FOLDER finds constants by their digests";
  if (has_tangents)
    error.hint +=
        has_tangent_of_loss(load.graph)
            ? "; a tangent of what is not the loss is 0 (so --init has it) unless something outside uses that output"
            : "; a tangent is the gradient that came back for an output: output.retain_grad(), then output.grad";
  return error;
}

}  // namespace sg
