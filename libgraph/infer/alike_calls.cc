#include "libgraph/infer/alike_calls.h"

#include <algorithm>

#include "libgraph/base/hashing.h"

namespace sg {
namespace {

constexpr size_t kMostCalls = 8192;
constexpr size_t kMostWords = 128;  // per call

}  // namespace

bool AlikeCalls::contains_like(const Graph& graph, NodeId n) {
  last_.clear();
  if (!describe(graph, graph.node(n))) last_.clear();
  if (last_.empty()) return false;
  last_hash_ = Hasher().mix_all(last_).value();
  auto is_like = [&](uint32_t i) {
    auto begin = words_.begin() + static_cast<std::ptrdiff_t>(calls_[i].begin);
    return calls_[i].size == last_.size() && std::equal(last_.begin(), last_.end(), begin);
  };
  return index_.find(last_hash_, is_like) != FlatIndex::kNone;
}

void AlikeCalls::add_last() {
  if (last_.empty() || calls_.size() >= kMostCalls) return;
  index_.insert(last_hash_, static_cast<uint32_t>(calls_.size()));
  calls_.push_back({words_.size(), last_.size()});
  words_.insert(words_.end(), last_.begin(), last_.end());
}

bool AlikeCalls::describe(const Graph& graph, const Node& node) {
  last_.push_back(Word{node.op.index} << 32 | node.result_count);
  for (uint32_t i = 0; i < node.result_count; ++i) last_.push_back(graph.value(node.result(i)).type.index);
  for (const Arg& arg : node.args)
    if (!describe(graph, arg)) return false;
  return true;
}

// Encodes an argument by kind, keyword and contents; a value by its type.
bool AlikeCalls::describe(const Graph& graph, const Arg& arg) {
  if (last_.size() >= kMostWords) return false;
  last_.push_back(Word{arg.key().index} << 32 | static_cast<Word>(arg.kind()));
  if (arg.is(ArgKind::value)) {
    if (arg.as_value().index >= graph.value_id_limit()) return false;  // left to the rule
    const TypeId type = graph.value(arg.as_value()).type;
    last_.push_back(type.index);
    return graph.pool().types[type].kind == TypeKind::tensor;
  }
  last_.push_back(arg.has_items() ? arg.items().size() : static_cast<Word>(arg.bits()));
  if (arg.has_items())
    for (const Arg& item : arg.items())
      if (!describe(graph, item)) return false;
  return true;
}

}  // namespace sg
