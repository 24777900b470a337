// Optimizer: one update, on the rank's threads or on its device. Both apply the rules of work/update.h.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <tuple>

#include "librun/backend.h"
#include "librun/cpu/fill.h"
#include "librun/element.h"
#include "librun/execute/memory_ranges.h"
#include "librun/optimizer/optimizer.h"
#include "librun/thread_team.h"
#include "librun/work/update.h"

namespace sg {
namespace {

// Element offsets of a strided tensor, in row-major order.
class PlaceWalk {
 public:
  PlaceWalk(const Tensor& t, int64_t first) : t_(t) {
    for (size_t d = static_cast<size_t>(t.rank); d-- > 0; first /= t.shape[d]) {
      index_[d] = first % t.shape[d];
      place_ += index_[d] * t.stride[d];
    }
  }
  int64_t place() const { return place_; }
  void next() {
    for (size_t d = static_cast<size_t>(t_.rank); d-- > 0;) {
      place_ += t_.stride[d];
      if (++index_[d] < t_.shape[d]) return;
      place_ -= index_[d] * t_.stride[d];
      index_[d] = 0;
    }
  }

 private:
  const Tensor& t_;
  std::array<int64_t, kMaxRank> index_{};
  int64_t place_ = 0;
};

template <class T, class P>
struct Narrow {
  T operator()(T x) const { return static_cast<T>(static_cast<P>(x)); }
};

// Updates elements [begin, end) on the CPU, with types known at compile time.
template <class P, class G, class Rule>
void update_part(const Tensor& value, const Tensor& gradient, const work::RuleState<Rule>& given, int64_t begin,
                 int64_t end) {
  using T = typename Rule::Number;
  const work::RuleState<Rule> state = given;  // a local copy, which no store can alias
  if (value.is_contiguous() && gradient.is_contiguous()) {
    P* places = value.as<P>();
    const G* slopes = gradient.as<G>();
    for (int64_t i = begin; i < end; ++i)
      places[i] = static_cast<P>(state.next(i, static_cast<T>(places[i]), static_cast<T>(slopes[i]), Narrow<T, P>()));
    return;
  }
  PlaceWalk at(value, begin), from(gradient, begin);
  for (int64_t i = begin; i < end; ++i, at.next(), from.next()) {
    P* place = value.as<P>() + at.place();
    const T slope = static_cast<T>(gradient.as<G>()[from.place()]);
    *place = static_cast<P>(state.next(i, static_cast<T>(*place), slope, Narrow<T, P>()));
  }
}

template <class Rule>
void update_by_threads(ThreadTeam& team, const Tensor& value, const Tensor& gradient,
                       const work::RuleState<Rule>& state) {
  constexpr int64_t kGrain = 1 << 14;
  team.parallel_for(state.count, kGrain, [&](int64_t begin, int64_t end) {
    visit_floating(value.dtype, [&]<class P>() {
      visit_floating(gradient.dtype, [&]<class G>() { update_part<P, G>(value, gradient, state, begin, end); });
    });
  });
}

work::Floats floats_of(const Tensor& t) {
  using Type = work::Floats::Type;
  work::Floats out{};
  out.data = reinterpret_cast<unsigned char*>(t.data);
  out.type = t.dtype == DType::f64   ? Type::f64
             : t.dtype == DType::f32 ? Type::f32
             : t.dtype == DType::f16 ? Type::f16
                                     : Type::bf16;
  const bool as_one_axis = t.is_contiguous();  // needs no division to find an element
  out.axes = as_one_axis ? 1 : t.rank;
  static_assert(std::size(out.shape) == kMaxRank);
  std::ranges::copy(t.sizes(), out.shape);
  std::ranges::copy(t.strides(), out.stride);
  if (as_one_axis) out.shape[0] = t.elements(), out.stride[0] = 1;
  return out;
}

// Updates on a device, where small parameters, of which models have hundreds, share launches: inputs have memory of
// their own there.
class DeviceUpdates {
 public:
  explicit DeviceUpdates(Backend& backend) : backend_(backend) {}

  template <class Rule>
  void add(const Tensor& value, const Tensor& gradient, const work::RuleState<Rule>& state) {
    if (state.count == 0) return;
    if (state.count > kMostOfSmall || !value.is_contiguous() || !gradient.is_contiguous()) {
      const EachArgs<work::Update<Rule>> args{state.count, {floats_of(value), floats_of(gradient), state}};
      return backend_.each(Rule::kName, &args, args.count);
    }
    auto& args = std::get<Many<Rule>>(many_);
    if (args.work.parts == args.work.kMost) launch(args);
    args.count += state.count;
    args.work.rule = state.rule;
    args.work.is_first = state.is_first;
    args.work.part[args.work.parts++] = {floats_of(value), floats_of(gradient), state.moments, state.master,
                                         args.count};
  }

  void launch() {
    std::apply([&](auto&... many) { (launch(many), ...); }, many_);
  }

 private:
  static constexpr int64_t kMostOfSmall = int64_t{1} << 18;  // elements: more fill a device by themselves
  template <class Rule>
  using Many = EachArgs<work::UpdateMany<Rule>>;

  template <class Rule>
  void launch(EachArgs<work::UpdateMany<Rule>>& many) {
    static_assert(sizeof many <= 4096);
    if (many.count > 0) backend_.each(Rule::kManyName, &many, many.count);
    many.count = many.work.parts = 0;
  }

  Backend& backend_;
  std::tuple<Many<work::Sgd<float>>, Many<work::Sgd<double>>, Many<work::AdamW<float>>, Many<work::AdamW<double>>>
      many_{};
};

}  // namespace

void Optimizer::begin_update(const RunValues& values) {
  ++steps_;
  beta1_power_ *= options_.beta1;
  beta2_power_ *= options_.beta2;
  for (Parameter& parameter : parameters_) {
    parameter.value = values.tensor(graph_->inputs()[parameter.input].value);
    parameter.slope = values.tensor(parameter.gradient);
  }
  std::erase_if(parameters_, [](const Parameter& p) { return p.value.is_none(); });  // not given, as nothing reads it
}

// Parameters whose gradient overlaps memory that the update or the carried buffers write, unless every element is its
// own gradient; and parameters whose gradient is stored as its conjugate.
std::vector<Optimizer::Parameter*> Optimizer::aliased(std::span<const Tensor> carried_to) {
  std::vector<Tensor> changed(carried_to.begin(), carried_to.end());
  for (const Parameter& parameter : parameters_) changed.push_back(parameter.value);
  const MemoryRanges written(changed);
  std::vector<Parameter*> out;
  for (Parameter& parameter : parameters_) {
    const Tensor &slope = parameter.slope, &value = parameter.value;
    if (slope.conjugate != value.conjugate || (!same_view(slope, value) && written.touch(slope)))
      out.push_back(&parameter);
  }
  return out;
}

// Copies such gradients before anything is written.
Status Optimizer::keep_aliased(std::span<const Tensor> carried_to, ThreadTeam& team, Backend* backend) {
  for (Parameter* parameter : aliased(carried_to)) {
    const Tensor slope = parameter->slope;
    if (backend) {
      parameter->slope = backend->scratch(slope.dtype, slope.sizes());
      backend->copy(parameter->slope, slope);
    } else {
      SG_ASSIGN(std::byte * copy, kept_.take(slope.bytes()));
      parameter->slope = make_tensor(copy, slope.dtype, slope.sizes());
      cpu::copy(team, parameter->slope, slope);
    }
  }
  return ok_status();
}

// Treats complex parameters and gradients as pairs of real and imaginary parts.
void Optimizer::see_pairs() {
  auto pairs = [](Tensor* t) {
    if (!is_complex(t->dtype)) return;
    t->dtype = t->dtype == DType::c128 ? DType::f64 : DType::f32;
    for (size_t d = 0; d < static_cast<size_t>(t->rank); ++d) t->stride[d] *= 2;
    t->shape[static_cast<size_t>(t->rank)] = 2;
    t->stride[static_cast<size_t>(t->rank)] = 1;
    ++t->rank;
  };
  for (Parameter& parameter : parameters_) pairs(&parameter.value), pairs(&parameter.slope);
}

// Calls fn with the parameter's rule and state.
template <class Fn>
void Optimizer::with_rule(const Parameter& parameter, const Fn& fn) const {
  auto run = [&]<class T>(const auto& rule) {
    const int64_t count = parameter.value.elements();
    T* state = reinterpret_cast<T*>(parameter.state);
    fn(work::RuleState<std::remove_cvref_t<decltype(rule)>>{
        rule, state, parameter.has_master ? state + moments() * count : nullptr, count, steps_ == 1});
  };
  auto choose = [&]<class T>() {
    const OptimizerOptions& o = options_;
    if (o.kind == OptimizerOptions::Kind::sgd)
      run.template operator()<T>(
          work::Sgd<T>{T(o.lr), T(o.weight_decay), T(o.momentum), T(1 - o.dampening), o.momentum != 0, o.nesterov});
    else
      run.template operator()<T>(work::AdamW<T>{T(1 - o.lr * o.weight_decay), T(o.beta1), T(o.beta2), T(1 - o.beta1),
                                                T(1 - o.beta2), T(o.eps), T(o.lr / (1 - beta1_power_)),
                                                T(std::sqrt(1 - beta2_power_))});
  };
  if (parameter.value.dtype == DType::f64) choose.template operator()<double>();
  else choose.template operator()<float>();
}

Status Optimizer::take_state(Backend* backend, Parameter* parameter) {
  const Tensor& value = parameter->value;
  const int64_t width = value.dtype == DType::f64 ? 8 : 4;
  parameter->has_master = value.dtype != DType::f64 && value.dtype != DType::f32;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(value.elements(), (moments() + parameter->has_master) * width, &bytes)) bytes = INT64_MAX;
  auto take = [&]() -> Result<std::byte*> {
    if (!backend) return memory_.take(bytes);
    SG_ASSIGN(Arena memory, Arena::reserve(bytes, &backend->memory()));
    return device_memory_.emplace_back(std::move(memory)).data();
  };
  auto memory = take();
  if (memory.ok()) parameter->state = *memory;
  else
    memory.error().message = "--optimizer: state of " + input_title(*graph_, graph_->inputs()[parameter->input]) +
                             ": " + memory.error().message;
  if (!memory.ok()) return std::move(memory.error());
  return left_ ? read_state(*parameter, backend) : ok_status();
}

Status Optimizer::begin(const RunValues& values, std::span<const Tensor> carried_to, ThreadTeam& team,
                        Backend* backend) {
  begin_update(values);
  SG_TRY(keep_aliased(carried_to, team, backend));
  see_pairs();
  for (Parameter& parameter : parameters_)
    if (!has_state_) SG_TRY(take_state(backend, &parameter));
  has_state_ = true;
  left_.reset();
  return ok_status();
}

Status Optimizer::update(const RunValues& values, ThreadTeam* given) {
  ThreadTeam alone(1);
  ThreadTeam& team = given ? *given : alone;
  SG_TRY(begin(values, {}, team, nullptr));
  return end(team, nullptr);
}

Status Optimizer::end(ThreadTeam& team, Backend* backend) {
  std::optional<DeviceUpdates> on_device;
  if (backend) on_device.emplace(*backend);
  for (const Parameter& parameter : parameters_)
    with_rule(parameter, [&](const auto& state) {
      if (on_device) on_device->add(parameter.value, parameter.slope, state);
      else update_by_threads(team, parameter.value, parameter.slope, state);
    });
  if (on_device) on_device->launch();
  if (backend) backend->reset_scratch();
  kept_ = TensorMemory();
  return ok_status();
}

}  // namespace sg
