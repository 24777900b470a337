// Which members share a bucket.
#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <unordered_set>

#include "libgraph/modules/module_path.h"
#include "libgraph/modules/module_pattern.h"
#include "libpasses/bucket/bucket_parts.h"

namespace sg::bucket_parts {
namespace {

// What members of one bucket agree on. Gathers of several element types may share one if their inputs are contiguous.
using Key =
    std::tuple<Programs, MemberKind, uint32_t, std::string, std::string, BucketDirection, uint32_t, DType, std::string>;

Key key_of(const Member& m, const std::string& part) {
  const bool mixes = m.kind == MemberKind::gather && m.is_flat && !is_complex(m.dtype);
  return {m.programs, m.kind, m.group, m.device, m.reduction, m.direction, m.depth, mixes ? DType::none : m.dtype,
          part};
}

// Collects members into buckets by key. A parameter that is already in the key's bucket starts a new one, unless the
// same gather serves both, or the bucket `holds_parts`: gradients that come in several parts.
class Builder {
 public:
  explicit Builder(const Members& members) : members_(members) {}

  // The open bucket of a key, to inspect before `add`; null = none.
  const Bucket* open(const Key& key) const {
    auto it = open_.find(key);
    return it == open_.end() ? nullptr : &plan_.buckets[it->second];
  }
  void close(const Key& key) { open_.erase(key); }

  void add(const Key& key, size_t member, bool holds_parts = false) {
    auto it = open_.find(key);
    const Member& added = members_.list[member];
    if (it != open_.end() && !holds_parts && holds_parameter(held_[it->second], added))
      open_.erase(it), it = open_.end();
    if (it == open_.end()) {
      it = open_.emplace(key, plan_.buckets.size()).first;
      plan_.buckets.emplace_back(), held_.emplace_back();
    }
    plan_.buckets[it->second].members.push_back(member);
    note(added, &held_[it->second]);
  }

  // `names`: by member; empty = each is attributed to the module of its parameter.
  Plan take(std::vector<std::string> names = {}) {
    for (Bucket& bucket : plan_.buckets)
      std::ranges::stable_sort(bucket.members, [&](size_t a, size_t b) { return packing(a) < packing(b); });
    if (names.empty())
      for (const Member& m : members_.list) names.emplace_back(parent_module(m.name));
    plan_.module_of = std::move(names);
    return std::move(plan_);
  }

 private:
  // Larger elements first, so that all are aligned to their size; then in the order of parameters.
  std::pair<int, uint32_t> packing(size_t m) const {
    return {-dtype_bytes(members_.list[m].dtype), members_.list[m].parameter};
  }

  // What the members of a bucket are and gather.
  struct Held {
    std::unordered_set<uint32_t> parameters;
    std::set<std::pair<uint32_t, uint32_t>> gathers;  // group and call, of the members and of their twins
  };

  bool holds_parameter(const Held& held, const Member& added) const {
    if (added.twin != Member::kNone && held.gathers.contains({added.group, added.twin})) return false;
    return added.parameter != Member::kNone && held.parameters.contains(added.parameter);
  }

  static void note(const Member& m, Held* held) {
    held->parameters.insert(m.parameter);
    held->gathers.insert({m.group, m.call});
    if (m.twin != Member::kNone) held->gathers.insert({m.group, m.twin});
  }

  const Members& members_;
  Plan plan_;
  std::vector<Held> held_;  // by bucket
  std::map<Key, size_t> open_;
};

Error wrong_line(const std::string& file, uint32_t line, std::string message, ErrorKind kind = ErrorKind::usage) {
  Error out{
      kind, std::move(message), {}, "a line names the modules of one bucket: layers.0.attention layers.0.ffn_norm"};
  out.where.file = file, out.where.line = line;
  return out;
}

struct Line {
  uint32_t number = 0;
  std::vector<ModulePattern> patterns;
  std::vector<bool> used;
};

Result<std::vector<Line>> read_lines(const std::string& text, const std::string& file) {
  std::vector<Line> out;
  uint32_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view rest = std::string_view(text).substr(begin, end - begin);
    begin = end + 1, ++number;
    rest = rest.substr(0, rest.find('#'));
    Line line{number, {}, {}};
    while (true) {
      const size_t word = rest.find_first_not_of(" \t\r");
      if (word == rest.npos) break;
      rest.remove_prefix(word);
      const std::string_view pattern = rest.substr(0, rest.find_first_of(" \t\r"));
      rest.remove_prefix(pattern.size());
      Result<ModulePattern> parsed = ModulePattern::parse(pattern);
      if (!parsed.ok()) return wrong_line(file, number, parsed.error().message);
      line.patterns.push_back(std::move(*parsed));
    }
    line.used.resize(line.patterns.size());
    if (!line.patterns.empty()) out.push_back(std::move(line));
  }
  if (out.empty()) return wrong_line(file, 1, "the file names no modules");
  return out;
}

}  // namespace

std::vector<std::string> Plan::modules(const Bucket& bucket) const {
  std::vector<std::string> out;
  std::set<std::string_view> seen = {""};
  for (size_t m : bucket.members)
    if (seen.insert(module_of[m]).second) out.push_back(module_of[m]);
  return out;
}

std::optional<Plan> with_one_kept(const Members& members, const Plan& plan) {
  const auto first = std::ranges::find_if(plan.buckets, [&](const Bucket& b) {
    const Member& m = members.list[b.members[0]];
    return m.kind == MemberKind::gather && m.direction == BucketDirection::backward;
  });
  if (first == plan.buckets.end()) return std::nullopt;
  const auto bucket_of_twin = [&](const Member& again) {
    return std::ranges::find_if(plan.buckets, [&](const Bucket& b) {
      return std::ranges::any_of(b.members, [&](size_t i) {
        const Member& m = members.list[i];
        return m.direction == BucketDirection::forward && m.group == again.group && m.call == again.twin &&
               m.programs == again.programs;
      });
    });
  };
  std::optional<size_t> largest, keeper;  // member; bucket of the forward
  for (size_t m : first->members) {
    const Member& again = members.list[m];
    if (again.twin == Member::kNone || (largest && members.list[*largest].whole_bytes() >= again.whole_bytes()))
      continue;
    if (const auto twin = bucket_of_twin(again); twin != plan.buckets.end())
      largest = m, keeper = static_cast<size_t>(twin - plan.buckets.begin());
  }
  if (!largest) return std::nullopt;
  Plan out = plan;
  Bucket& relieved = out.buckets[static_cast<size_t>(first - plan.buckets.begin())];
  out.buckets[*keeper].members.push_back(*largest);
  std::erase(relieved.members, *largest);
  if (relieved.members.empty()) out.buckets.erase(out.buckets.begin() + (first - plan.buckets.begin()));
  return out;
}

Plan plan_per_block(const Members& members) {
  Builder builder(members);
  std::vector<std::string> names;
  std::map<std::tuple<Programs, MemberKind, BucketDirection>, std::string> last_block;  // by what runs in one order
  for (size_t i = 0; i < members.list.size(); ++i) {
    const Member& m = members.list[i];
    const std::string block(numbered_module(m.name).layer);
    std::string& last = last_block[{m.programs, m.kind, m.direction}];
    if (!block.empty()) last = block;
    names.push_back(block.empty() ? std::string(parent_module(m.name)) : block);
    // Outside of blocks a head's gradients may come chunk by chunk: each is reduced when it is there.
    builder.add(key_of(m, block.empty() ? "behind " + last : block), i, !block.empty() && m.kind != MemberKind::gather);
  }
  return builder.take(std::move(names));
}

Result<Plan> plan_per_module(const Members& members, const std::string& text, const std::string& file) {
  SG_ASSIGN(std::vector<Line> lines, read_lines(text, file));
  Builder builder(members);
  for (size_t i = 0; i < members.list.size(); ++i) {
    const Member& m = members.list[i];
    const Line* owner = nullptr;
    for (Line& line : lines)
      for (size_t p = 0; p < line.patterns.size(); ++p) {
        if (!line.patterns[p].matches(parent_module(m.name))) continue;
        line.used[p] = true;
        if (owner != nullptr && owner != &line)
          return wrong_line(file, line.number, m.name + " is named in line " + std::to_string(owner->number) + " too");
        owner = &line;
      }
    builder.add(key_of(m, owner != nullptr ? "line " + std::to_string(owner->number) : "alone " + std::to_string(i)),
                i);
  }
  for (const Line& line : lines)
    for (size_t p = 0; p < line.patterns.size(); ++p)
      if (!line.used[p])
        return wrong_line(file, line.number,
                          "no parameter that is gathered or reduced lies in \"" + line.patterns[p].text() + "\"",
                          ErrorKind::cannot_apply);
  return builder.take();
}

Plan plan_by_size(const Members& members, int64_t size_bytes) {
  Builder builder(members);
  std::map<Key, int64_t> open_bytes;
  for (size_t i = 0; i < members.list.size(); ++i) {
    const Key key = key_of(members.list[i], {});
    const int64_t bytes = members.list[i].whole_bytes();
    int64_t& held = open_bytes[key];
    if (held + bytes > size_bytes) builder.close(key);
    builder.add(key, i);
    held = builder.open(key)->members.size() == 1 ? bytes : held + bytes;
  }
  return builder.take();
}

}  // namespace sg::bucket_parts
