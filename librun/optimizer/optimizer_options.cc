#include "librun/optimizer/optimizer_options.h"

#include <charconv>
#include <cmath>
#include <string>
#include <vector>

#include "libgraph/base/nearest.h"

namespace sg {
namespace {

struct Key {
  std::string_view name;
  bool for_sgd, for_adamw;
};
constexpr Key kKeys[] = {{"lr", true, true},         {"wd", true, true},        {"momentum", true, false},
                         {"dampening", true, false}, {"nesterov", true, false}, {"betas", false, true},
                         {"eps", false, true}};

Error usage(std::string message,
            std::string hint = "sgd:lr=0.1,momentum=0.9 or adamw:lr=1e-3,betas=0.9:0.999,eps=1e-8,wd=0.01") {
  return option_error("optimizer", ": " + message, std::move(hint));
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

// "lr=0.1,betas=0.9,0.999" -> "lr=0.1", "betas=0.9:0.999": an item without a key belongs to the previous one.
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
  if (!adamw && name != "sgd") return usage("there is no optimizer `" + std::string(name) + "`");
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
      return usage("`" + item + "` is not an option of " + std::string(name), known ? key + "=NUMBER"
                                                                              : key == "weight_decay"
                                                                                  ? "it is called wd"
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

}  // namespace sg
