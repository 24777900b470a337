#include "libgraph/arg.h"

#include <bit>

namespace sg {

Arg::Arg(const Arg& other)
    : kind_(other.kind_),
      key_(other.key_),
      bits_(other.bits_),
      items_(other.items_ ? std::make_unique<ArgList>(*other.items_) : nullptr) {}

Arg& Arg::operator=(const Arg& other) {
  if (this != &other) *this = Arg(other);
  return *this;
}

Arg Arg::floating(double v) { return Arg(ArgKind::floating, std::bit_cast<int64_t>(v)); }
double Arg::as_float() const { return std::bit_cast<double>(bits_); }

Arg Arg::complex(double re, double im) { return Arg(ArgKind::complex, ArgList{floating(re), floating(im)}); }

Arg Arg::slice(Arg begin, Arg end, Arg step) {
  return Arg(ArgKind::slice, ArgList{std::move(begin), std::move(end), std::move(step)});
}

bool operator==(const Arg& a, const Arg& b) {
  if (a.kind_ != b.kind_ || a.key_ != b.key_ || a.bits_ != b.bits_) return false;
  if (!a.items_ || !b.items_) return a.items_ == b.items_;
  return *a.items_ == *b.items_;
}

}  // namespace sg
