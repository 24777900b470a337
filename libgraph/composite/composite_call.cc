#include "libgraph/composite/composite_call.h"

#include <algorithm>
#include <charconv>

#include "libgraph/composite/composite.h"
#include "libgraph/edit/rewrite.h"
#include "libgraph/infer/infer_call.h"

namespace sg {
namespace {

const Arg kNoArg;
const Type kNoType;

// Parses a default as the schemas of composites spell it: None, True, 1, 0.5, [], [0, 1]; words are left to the op.
Arg default_of(std::string_view text, Pool* pool) {
  if (text.empty() || text == "None") return Arg::none();
  if (text == "True" || text == "False") return Arg::boolean(text == "True");
  if (text.front() == '\'') return Arg::text(ArgKind::string, pool->str(text.substr(1, text.size() - 2)));
  if (text.front() == '[') {
    ArgList items;
    for (text = text.substr(1, text.size() - 2); !text.empty();) {
      size_t end = std::min(text.find(','), text.size());
      items.push_back(default_of(text.substr(0, end), pool));
      text.remove_prefix(std::min(end + 1, text.size()));
      while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
    }
    return Arg::list(std::move(items));
  }
  int64_t whole = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), whole);
  if (error == std::errc() && end == text.data() + text.size()) return Arg::integer(whole);
  double real = 0;
  std::from_chars(text.data(), text.data() + text.size(), real);
  return Arg::floating(real);
}

}  // namespace

PartArg::PartArg(const Values& list) {
  ArgList items;
  for (ValueId v : list) items.push_back(PartArg(v).arg);
  arg = Arg::list(std::move(items));
}

PartArg::PartArg(const Numbers& list) {
  ArgList items;
  for (int64_t n : list) items.push_back(Arg::integer(n));
  arg = Arg::list(std::move(items));
}

CompositeCall::CompositeCall(Program* program, Graph* graph, NodeId node, const OpInfo& schema, TypeInferrer* inferrer,
                             SeedStreams* seeds)
    : program_(program), graph_(graph), node_(node), schema_(schema), inferrer_(inferrer), seeds_(seeds) {}

void SeedStreams::mark(const Program& program, Graph* graph, NodeId drawing, ValueId seed) {
  int64_t place = -1;
  auto made_by = [&](std::string_view op) {
    const NodeId def = graph->value(seed).def;
    return !def.is_none() && graph->op_name(def) == op ? graph->node(def).args : std::vector<Arg>();
  };
  if (std::vector<Arg> args = made_by("aten.clone.default"); !args.empty() && args[0].is(ArgKind::value))
    seed = args[0].as_value();
  if (std::vector<Arg> args = made_by("aten.select.int");
      args.size() == 3 && args[0].is(ArgKind::value) && args[2].is(ArgKind::integer))
    seed = args[0].as_value(), place = args[2].as_int();
  if (last_ == 0) last_ = last_stream(program);
  const Node& node = graph->node(drawing);
  auto [it, is_new] = firsts_.try_emplace(
      {graph, seed.index, place, node.op.index, graph->value(node.first_result).type.index}, First{drawing, last_ + 1});
  if (is_new) ++last_;
  NodeMeta meta = graph->meta(drawing);
  meta.random.stream = it->second.stream;
  meta.random.rank_local = rank_local_;
  if (!is_new) meta.copy = {CopyKind::remat, graph->node(it->second.node).label};
  graph->set_meta(drawing, std::move(meta));
}

void CompositeCall::fail(std::string message) {
  if (!error_) error_ = Error{ErrorKind::cannot_apply, std::string(schema_.name) + ": " + std::move(message), {}, {}};
}

Status CompositeCall::bind() {
  const std::vector<Arg> args = graph_->node(node_).args;
  std::vector<bool> given(schema_.params.size());
  bound_.assign(schema_.params.size(), Arg());
  size_t position = 0;
  for (const Arg& a : args) {
    int index = a.key().is_none() ? static_cast<int>(position++) : schema_.param_index(graph_->pool().strings[a.key()]);
    if (index < 0 || static_cast<size_t>(index) >= bound_.size() || given[static_cast<size_t>(index)]) {
      fail("the arguments are not those of its schema");
      return error();
    }
    given[static_cast<size_t>(index)] = true;
    bound_[static_cast<size_t>(index)] = a;
    bound_[static_cast<size_t>(index)].set_key(StrId());
  }
  for (size_t i = 0; i < bound_.size(); ++i) {
    if (!given[i]) bound_[i] = default_of(schema_.params[i].default_text, &graph_->pool());
    if (given[i] || schema_.params[i].has_default || schema_.params[i].optional) continue;
    fail("argument '" + std::string(schema_.params[i].name) + "' is missing");
    return error();
  }
  return ok_status();
}

// --- arguments ---

const Param* CompositeCall::param(std::string_view name) const {
  int index = schema_.param_index(name);
  return index < 0 ? nullptr : &schema_.params[static_cast<size_t>(index)];
}

const Arg& CompositeCall::arg(std::string_view name) const {
  int index = schema_.param_index(name);
  return index < 0 ? kNoArg : bound_[static_cast<size_t>(index)];
}

bool CompositeCall::has(std::string_view name) const { return !arg(name).is(ArgKind::none); }

ValueId CompositeCall::tensor(std::string_view name) {
  const Arg& a = arg(name);
  if (a.is(ArgKind::value) && graph_->type(a.as_value()).kind == TypeKind::tensor) return a.as_value();
  const Param* p = param(name);
  if (!a.is(ArgKind::none) || p == nullptr || !p->optional)
    fail("argument '" + std::string(name) + "' is not a tensor of known type");
  return ValueId();
}

Values CompositeCall::tensors(std::string_view name) {
  Values out;
  const Arg& a = arg(name);
  if (!a.is(ArgKind::list)) {
    if (!a.is(ArgKind::none)) fail("argument '" + std::string(name) + "' is not a list of tensors");
    return out;
  }
  for (const Arg& item : a.items()) {
    bool is_tensor = item.is(ArgKind::value) && graph_->type(item.as_value()).kind == TypeKind::tensor;
    if (!is_tensor) fail("'" + std::string(name) + "' holds something that is not a tensor of known type");
    else out.push_back(item.as_value());
  }
  return out;
}

int64_t CompositeCall::integer(std::string_view name) {
  auto value = exprs().constant_value(as_expr(arg(name)));
  if (!value) fail("argument '" + std::string(name) + "' is not a known number");
  return value.value_or(0);
}

double CompositeCall::number(std::string_view name) {
  const Arg& a = arg(name);
  if (a.is(ArgKind::floating)) return a.as_float();
  if (a.is(ArgKind::value)) {
    const Type& t = graph_->type(a.as_value());
    if (t.kind == TypeKind::floating && t.has_value) return t.float_value;
  }
  return static_cast<double>(integer(name));
}

bool CompositeCall::flag(std::string_view name) {
  const Arg& a = arg(name);
  if (!a.is(ArgKind::boolean)) fail("argument '" + std::string(name) + "' is neither True nor False");
  return a.is(ArgKind::boolean) && a.as_bool();
}

std::string CompositeCall::text(std::string_view name) const {
  const Arg& a = arg(name);
  return a.is_text() ? graph_->pool().strings.str(a.as_text()) : std::string();
}

Numbers CompositeCall::integers(std::string_view name) {
  Numbers out;
  for (const Arg& item : sizes(name)) {
    auto value = exprs().constant_value(as_expr(item));
    if (!value) fail("'" + std::string(name) + "' holds something that is not a known number");
    out.push_back(value.value_or(0));
  }
  return out;
}

ArgList CompositeCall::sizes(std::string_view name) {
  const Arg& a = arg(name);
  if (a.is(ArgKind::list)) return a.items();
  return a.is(ArgKind::none) ? ArgList() : ArgList{a};
}

std::optional<DType> CompositeCall::dtype(std::string_view name) const {
  const Arg& a = arg(name);
  return a.is(ArgKind::dtype) ? std::optional(a.as_dtype()) : std::nullopt;
}

const Graph* CompositeCall::body(std::string_view name) const {
  const Arg& a = arg(name);
  if (!a.is(ArgKind::graph) || a.as_graph().index >= program_->nested.size()) return nullptr;
  return &program_->nested[a.as_graph().index]->graph;
}

// --- values ---

const Type& CompositeCall::type(ValueId v) const { return v.is_none() ? kNoType : graph_->type(v); }
ExprPool& CompositeCall::exprs() const { return graph_->pool().exprs; }

Expr CompositeCall::extent(ValueId v, int dim) const {
  int at = dim < 0 ? dim + rank(v) : dim;
  return at < 0 || at >= rank(v) ? exprs().constant(1) : type(v).shape[static_cast<size_t>(at)];
}

ArgList CompositeCall::shape(ValueId v) const {
  ArgList out;
  for (int i = 0; i < rank(v); ++i) out.push_back(size(v, i));
  return out;
}

int64_t CompositeCall::known_size(ValueId v, int dim) {
  auto n = exprs().constant_value(extent(v, dim));
  if (!n) fail("needs a known size where it is " + exprs().print(extent(v, dim)));
  return n.value_or(1);
}

bool CompositeCall::is_size(ValueId v, int dim, int64_t n) const { return exprs().constant_value(extent(v, dim)) == n; }

int CompositeCall::wrap(int64_t dim, int rank) {
  int64_t limit = std::max(rank, 1);
  if (dim < -limit || dim >= limit) fail("dimension " + std::to_string(dim) + " of " + std::to_string(rank));
  if (failed()) return 0;
  return static_cast<int>(dim < 0 ? dim + limit : dim);
}

Arg CompositeCall::as_arg(Expr e) const {
  auto n = exprs().constant_value(e);
  return n ? Arg::integer(*n) : Arg::expr(e);
}

Expr CompositeCall::as_expr(const Arg& a) {
  if (a.is(ArgKind::integer)) return exprs().constant(a.as_int());
  if (a.is(ArgKind::boolean)) return exprs().constant(a.as_bool() ? 1 : 0);
  if (a.is(ArgKind::expr)) return a.as_expr();
  if (a.is(ArgKind::value)) {
    const Type& t = graph_->type(a.as_value());
    if (t.kind == TypeKind::integer && t.has_value) return t.value;
  }
  fail("a size is not known");
  return exprs().constant(1);
}

Arg CompositeCall::product(ValueId v, int from, int to) const {
  Expr all = exprs().constant(1);
  for (int i = from; i < to; ++i) all = exprs().mul(all, extent(v, i));
  return as_arg(all);
}

bool CompositeCall::is_read_only_by(uint32_t i, std::string_view word) const {
  bool is_so = true;
  const ValueId result = graph_->node(node_).result(i);
  graph_->for_each_use(result, [&](const Use& use) {
    is_so = is_so && !use.user.is_none() && graph_->op_name(use.user).find(word) != std::string_view::npos;
  });
  return is_so && graph_->is_used(result);
}

const Type& CompositeCall::recorded(uint32_t i) const { return graph_->type(graph_->node(node_).result(i)); }

// --- parts ---

std::string CompositeCall::op_name(std::string_view op) const {
  if (op.starts_with("sg.") || std::count(op.begin(), op.end(), '.') == 2) return std::string(op);  // full name
  std::string name = "aten." + std::string(op);
  return op.find('.') == std::string_view::npos ? name + ".default" : name;
}

PartArg CompositeCall::key(std::string_view name, PartArg value) const {
  value.arg.set_key(graph_->pool().str(name));
  return value;
}

Arg CompositeCall::word(std::string_view text) const { return Arg::text(ArgKind::string, graph_->pool().str(text)); }

PartArg CompositeCall::memory_format(std::string_view name) const {
  return key("memory_format", Arg::text(ArgKind::memory_format, graph_->pool().str(name)));
}

bool CompositeCall::add_part(std::string_view op, PartArgs args, size_t count, NodeId* n, const Type* recorded) {
  if (failed()) return false;
  const OpInfo* info = find_op(op_name(op));
  if (info == nullptr) return fail("its part " + op_name(op) + " is not in the op table"), false;
  if (parts_.size() >= kMaxCompositeParts)
    return fail("has more than " + std::to_string(kMaxCompositeParts) + " parts"), false;
  NodeSpec spec = spec_of(*graph_, node_);
  spec.op = graph_->pool().op(info->name);
  spec.args.clear();
  NodeMeta meta = graph_->meta(node_);
  const RandomInfo random = std::exchange(meta.random, {});
  meta.binds.reset();  // the ops of the parts determine what they define
  spec.meta = graph_->pool().metas.intern(std::move(meta));
  for (PartArg& a : args) spec.args.push_back(std::move(a.arg));
  spec.is_tuple = info->returns_list || info->results.size() > 1;
  spec.result_types.assign(info->returns_list ? count : info->results.size(), Pool::kUnknownType);
  *n = graph_->insert_before(node_, spec);
  parts_.push_back(*n);
  if (draws_random(*graph_, *n) && !has_drawn_) {  // the first part that draws takes over the call's stream
    has_drawn_ = true;
    meta = graph_->meta(*n);
    meta.random = random;
    graph_->set_meta(*n, std::move(meta));
  }
  if (recorded) graph_->set_type(graph_->node(*n).first_result, graph_->pool().types.intern(*recorded));
  auto types = inferrer_->infer(*graph_, *n);
  if (!types.ok()) return fail(types.error().message), false;
  for (uint32_t i = 0; i < types->size(); ++i)
    graph_->set_type(graph_->node(*n).result(i), graph_->pool().types.intern((*types)[i]));
  return true;
}

ValueId CompositeCall::make(std::string_view op, PartArgs args) {
  NodeId n;
  return add_part(op, std::move(args), 1, &n) && graph_->node(n).result_count > 0 ? graph_->node(n).result(0)
                                                                                  : ValueId();
}

ValueId CompositeCall::make_found(std::string_view op, PartArgs args, Type recorded) {
  NodeId n;
  return add_part(op, std::move(args), 1, &n, &recorded) ? graph_->node(n).first_result : ValueId();
}

ValueId CompositeCall::make_by_seed(std::string_view op, PartArgs args, ValueId seed) {
  ValueId v = make(op, std::move(args));
  if (failed() || v.is_none()) return v;
  seeds_->mark(*program_, graph_, parts_.back(), seed);
  return v;
}

Values CompositeCall::make_all(std::string_view op, PartArgs args, size_t count) {
  NodeId n;
  if (!add_part(op, std::move(args), count, &n)) {
    const OpInfo* info = find_op(op_name(op));
    return Values(info == nullptr || info->returns_list ? count : info->results.size());
  }
  Values out;
  for (uint32_t i = 0; i < graph_->node(n).result_count; ++i) out.push_back(graph_->node(n).result(i));
  return out;
}

ValueId CompositeCall::zeros(ArgList shape, ValueId like) { return make("new_zeros", {like, shape}); }

// A value that no part made, or that is a result already, is given through an alias.
void CompositeCall::give(ValueId v) {
  if (failed() || v.is_none()) return fail("has no such result");
  bool is_new = !graph_->value(v).def.is_none() &&
                std::find(parts_.begin(), parts_.end(), graph_->value(v).def) != parts_.end() &&
                std::find(given_.begin(), given_.end(), v) == given_.end();
  given_.push_back(is_new ? v : make("alias", {v}));
}

ValueId CompositeCall::one_number(ValueId v) { return rank(v) == 0 ? v : make("view", {v, ArgList()}); }

void CompositeCall::give_own(ValueId v) {
  give(v);
  if (!failed()) own_.push_back(given_.back());
}

void CompositeCall::write_to(const Arg& self) {
  if (failed() || given_.size() != 1) return fail("has no one result to write");
  given_[0] = make("copy_", {self, given_[0]});
}

}  // namespace sg
