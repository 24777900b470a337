// Optimizer: what it keeps of each parameter, from one run to the next (values/run_state.h).
#include <algorithm>
#include <cstring>

#include "librun/backend.h"
#include "librun/optimizer/optimizer.h"
#include "librun/values/inputs.h"

namespace sg {
namespace {

constexpr std::string_view kAdamwMoments[] = {"exp_avg", "exp_avg_sq"}, kSgdMoments[] = {"momentum_buffer"};
constexpr std::string_view kMaster = "master";  // the f32 copy of a narrower parameter

std::string_view name_of(OptimizerOptions::Kind kind) {
  return kind == OptimizerOptions::Kind::adamw ? "adamw" : "sgd";
}

// The stored elements as those of `to`, of the same shape.
void read_elements(const StoredTensor& stored, const Tensor& to) {
  if (stored.dtype == to.dtype) {
    std::memcpy(to.data, stored.data, stored.bytes);
    return;
  }
  const auto convert = [&]<class From, class To>(From, To) {
    const auto* bytes = static_cast<const std::byte*>(stored.data);  // not aligned
    for (int64_t i = 0; i < to.elements(); ++i) {
      From element;
      std::memcpy(&element, bytes + static_cast<size_t>(i) * sizeof element, sizeof element);
      to.as<To>()[i] = static_cast<To>(element);
    }
  };
  if (to.dtype == DType::f64) convert(float(), double());
  else convert(double(), float());
}

}  // namespace

std::span<const std::string_view> Optimizer::moment_names() const {
  if (options_.kind == OptimizerOptions::Kind::adamw) return kAdamwMoments;
  return std::span(kSgdMoments).first(options_.momentum != 0 ? 1 : 0);
}

// Tensors over the parameter's state, which may be in memory of the device.
std::vector<KeptTensor> Optimizer::state_of(const Parameter& parameter) const {
  std::vector<KeptTensor> out;
  const Tensor& value = parameter.value;  // of pairs, where its elements are complex
  const DType dtype = value.dtype == DType::f64 ? DType::f64 : DType::f32;
  std::byte* at = parameter.state;
  const auto add = [&](std::string_view name) {
    out.push_back({parameter.input, name, make_tensor(at, dtype, value.sizes())});
    at += out.back().value.bytes();
  };
  for (std::string_view name : moment_names()) add(name);
  if (parameter.has_master) add(kMaster);
  return out;
}

bool Optimizer::go_on_from(LeftState left) {
  if (left.optimizer() != name_of(options_.kind)) return false;
  const bool lacks_all = std::ranges::none_of(moment_names(), [&](std::string_view name) { return left.has(name); });
  if (moments() > 0 && lacks_all) return false;
  steps_ = left.updates();
  for (uint64_t i = 0; i < steps_ && beta1_power_ + beta2_power_ > 0; ++i)
    beta1_power_ *= options_.beta1, beta2_power_ *= options_.beta2;
  left_ = std::move(left);
  return true;
}

Status Optimizer::read_state(const Parameter& parameter, Backend* backend) {
  for (const KeptTensor& kept : state_of(parameter)) {
    const Tensor& to = kept.value;
    const StoredTensor* stored = left_->find(*graph_, kept.input, kept.name);
    auto refuse = [&](const std::string& what) {
      return Error{
          ErrorKind::unreadable,
          what + "`" + std::string(kept.name) + "` of " + input_title(*graph_, graph_->inputs()[kept.input]),
          {left_->path()},
          "--state takes what --dump-state left of the same parameters; as --inputs, the file gives the values "
          "alone, and the optimizer begins anew"};
    };
    if (stored == nullptr) return refuse("it has no ");
    if (!std::ranges::equal(stored->shape, to.sizes())) return refuse("another shape has ");
    if (stored->dtype != DType::f32 && stored->dtype != DType::f64) return refuse("another element type has ");
    if (!backend) {
      read_elements(*stored, to);
      continue;
    }
    TensorMemory memory;
    SG_ASSIGN(std::byte * bytes, memory.take(to.bytes()));
    read_elements(*stored, make_tensor(bytes, to.dtype, to.sizes()));
    SG_TRY(backend->upload(to.data, bytes, to.bytes()));
  }
  return ok_status();
}

Result<RunState> Optimizer::state(Backend* backend) {
  RunState out{.step = 0, .optimizer = std::string(name_of(options_.kind)), .updates = steps_, .kept = {}};
  downloaded_ = TensorMemory();
  for (const Parameter& parameter : parameters_)
    for (KeptTensor& kept : state_of(parameter)) {
      if (backend) {
        SG_ASSIGN(std::byte * bytes, downloaded_.take(kept.value.bytes()));
        SG_TRY(backend->download(bytes, kept.value.data, kept.value.bytes()));
        kept.value.data = bytes;
      }
      out.kept.push_back(std::move(kept));
    }
  return out;
}

}  // namespace sg
