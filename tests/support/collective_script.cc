#include "tests/support/collective_script.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <thread>

#include "librun/element.h"
#include "tests/support/rng.h"

namespace sg::test {
namespace {

constexpr DType kDTypes[] = {DType::f64, DType::f32, DType::f16, DType::bf16,    DType::i64, DType::i32,
                             DType::i16, DType::i8,  DType::u8,  DType::boolean, DType::c64, DType::c128};

template <class T>
T random_element(Rng& rng) {
  if constexpr (std::is_same_v<T, bool>) return rng.percent(50);
  else if constexpr (std::is_integral_v<T>) return static_cast<T>(rng.next());
  else if constexpr (is_complex_type<T>)
    return T(static_cast<typename T::value_type>(rng.between(-999, 999)) / 7,
             static_cast<typename T::value_type>(rng.between(-99, 99)) / 3);
  else {
    if (rng.percent(1))
      return T(rng.percent(50) ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity());
    return T(static_cast<float>(rng.between(-100000, 100000)) / static_cast<float>(rng.between(1, 3000)));
  }
}

Bytes random_bytes(Rng& rng, DType dtype, int64_t elements) {
  Bytes out(static_cast<size_t>(elements * dtype_bytes(dtype)));
  visit_dtype(dtype, [&]<class T>() {
    auto* p = reinterpret_cast<T*>(out.data());
    T few[64];
    for (T& e : few) e = random_element<T>(rng);
    for (int64_t i = 0; i < elements; ++i) p[i] = few[rng.next() % 64];
  });
  return out;
}

// One element from the definition in comm.h.
template <class T>
T reduce_naively(const Reduction& r, std::span<const T> x) {
  auto n = static_cast<double>(x.size());
  if constexpr (std::is_same_v<T, bool>) {
    bool any = std::count(x.begin(), x.end(), true) != 0, all = std::count(x.begin(), x.end(), false) == 0;
    if (r.kind == ReduceKind::bit_xor) return std::count(x.begin(), x.end(), true) % 2 != 0;
    bool is_or = r.kind == ReduceKind::sum || r.kind == ReduceKind::maximum || r.kind == ReduceKind::bit_or;
    return is_or ? any : all;
  } else if constexpr (std::is_integral_v<T>) {
    T acc = x[0];
    for (size_t i = 1; i < x.size(); ++i) switch (r.kind) {
        case ReduceKind::sum:
        case ReduceKind::average: acc = static_cast<T>(uint64_t(acc) + uint64_t(x[i])); break;
        case ReduceKind::product: acc = static_cast<T>(uint64_t(acc) * uint64_t(x[i])); break;
        case ReduceKind::minimum: acc = std::min(acc, x[i]); break;
        case ReduceKind::maximum: acc = std::max(acc, x[i]); break;
        case ReduceKind::bit_and: acc &= x[i]; break;
        case ReduceKind::bit_or: acc |= x[i]; break;
        default: acc ^= x[i];
      }
    return r.kind == ReduceKind::average ? static_cast<T>(acc / static_cast<int64_t>(x.size())) : acc;
  } else if constexpr (is_complex_type<T>) {
    using P = typename T::value_type;
    bool scaled = r.kind == ReduceKind::premul_sum;
    auto factor = scaled ? static_cast<P>(r.factor) : P(1);
    P re = x[0].real() * factor, im = x[0].imag() * factor;
    for (size_t i = 1; i < x.size(); ++i) re += x[i].real() * factor, im += x[i].imag() * factor;
    if (r.kind == ReduceKind::average) re /= static_cast<P>(n), im /= static_cast<P>(n);
    return T(re, im);
  } else {
    using A = Compute<T>;
    auto factor = static_cast<A>(r.factor);
    A acc = r.kind == ReduceKind::premul_sum ? A(x[0]) * factor : A(x[0]);
    for (size_t i = 1; i < x.size(); ++i) switch (r.kind) {
        case ReduceKind::product: acc = acc * A(x[i]); break;
        case ReduceKind::minimum: acc = std::isnan(acc) || A(x[i]) >= acc ? acc : A(x[i]); break;
        case ReduceKind::maximum: acc = std::isnan(acc) || A(x[i]) <= acc ? acc : A(x[i]); break;
        case ReduceKind::premul_sum: {
          volatile A scaled = A(x[i]) * factor;
          acc = acc + scaled;
          break;
        }
        default: acc = acc + A(x[i]);
      }
    return T(r.kind == ReduceKind::average ? acc / static_cast<A>(n) : acc);
  }
}

Bytes reduced(const ScriptStep& s, size_t begin_byte, size_t bytes) {
  Bytes out(bytes);
  visit_dtype(s.dtype, [&]<class T>() {
    T x[8];
    size_t n = s.inputs.size();
    for (size_t at = 0; at < bytes; at += sizeof(T)) {
      for (size_t r = 0; r < n; ++r) std::memcpy(&x[r], s.inputs[r].data() + begin_byte + at, sizeof(T));
      T y = reduce_naively<T>(s.call.reduction, {x, n});
      std::memcpy(out.data() + at, &y, sizeof(T));
    }
  });
  return out;
}

Bytes joined(const std::vector<Bytes>& parts) {
  Bytes out;
  for (const Bytes& p : parts) out.insert(out.end(), p.begin(), p.end());
  return out;
}

Bytes slice(const Bytes& b, size_t begin, size_t size) {
  return Bytes(b.begin() + static_cast<std::ptrdiff_t>(begin), b.begin() + static_cast<std::ptrdiff_t>(begin + size));
}

void give_exchange(Rng& rng, int64_t most, ScriptStep& s) {
  size_t n = s.ranks.size();
  s.send.assign(n, std::vector<int64_t>(n));
  bool even = rng.percent(30);
  int64_t each = rng.between(0, most);
  for (auto& row : s.send)
    for (int64_t& count : row) count = even ? each : rng.percent(25) ? 0 : rng.between(0, most);
  auto size = static_cast<size_t>(dtype_bytes(s.dtype));
  for (auto& row : s.send)
    s.inputs.push_back(random_bytes(rng, s.dtype, std::accumulate(row.begin(), row.end(), int64_t{0})));
  for (size_t to = 0; to < n; ++to) {
    Bytes out;
    for (size_t from = 0; from < n; ++from) {
      size_t before = 0;
      for (size_t k = 0; k < to; ++k) before += static_cast<size_t>(s.send[from][k]);
      Bytes part = slice(s.inputs[from], before * size, static_cast<size_t>(s.send[from][to]) * size);
      out.insert(out.end(), part.begin(), part.end());
    }
    s.outputs.push_back(out);
  }
  if (even) s.send.clear();
}

void give_data(Rng& rng, int64_t most, ScriptStep& s) {
  size_t n = s.ranks.size(), root = s.call.root;
  int64_t count = rng.percent(10) ? 0 : rng.between(1, most), members = static_cast<int64_t>(n);
  auto bytes = static_cast<size_t>(count * dtype_bytes(s.dtype));
  auto give_inputs = [&](int64_t elements) {
    for (size_t i = 0; i < n; ++i) s.inputs.push_back(random_bytes(rng, s.dtype, elements));
  };
  s.outputs.resize(n);
  switch (s.call.kind) {
    case CollectiveKind::barrier: s.inputs.resize(n); break;
    case CollectiveKind::all_gather: give_inputs(count), s.outputs.assign(n, joined(s.inputs)); break;
    case CollectiveKind::all_reduce:
      give_inputs(count), s.outputs.assign(n, reduced(s, 0, bytes));
      s.in_place = rng.percent(50);
      break;
    case CollectiveKind::reduce_scatter:
      give_inputs(count * members);
      for (size_t i = 0; i < n; ++i) s.outputs[i] = reduced(s, i * bytes, bytes);
      break;
    case CollectiveKind::broadcast: give_inputs(count), s.outputs.assign(n, s.inputs[root]); break;
    case CollectiveKind::gather: give_inputs(count), s.outputs[root] = joined(s.inputs); break;
    case CollectiveKind::scatter:
      s.inputs.resize(n);
      s.inputs[root] = random_bytes(rng, s.dtype, count * members);
      for (size_t i = 0; i < n; ++i) s.outputs[i] = slice(s.inputs[root], i * bytes, bytes);
      break;
    case CollectiveKind::all_to_all: s.outputs.clear(), give_exchange(rng, most, s);
  }
}

ScriptStep random_step(Rng& rng, const Job& job, int64_t most) {
  ScriptStep s;
  uint32_t g = static_cast<uint32_t>(rng.below(job.groups.size()));
  s.call.group = GroupId(g);
  s.ranks = rng.pick(job.groups[g].parts).ranks;
  s.call.kind = static_cast<CollectiveKind>(rng.below(8));
  s.call.root = static_cast<uint32_t>(rng.below(s.ranks.size()));
  s.dtype = rng.pick(kDTypes);
  do s.call.reduction = {static_cast<ReduceKind>(rng.below(9)), 1};
  while (!can_reduce(s.call.reduction.kind, s.dtype));
  if (s.call.reduction.kind == ReduceKind::premul_sum)
    s.call.reduction.factor = static_cast<double>(rng.between(1, 9)) / 7;
  give_data(rng, most, s);
  return s;
}

// Cuts a random order of some ranks into parts.
void add_family(Rng& rng, Job& job, const std::string& axis) {
  std::vector<uint32_t> order(job.world);
  std::iota(order.begin(), order.end(), 0);
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[rng.below(i)]);
  Group family;
  family.axis = job.pool->strings.intern(axis);
  for (size_t at = 0; at < order.size();) {
    size_t size = rng.percent(30) ? order.size() - at : 1 + rng.below(order.size() - at);
    GroupPart part;
    part.ranks.assign(order.begin() + static_cast<std::ptrdiff_t>(at),
                      order.begin() + static_cast<std::ptrdiff_t>(at + size));
    family.parts.push_back(part);
    at += size;
  }
  std::sort(family.parts.begin(), family.parts.end(),
            [](const GroupPart& a, const GroupPart& b) { return a.ranks < b.ranks; });
  job.groups.push_back(family);
}

Tensor flat(Bytes& bytes, DType dtype) {
  int64_t count[] = {static_cast<int64_t>(bytes.size()) / dtype_bytes(dtype)};
  return make_tensor(bytes.data(), dtype, count);
}

bool same_elements(const Bytes& a, const Bytes& b, DType dtype) {
  if (a == b) return true;
  if (a.size() != b.size()) return false;
  bool same = true;
  visit_dtype(is_complex(dtype) ? (dtype == DType::c64 ? DType::f32 : DType::f64) : dtype, [&]<class T>() {
    auto *x = reinterpret_cast<const T*>(a.data()), *y = reinterpret_cast<const T*>(b.data());
    for (size_t i = 0; i < a.size() / sizeof(T); ++i) {
      bool both_nan = false;
      if constexpr (!std::is_integral_v<T> && !is_complex_type<T>)
        both_nan = std::isnan(Compute<T>(x[i])) && std::isnan(Compute<T>(y[i]));
      same = same && (both_nan || std::memcmp(&x[i], &y[i], sizeof(T)) == 0);
    }
  });
  return same;
}

// A rank's side of one step, from launch to wait.
struct Playing {
  const ScriptStep* step;
  size_t position;
  Bytes input, output;
  Ticket ticket;
};

Status launch(Communicator& comm, Playing& p) {
  const ScriptStep& s = *p.step;
  CollectiveCall call = s.call;
  call.label = s.label;
  p.input = s.inputs[p.position];
  p.output.assign(s.outputs[p.position].size(), std::byte{0xEE});
  bool is_root = p.position == call.root;
  if (s.in_place) p.output = p.input;
  bool has_input = call.kind != CollectiveKind::barrier && (call.kind != CollectiveKind::scatter || is_root);
  bool has_output = call.kind != CollectiveKind::barrier && (call.kind != CollectiveKind::gather || is_root);
  if (has_input) call.input = flat(s.in_place ? p.output : p.input, s.dtype);
  if (has_output) call.output = flat(p.output, s.dtype);
  if (call.kind == CollectiveKind::broadcast && !is_root && s.label.size() % 2) call.input = {};
  if (!s.send.empty()) {
    call.send = s.send[p.position];
    for (const auto& row : s.send) call.receive.push_back(row[p.position]);
  }
  SG_ASSIGN(p.ticket, comm.launch(call));
  return ok_status();
}

std::string finish(Communicator& comm, Playing& p) {
  if (Status s = comm.wait(p.ticket); !s.ok()) return s.error().message;
  const ScriptStep& s = *p.step;
  // The input belongs to the rank again: a late reader gives wrong results.
  std::fill(p.input.begin(), p.input.end(), std::byte{0x77});
  if (same_elements(p.output, s.outputs[p.position], s.dtype)) return {};
  return s.label + " on rank " + std::to_string(comm.rank()) + ": wrong " + std::string(collective_name(s.call.kind)) +
         " of " + std::string(dtype_name(s.dtype)) + " by " + reduction_name(s.call.reduction);
}

}  // namespace

std::unique_ptr<Job> job_of(uint32_t world) {
  auto job = std::make_unique<Job>();
  job->world = world;
  Group all;
  all.axis = job->pool->strings.intern("all");
  all.parts.resize(1);
  for (uint32_t r = 0; r < world; ++r) all.parts[0].ranks.push_back(r);
  job->groups.push_back(all);
  return job;
}

Script random_script(uint64_t seed, uint32_t world, size_t steps, bool large) {
  Rng rng(seed);
  Script out{job_of(world), {}};
  for (int64_t i = rng.between(0, 2); i >= 0; --i) add_family(rng, *out.job, "axis" + std::to_string(i));
  for (size_t i = 0; i < steps; ++i) {
    int64_t most = large && rng.percent(15) ? 300000 : rng.percent(20) ? 9000 : 40;
    out.steps.push_back(random_step(rng, *out.job, most));
    out.steps.back().label = "step" + std::to_string(i);
  }
  return out;
}

// A rank waits only when it has launched all its steps up to some step. So every rank makes progress: the earliest step
// that anyone waits for is one that all its members reach. Between two waits, groups overtake each other.
std::string play(const Script& script, Communicator& comm, uint64_t order_seed) {
  Rng rng(order_seed * 97 + comm.rank());
  std::vector<std::unique_ptr<Playing>> to_come, launched;
  for (const ScriptStep& s : script.steps) {
    auto at = std::find(s.ranks.begin(), s.ranks.end(), comm.rank());
    if (at == s.ranks.end()) continue;
    to_come.push_back(std::make_unique<Playing>(Playing{&s, static_cast<size_t>(at - s.ranks.begin()), {}, {}, {}}));
  }
  for (size_t next = 0; next < to_come.size() || !launched.empty();) {
    size_t end = std::min(to_come.size(), next + rng.below(5));
    auto batch = to_come.begin() + static_cast<std::ptrdiff_t>(next);
    std::stable_sort(batch, to_come.begin() + static_cast<std::ptrdiff_t>(end), [&](const auto& a, const auto& b) {
      auto key = [&](const Playing& p) { return (p.step->call.group.index * 7 + order_seed + comm.rank()) % 5; };
      return key(*a) < key(*b);
    });
    for (; next < end; ++next) {
      launched.push_back(std::move(to_come[next]));
      if (Status s = launch(comm, *launched.back()); !s.ok()) return s.error().message;
    }
    while (!launched.empty() && (next == to_come.size() || rng.percent(60))) {
      size_t which = rng.below(launched.size());
      if (std::string wrong = finish(comm, *launched[which]); !wrong.empty()) return wrong;
      launched.erase(launched.begin() + static_cast<std::ptrdiff_t>(which));
    }
  }
  return {};
}

void run_ranks(std::vector<std::unique_ptr<Communicator>> comms, const std::function<void(Communicator&)>& fn) {
  std::vector<std::thread> threads;
  for (auto& comm : comms)
    threads.emplace_back([&fn, own = std::move(comm)]() mutable {
      fn(*own);
      own.reset();
    });
  for (std::thread& t : threads) t.join();
}

}  // namespace sg::test
