#include "libpasses/pass.h"

#include <algorithm>

#include "libgraph/base/human.h"
#include "libgraph/base/read_number.h"
#include "libgraph/modules/module_pattern.h"
#include "libgraph/sim/machine.h"

#define SG_PASS(name)                \
  namespace sg {                     \
  extern const PassInfo name##_pass; \
  }
#include "libpasses/passes.def"
#undef SG_PASS

namespace sg {
namespace {

constexpr const PassInfo* kPasses[] = {
#define SG_PASS(name) &name##_pass,
#include "libpasses/passes.def"
#undef SG_PASS
};

Error no_number(std::string_view name, std::string_view text, const std::string& what) {
  return option_error(name, " takes " + what + ", not `" + std::string(text) + "`");
}

template <class T>
Result<T> of_option(const PassOption& option, Result<T> read) {
  if (!read.ok()) read.error().option = option.name;
  return read;
}

}  // namespace

Status check_options(const PassInfo& pass, const PassOptions& options) {
  if (pass.check) SG_TRY(pass.check(options));
  for (const PassOption& row : pass.options)
    for (const std::string& value : options.all(row.name)) {
      if (row.argument == "PATTERN") SG_TRY(of_option(row, ModulePattern::parse(value)));
      if (row.argument == "MACHINE|FILE") SG_TRY(of_option(row, find_machine(value)));
    }
  return ok_status();
}

std::string PassOptions::text(std::string_view name, std::string_view fallback) const {
  auto it = values_.find(name);
  return it == values_.end() ? std::string(fallback) : it->second.back();
}

std::vector<std::string> PassOptions::all(std::string_view name) const {
  auto it = values_.find(name);
  return it == values_.end() ? std::vector<std::string>() : it->second;
}

Result<int64_t> PassOptions::whole(std::string_view name, int64_t fallback, int64_t least) const {
  if (!has(name)) return fallback;
  int64_t out = 0;
  const std::string word = text(name);
  if (!read_number(word, &out) || out < least)
    return no_number(name, word, "a whole number from " + std::to_string(least) + " on");
  return out;
}

Result<double> PassOptions::number(std::string_view name, double fallback) const {
  if (!has(name)) return fallback;
  double out = 0;
  const std::string word = text(name);
  if (!read_number(word, &out) || !(out >= 0)) return no_number(name, word, "a number that is not negative");
  return out;
}

Result<int64_t> PassOptions::bytes(std::string_view name, int64_t fallback) const {
  if (!has(name)) return fallback;
  Result<int64_t> out = parse_bytes(text(name));
  if (!out.ok()) return option_error(name, ": " + out.error().message, out.error().hint);
  return out;
}

std::span<const PassInfo* const> all_passes() { return kPasses; }

const PassInfo* find_pass(std::string_view name) {
  if (name.starts_with("sg-")) name.remove_prefix(3);
  for (const PassInfo* pass : kPasses)
    if (pass->name == name) return pass;
  return nullptr;
}

}  // namespace sg
