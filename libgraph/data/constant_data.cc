#include "libgraph/data/constant_data.h"

#include <span>

#include "libgraph/base/hex.h"
#include "libgraph/base/sha256.h"

namespace sg {
namespace {

constexpr std::string_view kHeld = "bytes:";

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

std::string constant_data(std::string_view bytes) {
  if (bytes.size() > kMostHeldBytes) return sha256_tag(bytes);
  return std::string(kHeld) + hex(std::as_bytes(std::span(bytes)));
}

std::optional<std::string_view> held_digits(std::string_view data) {
  if (!data.starts_with(kHeld)) return std::nullopt;
  return data.substr(kHeld.size());
}

std::optional<std::string> held_bytes(std::string_view data) {
  const std::optional<std::string_view> digits = held_digits(data);
  if (!digits || digits->size() % 2 != 0) return std::nullopt;
  std::string out;
  for (size_t i = 0; i < digits->size(); i += 2) {
    const int high = digit((*digits)[i]), low = digit((*digits)[i + 1]);
    if (high < 0 || low < 0) return std::nullopt;
    out += static_cast<char>(high << 4 | low);
  }
  return out;
}

}  // namespace sg
