#include "librun/cpu/pointwise_rules.h"

#include <algorithm>
#include <array>
#include <string>
#include <unordered_map>

#include "libgraph/infer/infer_call.h"
#include "librun/cpu/kernels.h"
#include "librun/cpu/pointwise_tables.h"
#include "librun/element.h"

namespace sg::cpu {
namespace {

// "aten.add_.Tensor" -> "aten.add.Tensor"; empty for ops that are not in place.
std::string functional_name(std::string_view op) {
  size_t dot = op.rfind('.');
  if (dot == std::string_view::npos || dot < 2 || op[dot - 1] != '_' || op[dot - 2] == '_') return {};
  return std::string(op.substr(0, dot - 1)) + std::string(op.substr(dot));
}

using RuleTable = std::unordered_map<std::string_view, const PointwiseRule*>;

RuleTable build_rules() {
  RuleTable table;
  for (auto rules : {arithmetic_rules(), function_rules(), activation_rules(), special_rules(), copy_rules()})
    for (const PointwiseRule& rule : rules) table.emplace(rule.op, &rule);
  for (const OpInfo& op : all_ops()) {
    auto functional = table.find(functional_name(op.name));
    if (op.writes() && functional != table.end()) table.emplace(op.name, functional->second);
  }
  return table;
}

const RuleTable& rule_table() {
  static const RuleTable table = build_rules();
  return table;
}

// PyTorch promotes tensors, tensors of rank 0 and numbers separately: a lower rank matters only if its kind is higher.
struct Promotion {
  std::array<DType, 3> by_rank{DType::none, DType::none, DType::none};

  void add(size_t rank, DType t) { by_rank[rank] = by_rank[rank] == DType::none ? t : promote(by_rank[rank], t); }
  static int kind(DType t) {
    return is_complex(t) ? 3 : is_floating(t) ? 2 : t == DType::none ? -1 : t == DType::boolean ? 0 : 1;
  }
  static DType combine(DType higher, DType lower) {
    if (higher == DType::none) return lower;
    return kind(lower) > kind(higher) ? promote(higher, lower) : higher;
  }
  DType result() const { return combine(by_rank[0], combine(by_rank[1], by_rank[2])); }
};

DType type_of(Scalar s, Numerics numerics) {
  switch (s.kind) {
    case Scalar::Kind::boolean: return DType::boolean;
    case Scalar::Kind::integer: return DType::i64;
    case Scalar::Kind::floating: return stored_dtype(DType::f32, numerics);
    case Scalar::Kind::complex: return stored_dtype(DType::c64, numerics);
  }
  __builtin_unreachable();
}

template <class Fn>  // fn(name, whether it has a "~")
void for_names(std::string_view operands, const Fn& fn) {
  while (!operands.empty()) {
    size_t end = std::min(operands.find(' '), operands.size());
    std::string_view name = operands.substr(0, end);
    operands.remove_prefix(std::min(end + 1, operands.size()));
    bool wide = name.starts_with('~');
    fn(wide ? name.substr(1) : name, wide);
  }
}

Scalar wrapped(Scalar s, DType type) {  // REQUIRES: is_integral(type)
  return visit_dtype(type, [&]<class T>() {
    if constexpr (std::is_integral_v<T>) return Scalar::integer(static_cast<T>(s.to_int()));
    else return s;
  });
}

}  // namespace

const PointwiseRule* find_pointwise_rule(std::string_view op) {
  auto it = rule_table().find(op);
  return it == rule_table().end() ? nullptr : it->second;
}

bool PointwiseCall::has(std::string_view name) const { return call_.op().param_index(name) >= 0 && call_.has(name); }

// For an op that is not in place, the result has the common type: PyTorch's own promotion, as recorded.
DType PointwiseCall::common(std::string_view operands, Common how) const {
  if (how == Common::flag) return DType::boolean;
  Promotion promotion;
  for_names(operands, [&](std::string_view name, bool) {
    if (!has(name)) return;
    const ParamValue& p = call_.param(name);
    if (p.kind == ParamValue::Kind::tensor) promotion.add(p.tensor.rank > 0 ? 0 : 1, p.tensor.dtype);
    else promotion.add(2, type_of(p.scalar, call_.numerics()));
  });
  DType type = promotion.result();
  bool whole = !is_floating(type) && !is_complex(type);
  return how == Common::floating && whole ? stored_dtype(DType::f32, call_.numerics()) : type;
}

Value PointwiseCall::operand(std::string_view name, DType type, Number how) {
  bool wide = name.starts_with('~') && !is_integral(type);
  if (name.starts_with('~')) name.remove_prefix(1);
  const ParamValue& p = call_.param(name);
  if (p.kind != ParamValue::Kind::scalar)
    return code().convert(program_.read(p.tensor), type, !(wide && p.tensor.rank == 0));
  if (!is_integral(type))
    return wide ? code().constant(p.scalar, type) : code().rounded(code().constant(p.scalar, type));
  Value v = code().constant(how == Number::wrapped ? wrapped(p.scalar, type) : p.scalar, type);
  v.rounded = true;
  return v;
}

Value PointwiseCall::compute(BlockOp op, std::initializer_list<Value> operands, DType type) {
  return code().compute(op, sg::cpu::lane_of(type), operands, type);
}

Value PointwiseCall::test(BlockOp op, std::initializer_list<Value> operands, DType type) {
  return code().compute(op, sg::cpu::lane_of(type), operands, DType::boolean);
}

namespace {

std::array<Value, kMaxOperands> all_operands(PointwiseCall& c, DType type, size_t* count) {
  std::array<Value, kMaxOperands> v{};
  *count = 0;
  for_names(c.rule().operands, [&](std::string_view name, bool wide) {
    v[(*count)++] = c.operand(wide ? std::string("~").append(name) : std::string(name), type);
  });
  return v;
}

Value compute_all(PointwiseCall& c, DType type, DType result) {
  size_t count;
  auto v = all_operands(c, type, &count);
  Lane lane = sg::cpu::lane_of(type);
  switch (count) {
    case 1: return c.code().compute(c.rule().block, lane, {v[0]}, result);
    case 2: return c.code().compute(c.rule().block, lane, {v[0], v[1]}, result);
    case 3: return c.code().compute(c.rule().block, lane, {v[0], v[1], v[2]}, result);
    case 4: return c.code().compute(c.rule().block, lane, {v[0], v[1], v[2], v[3]}, result);
    default: return c.code().compute(c.rule().block, lane, {v[0], v[1], v[2], v[3], v[4]}, result);
  }
}

}  // namespace

Value lower_plain(PointwiseCall& c) {
  DType type = c.common();
  return compute_all(c, type, type);
}

Value lower_test(PointwiseCall& c) { return compute_all(c, c.common(), DType::boolean); }

Value lower_real(PointwiseCall& c) {
  DType type = c.common();
  return compute_all(c, type, real_part(type));
}

std::span<const KernelRow> pointwise_kernels() {
  static const std::vector<KernelRow> rows = [] {
    std::vector<KernelRow> out;
    for (const OpInfo& op : all_ops())
      if (find_pointwise_rule(op.name)) out.push_back({op.name, run_pointwise});
    return out;
  }();
  return rows;
}

}  // namespace sg::cpu
