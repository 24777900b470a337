#include "librun/comm/reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "librun/element.h"

namespace sg {
namespace {

// Elements reduced at a time: sums and results of a block stay in the L1 cache.
constexpr int64_t kBlock = 1024;
constexpr int64_t kCopyBlock = 16 << 10;

// The accumulator type: f32 for half precision; unsigned integers, so that they wrap.
template <class T>
struct Accumulator {
  using type = Compute<T>;
};
template <class T>
requires(std::is_integral_v<T> && !std::is_same_v<T, bool>) struct Accumulator<T> {
  using type = std::make_unsigned_t<T>;
};
template <class T>
using Acc = typename Accumulator<T>::type;

template <class T>
struct Sum {
  static Acc<T> combine(Acc<T> a, T x) {
    if constexpr (std::is_same_v<T, bool>) return a | x;
    else return static_cast<Acc<T>>(a + static_cast<Acc<T>>(x));
  }
};

template <class T>
struct Product {
  static Acc<T> combine(Acc<T> a, T x) {
    // Multiplies in a wider type: unsigned short would be promoted to a signed int that can overflow.
    if constexpr (std::is_same_v<T, bool>) return a & x;
    else if constexpr (std::is_integral_v<T>)
      return static_cast<Acc<T>>(uint64_t{a} * uint64_t{static_cast<Acc<T>>(x)});
    else return a * static_cast<Acc<T>>(x);
  }
};

template <class T>
using Compared = std::conditional_t<std::is_integral_v<T>, T, Acc<T>>;

template <class T>
struct Minimum {
  static Acc<T> combine(Acc<T> a, T x) {
    auto have = static_cast<Compared<T>>(a), next = static_cast<Compared<T>>(x);
    return static_cast<Acc<T>>(next < have || next != next ? next : have);
  }
};

template <class T>
struct Maximum {
  static Acc<T> combine(Acc<T> a, T x) {
    auto have = static_cast<Compared<T>>(a), next = static_cast<Compared<T>>(x);
    return static_cast<Acc<T>>(next > have || next != next ? next : have);
  }
};

template <class T>
struct BitAnd {
  static Acc<T> combine(Acc<T> a, T x) { return static_cast<Acc<T>>(a & static_cast<Acc<T>>(x)); }
};

template <class T>
struct BitOr {
  static Acc<T> combine(Acc<T> a, T x) { return static_cast<Acc<T>>(a | static_cast<Acc<T>>(x)); }
};

template <class T>
struct BitXor {
  static Acc<T> combine(Acc<T> a, T x) { return static_cast<Acc<T>>(a ^ static_cast<Acc<T>>(x)); }
};

struct Elements {  // the arguments of one call
  std::span<const std::byte* const> inputs;
  std::span<std::byte* const> outputs;
  int64_t count;
};

void store(const Elements& e, int64_t at, const void* block, int64_t bytes) {
  for (std::byte* output : e.outputs) std::memcpy(output + at, block, static_cast<size_t>(bytes));
}

template <class T>
const T* input_at(const Elements& e, size_t r, int64_t begin) {
  return reinterpret_cast<const T*>(e.inputs[r]) + begin;
}

// Reduces elements [begin, begin + n) of all inputs. The first step combines two inputs at once.
template <class T, template <class> class Op>
void accumulate(const Elements& e, int64_t begin, int64_t n, Acc<T>* sums) {
  const T* first = input_at<T>(e, 0, begin);
  if (e.inputs.size() == 1) {
    for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<Acc<T>>(first[i]);
    return;
  }
  const T* second = input_at<T>(e, 1, begin);
  for (int64_t i = 0; i < n; ++i) sums[i] = Op<T>::combine(static_cast<Acc<T>>(first[i]), second[i]);
  for (size_t r = 2; r < e.inputs.size(); ++r) {
    const T* x = input_at<T>(e, r, begin);
    for (int64_t i = 0; i < n; ++i) sums[i] = Op<T>::combine(sums[i], x[i]);
  }
}

// Like Sum, with each element multiplied by the factor first.
template <class T>
void accumulate_scaled(const Elements& e, int64_t begin, int64_t n, Acc<T> factor, Acc<T>* sums) {
  const T* first = input_at<T>(e, 0, begin);
  for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<Acc<T>>(first[i]) * factor;
  for (size_t r = 1; r < e.inputs.size(); ++r) {
    const T* x = input_at<T>(e, r, begin);
    for (int64_t i = 0; i < n; ++i) sums[i] = sums[i] + static_cast<Acc<T>>(x[i]) * factor;
  }
}

template <class T>
void divide(Acc<T>* sums, int64_t n, size_t members) {
  if constexpr (std::is_integral_v<T>) {
    auto by = static_cast<int64_t>(members);
    for (int64_t i = 0; i < n; ++i) sums[i] = static_cast<Acc<T>>(static_cast<int64_t>(static_cast<T>(sums[i])) / by);
  } else {
    auto by = static_cast<Acc<T>>(members);
    for (int64_t i = 0; i < n; ++i) sums[i] = sums[i] / by;
  }
}

// Runs `fill` block by block and stores the sums, rounded to T.
template <class T, class Fill>
void by_blocks(const Elements& e, const Fill& fill) {
  alignas(64) Acc<T> sums[kBlock];
  alignas(64) T rounded[kBlock];
  for (int64_t begin = 0; begin < e.count; begin += kBlock) {
    int64_t n = std::min(kBlock, e.count - begin);
    fill(begin, n, sums);
    auto size = static_cast<int64_t>(sizeof(T));
    if constexpr (sizeof(T) == sizeof(Acc<T>)) {
      store(e, begin * size, sums, n * size);
    } else {
      for (int64_t i = 0; i < n; ++i) rounded[i] = T(sums[i]);
      store(e, begin * size, rounded, n * size);
    }
  }
}

template <class T, template <class> class Op>
void combine_all(const Elements& e) {
  by_blocks<T>(e, [&](int64_t begin, int64_t n, Acc<T>* sums) { accumulate<T, Op>(e, begin, n, sums); });
}

template <class T>
void average_all(const Elements& e) {
  by_blocks<T>(e, [&](int64_t begin, int64_t n, Acc<T>* sums) {
    accumulate<T, Sum>(e, begin, n, sums);
    divide<T>(sums, n, e.inputs.size());
  });
}

template <class T>
void run(const Reduction& reduction, const Elements& e) {
  constexpr bool is_bool = std::is_same_v<T, bool>;
  switch (reduction.kind) {
    case ReduceKind::sum: return combine_all<T, Sum>(e);
    case ReduceKind::product: return combine_all<T, Product>(e);
    case ReduceKind::minimum: return combine_all<T, Minimum>(e);
    case ReduceKind::maximum: return combine_all<T, Maximum>(e);
    case ReduceKind::average:
      if constexpr (!is_bool) average_all<T>(e);
      return;
    case ReduceKind::premul_sum:
      if constexpr (!std::is_integral_v<T>) {
        auto factor = static_cast<Acc<T>>(reduction.factor);
        by_blocks<T>(e,
                     [&](int64_t begin, int64_t n, Acc<T>* sums) { accumulate_scaled<T>(e, begin, n, factor, sums); });
      }
      return;
    default:
      if constexpr (std::is_integral_v<T>) {
        if (reduction.kind == ReduceKind::bit_and) return combine_all<T, BitAnd>(e);
        if (reduction.kind == ReduceKind::bit_or) return combine_all<T, BitOr>(e);
        return combine_all<T, BitXor>(e);
      }
  }
}

}  // namespace

void reduce_elements(const Reduction& reduction, DType dtype, std::span<const std::byte* const> inputs,
                     std::span<std::byte* const> outputs, int64_t count) {
  // Sums of complex numbers, and products with a real factor, work on their parts separately.
  if (is_complex(dtype)) {
    dtype = dtype == DType::c64 ? DType::f32 : DType::f64;
    count *= 2;
  }
  visit_dtype(dtype, [&]<class T>() {
    if constexpr (!is_complex_type<T>) run<T>(reduction, {inputs, outputs, count});
  });
}

void copy_bytes(const std::byte* input, std::span<std::byte* const> outputs, int64_t bytes) {
  if (outputs.size() == 1) {
    if (outputs[0] != input && bytes != 0) std::memcpy(outputs[0], input, static_cast<size_t>(bytes));
    return;
  }
  for (int64_t at = 0; at < bytes; at += kCopyBlock) {
    auto n = static_cast<size_t>(std::min(kCopyBlock, bytes - at));
    for (std::byte* output : outputs)
      if (output != input) std::memcpy(output + at, input + at, n);
  }
}

}  // namespace sg
