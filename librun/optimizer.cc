#include "librun/optimizer.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstring>

#include "libgraph/nearest.h"
#include "librun/element.h"
#include "librun/thread_team.h"

namespace sg {
namespace {

// What one element's update needs besides its own numbers.
template <class T>
struct Sgd {
  T lr, weight_decay, momentum, damped;  // damped: 1 - dampening
  bool has_momentum, nesterov, is_first;

  void operator()(T* parameter, T gradient, T* state, int64_t) const {
    if (weight_decay != 0) gradient = gradient + weight_decay * *parameter;
    if (has_momentum) {
      *state = is_first ? gradient : momentum * *state + damped * gradient;
      gradient = nesterov ? gradient + momentum * *state : *state;
    }
    *parameter = *parameter - lr * gradient;
  }
};

template <class T>
struct AdamW {
  T decay, beta1, beta2, rest1, rest2, eps, step_size, root_correction;  // rest: 1 - beta

  void operator()(T* parameter, T gradient, T* mean, int64_t count) const {
    T* square = mean + count;
    *parameter = *parameter * decay;
    *mean = *mean + rest1 * (gradient - *mean);
    *square = *square * beta2 + rest2 * gradient * gradient;
    *parameter = *parameter - step_size * (*mean / (std::sqrt(*square) / root_correction + eps));
  }
};

// Element offsets of a strided tensor, in row-major order.
class Walk {
 public:
  Walk(const Tensor& t, int64_t first) : t_(t) {
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

// Elements [begin, end). `state`: [moments][elements] of T; `master`: the copy of a parameter that is narrower than T.
template <class T, class P, class G, class Rule>
void update_part(const Tensor& value, const Tensor& gradient, T* state, T* master, const Rule& rule, int64_t begin,
                 int64_t end) {
  const int64_t count = value.elements();
  auto one = [&](int64_t i, P* place, G slope) {
    T number = master != nullptr ? master[i] : static_cast<T>(*place);
    rule(&number, static_cast<T>(slope), state + i, count);
    if (master != nullptr) master[i] = number;
    *place = static_cast<P>(number);
  };
  if (value.is_contiguous() && gradient.is_contiguous()) {
    P* places = value.as<P>();
    const G* slopes = gradient.as<G>();
    for (int64_t i = begin; i < end; ++i) one(i, places + i, slopes[i]);
    return;
  }
  Walk at(value, begin), from(gradient, begin);
  for (int64_t i = begin; i < end; ++i, at.next(), from.next())
    one(i, value.as<P>() + at.place(), gradient.as<G>()[from.place()]);
}

template <class T>
T load(const Tensor& t, int64_t place) {
  return visit_floating(t.dtype, [&]<class P>() { return static_cast<T>(t.as<P>()[place]); });
}

struct Key {
  std::string_view name;
  bool for_sgd, for_adamw;
};
constexpr Key kKeys[] = {{"lr", true, true},         {"wd", true, true},        {"momentum", true, false},
                         {"dampening", true, false}, {"nesterov", true, false}, {"betas", false, true},
                         {"eps", false, true}};

Error usage(std::string message,
            std::string hint = "sgd:lr=0.1,momentum=0.9 or adamw:lr=1e-3,betas=0.9:0.999,eps=1e-8,wd=0.01") {
  return {ErrorKind::usage, "--optimizer: " + std::move(message), {}, std::move(hint)};
}

Result<double> number(std::string_view key, std::string_view text) {
  double value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
    return usage(std::string(key) + "=" + std::string(text) + ": not a number");
  if (value < 0) return usage(std::string(key) + "=" + std::string(text) + ": below 0");
  return value;
}

Status set_betas(std::string_view text, OptimizerOptions* out) {
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos)
    return usage("betas=" + std::string(text) + ": two numbers are needed, betas=0.9:0.999");
  SG_ASSIGN(out->beta1, number("betas", text.substr(0, colon)));
  SG_ASSIGN(out->beta2, number("betas", text.substr(colon + 1)));
  if (out->beta1 >= 1 || out->beta2 >= 1) return usage("betas=" + std::string(text) + ": each is below 1");
  return ok_status();
}

Status set_option(std::string_view key, std::string_view value, OptimizerOptions* out) {
  if (key == "betas") return set_betas(value, out);
  SG_ASSIGN(double v, number(key, value));
  if (key == "nesterov" && v != 0 && v != 1) return usage("nesterov is 0 or 1");
  if (key == "lr") out->lr = v;
  if (key == "wd") out->weight_decay = v;
  if (key == "momentum") out->momentum = v;
  if (key == "dampening") out->dampening = v;
  if (key == "nesterov") out->nesterov = v == 1;
  if (key == "eps") out->eps = v;
  return ok_status();
}

// "lr=0.1,betas=0.9,0.999" -> "lr=0.1", "betas=0.9:0.999": an item without a key goes on with the one before.
std::vector<std::string> items_of(std::string_view text) {
  std::vector<std::string> out;
  while (!text.empty()) {
    const size_t comma = text.find(',');
    const std::string_view item = text.substr(0, comma);
    if (item.find('=') == std::string_view::npos && !out.empty()) out.back() += ":" + std::string(item);
    else out.emplace_back(item);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  return out;
}

}  // namespace

Result<OptimizerOptions> parse_optimizer(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view name = text.substr(0, colon);
  OptimizerOptions out;
  const bool adamw = name == "adamw";
  if (!adamw && name != "sgd") return usage("there is no `" + std::string(name) + "`");
  out.kind = adamw ? OptimizerOptions::Kind::adamw : OptimizerOptions::Kind::sgd;
  if (adamw) out.weight_decay = 0.01;
  std::vector<std::string> seen;
  for (const std::string& item :
       items_of(colon == std::string_view::npos ? std::string_view() : text.substr(colon + 1))) {
    const std::string key = item.substr(0, item.find('='));
    Nearest nearest(key);
    bool known = false;
    for (const Key& k : kKeys)
      if (adamw ? k.for_adamw : k.for_sgd) nearest.offer(k.name), known = known || k.name == key;
    if (!known || key.size() == item.size())
      return usage("`" + item + "` is no option of " + std::string(name), known                   ? key + "=NUMBER"
                                                                          : key == "weight_decay" ? "it is called wd"
                                                                                                  : nearest.hint());
    for (const std::string& other : seen)
      if (other == key) return usage(key + " is given twice");
    seen.push_back(key);
    SG_TRY(set_option(key, std::string_view(item).substr(key.size() + 1), &out));
  }
  if (out.nesterov && (out.momentum == 0 || out.dampening != 0))
    return usage("nesterov needs momentum, and no dampening");
  return out;
}

Result<Optimizer> Optimizer::make(const Graph& graph, const OptimizerOptions& options) {
  Optimizer out(graph, options);
  std::vector<bool> has_gradient(graph.inputs().size());
  for (const Output& output : graph.outputs()) {
    if (output.kind != OutputKind::gradient || output.value.is_none() || output.of.is_none()) continue;
    const size_t i = graph.value(output.of).index;
    const Input& input = graph.inputs()[i];
    if (input.kind != InputKind::parameter) continue;
    const Type &value = graph.type(input.value), &gradient = graph.type(output.value);
    auto refuse = [&](std::string why) {
      return Error{ErrorKind::cannot_apply,
                   "--optimizer: parameter " + input_title(graph, input) + " " + std::move(why),
                   {},
                   {}};
    };
    if (has_gradient[i]) return refuse("has two gradients");
    has_gradient[i] = true;
    auto usable = [](const Type& t) {
      return t.kind == TypeKind::tensor && is_floating(t.dtype) && is_runnable(t.dtype);
    };
    if (!usable(value) || !usable(gradient))
      return refuse("or its gradient has an element type that cannot be updated");
    if (value.shape != gradient.shape) return refuse("and its gradient differ in shape");
    out.parameters_.push_back({i, output.value});
  }
  if (out.parameters_.empty())
    return Error{ErrorKind::cannot_apply, "--optimizer: the graph gives no gradient of a parameter", {}, {}};
  return out;
}

Status Optimizer::take_state(const Tensor& value, Parameter* parameter) {
  const int64_t width = value.dtype == DType::f64 ? 8 : 4;
  parameter->has_master = value.dtype != DType::f64 && value.dtype != DType::f32;
  const int64_t moments = options_.kind == OptimizerOptions::Kind::adamw ? 2 : options_.momentum != 0 ? 1 : 0;
  int64_t bytes = 0;
  if (__builtin_mul_overflow(value.elements(), (moments + parameter->has_master) * width, &bytes)) bytes = INT64_MAX;
  auto memory = memory_.take(bytes);
  if (!memory.ok()) {
    memory.error().message = "--optimizer: state of " + input_title(*graph_, graph_->inputs()[parameter->input]) +
                             ": " + memory.error().message;
    return std::move(memory.error());
  }
  parameter->state = *memory;
  std::memset(parameter->state, 0, static_cast<size_t>(bytes));
  if (!parameter->has_master) return ok_status();
  float* master = reinterpret_cast<float*>(parameter->state) + moments * value.elements();
  Walk at(value, 0);
  for (int64_t i = 0; i < value.elements(); ++i, at.next()) master[i] = load<float>(value, at.place());
  return ok_status();
}

Status Optimizer::update(const RunValues& values, ThreadTeam* team) {
  const bool is_first = steps_++ == 0;
  beta1_power_ *= options_.beta1;
  beta2_power_ *= options_.beta2;
  for (Parameter& parameter : parameters_) {
    const Tensor value = values.tensor(graph_->inputs()[parameter.input].value),
                 gradient = values.tensor(parameter.gradient);
    if (parameter.state == nullptr) SG_TRY(take_state(value, &parameter));
    auto apply = [&]<class T>(const auto& rule, int64_t moments) {
      T* state = reinterpret_cast<T*>(parameter.state);
      T* master = parameter.has_master ? state + moments * value.elements() : nullptr;
      auto part = [&](int64_t begin, int64_t end) {
        visit_floating(value.dtype, [&]<class P>() {
          visit_floating(gradient.dtype,
                         [&]<class G>() { update_part<T, P, G>(value, gradient, state, master, rule, begin, end); });
        });
      };
      constexpr int64_t kGrain = 1 << 14;
      if (team != nullptr) team->parallel_for(value.elements(), kGrain, part);
      else part(0, value.elements());
    };
    auto run = [&]<class T>() {
      const auto& o = options_;
      if (o.kind == OptimizerOptions::Kind::sgd) {
        apply.template operator()<T>(Sgd<T>{T(o.lr), T(o.weight_decay), T(o.momentum), T(1 - o.dampening),
                                            o.momentum != 0, o.nesterov, is_first},
                                     o.momentum != 0);
      } else {
        apply.template operator()<T>(
            AdamW<T>{T(1 - o.lr * o.weight_decay), T(o.beta1), T(o.beta2), T(1 - o.beta1), T(1 - o.beta2), T(o.eps),
                     T(o.lr / (1 - beta1_power_)), T(std::sqrt(1 - beta2_power_))},
            2);
      }
    };
    if (value.dtype == DType::f64) run.template operator()<double>();
    else run.template operator()<float>();
  }
  return ok_status();
}

}  // namespace sg
