// Products: Einstein sums, and other ops that reduce to a matrix product.
#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>

#include "libgraph/composite/composite_call.h"

namespace sg::composite {
namespace {

struct Split {  // the dimensions of a pair of operands: kept from both, from one only, or summed
  Numbers both, left, right, summed;
};

Numbers concatenated(std::initializer_list<Numbers> lists) {
  Numbers out;
  for (const Numbers& list : lists) out.insert(out.end(), list.begin(), list.end());
  return out;
}

Arg volume(CompositeCall& c, ValueId v, const Numbers& dims) {
  Expr all = c.exprs().constant(1);
  for (int64_t d : dims) all = c.exprs().mul(all, c.extent(v, static_cast<int>(d)));
  return c.as_arg(all);
}

bool is_one(CompositeCall& c, ValueId v, int64_t dim) { return c.is_size(v, static_cast<int>(dim), 1); }

ValueId sum(CompositeCall& c, ValueId v, const Numbers& dims, bool keep) {
  return dims.empty() ? v : c.make("sum.dim_IntList", {v, dims, keep});
}

// The product of two tensors of equal rank, summed over `dims`, which are kept with size 1: one batched matrix product.
ValueId sum_of_products(CompositeCall& c, ValueId left, ValueId right, const Numbers& dims) {
  if (dims.empty()) return c.make("mul.Tensor", {left, right});
  Split s{{}, {}, {}, dims};
  Numbers summed;  // dimensions that both operands have
  for (int i = 0; i < c.rank(left); ++i) {
    bool in_left = !is_one(c, left, i), in_right = !is_one(c, right, i);
    if (std::find(dims.begin(), dims.end(), i) != dims.end()) {
      if (in_left && in_right) summed.push_back(i);
      else if (in_left) left = sum(c, left, {i}, true);
      else if (in_right) right = sum(c, right, {i}, true);
    } else {
      (in_left && in_right ? s.both : in_left ? s.left : s.right).push_back(i);
    }
  }
  Arg batch = volume(c, left, s.both), rows = volume(c, left, s.left), inner = volume(c, left, summed),
      columns = volume(c, right, s.right);
  ArgList shape;
  for (int64_t d : concatenated({s.both, s.left})) shape.push_back(c.size(left, static_cast<int>(d)));
  shape.insert(shape.end(), dims.size(), Arg::integer(1));
  for (int64_t d : s.right) shape.push_back(c.size(right, static_cast<int>(d)));
  Numbers order(shape.size());
  int64_t at = 0;
  for (int64_t d : concatenated({s.both, s.left, s.summed, s.right})) order[static_cast<size_t>(d)] = at++;
  left = c.make("reshape", {c.make("permute", {left, concatenated({s.both, s.left, s.summed, s.right})}),
                            ArgList{batch, rows, inner}});
  right = c.make("reshape", {c.make("permute", {right, concatenated({s.both, s.summed, s.right, s.left})}),
                             ArgList{batch, inner, columns}});
  return c.make("permute", {c.make("view", {c.make("bmm", {left, right}), shape}), order});
}

constexpr char kEllipsis = '.';

// The letters of an equation's two sides; `...` is one character.
struct Equation {
  std::vector<std::string> operands;
  std::string result;
};

std::optional<std::string> letters_of(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == ' ') continue;
    if (text.substr(i, 3) == "...") out += kEllipsis, i += 2;
    else if (std::isalpha(static_cast<unsigned char>(text[i]))) out += text[i];
    else return std::nullopt;
  }
  return std::count(out.begin(), out.end(), kEllipsis) > 1 ? std::nullopt : std::optional(out);
}

// The letters that occur once, in PyTorch's order: the ellipsis first, then capitals, then small letters.
std::string implied_result(const Equation& e) {
  std::map<char, int> count;
  for (const std::string& o : e.operands)
    for (char letter : o) ++count[letter];
  std::string out;
  for (auto [letter, n] : count)
    if (letter == kEllipsis) out.insert(out.begin(), letter);
    else if (n == 1) out += letter;
  return out;
}

std::optional<Equation> parse_equation(std::string_view text) {
  size_t arrow = text.find("->");
  Equation e;
  for (std::string_view left = text.substr(0, arrow);;) {
    size_t comma = left.find(',');
    auto letters = letters_of(left.substr(0, comma));
    if (!letters) return std::nullopt;
    e.operands.push_back(*letters);
    if (comma == std::string_view::npos) break;
    left.remove_prefix(comma + 1);
  }
  if (arrow == std::string_view::npos) return e.result = implied_result(e), e;
  auto letters = letters_of(text.substr(arrow + 2));
  if (!letters) return std::nullopt;
  e.result = *letters;
  return e;
}

class Einsum {
 public:
  Einsum(CompositeCall& c, Equation e, Values operands)
      : c_(c), equation_(std::move(e)), operands_(std::move(operands)) {}

  ValueId run() {
    if (!place_letters()) return ValueId();
    for (size_t i = 0; i < operands_.size(); ++i) operands_[i] = aligned(equation_.operands[i], operands_[i]);
    if (c_.failed()) return ValueId();
    count_dims();
    const bool is_pair = operands_.size() > 1;
    const Numbers path = c_.integers("path");
    for (size_t step = 0; operands_.size() > 1; ++step) contract(path, step);
    if (c_.failed()) return ValueId();
    ValueId all = operands_[0];
    if (total_ == kept_) return all;
    Numbers rest(total_ - kept_);
    std::iota(rest.begin(), rest.end(), static_cast<int64_t>(kept_));
    if (!is_pair) return sum(c_, all, rest, false);
    ArgList shape = c_.shape(all);
    shape.resize(kept_);
    return c_.make("view", {all, shape});
  }

 private:
  // Assigns dimensions to letters: those of the result first, then the others in alphabetical order.
  bool place_letters() {
    if (equation_.operands.size() != operands_.size())
      return c_.fail("the equation has different operands from the call"), false;
    for (size_t i = 0; i < operands_.size(); ++i) {
      const std::string& letters = equation_.operands[i];
      bool dots = letters.find(kEllipsis) != std::string::npos;
      int more = c_.rank(operands_[i]) - static_cast<int>(letters.size()) + (dots ? 1 : 0);
      if (more < 0 || (!dots && more > 0)) return c_.fail("the equation is not one of the operands' dimensions"), false;
      hidden_ = std::max(hidden_, static_cast<size_t>(more));
    }
    std::map<char, bool> seen;
    for (const std::string& o : equation_.operands)
      for (char letter : o) seen[letter] = true;
    for (char letter : equation_.result) {
      if (!place_.emplace(letter, total_).second || (!seen[letter] && letter != kEllipsis))
        return c_.fail("the equation's result names a letter twice, or one that no operand has"), false;
      total_ += letter == kEllipsis ? hidden_ : 1;
    }
    kept_ = total_;
    for (auto [letter, is_there] : seen)
      if (is_there && place_.emplace(letter, total_).second) total_ += letter == kEllipsis ? hidden_ : 1;
    return true;
  }

  // The operand permuted to these dimensions, of size 1 where it lacks the letter; a repeated letter takes the
  // diagonal.
  ValueId aligned(const std::string& letters, ValueId v) {
    Numbers order(total_, -1);
    std::map<char, int> dim_of;
    int at = 0;
    for (char letter : letters) {
      if (letter == kEllipsis) {
        size_t own = static_cast<size_t>(original_rank(v, letters));
        for (size_t k = hidden_ - own; k < hidden_; ++k) order[place_[letter] + k] = at++;
      } else if (auto it = dim_of.find(letter); it != dim_of.end()) {
        v = c_.make("movedim.int", {c_.make("diagonal", {v, 0, it->second, at}), -1, it->second});
      } else {
        dim_of[letter] = at;
        order[place_[letter]] = at++;
      }
    }
    for (int64_t& dim : order)
      if (dim < 0) v = c_.make("unsqueeze", {v, -1}), dim = at++;
    return c_.make("permute", {v, order});
  }

  int original_rank(ValueId v,
                    const std::string& letters) {  // the ellipsis's rank; v's diagonals are taken up to it
    size_t at = letters.find(kEllipsis), repeats = 0;
    for (size_t i = 0; i < at; ++i) repeats += letters.find(letters[i]) < i ? 1 : 0;
    return c_.rank(v) - static_cast<int>(letters.size() - 1 - repeats);
  }

  void count_dims() {
    counts_.assign(total_, 0);
    for (ValueId v : operands_)
      for (size_t d = 0; d < total_; ++d) counts_[d] += is_one(c_, v, static_cast<int64_t>(d)) ? 0 : 1;
  }

  // Contracts the next pair of the path and appends the product; without a path the first two, and prepends it.
  void contract(const Numbers& path, size_t step) {
    size_t i = 0, j = 1;
    if (2 * step + 1 < path.size()) {
      auto [low, high] = std::minmax(path[2 * step], path[2 * step + 1]);
      if (low < 0 || low == high || static_cast<size_t>(high) >= operands_.size()) c_.fail("the path names no operand");
      else i = static_cast<size_t>(low), j = static_cast<size_t>(high);
    }
    ValueId a = operands_[i], b = operands_[j];
    operands_.erase(operands_.begin() + static_cast<std::ptrdiff_t>(j));
    operands_.erase(operands_.begin() + static_cast<std::ptrdiff_t>(i));
    Numbers both, of_a, of_b;
    for (size_t d = kept_; d < total_; ++d) {
      auto dim = static_cast<int64_t>(d);
      bool in_a = !is_one(c_, a, dim), in_b = !is_one(c_, b, dim);
      if (in_a && in_b) {
        if (--counts_[d] == 1) both.push_back(dim), counts_[d] = 0;
      } else if (counts_[d] == 1 && (in_a || in_b)) {
        (in_a ? of_a : of_b).push_back(dim);
        counts_[d] = 0;
      }
    }
    ValueId product = sum_of_products(c_, sum(c_, a, of_a, true), sum(c_, b, of_b, true), both);
    operands_.insert(path.empty() ? operands_.begin() : operands_.end(), product);
  }

  CompositeCall& c_;
  Equation equation_;
  Values operands_;
  std::map<char, size_t> place_;
  size_t hidden_ = 0, total_ = 0, kept_ = 0;
  std::vector<int> counts_;
};

void give_tensordot(CompositeCall& c, ValueId a, ValueId b, Numbers dims_a, Numbers dims_b) {
  if (dims_a.size() != dims_b.size()) return c.fail("as many dimensions of one as of the other are needed");
  for (size_t i = 0; i < dims_a.size(); ++i) {
    dims_a[i] = c.wrap(dims_a[i], c.rank(a)), dims_b[i] = c.wrap(dims_b[i], c.rank(b));
    if (c.failed()) return;
    if (is_one(c, b, dims_b[i])) a = sum(c, a, {dims_a[i]}, true);
    else if (is_one(c, a, dims_a[i])) b = sum(c, b, {dims_b[i]}, true);
  }
  Numbers free_a, free_b;
  ArgList shape;
  for (int i = 0; i < c.rank(a); ++i)
    if (std::find(dims_a.begin(), dims_a.end(), i) == dims_a.end()) free_a.push_back(i), shape.push_back(c.size(a, i));
  for (int i = 0; i < c.rank(b); ++i)
    if (std::find(dims_b.begin(), dims_b.end(), i) == dims_b.end()) free_b.push_back(i), shape.push_back(c.size(b, i));
  Arg inner = volume(c, a, dims_a);
  ValueId left =
      c.make("reshape", {c.make("permute", {a, concatenated({free_a, dims_a})}), ArgList{volume(c, a, free_a), inner}});
  ValueId right =
      c.make("reshape", {c.make("permute", {b, concatenated({dims_b, free_b})}), ArgList{inner, volume(c, b, free_b)}});
  c.give(c.make("reshape", {c.make("mm", {left, right}), shape}));
}

bool is_number(const Arg& a, double n) {
  return (a.is(ArgKind::integer) && static_cast<double>(a.as_int()) == n) ||
         (a.is(ArgKind::floating) && a.as_float() == n);
}

// A factor of an integer product is an integer itself.
Arg factor(CompositeCall& c, std::string_view name, ValueId of) {
  bool whole = !is_floating(c.dtype_of(of)) && !is_complex(c.dtype_of(of));
  return whole && c.arg(name).is(ArgKind::floating) ? Arg::integer(static_cast<int64_t>(c.number(name))) : c.arg(name);
}

// beta * self + alpha * product; with beta = 0, self is not read.
ValueId added(CompositeCall& c, ValueId self, ValueId product) {
  Arg beta = factor(c, "beta", product), alpha = factor(c, "alpha", product);
  if (is_number(beta, 0)) return is_number(alpha, 1) ? product : c.make("mul.Scalar", {product, alpha});
  if (!is_number(beta, 1)) self = c.make("mul.Scalar", {self, beta});
  return c.make("add.Tensor", {self, product, c.key("alpha", alpha)});
}

bool is_true(const Arg& a) { return !is_number(a, 0) && !(a.is(ArgKind::boolean) && !a.as_bool()); }

// The same for bools.
ValueId joined_flags(CompositeCall& c, ValueId self, ValueId product) {
  if (!is_true(c.arg("alpha"))) product = c.make("zeros_like", {product});
  return is_true(c.arg("beta")) ? c.make("logical_or", {self, product}) : product;
}

ValueId outer_of(CompositeCall& c, ValueId a, ValueId b) {
  if (c.rank(a) != 1 || c.rank(b) != 1) return c.fail("needs two vectors"), a;
  return c.make("mul.Tensor", {c.make("reshape", {a, ArgList{c.size(a, 0), Arg::integer(1)}}), b});
}

ValueId conjugate_of(CompositeCall& c, ValueId v) { return is_complex(c.dtype_of(v)) ? c.make("_conj", {v}) : v; }

void give_cross(CompositeCall& c, ValueId a, ValueId b, int64_t dim) {
  ArgList shape;
  int rank = std::max(c.rank(a), c.rank(b));
  if (c.rank(a) != c.rank(b)) return c.fail("needs two tensors of the same rank");
  for (int i = 0; i < rank; ++i) shape.push_back(is_one(c, a, i) ? c.size(b, i) : c.size(a, i));
  a = c.make("expand", {a, shape}), b = c.make("expand", {b, shape});
  int at = c.wrap(dim, rank);
  if (!c.is_size(a, at, 3)) return c.fail("needs a dimension of size 3");
  auto rolled = [&](ValueId v, int64_t by) { return c.make("roll", {v, Numbers{by}, Numbers{at}}); };
  c.give(c.make("sub.Tensor", {c.make("mul.Tensor", {rolled(a, -1), rolled(b, -2)}),
                               c.make("mul.Tensor", {rolled(a, -2), rolled(b, -1)})}));
}

}  // namespace

void einsum(CompositeCall& c) {
  auto equation = parse_equation(c.text("equation"));
  if (!equation) return c.fail("the equation `" + c.text("equation") + "` cannot be read");
  ValueId out = Einsum(c, *equation, c.tensors("tensors")).run();
  if (!c.failed()) c.give(out);
}

void tensordot(CompositeCall& c) {
  give_tensordot(c, c.tensor("self"), c.tensor("other"), c.integers("dims_self"), c.integers("dims_other"));
}

void inner(CompositeCall& c) {
  ValueId a = c.tensor("self"), b = c.tensor("other");
  if (c.rank(a) == 0 || c.rank(b) == 0) return c.give(c.make("mul.Tensor", {a, b}));
  give_tensordot(c, a, b, {-1}, {-1});
}

void outer(CompositeCall& c) { c.give(outer_of(c, c.tensor("self"), c.tensor("vec2"))); }
void addr(CompositeCall& c) {
  ValueId self = c.tensor("self"), product = outer_of(c, c.tensor("vec1"), c.tensor("vec2"));
  c.give(c.dtype_of(product) == DType::boolean ? joined_flags(c, self, product) : added(c, self, product));
}
void addbmm(CompositeCall& c) {
  ValueId product = c.make("sum.dim_IntList", {c.make("bmm", {c.tensor("batch1"), c.tensor("batch2")}), Numbers{0},
                                               false, c.key("dtype", c.dtype_of(c.tensor("batch1")))});
  c.give(c.make("contiguous", {added(c, c.tensor("self"), product)}));
}
void vdot(CompositeCall& c) { c.give(c.make("dot", {conjugate_of(c, c.tensor("self")), c.tensor("other")})); }
void vecdot(CompositeCall& c) {
  ValueId product = c.make("mul.Tensor", {conjugate_of(c, c.tensor("x")), c.tensor("y")});
  c.give(c.make("sum.dim_IntList", {product, Numbers{c.integer("dim")}}));
}

void kron(CompositeCall& c) {
  ValueId a = c.tensor("self"), b = c.tensor("other");
  int rank = std::max(c.rank(a), c.rank(b));
  ArgList wide_a, wide_b, shape;
  for (int i = 0; i < rank; ++i) {
    int at_a = i - rank + c.rank(a), at_b = i - rank + c.rank(b);
    Expr one = c.exprs().constant(1), size_a = at_a < 0 ? one : c.extent(a, at_a),
         size_b = at_b < 0 ? one : c.extent(b, at_b);
    for (const Arg& size : {c.as_arg(size_a), Arg::integer(1)}) wide_a.push_back(size);
    for (const Arg& size : {Arg::integer(1), c.as_arg(size_b)}) wide_b.push_back(size);
    shape.push_back(c.as_arg(c.exprs().mul(size_a, size_b)));
  }
  c.give(c.make("_unsafe_view",
                {c.make("mul.Tensor", {c.make("reshape", {a, wide_a}), c.make("reshape", {b, wide_b})}), shape}));
}

// x1 W x2 for each output, as (x1 W) x2.
void bilinear(CompositeCall& c) {
  ValueId x = c.tensor("input1"), y = c.tensor("input2"), weight = c.tensor("weight"), bias = c.tensor("bias");
  if (c.rank(weight) != 3 || c.rank(x) == 0 || c.rank(x) != c.rank(y))
    return c.fail("needs a weight of three dimensions and two inputs of one rank");
  ArgList shape = c.shape(x);
  ValueId flat_x = c.make("reshape", {x, ArgList{c.product(x, 0, c.rank(x) - 1), c.size(x, -1)}});
  ValueId flat_y = c.make("reshape", {y, ArgList{c.product(y, 0, c.rank(y) - 1), Arg::integer(1), c.size(y, -1)}});
  ValueId rows =
      c.make("reshape", {c.make("permute", {weight, Numbers{1, 0, 2}}), ArgList{c.size(weight, 1), Arg::integer(-1)}});
  ValueId half =
      c.make("view", {c.make("mm", {flat_x, rows}), ArgList{Arg::integer(-1), c.size(weight, 0), c.size(weight, 2)}});
  ValueId out = c.make("sum.dim_IntList",
                       {c.make("mul.Tensor", {half, flat_y}), Numbers{-1}, false, c.key("dtype", c.dtype_of(x))});
  shape.back() = c.size(weight, 0);
  out = c.make("reshape", {out, shape});
  c.give(bias.is_none() ? out : c.make("add.Tensor", {out, bias}));
}

// The product of three tensors, unsqueezed to a common rank, then summed.
void trilinear(CompositeCall& c) {
  auto widened = [&](ValueId v, std::string_view dims) {
    for (int64_t d : c.integers(dims)) v = c.make("unsqueeze", {v, d});
    return v;
  };
  ValueId a = widened(c.tensor("i1"), "expand1"), b = widened(c.tensor("i2"), "expand2"),
          last = widened(c.tensor("i3"), "expand3");
  if (c.failed() || c.rank(a) != c.rank(b) || c.rank(a) != c.rank(last))
    return c.fail("the tensors do not get the same rank");
  const Numbers absent = c.integers("expand3");
  Numbers all, first, second;
  for (int64_t d : c.integers("sumdim")) all.push_back(c.wrap(d, c.rank(a)));
  for (int64_t d : all) (std::find(absent.begin(), absent.end(), d) != absent.end() ? first : second).push_back(d);
  ValueId out = sum_of_products(c, sum_of_products(c, a, b, first), last, second);
  std::sort(all.rbegin(), all.rend());
  for (int64_t d : all) out = c.make("squeeze.dim", {out, d});
  c.give(out);
}

void cross(CompositeCall& c) {
  ValueId a = c.tensor("self"), b = c.tensor("other");
  if (c.has("dim")) return give_cross(c, a, b, c.integer("dim"));
  int dim = 0;
  while (dim < c.rank(a) && !c.is_size(a, dim, 3)) ++dim;
  give_cross(c, a, b, dim);
}

// The product of float8 by scales of one kind for both sides, one of a tensor or one a row: what PyTorch has for every
// device. Scales of blocks stay whole.
void scaled_mm_by_recipe(CompositeCall& c) {
  constexpr int64_t kOfTensor = 0, kOfRows = 1;
  const Numbers left = c.integers("recipe_a"), right = c.integers("recipe_b");
  const Values of_left = c.tensors("scale_a"), of_right = c.tensors("scale_b");
  if (left != right || left.size() != 1 || (left[0] != kOfTensor && left[0] != kOfRows))
    return c.fail("scales blocks, or its two sides unlike");
  if (of_left.size() != 1 || of_right.size() != 1) return c.fail("needs one tensor of scales for each side");
  if (!c.integers("contraction_dim").empty()) return c.fail("names the axis that it sums over");
  c.give(c.make("_scaled_mm", {c.tensor("self"), c.tensor("mat2"), of_left[0], of_right[0], c.arg("bias"), Arg::none(),
                               c.arg("out_dtype"), c.arg("use_fast_accum")}));
}

}  // namespace sg::composite
