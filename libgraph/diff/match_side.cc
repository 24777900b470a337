#include "libgraph/diff/match_side.h"

#include <algorithm>
#include <bit>

namespace sg {
namespace {

uint64_t hash_of_words(std::span<const uint32_t> words) {
  Hasher h;
  for (uint32_t w : words) h.mix(static_cast<uint64_t>(w));
  return h.mix(static_cast<uint64_t>(words.size())).value();
}

// Ops whose two operands can be swapped without changing a bit of the result, if they have no other arguments.
bool commutes(std::string_view op) {
  static constexpr std::string_view kOps[] = {"aten.add.Tensor",
                                              "aten.mul.Tensor",
                                              "aten.maximum.default",
                                              "aten.minimum.default",
                                              "aten.eq.Tensor",
                                              "aten.ne.Tensor",
                                              "aten.logical_and.default",
                                              "aten.logical_or.default",
                                              "aten.logical_xor.default",
                                              "aten.bitwise_and.Tensor",
                                              "aten.bitwise_or.Tensor",
                                              "aten.bitwise_xor.Tensor",
                                              "python.add",
                                              "python.mul",
                                              "python.eq",
                                              "python.ne"};
  return std::find(std::begin(kOps), std::end(kOps), op) != std::end(kOps);
}

class SideBuilder {
 public:
  SideBuilder(const Job& job, const Program& program, const Graph& graph, MatchWords* words,
              const SymbolNumbers* numbers)
      : pool_(*job.pool), words_(*words), numbers_(numbers) {
    side_.job = &job, side_.program = &program, side_.graph = &graph;
    text_of_string_.assign(pool_.strings.size(), MatchSide::kNone);
  }

  MatchSide build() {
    number_values();
    for (NodeId n : side_.nodes) add_node(n);
    collect_uses();
    return std::move(side_);
  }

 private:
  void number_values() {
    const Graph& graph = *side_.graph;
    side_.value_of.assign(graph.value_id_limit(), MatchSide::kNone);
    side_.position_of.assign(graph.node_id_limit(), MatchSide::kNone);
    for (const Input& input : graph.inputs()) number(input.value, MatchSide::kNone);
    for (NodeId n : graph.nodes()) {
      uint32_t position = static_cast<uint32_t>(side_.nodes.size());
      side_.position_of[n.index] = position;
      side_.nodes.push_back(n);
      side_.first_result.push_back(static_cast<uint32_t>(side_.maker.size()));
      for (uint32_t i = 0; i < graph.node(n).result_count; ++i) number(graph.node(n).result(i), position);
    }
    side_.first_result.push_back(static_cast<uint32_t>(side_.maker.size()));
    side_.operand_begin.push_back(0);
  }

  void number(ValueId v, uint32_t maker) {
    side_.value_of[v.index] = static_cast<uint32_t>(side_.maker.size());
    side_.maker.push_back(maker);
  }

  void add_node(NodeId n) {
    const Node& node = side_.graph->node(n);
    key_.clear(), is_blank_ = false;
    uint32_t op = text(pool_.ops[node.op].name);
    key_ = {op, node.result_count, node.is_tuple};
    for (const Arg& arg : node.args) add_arg(arg);
    side_.op.push_back(op);
    side_.key.push_back(words_.keys.intern(key_));
    side_.blank.push_back(is_blank_);
    side_.place.push_back(text(node.module) * 4 + static_cast<uint32_t>(node.phase));
    side_.operand_begin.push_back(static_cast<uint32_t>(side_.operand_list.size()));
    side_.commutative.push_back(is_commutative(node));
  }

  bool is_commutative(const Node& node) const {
    return side_.operand_list.size() - side_.operand_begin[side_.operand_begin.size() - 2] == 2 &&
           node.args.size() == 2 && node.args[0].is(ArgKind::value) && node.args[1].is(ArgKind::value) &&
           commutes(pool_.op_name(node.op));
  }

  uint32_t text(StrId s) {
    if (s.is_none()) return 0xFFFFFFFu;
    uint32_t& known = text_of_string_[s.index];
    if (known == MatchSide::kNone) known = words_.text(pool_.strings[s]);
    return known;
  }

  void add_arg(const Arg& arg) {
    key_.push_back(text(arg.key()));
    if (std::optional<int64_t> number = known_number(arg)) {
      key_.push_back(static_cast<uint32_t>(ArgKind::integer));
      return add_wide(static_cast<uint64_t>(*number));
    }
    key_.push_back(static_cast<uint32_t>(arg.kind()));
    switch (arg.kind()) {
      case ArgKind::none: break;
      case ArgKind::value: side_.operand_list.push_back(side_.value_of[arg.as_value().index]); break;
      case ArgKind::expr: add_expr(arg.as_expr()); break;
      case ArgKind::graph: is_blank_ = true; break;
      case ArgKind::group: add_group(arg.as_group()); break;
      case ArgKind::floating: add_wide(std::bit_cast<uint64_t>(arg.as_float())); break;
      case ArgKind::boolean:
      case ArgKind::integer: add_wide(static_cast<uint64_t>(arg.as_int())); break;
      case ArgKind::dtype: key_.push_back(static_cast<uint32_t>(arg.as_dtype())); break;
      default:
        if (arg.is_text()) key_.push_back(text(arg.as_text()));
    }
    if (!arg.has_items()) return;
    key_.push_back(static_cast<uint32_t>(arg.items().size()));
    for (const Arg& item : arg.items()) add_arg(item);
  }

  std::optional<int64_t> known_number(const Arg& arg) const {
    if (numbers_ == nullptr) return std::nullopt;
    if (arg.is(ArgKind::expr)) return number_of(pool_, arg.as_expr(), *numbers_);
    if (arg.is(ArgKind::value)) return number_of(pool_, side_.graph->value(arg.as_value()).type, *numbers_);
    return std::nullopt;
  }

  void add_wide(uint64_t v) {
    key_.push_back(static_cast<uint32_t>(v));
    key_.push_back(static_cast<uint32_t>(v >> 32));
  }

  void add_expr(Expr e) {
    std::optional<int64_t> value = pool_.exprs.constant_value(e);
    if (value) add_wide(static_cast<uint64_t>(*value));
    else is_blank_ = true;
  }

  void add_group(GroupId g) {
    if (g.index >= side_.job->groups.size()) return key_.push_back(MatchSide::kNone);
    key_.push_back(text(side_.job->groups[g.index].axis));
    key_.push_back(side_.job->groups[g.index].ordinal);
  }

  void collect_uses() {
    std::vector<uint32_t>& begin = side_.use_begin;
    begin.assign(side_.value_count() + 1, 0);
    for (uint32_t v : side_.operand_list) ++begin[v + 1];
    const std::vector<Output>& outputs = side_.graph->outputs();
    for (const Output& o : outputs)
      if (o.value) ++begin[side_.value_of[o.value.index] + 1];
    for (size_t v = 1; v < begin.size(); ++v) begin[v] += begin[v - 1];
    side_.use_list.resize(begin.back());
    std::vector<uint32_t> next(begin.begin(), begin.end() - 1);
    for (uint32_t n = 0; n < side_.node_count(); ++n) {
      std::span<const uint32_t> operands = side_.operands(n);
      for (uint32_t slot = 0; slot < operands.size(); ++slot) side_.use_list[next[operands[slot]]++] = {n, slot, false};
    }
    for (uint32_t o = 0; o < outputs.size(); ++o)
      if (outputs[o].value) side_.use_list[next[side_.value_of[outputs[o].value.index]]++] = {o, 0, true};
  }

  const Pool& pool_;
  MatchWords& words_;
  const SymbolNumbers* numbers_;
  MatchSide side_;
  std::vector<uint32_t> text_of_string_;
  std::vector<uint32_t> key_;
  bool is_blank_ = false;
};

}  // namespace

bool SequenceTable::equals(uint32_t id, std::span<const uint32_t> words) const {
  return std::equal(words.begin(), words.end(), words_.begin() + static_cast<ptrdiff_t>(begin_[id]),
                    words_.begin() + static_cast<ptrdiff_t>(begin_[id + 1]));
}

uint32_t SequenceTable::find(std::span<const uint32_t> words) const {
  return index_.find(hash_of_words(words), [&](uint32_t id) { return equals(id, words); });
}

uint32_t SequenceTable::intern(std::span<const uint32_t> words) {
  uint64_t hash = hash_of_words(words);
  uint32_t known = index_.find(hash, [&](uint32_t id) { return equals(id, words); });
  if (known != kNone) return known;
  uint32_t id = static_cast<uint32_t>(size());
  words_.insert(words_.end(), words.begin(), words.end());
  begin_.push_back(words_.size());
  index_.insert(hash, id);
  return id;
}

std::optional<int64_t> number_of(const Pool& pool, Expr e, const SymbolNumbers& numbers) {
  if (!e || pool.exprs.is_invalid(e)) return std::nullopt;
  if (std::optional<int64_t> known = pool.exprs.constant_value(e)) return known;
  return pool.exprs.evaluate(e, [&](StrId s) -> std::optional<int64_t> {
    auto at = numbers.find(s);
    return at == numbers.end() ? std::nullopt : std::optional(at->second);
  });
}

std::optional<int64_t> number_of(const Pool& pool, TypeId type, const SymbolNumbers& numbers) {
  const Type& t = pool.types[type];
  return t.kind == TypeKind::integer && t.has_value ? number_of(pool, t.value, numbers) : std::nullopt;
}

MatchSide make_match_side(const Job& job, const Program& program, const Graph& graph, MatchWords* words,
                          const SymbolNumbers* numbers) {
  return SideBuilder(job, program, graph, words, numbers).build();
}

}  // namespace sg
