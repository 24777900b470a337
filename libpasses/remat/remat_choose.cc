#include "libpasses/remat/remat_choose.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <string>

namespace sg {
namespace {

// Up to this many, values that cross layers are treated like any other, and a fit starts from several points.
constexpr size_t kMostUnitsForStarts = 48;

// "layers.3.mlp" -> "layers.*.mlp". Digits within names count too ("layer2.0.conv1" -> "layer*.*.conv*"), as the search
// by kinds gains from large kinds.
std::string without_digits(std::string_view module) {
  std::string out;
  for (char c : module)
    if (!std::isdigit(static_cast<unsigned char>(c))) out += c;
    else if (out.empty() || out.back() != '*') out += '*';
  return out;
}

}  // namespace

RematChooser::RematChooser(RematModel* model, RematSearch search)
    : model_(*model), search_(std::move(search)), work_(search_.work) {
  if (!take_crossing()) find_units();
  find_kinds();
}

// In a small graph values that cross layers are treated like any other.
bool RematChooser::take_crossing() {
  if (search_.crossing.empty()) return false;
  const std::vector<uint8_t> without = search_.allowed;
  for (uint32_t at = 0; at < model_.size(); ++at) search_.allowed[at] |= search_.crossing[at];
  find_units();
  if (units_.size() <= kMostUnitsForStarts) return search_.crossing.clear(), true;
  search_.allowed = without;
  return false;
}

// Units are made of the nodes that are copied when everything allowed is recomputed; others do not matter.
void RematChooser::find_units() {
  units_.clear();
  pulled_.assign(model_.size(), 0);
  for (const RematCopy& copy : model_.place({search_.allowed, {}}).copies) pulled_[copy.node] = 1;
  unit_at_.assign(model_.size(), RematModel::kNone);
  for (uint32_t at = 0; at < model_.size(); ++at) {
    if (!pulled_[at]) continue;
    const uint32_t maker = model_.maker(at);
    if (maker == at) {
      unit_at_[at] = static_cast<uint32_t>(units_.size());
      units_.push_back({at, {}});
    } else if (maker != RematModel::kNone && unit_at_[maker] != RematModel::kNone) {
      units_[unit_at_[maker]].followers.push_back(at);
    }
  }
}

// Groups equal ops with equal results at the same place of modules that differ only in numbers.
void RematChooser::find_kinds() {
  const Graph& graph = model_.graph();
  std::map<std::string, uint32_t> seen, kind_of;
  for (uint32_t u = 0; u < units_.size(); ++u) {
    const Node& node = graph.node(model_.node(units_[u].at));
    std::string what = '|' + std::string(graph.op_name(model_.node(units_[u].at)));
    for (uint32_t i = 0; i < node.result_count; ++i)
      what += ',' + std::to_string(graph.value(node.result(i)).type.index);
    const std::string module = node.module ? std::string(graph.pool().strings[node.module]) : std::string();
    const std::string key = without_digits(module) + what + '#' + std::to_string(seen[module + what]++);
    const auto [it, is_new] = kind_of.try_emplace(key, static_cast<uint32_t>(kinds_.size()));
    if (is_new) kinds_.emplace_back();
    kinds_[it->second].push_back(u);
  }
}

void RematChooser::set(RematDecision* decision, std::span<const uint32_t> units, Fate fate) const {
  const bool again = fate == Fate::recomputed;
  for (uint32_t u : units) {
    decision->recompute[units_[u].at] = again;
    for (uint32_t follower : units_[u].followers) decision->recompute[follower] = again;
  }
  if (again || decision->renew.empty()) return;
  std::vector<uint8_t> is_kept(model_.size(), 0);
  for (uint32_t u : units) is_kept[units_[u].at] = 1;
  std::erase_if(decision->renew, [&](const RematCopy& r) {
    const uint32_t maker = model_.maker(r.node);
    return maker != RematModel::kNone && is_kept[maker];
  });
}

RematDecision RematChooser::without_idle_views(RematDecision decision) const {
  for (uint32_t at = 0; at < model_.size(); ++at)
    if (const uint32_t maker = model_.maker(at);
        maker != at && model_.made_bytes(at) == 0 && (maker == RematModel::kNone || !decision.recompute[maker]))
      decision.recompute[at] = 0;
  return decision;
}

RematChoice RematChooser::weigh(RematDecision decision) {
  spend(model_.size() + 1);
  const RematWeight weight = model_.weigh(decision);
  return {std::move(decision), weight.peak_bytes, weight.cost};
}

// Below the target the lower cost wins, above it the lower peak.
bool RematChooser::is_better(const RematChoice& a, const RematChoice& b, int64_t target) {
  const int64_t x = std::max(a.peak_bytes, target), y = std::max(b.peak_bytes, target);
  return x != y ? x < y : a.cost < b.cost - 1e-9 * std::max(1.0, b.cost);
}

RematDecision RematChooser::of_bits(uint64_t bits) const {
  RematDecision out{std::vector<uint8_t>(model_.size(), 0), {}};
  for (uint32_t u = 0; u < units_.size(); ++u)
    if (bits >> u % 64 & 1) set(&out, u, Fate::recomputed);
  return out;
}

RematChoice RematChooser::none() { return weigh(of_bits(0)); }

bool RematChooser::try_all() {
  if (!all_.empty()) return true;
  if (units_.size() > search_.few_units || (model_.size() + 1) << units_.size() > search_.work) return false;
  work_ = search_.work;
  for (uint64_t bits = 0; bits >> units_.size() == 0; ++bits) {
    const RematChoice choice = weigh(of_bits(bits));
    all_.emplace_back(choice.peak_bytes, choice.cost);
  }
  return true;
}

RematChoice RematChooser::best_of_all(int64_t target) const {
  uint64_t best = 0;
  auto worth = [&](uint64_t bits) { return std::pair(std::max(all_[bits].first, target), all_[bits].second); };
  for (uint64_t bits = 1; bits < all_.size(); ++bits)
    if (worth(bits) < worth(best)) best = bits;
  return {of_bits(best), all_[best].first, all_[best].second};
}

const RematChoice& RematChooser::least() {
  if (least_) return *least_;
  work_ = search_.work;
  RematChoice best = try_all() ? best_of_all(0) : lower(none());
  if (!search_.by_tags_alone) {
    by_layers_ = best = renew(std::move(best), 0);
    best = renew(thin(std::move(best), 0), 0);
  }
  if (all_.empty()) best = wide().descend_from_starts(std::move(best));
  const int64_t peak = best.peak_bytes;
  least_ = all_.empty() ? wide().give_back(std::move(best), peak) : std::move(best);
  return *least_;
}

std::optional<RematChoice> RematChooser::fit(int64_t target, size_t most_work) {
  const size_t work = std::min(most_work, search_.work);
  RematChoice kept = none();
  if (kept.peak_bytes <= target) return kept;
  if (try_all()) {
    RematChoice best = best_of_all(target);
    if (best.peak_bytes > target) best = least();
    return best.peak_bytes <= target ? std::optional(std::move(best)) : std::nullopt;
  }
  work_ = work;
  std::optional<RematChoice> best;
  cut_to(target, &best);
  if (!best) {
    best = least();
    if (best->peak_bytes > target) return std::nullopt;
    work_ = work;
    if (by_layers_) take_if_better(&*best, thin(*by_layers_, target), target);
  }
  RematChoice out = exchange(give_back(std::move(*best), target), target);
  if (units_.size() > kMostUnitsForStarts) return out;
  for (const RematChoice& start : {kept, least()}) {
    work_ = work;
    take_if_better(&out, exchange(give_back(start, target), target), target);
  }
  return out;
}

}  // namespace sg
