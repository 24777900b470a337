#include <algorithm>
#include <charconv>
#include <limits>

#include "libgraph/base/chars.h"
#include "libgraph/base/flat_set.h"
#include "libgraph/import/fx_lower.h"

namespace sg {
namespace {

constexpr std::string_view kLayouts[] = {"strided",    "sparse_coo", "sparse_csr", "sparse_csc",
                                         "sparse_bsr", "sparse_bsc", "jagged",     "_mkldnn"};
constexpr std::string_view kMemoryFormats[] = {"contiguous_format", "preserve_format", "channels_last",
                                               "channels_last_3d"};

template <size_t N>
bool is_one_of(std::string_view s, const std::string_view (&list)[N]) {
  return std::find(std::begin(list), std::end(list), s) != std::end(list);
}

const Param* param_named(const OpInfo* op, std::string_view name) {
  int i = op == nullptr ? -1 : op->param_index(name);
  return i < 0 ? nullptr : &op->params[static_cast<size_t>(i)];
}

// s0, s77, u3, zuf0: PyTorch's names of symbols.
bool is_symbol(std::string_view s) {
  size_t letters = 0;
  while (letters < s.size() && s[letters] >= 'a' && s[letters] <= 'z') ++letters;
  if (letters == 0 || letters == s.size() || letters > 3 || (s[0] != 's' && s[0] != 'u' && s[0] != 'z')) return false;
  return std::all_of(s.begin() + static_cast<std::ptrdiff_t>(letters), s.end(), is_digit);
}

std::optional<double> as_double(const Arg& a) {
  if (a.is(ArgKind::integer)) return static_cast<double>(a.as_int());
  if (a.is(ArgKind::floating)) return a.as_float();
  return std::nullopt;
}

}  // namespace

std::string fx_device_text(const FxFile& file, const FxExpr& call) {
  const std::string_view callee = file.child(call, 0).text;
  if (callee != "device" && callee != "torch.device") return {};
  std::string type, index;
  for (uint32_t i = 1; i < call.count; ++i) {
    const FxExpr& arg = file.child(call, i);
    const FxExpr& value = arg.kind == FxKind::keyword ? file.child(arg, 0) : arg;
    if (value.kind == FxKind::string && type.empty()) type = fx_string_value(value.text);
    else if (value.kind == FxKind::integer) index = value.text;
  }
  return index.empty() ? type : type + ":" + index;
}

Status FxArgs::read(const FxExpr& call, uint32_t first, const OpInfo* info) {
  group_size_ = group_size(call, first, info);
  FlatTextSet keys;
  node_->args.reserve(call.count - std::min(first, call.count));
  for (uint32_t i = first; i < call.count; ++i) {
    uint32_t index = unit_.file.children[call.first + i];
    const FxExpr& e = unit_.file.expr(index);
    bool is_keyword = e.kind == FxKind::keyword;
    size_t position = node_->args.size();
    const Param* param = is_keyword                                          ? param_named(info, e.text)
                         : info != nullptr && position < info->params.size() ? &info->params[position]
                                                                             : nullptr;
    if (is_keyword && !keys.insert(e.text)) return error(e, "the argument `" + std::string(e.text) + "` occurs twice");
    if (!is_keyword && !keys.empty()) return error(e, "a positional argument after a keyword argument");
    SG_ASSIGN(Arg value, arg(is_keyword ? unit_.file.children[e.first] : index,
                             param != nullptr && param->kind == ParamKind::group));
    if (is_keyword) value.set_key(lowering_.job->pool->str(e.text));
    node_->args.push_back(std::move(value));
  }
  return ok_status();
}

std::optional<int64_t> FxArgs::group_size(const FxExpr& call, uint32_t first, const OpInfo* info) const {
  int at = info == nullptr ? -1 : info->param_index("group_size");
  if (at < 0) return std::nullopt;
  for (uint32_t i = first; i < call.count; ++i) {
    const FxExpr* e = &unit_.file.child(call, i);
    bool is_it = e->kind == FxKind::keyword ? e->text == "group_size" : i - first == static_cast<uint32_t>(at);
    if (!is_it) continue;
    if (e->kind == FxKind::keyword) e = &unit_.file.child(*e, 0);
    int64_t size = 0;
    if (e->kind == FxKind::integer &&
        std::from_chars(e->text.data(), e->text.data() + e->text.size(), size).ec == std::errc())
      return size;
  }
  return std::nullopt;
}

Result<Arg> FxArgs::arg(uint32_t index, bool is_group) {
  const FxExpr& e = unit_.file.expr(index);
  switch (e.kind) {
    case FxKind::name: return name(e);
    case FxKind::integer:
    case FxKind::floating:
    case FxKind::imaginary: return number(e, false);
    case FxKind::string: {
      std::string s = fx_string_value(e.text);
      if (is_group) return Arg::group(lowering_.groups->of(s, group_size_));
      return text(ArgKind::string, s);
    }
    case FxKind::ellipsis: return text(ArgKind::enumerator, "Ellipsis");
    case FxKind::list:
    case FxKind::tuple:
    case FxKind::set: return items(e);
    case FxKind::dict: return dict(e);
    case FxKind::call: return call(e);
    case FxKind::slice: {
      SG_ASSIGN(Arg parts, items(e));
      ArgList& p = parts.mutable_items();
      return Arg::slice(std::move(p[0]), std::move(p[1]), std::move(p[2]));
    }
    case FxKind::unary: return unary(e);
    case FxKind::binary: return binary(e);
    case FxKind::opaque: return text(ArgKind::opaque, e.text);
    case FxKind::subscript:
    case FxKind::attribute:
    case FxKind::keyword: break;
  }
  return error(e, "this is no argument that FX prints");
}

Result<Arg> FxArgs::items(const FxExpr& e, uint32_t first) {
  ArgList list;
  list.reserve(e.count - first);
  for (uint32_t i = first; i < e.count; ++i) {
    SG_ASSIGN(Arg item, arg(unit_.file.children[e.first + i]));
    list.push_back(std::move(item));
  }
  return Arg::list(std::move(list));
}

Result<Arg> FxArgs::dict(const FxExpr& e) {
  ArgList entries;
  FlatTextSet seen;
  for (uint32_t i = 0; i + 1 < e.count; i += 2) {
    const FxExpr& key = unit_.file.child(e, i);
    if (!seen.insert(key.text)) return error(key, "the key occurs twice");
    SG_ASSIGN(Arg value, arg(unit_.file.children[e.first + i + 1]));
    std::string name = key.kind == FxKind::string ? fx_string_value(key.text) : std::string(key.text);
    value.set_key(lowering_.job->pool->str(name));
    entries.push_back(std::move(value));
  }
  return Arg::dict(std::move(entries));
}

Result<Arg> FxArgs::name(const FxExpr& e) {
  Pool& pool = *lowering_.job->pool;
  if (e.text == "None") return Arg::none();
  if (e.text == "True" || e.text == "False") return Arg::boolean(e.text == "True");
  if (const FxName* named = names_.find(e.text)) {
    if (named->is_nested) return Arg::graph(NestedId(named->nested));
    node_->refs.push_back({pool.str(named->canonical), {e.at, unit_index_}});
    return Arg::value(ValueId(static_cast<uint32_t>(node_->refs.size() - 1)));
  }
  if (e.text == "inf" || e.text == "math.inf") return Arg::floating(std::numeric_limits<double>::infinity());
  if (e.text == "nan" || e.text == "math.nan") return Arg::floating(std::numeric_limits<double>::quiet_NaN());
  if (e.text.starts_with("torch.ops.")) return text(ArgKind::op, e.text.substr(10));
  if (e.text.starts_with("torch.")) {
    std::string_view name = e.text.substr(6);
    if (auto dtype = parse_torch_dtype(name)) return Arg::dtype(*dtype);
    if (is_one_of(name, kLayouts)) return text(ArgKind::layout, name);
    if (is_one_of(name, kMemoryFormats)) return text(ArgKind::memory_format, name);
  }
  if (e.text.find('.') != std::string_view::npos) return text(ArgKind::enumerator, e.text);
  if (is_symbol(e.text)) return Arg::expr(pool.exprs.symbol(e.text));
  // Resolved by the builder, which knows all names and can suggest a near one.
  node_->refs.push_back({pool.str(e.text), {e.at, unit_index_}});
  return Arg::value(ValueId(static_cast<uint32_t>(node_->refs.size() - 1)));
}

Result<Arg> FxArgs::number(const FxExpr& e, bool is_negative) {
  std::string digits = (is_negative ? "-" : "") + std::string(e.text);
  const char* end = digits.data() + digits.size();
  if (e.kind == FxKind::integer) {
    int64_t value = 0;
    auto [stop, code] = std::from_chars(digits.data(), end, value);
    if (code == std::errc() && stop == end) return Arg::integer(value);
    return error(e, "the integer " + digits.substr(0, 40) + " does not fit 64 bits with sign");
  }
  double value = 0;
  const char* last = end - (e.kind == FxKind::imaginary ? 1 : 0);
  auto [stop, code] = std::from_chars(digits.data(), last, value);
  if (code == std::errc::result_out_of_range)
    return error(e, "the number " + digits.substr(0, 40) + " is out of range");
  if (code != std::errc() || stop != last) return error(e, "the number " + digits.substr(0, 40) + " cannot be read");
  return e.kind == FxKind::imaginary ? Arg::complex(0, value) : Arg::floating(value);
}

Result<Arg> FxArgs::unary(const FxExpr& e) {
  const FxExpr& operand = unit_.file.child(e, 0);
  bool is_number =
      operand.kind == FxKind::integer || operand.kind == FxKind::floating || operand.kind == FxKind::imaginary;
  if (e.text == "-" && is_number) {
    SG_ASSIGN(Arg value, number(operand, true));
    if (operand.kind == FxKind::imaginary) return Arg::complex(-0.0, value.items()[1].as_float());
    return value;
  }
  SG_ASSIGN(Arg value, arg(unit_.file.children[e.first]));
  if (e.text == "+" && as_double(value)) return value;
  if (e.text == "-" && value.is(ArgKind::floating)) return Arg::floating(-value.as_float());
  if (e.text == "-" && value.is(ArgKind::complex))
    return Arg::complex(-value.items()[0].as_float(), -value.items()[1].as_float());
  if (e.text == "-" && value.is(ArgKind::expr)) return Arg::expr(lowering_.job->pool->exprs.neg(value.as_expr()));
  return error(e, "`" + std::string(e.text) + "` has an operand that is neither a number nor a size");
}

// 1+2j, and sizes such as s0*4 that have no node.
Result<Arg> FxArgs::binary(const FxExpr& e) {
  SG_ASSIGN(Arg a, arg(unit_.file.children[e.first]));
  SG_ASSIGN(Arg b, arg(unit_.file.children[e.first + 1]));
  if ((e.text == "+" || e.text == "-") && as_double(a) && b.is(ArgKind::complex)) {
    const double sign = e.text == "-" ? -1 : 1, re = b.items()[0].as_float(), im = b.items()[1].as_float();
    return Arg::complex(re == 0 ? *as_double(a) : *as_double(a) + sign * re, sign * im);  // keeps the sign of -0
  }
  ExprPool& exprs = lowering_.job->pool->exprs;
  auto side = [&](const Arg& x) -> std::optional<Expr> {
    if (x.is(ArgKind::expr)) return x.as_expr();
    return x.is(ArgKind::integer) ? std::optional(exprs.constant(x.as_int())) : std::nullopt;
  };
  auto left = side(a), right = side(b);
  if (!left || !right)
    return error(e, "`" + std::string(e.text) + "` has an operand that is neither a number nor a size");
  std::optional<Expr> out = e.text == "+"    ? std::optional(exprs.add(*left, *right))
                            : e.text == "-"  ? std::optional(exprs.sub(*left, *right))
                            : e.text == "*"  ? std::optional(exprs.mul(*left, *right))
                            : e.text == "//" ? std::optional(exprs.floordiv(*left, *right))
                            : e.text == "%"  ? std::optional(exprs.mod(*left, *right))
                                             : std::nullopt;
  if (!out || exprs.is_invalid(*out)) return error(e, "this is not a size");
  return Arg::expr(*out);
}

Result<Arg> FxArgs::call(const FxExpr& e) {
  const FxExpr& callee = unit_.file.child(e, 0);
  std::string device = fx_device_text(unit_.file, e);
  if (!device.empty()) return text(ArgKind::device, device);
  if (callee.text == "slice" || callee.text == "complex") {
    SG_ASSIGN(Arg parts, items(e, 1));
    ArgList& p = parts.mutable_items();
    if (callee.text == "complex") {
      if (p.size() != 2 || !as_double(p[0]) || !as_double(p[1])) return error(e, "a complex number has two parts");
      return Arg::complex(*as_double(p[0]), *as_double(p[1]));
    }
    if (p.empty() || p.size() > 3) return error(e, "a slice has up to three parts");
    if (p.size() == 1) p.insert(p.begin(), Arg::none());
    if (p.size() == 2) p.push_back(Arg::none());
    return Arg::slice(std::move(p[0]), std::move(p[1]), std::move(p[2]));
  }
  if (callee.text == "torch.Size" && e.count == 2) return arg(unit_.file.children[e.first + 1]);
  return opaque(e);
}

// Anything that is no valid argument is kept as its source text, up to the closing bracket.
Arg FxArgs::opaque(const FxExpr& e) const {
  std::string_view rest = unit_.text.whole.substr(e.at, unit_.text.end - e.at);
  int depth = 0;
  size_t end = 0;
  for (; end < rest.size() && rest[end] != '\n'; ++end) {
    if (rest[end] == '(') ++depth;
    if (rest[end] == ')' && --depth == 0) {
      ++end;
      break;
    }
  }
  return text(ArgKind::opaque, rest.substr(0, end));
}

}  // namespace sg
