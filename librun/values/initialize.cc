#include "librun/values/initialize.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <map>

#include "libgraph/base/sha256.h"
#include "libgraph/facts/port_names.h"
#include "libgraph/facts/tangent.h"
#include "librun/element.h"
#include "librun/random.h"
#include "librun/thread_team.h"
#include "librun/values/input_use.h"
#include "librun/values/shard.h"

namespace sg {
namespace {

using Kind = InitRule::Kind;

const std::string kPositive = "a logarithm or a root is taken of it";

SizeValues hints(const Program& program) {
  return [&program](StrId name) -> std::optional<int64_t> {
    const Symbol* symbol = program.find_symbol(name);
    return symbol != nullptr && symbol->kind == SymbolKind::input ? symbol->hint : std::nullopt;
  };
}

std::vector<int64_t> global_shape(const Program& program, const Input& input) {
  const std::vector<Expr>& local = program.graph.type(input.value).shape;
  const std::vector<Expr>& exprs =
      input.sharding.global_shape.size() == local.size() ? input.sharding.global_shape : local;
  std::vector<int64_t> out;
  for (Expr e : exprs) out.push_back(evaluate_size(program.graph.pool(), e, hints(program)).value_or(1));
  return out;
}

bool is_vector(const std::vector<int64_t>& shape) {
  return std::count_if(shape.begin(), shape.end(), [](int64_t n) { return n != 1; }) <= 1;
}

// How many elements each element of the result sums over.
double fan_in(const InputUse& use, const std::vector<int64_t>& shape) {
  if (use.kind == UseKind::product && use.contracted >= 0 && static_cast<size_t>(use.contracted) < shape.size())
    return static_cast<double>(shape[static_cast<size_t>(use.contracted)]);
  if (use.kind == UseKind::convolution && !shape.empty()) {
    double n = 1;
    for (size_t d = 1; d < shape.size(); ++d) n *= static_cast<double>(shape[d]);
    return n;
  }
  return shape.empty() ? 1 : static_cast<double>(shape.back());
}

InitRule scaled_normal(double fan) { return {Kind::normal, 1 / std::sqrt(std::max(fan, 1.0)), 0, "1/sqrt(fan-in)"}; }

InitRule parameter_rule(const InputUse& use, const std::vector<int64_t>& shape) {
  if (use.kind == UseKind::positive) return {Kind::above_zero, 1, 0, kPositive};
  if (!is_vector(shape)) return scaled_normal(fan_in(use, shape));
  switch (use.kind) {
    case UseKind::added: return {Kind::zeros, 1, 0, "added"};
    case UseKind::product:
    case UseKind::table: return scaled_normal(fan_in(use, shape));
    default: return {Kind::ones, 1, 0, "a scale"};
  }
}

InitRule buffer_rule(const InputUse& use, const std::vector<int64_t>& shape, DType dtype) {
  if (is_complex(dtype)) return {Kind::unit_circle, 1, 0, "rotations"};
  switch (use.kind) {
    case UseKind::variance: return {Kind::ones, 1, 0, "a variance"};
    case UseKind::divisor: return {Kind::ones, 1, 0, "a divisor"};
    case UseKind::positive: return {Kind::ones, 1, 0, kPositive};
    case UseKind::scaled: return {Kind::uniform, 1, 0, "a scale"};
    case UseKind::product:  // zeros would make everything after it 0, and a norm of that NaN
    case UseKind::convolution: return scaled_normal(fan_in(use, shape));
    default: return {Kind::zeros, 1, 0, "a buffer"};
  }
}

// A single-integer buffer that is not used as an index is a counter, such as the batches that a norm has seen.
InitRule integer_rule(InputKind kind, DType dtype, bool is_single, const InputUse& use) {
  const int bits = 8 * dtype_bytes(dtype) - (dtype == DType::u8 ? 0 : 1);
  const int64_t most = bits >= 63 ? INT64_MAX : int64_t{1} << bits;
  if (use.below && *use.below > 0) return {Kind::index, 1, std::min(most, *use.below), use.because, use.from};
  if (use.parted) return {Kind::starts, 1, *use.parted, "where parts begin"};
  if (use.compared) return {Kind::index, 1, std::min(most, *use.compared), "what it is compared with", 0, true};
  if (kind == InputKind::buffer && (is_single || use.kind == UseKind::written)) return {Kind::zeros, 1, 0, "a counter"};
  if (use.is_truth) return {Kind::every_other, 1, 0, "a mask, of which it is asked whether it is 0"};
  if (use.kind == UseKind::scaled) return {Kind::every_other, 1, 0, "a mask, which scales"};
  return {Kind::ask, 1, 0, {}};
}

InitRule tangent_rule(const Graph& graph, const Input& input) {
  if (is_tangent_of_loss(graph, input)) return {Kind::ones, 1, 0, "the tangent of the loss"};
  if (has_tangent_of_loss(graph)) return {Kind::zeros, 1, 0, "the tangent of an output that is not the loss"};
  return {Kind::ones, 1, 0, "the tangent of an output, as if the loss were its sum"};
}

InitRule rule_for(const Program& program, const Input& input, const InputUse& use) {
  const DType dtype = program.graph.type(input.value).dtype;
  const std::vector<int64_t> shape = global_shape(program, input);
  if (input.kind == InputKind::optimizer_state) return {Kind::zeros, 1, 0, "optimizer state"};
  if (is_integral(dtype) && is_runnable(dtype)) return integer_rule(input.kind, dtype, shape.empty(), use);
  if (!is_held(dtype) || input.kind == InputKind::constant) return {};
  if (dtype == DType::boolean) return {Kind::every_other, 1, 0, "a mask"};
  switch (input.kind) {
    case InputKind::parameter: return parameter_rule(use, shape);
    case InputKind::buffer: return buffer_rule(use, shape, dtype);
    case InputKind::tangent: return tangent_rule(program.graph, input);
    default: break;
  }
  if (shape.empty()) return {Kind::ones, 1, 0, "a single number"};
  if (use.kind == UseKind::divisor) return {Kind::ones, 1, 0, "a divisor"};
  if (use.kind == UseKind::positive) return {Kind::above_zero, 1, 0, kPositive};
  return {Kind::normal, 1, 0, "an input"};
}

// Merges the rules of two ranks for one input: what both allow; for numbers that are only compared, the larger limit.
// `from` may then exceed `below`, if each rank subtracts the first of its own part of a vocabulary (`first_of`).
void merge(const InitRule& other, InitRule* rule) {
  const int64_t from = std::max(rule->from, other.from);
  if (rule->kind != Kind::index || other.kind != Kind::index) {
    if (rule->kind == Kind::ask || other.kind == Kind::index) *rule = other;
    return void(rule->from = from);
  }
  if (rule->is_compared_only && other.is_compared_only ? other.below > rule->below : other.below < rule->below)
    *rule = other;
  rule->from = from;
}

int64_t first_of(const InitRule& rule) { return rule.from < rule.below ? rule.from : 0; }

uint64_t key_of(std::string_view name) {
  const Sha256::Digest digest = sha256("init " + std::string(name));
  uint64_t out = 0;
  for (size_t i = 0; i < 8; ++i) out = out << 8 | digest[i];
  return out;
}

// Values of consecutive elements of the global tensor.
struct ElementSource {
  const InitRule& rule;
  RandomKey key;
  int64_t count;  // of the global tensor

  template <class T>
  void fill(uint64_t first, std::span<T> out) const {
    const auto from = static_cast<uint64_t>(first_of(rule));
    switch (rule.kind) {
      case Kind::zeros: return constant(0, out);
      case Kind::ones: return constant(1, out);
      case Kind::normal: return normals(first, out);
      case Kind::uniform: return each(first, out, [&](uint64_t i) { return uniform(key, i); });
      case Kind::above_zero: return each(first, out, [&](uint64_t i) { return 1 - uniform(key, i); });
      case Kind::unit_circle: return points(first, out);
      case Kind::index:
        for (size_t j = 0; j < out.size(); ++j)
          out[j] = integer<T>(from + uniform_below(key, first + j, static_cast<uint64_t>(rule.below) - from));
        return;
      case Kind::every_other:
        for (size_t j = 0; j < out.size(); ++j) out[j] = integer<T>((first + j + 1) % 2);
        return;
      case Kind::starts:
        for (size_t j = 0; j < out.size(); ++j)
          out[j] = integer<T>((first + j) * static_cast<uint64_t>(rule.below) / static_cast<uint64_t>(count));
        return;
      case Kind::ask: return;
    }
  }

 private:
  template <class T>
  static T element(double v) {
    if constexpr (is_half_type<T> || is_eighth_type<T>) return T(static_cast<float>(v));
    else if constexpr (is_complex_type<T>) return T(static_cast<typename T::value_type>(v));
    else return static_cast<T>(v);
  }
  template <class T>
  static T integer(uint64_t v) {
    if constexpr (std::is_integral_v<T>) return static_cast<T>(v);
    else return element<T>(static_cast<double>(v));
  }
  template <class T>
  static void constant(double v, std::span<T> out) {
    std::fill(out.begin(), out.end(), element<T>(v));
  }
  template <class T, class Fn>
  static void each(uint64_t first, std::span<T> out, const Fn& fn) {
    for (size_t j = 0; j < out.size(); ++j) out[j] = element<T>(fn(first + j));
  }
  template <class T>
  void normals(uint64_t first, std::span<T> out) const {
    if constexpr (is_complex_type<T>) {
      using Part = typename T::value_type;
      for (size_t j = 0; j < out.size(); ++j)
        out[j] = T(static_cast<Part>(rule.scale * normal(key, 2 * (first + j))),
                   static_cast<Part>(rule.scale * normal(key, 2 * (first + j) + 1)));
    } else {
      std::array<double, 512> z;
      for (size_t j = 0; j < out.size(); j += z.size()) {
        const size_t n = std::min(z.size(), out.size() - j);
        fill_normal(key, first + j, std::span(z).first(n));
        for (size_t k = 0; k < n; ++k) out[j + k] = element<T>(rule.scale * z[k]);
      }
    }
  }
  template <class T>
  void points(uint64_t first, std::span<T> out) const {
    if constexpr (is_complex_type<T>) {
      using Part = typename T::value_type;
      for (size_t j = 0; j < out.size(); ++j) {
        const UnitPoint p = unit_point(key, first + j);
        out[j] = T(static_cast<Part>(p.cos), static_cast<Part>(p.sin));
      }
    }
  }
};

// A tensor without the axes whose elements are all in one place (stride 0): of each such axis the last element alone is
// left, which is what the place would keep.
struct Places {
  explicit Places(const Tensor& t) : tensor(t) {
    for (size_t d = 0; d < static_cast<size_t>(t.rank); ++d) {
      if (t.stride[d] != 0 || t.shape[d] <= 1) continue;
      first[d] = t.shape[d] - 1;
      tensor.shape[d] = 1;
    }
  }
  Tensor tensor;
  std::array<int64_t, kMaxRank> first{};
};

constexpr int64_t kMostPlaces = int64_t{1} << 32;  // where elements share places, beside as many as there are

int64_t product(std::span<const int64_t> sizes) {
  int64_t out = 1;
  for (int64_t n : sizes)
    if (__builtin_mul_overflow(out, n, &out)) return INT64_MAX;
  return out;
}

// From the first place of a tensor to the last.
int64_t room(const Tensor& t) {
  int64_t out = 1;
  for (size_t d = 0; d < static_cast<size_t>(t.rank); ++d) out += (t.shape[d] - 1) * std::abs(t.stride[d]);
  return out;
}

// Fills places [begin, end), in row-major order, run by run.
template <class T>
void fill_part(const ElementSource& source, const Shard& shard, const Places& places, int64_t begin, int64_t end) {
  const Tensor& tensor = places.tensor;
  const auto rank = static_cast<size_t>(tensor.rank);
  std::array<int64_t, kMaxRank> index{};
  int64_t rest = begin;
  for (size_t d = rank; d-- > 0; rest /= tensor.shape[d]) index[d] = rest % tensor.shape[d];
  std::array<T, 1024> buffer;
  while (begin < end) {
    int64_t place = 0, global = 0;
    for (size_t d = 0; d < rank; ++d) {
      place += index[d] * tensor.stride[d];
      global = global * shard.global_shape()[d] + shard.global_index(d, places.first[d] + index[d]);
    }
    const size_t last = rank == 0 ? 0 : rank - 1;
    int64_t n = rank == 0 ? 1 : shard.run_length(last, places.first[last] + index[last]);
    n = std::min({n, end - begin, static_cast<int64_t>(buffer.size())});
    source.fill(static_cast<uint64_t>(global), std::span(buffer).first(static_cast<size_t>(n)));
    const int64_t step = rank == 0 ? 1 : tensor.stride[last];
    for (int64_t i = 0; i < n; ++i) tensor.as<T>()[place + i * step] = buffer[static_cast<size_t>(i)];
    begin += n;
    if (rank != 0) index[last] += n;
    for (size_t d = last; d > 0 && index[d] == tensor.shape[d]; --d) index[d] = 0, ++index[d - 1];
  }
}

// Inputs that one note names together.
struct MadeOfAKind {
  std::string first;
  size_t count = 0;

  void add(std::string title) {
    if (count++ == 0) first = std::move(title);
  }
  std::string text(const std::string& things) const {
    return first + (count == 1 ? "" : " and " + std::to_string(count - 1) + " more " + things);
  }
};

}  // namespace

Result<uint64_t> parse_init(std::string_view text) {
  uint64_t seed = 0;
  const std::string_view digits = text.starts_with("seed:") ? text.substr(5) : std::string_view();
  auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), seed);
  if (digits.empty() || error != std::errc() || end != digits.data() + digits.size())
    return Error{
        ErrorKind::usage, "`" + std::string(text) + "` is not seed:N, N from 0 to 2^64 - 1", {}, "--init seed:0"};
  return seed;
}

InitPlan::InitPlan(const Job& job, const InitPlan* like) : job_(job) {
  std::map<std::string, InitRule> rules;
  for (const auto& program : job.programs) {
    const std::vector<InputUse> uses = find_input_uses(*program, hints(*program));
    for (size_t i = 0; i < uses.size(); ++i) {
      const Input& input = program->graph.inputs()[i];
      if (input.kind == InputKind::opaque || program->graph.type(input.value).kind != TypeKind::tensor) continue;
      const InitRule rule = rule_for(*program, input, uses[i]);
      auto [at, is_new] = rules.emplace(port_name(program->graph, input), rule);
      if (!is_new) merge(rule, &at->second);
    }
  }
  for (auto& [name, rule] : rules) {
    const Entry* other = like != nullptr ? like->find(name) : nullptr;
    entries_.push_back({name, other != nullptr && other->rule.kind != Kind::ask ? other->rule : rule});
  }
}

const InitPlan::Entry* InitPlan::find(std::string_view name) const {
  auto it = std::lower_bound(entries_.begin(), entries_.end(), name,
                             [](const Entry& e, std::string_view n) { return e.name < n; });
  return it != entries_.end() && it->name == name ? &*it : nullptr;
}

const InitRule& InitPlan::rule(const Program& program, size_t input) const {
  static const InitRule kAsk;
  const Entry* entry = find(port_name(program.graph, program.graph.inputs()[input]));
  return entry != nullptr ? entry->rule : kAsk;
}

InitMaker::InitMaker(const InitPlan& plan, uint32_t rank, uint64_t seed, ThreadTeam* team)
    : plan_(plan), program_(plan.job_.program_of(rank)), rank_(rank), seed_(seed), team_(team) {
  if (program_ != nullptr) made_.resize(program_->graph.inputs().size());
}

bool InitMaker::can_make(size_t input) const { return plan_.rule(*program_, input).kind != Kind::ask; }

// The plan uses the captured sizes; a table may have fewer rows in this run.
void InitMaker::set_sizes(const SymbolValues& sizes) {
  sizes_ = sizes;
  const std::vector<InputUse> uses = find_input_uses(*program_, [this](StrId s) { return sizes_.value(s); });
  below_.clear();
  for (const InputUse& use : uses) below_.push_back(use.below ? use.below : use.parted);
}

InitRule InitMaker::rule(size_t input) const {
  InitRule out = plan_.rule(*program_, input);
  // A limit of comparisons alone is another graph's (--compare), if this one indexes something.
  if (out.kind == Kind::index && !out.is_compared_only && input < below_.size() && below_[input])
    out.below = std::max<int64_t>(1, std::min(out.below, *below_[input]));
  if (out.kind == Kind::starts && input < below_.size() && below_[input]) out.below = *below_[input];
  return out;
}

std::vector<std::string> InitMaker::describe(bool has_files) const {
  std::vector<std::string> out;
  MadeOfAKind models, states;
  for (size_t i = 0; i < made_.size(); ++i) {
    if (!made_[i]) continue;
    const Input& input = program_->graph.inputs()[i];
    const InitRule r = rule(i);
    const bool is_models = input.kind == InputKind::parameter || input.kind == InputKind::buffer;
    const bool is_state = input.kind == InputKind::optimizer_state && r.kind == Kind::zeros;
    if (is_models) models.add(input_title(program_->graph, input));
    if (is_state) states.add(input_title(program_->graph, input));
    if (is_state || (is_models && r.kind != Kind::index)) continue;
    std::string line = input_title(program_->graph, input) + ": ";
    if (r.kind == Kind::index)
      line += "integers in [" + std::to_string(first_of(r)) + ", " + std::to_string(r.below) + "): " + r.because;
    else if (r.kind == Kind::ones) line += "1: " + r.because;
    else if (r.kind == Kind::zeros) line += "0: " + r.because;
    else if (r.kind == Kind::every_other) line += "every other one is true: " + r.because;
    else if (r.kind == Kind::starts) line += "evenly from 0 to " + std::to_string(r.below) + ": " + r.because;
    else if (r.kind == Kind::above_zero) line += "uniform in (0, 1]: " + r.because;
    else line += "normal";
    out.push_back(std::move(line));
  }
  if (states.count > 0) out.push_back(states.text("tensors") + ": 0: optimizer state");
  if (has_files && models.count > 0)
    out.push_back("made up, because no file gives them: " + models.text("parameters and buffers"));
  return out;
}

Status InitMaker::make(size_t input, const Tensor& tensor) {
  const Input& of = program_->graph.inputs()[input];
  auto shard = Shard::of(plan_.job_, rank_, of.sharding, tensor.sizes(), [this](StrId s) { return sizes_.value(s); });
  if (!shard.ok()) {
    shard.error().message = "--init: input " + input_title(program_->graph, of) + ": " + shard.error().message;
    return std::move(shard.error());
  }
  const Places places(tensor);
  if (const int64_t elements = product(places.tensor.sizes()); elements > kMostPlaces && elements > room(tensor))
    return Error{ErrorKind::cannot_apply,
                 "--init: input " + input_title(program_->graph, of) + ": its strides put " + std::to_string(elements) +
                     " elements into " + std::to_string(room(tensor)) + " places",
                 {},
                 "give it in --inputs"};
  const InitRule how = shard->is_zero() ? InitRule{Kind::zeros, 1, 0, {}} : rule(input);
  const int64_t count = product(shard->global_shape());
  const ElementSource source{how, RandomKey(seed_, key_of(port_name(program_->graph, of)), 0, 0), count};
  auto part = [&](int64_t begin, int64_t end) {
    visit_stored(tensor.dtype, [&]<class T>() { fill_part<T>(source, *shard, places, begin, end); });
  };
  constexpr int64_t kGrain = 1 << 16;
  if (team_ != nullptr) team_->parallel_for(places.tensor.elements(), kGrain, part);
  else if (places.tensor.elements() > 0) part(0, places.tensor.elements());
  made_[input] = true;
  return ok_status();
}

}  // namespace sg
