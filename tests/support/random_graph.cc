#include "tests/support/random_graph.h"

#include <algorithm>
#include <limits>

#include "tests/support/integer_type.h"

namespace sg::test {
namespace {

constexpr std::string_view kModules[] = {"tok_embeddings",
                                         "layers.0.attention.wq",
                                         "layers.0.moe",
                                         "layers.1.moe.experts",
                                         "layers.1.attention",
                                         "norm",
                                         "loss",
                                         "odd module",
                                         "layers.10.é"};
constexpr std::string_view kFiles[] = {"moe.py", "torchtitan/models/common/attention.py", "a dir/odd \"file\".py"};
constexpr std::string_view kOddNames[] = {"two words", "quo\"te", "back\\slash", "größe",    "7up",   "none",
                                          "-",         "a,b",     "=",           "%percent", "graph", "at",
                                          "x.y.z",     "#hash",   "true",        "日本"};
constexpr std::string_view kJson[] = {
    "1", "-0.5", "\"text\"", "true", "null", "[1,2,[]]", "{\"a\":{\"b\":\"c\"}}", "\"\\u0001\""};

}  // namespace

GraphBuilder::GraphBuilder(Job& job, Program& program, Graph& graph, Rng& shape, Rng& own,
                           const RandomJobOptions& options)
    : job_(job),
      program_(program),
      graph_(graph),
      pool_(*job.pool),
      shape_(shape),
      own_(own),
      options_(options),
      device_(pool_.str("cpu")) {}

void GraphBuilder::fill() {
  if (options_.symbols) declare_symbols();
  add_inputs();
  choose_steps();
  move_context();
  while (graph_.node_count() < options_.nodes) {
    if (shape_.below(6) == 0) move_context();
    uint64_t at = shape_.below(total_weight_);
    size_t i = 0;
    while (at >= steps_[i].weight) at -= steps_[i++].weight;
    (this->*steps_[i].step)();
  }
  while (!pending_.empty()) wait_one();
  add_outputs();
}

void GraphBuilder::fill_nested(std::vector<TypeId> inputs, size_t nodes) {
  options_.symbols = options_.collectives = options_.random_ops = options_.nested = false;
  choose_steps();
  for (TypeId t : inputs) {
    ValueId v = graph_.add_input("", t, {});
    base_.push_back({v, true, false});
    add_entry(v, true, false);
  }
  while (graph_.node_count() < nodes) {
    uint64_t at = shape_.below(total_weight_);
    size_t i = 0;
    while (at >= steps_[i].weight) at -= steps_[i++].weight;
    (this->*steps_[i].step)();
  }
  for (size_t i = shape_.between(1, 3); i-- > 0;) {
    Output output;
    output.value = pick_dense().value;
    graph_.add_output(std::move(output));
  }
}

// --- inputs and outputs ---

void GraphBuilder::declare_symbols() {
  for (uint64_t i = shape_.between(1, 3); i-- > 0;) {
    Symbol s;
    s.name = pool_.str("s" + std::to_string(next_symbol_++));
    s.min = 2;
    if (shape_.percent(50)) s.max = 1024;
    if (shape_.percent(70)) s.hint = 8;
    if (shape_.percent(30)) s.divisor = 2;
    if (shape_.percent(70)) s.source = pool_.str("L['x'].size()[0]");
    program_.symbols.push_back(s);
    Expr e = pool_.exprs.symbol(s.name);
    program_.guards.push_back({Relation::le, e, pool_.exprs.constant(4096), SourceId()});
    if (shape_.percent(50)) program_.guards.push_back({Relation::ne, e, pool_.exprs.constant(9), SourceId()});
  }
}

void GraphBuilder::add_inputs() {
  std::vector<Expr> sizes;
  for (int64_t n : {4, 8, 16}) sizes.push_back(pool_.exprs.constant(n));
  for (uint64_t i = shape_.between(2, 6); i-- > 0;) {
    std::vector<Expr> shape = {shape_.pick(sizes), shape_.pick(sizes)};
    if (shape_.percent(25)) shape.push_back(shape_.pick(sizes));
    StrId fqn = pool_.str(std::string(shape_.pick(kModules)) + ".weight" + std::to_string(i));
    std::string name = options_.odd_names && shape_.percent(10) ? odd_name() : "param";
    Input input = sharded_parameter(fqn, shape);
    base_.push_back({graph_.add_input(name, pool_.tensor(DType::f32, shape, device_), std::move(input)), true, false});
  }
  for (const Symbol& s : program_.symbols) {
    std::vector<Expr> shape = {pool_.exprs.symbol(s.name), shape_.pick(sizes)};
    Input input;
    input.fqn = pool_.str("x");
    base_.push_back({graph_.add_input("x", pool_.tensor(DType::f32, shape, device_), std::move(input)), true, false});
  }
  add_data_inputs();
  for (const Entry& e : base_) add_entry(e.value, true, e.writable);
}

Input GraphBuilder::sharded_parameter(StrId fqn, const std::vector<Expr>& shape) {
  Input input;
  input.kind = InputKind::parameter;
  input.fqn = fqn;
  if (job_.meshes.empty() || !shape_.percent(60)) return input;
  constexpr std::string_view kPlacements[] = {"S(0)", "R", "P(sum)", "_S(0, 4)"};
  input.sharding.global_shape = shape;
  input.sharding.global_shape[0] = pool_.exprs.mul(pool_.exprs.constant(job_.world), shape[0]);
  for (StrId axis : job_.meshes[0].axes) {
    input.sharding.mesh_axes.push_back(axis);
    input.sharding.placements.push_back(pool_.str(shape_.pick(kPlacements)));
  }
  return input;
}

// The input kinds besides parameters: tokens, a buffer, optimizer state, a tangent, a constant, opaque ones.
void GraphBuilder::add_data_inputs() {
  Expr n = pool_.exprs.constant(4);
  auto add = [&](std::string_view name, InputKind kind, TypeId t, Input input = {}) {
    input.kind = kind;
    return graph_.add_input(name, t, std::move(input));
  };
  TypeId vector = pool_.tensor(DType::f32, {n}, device_), ints = pool_.tensor(DType::i64, {n}, device_);
  Input tokens;
  tokens.fqn = pool_.str("tokens");
  if (options_.metadata)
    tokens.extra = {{pool_.str("odd key"), pool_.str("[1,2]")}, {pool_.str("z"), pool_.str("null")}};
  counts_.push_back(add("tokens", InputKind::user, ints, tokens));
  base_.push_back({add("buffer", InputKind::buffer, vector), true, true});
  if (shape_.percent(50)) base_.push_back({add("exp_avg", InputKind::optimizer_state, vector), true, false});
  if (shape_.percent(50)) base_.push_back({add("tangents", InputKind::tangent, vector), true, false});
  if (shape_.percent(50)) {
    Input constant;
    constant.digest = pool_.str("sha256:" + std::string(64, 'a'));
    base_.push_back({add("lifted", InputKind::constant, vector, constant), true, false});
  }
  if (shape_.percent(50)) {
    Type mesh;
    mesh.kind = TypeKind::opaque;
    mesh.text = pool_.str("DeviceMesh");
    Input opaque;
    opaque.of = graph_.inputs()[0].fqn;
    opaque.attribute = pool_.str("device_mesh");
    add("mesh", InputKind::opaque, pool_.types.intern(mesh), opaque);
  }
  if (!program_.symbols.empty() && shape_.percent(50))
    add("batch", InputKind::user, integer_type(&pool_, pool_.exprs.symbol(program_.symbols[0].name)));
}

void GraphBuilder::add_outputs() {
  Type scalar = dense_type(DType::f32, {});
  auto add = [&](ValueId v, OutputKind kind, ValueId of = {}) {
    Output output;
    output.value = v, output.kind = kind, output.of = of;
    if (options_.metadata && own_.percent(10)) output.extra = {{pool_.str("note"), pool_.str("\"kept\"")}};
    graph_.add_output(std::move(output));
  };
  add(emit("aten.sum.default", {Arg::value(pick_dense().value)}, scalar), OutputKind::loss);
  for (size_t i = 0; i < graph_.inputs().size(); ++i) {
    const Input input = graph_.inputs()[i];
    if (input.kind == InputKind::buffer && shape_.percent(60)) add(input.value, OutputKind::buffer, input.value);
    if (input.kind == InputKind::opaque) {
      add(input.value, OutputKind::opaque, input.value);
      graph_.mutable_output(graph_.outputs().size() - 1).attribute = input.attribute;
    }
    if (input.kind != InputKind::parameter) continue;
    TypeId t = graph_.value(input.value).type;
    ValueId like = t.index < last_of_type_.size() ? last_of_type_[t.index] : ValueId();
    bool gradient = shape_.percent(80) && like;
    add(gradient ? like : ValueId(), OutputKind::gradient, input.value);
    graph_.mutable_output(graph_.outputs().size() - 1).sharding = input.sharding;
  }
  if (shape_.percent(50)) add(pick_any().value, OutputKind::other);
  if (shape_.percent(30)) add(ValueId(), OutputKind::none);
}

// --- emitting ---

ValueId GraphBuilder::emit(std::string_view op, std::vector<Arg> args, Type result, MetaId meta) {
  NodeId n = emit_node(op, std::move(args), {pool_.types.intern(std::move(result))}, false, meta);
  return graph_.node(n).first_result;
}

NodeId GraphBuilder::emit_node(std::string_view op, std::vector<Arg> args, const std::vector<TypeId>& types,
                               bool is_tuple, MetaId meta) {
  NodeSpec spec;
  spec.op = pool_.op(op);
  spec.args = std::move(args);
  spec.result_types = types;
  spec.is_tuple = is_tuple;
  spec.phase = phase_;
  spec.module = module_;
  spec.source = source_;
  spec.meta = meta;
  if (phase_ == Phase::backward && !forward_nodes_.empty() && shape_.percent(50))
    spec.forward = shape_.pick(forward_nodes_);
  bool odd = options_.odd_names && shape_.percent(4);
  for (size_t i = 0; odd && i < types.size(); ++i) spec.names.push_back(odd_name());
  if (options_.odd_names && shape_.percent(3)) spec.label = odd_name();
  if (options_.metadata && meta == MetaId(0) && own_.percent(15))
    spec.meta = random_meta(static_cast<uint32_t>(types.size()));
  NodeId n = graph_.append(spec);
  if (phase_ == Phase::forward && forward_nodes_.size() < 256) forward_nodes_.push_back(n);
  return n;
}

// Puts the next nodes on another source line, perhaps in another module; the phase only advances.
void GraphBuilder::move_context() {
  bool done_half = graph_.node_count() * 2 > options_.nodes, done_most = graph_.node_count() * 10 > options_.nodes * 9;
  phase_ = done_most ? Phase::optimizer : done_half ? Phase::backward : Phase::forward;
  module_ = shape_.percent(15) ? StrId() : pool_.str(shape_.pick(kModules));
  if (shape_.percent(15)) {
    source_ = SourceId();
  } else {
    Source source{pool_.str(shape_.pick(kFiles)), static_cast<uint32_t>(shape_.between(1, 300)),
                  shape_.percent(80) ? pool_.str("forward") : StrId()};
    source_ = pool_.sources.intern(source);
  }
}

std::string GraphBuilder::odd_name() { return std::string(shape_.pick(kOddNames)); }

MetaId GraphBuilder::random_meta(uint32_t result_count) {
  NodeMeta meta;
  auto chance = [&] { return own_.percent(30); };
  if (chance()) meta.recompute = static_cast<Recompute>(own_.below(5));
  if (chance()) meta.recompute_region = static_cast<int32_t>(own_.below(4));
  if (chance()) meta.ep_role = static_cast<EpRole>(own_.below(4)), meta.ep_step = static_cast<EpStep>(own_.below(5));
  if (chance()) fill_chunk_meta(&meta, result_count);
  if (chance()) {
    meta.collective.role = static_cast<CollectiveRole>(own_.below(3));
    meta.collective.direction = static_cast<BucketDirection>(own_.below(3));
    meta.collective.bucket = static_cast<int32_t>(own_.between(-1, 5));
    for (uint64_t i = own_.below(3); i-- > 0;) meta.collective.plan.push_back(pool_.str(own_.pick(kModules)));
  }
  if (chance()) meta.copy = {static_cast<CopyKind>(own_.between(1, 3)), pool_.str("mm")};
  if (chance()) meta.more_modules = {pool_.str("layers.2"), pool_.str("layers.3.odd module")};
  if (chance()) {
    meta.extra = {{pool_.str("a key"), pool_.str(own_.pick(kJson))}, {pool_.str("b"), pool_.str(own_.pick(kJson))}};
  }
  return pool_.metas.intern(std::move(meta));
}

void GraphBuilder::fill_chunk_meta(NodeMeta* meta, uint32_t result_count) {
  constexpr std::string_view kRoles[] = {"body", "split_boundary", "materialization", "chunk_input"};
  meta->chunk.region = pool_.str("layers.1.moe");
  meta->chunk.index = static_cast<int32_t>(own_.between(-1, 3));
  if (own_.percent(80)) meta->chunk.role = pool_.str(own_.pick(kRoles));
  if (own_.percent(50)) meta->chunk.producer = pool_.str(own_.percent(50) ? "graph" : "eager");
  if (own_.percent(50)) meta->chunk.original = pool_.str("mm_1");
  meta->chunk.is_backward = static_cast<int8_t>(own_.between(-1, 1));
  if (result_count < 2 || !own_.percent(50)) return;
  for (uint32_t i = 0; i < result_count; ++i)
    meta->result_chunks.push_back({static_cast<int32_t>(i), own_.percent(50) ? pool_.str("mm_1") : StrId()});
}

// Any argument that is not a value, group or nested graph.
Arg GraphBuilder::random_literal(int depth) {
  constexpr double kFloats[] = {
      0.1, -0.0, 1e308, 5e-324, std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()};
  constexpr int64_t kInts[] = {0, -1, INT64_MAX, INT64_MIN, 7};
  constexpr ArgKind kTexts[] = {ArgKind::string,     ArgKind::device, ArgKind::layout, ArgKind::memory_format,
                                ArgKind::enumerator, ArgKind::op,     ArgKind::opaque};
  constexpr std::string_view kStrings[] = {"", "plain", "with \"quotes\"\n\t\\", "é日", "<function f at 0x0>"};
  switch (shape_.below(depth > 0 ? 11 : 7)) {
    case 0: return Arg::none();
    case 1: return Arg::boolean(shape_.percent(50));
    case 2: return Arg::integer(shape_.pick(kInts));
    case 3: return Arg::floating(shape_.pick(kFloats));
    case 4: return Arg::complex(shape_.pick(kFloats), 2.5);
    case 5: return Arg::dtype(static_cast<DType>(shape_.between(1, kDTypeCount - 1)));
    case 6: return Arg::text(shape_.pick(kTexts), pool_.str(shape_.pick(kStrings)));
    case 7: {
      ArgList items;
      for (uint64_t i = shape_.below(4); i-- > 0;) items.push_back(random_literal(depth - 1));
      return Arg::list(std::move(items));
    }
    case 8: return Arg::slice(random_literal(0), Arg::none(), Arg::integer(2));
    case 9: {
      ArgList entries;
      for (std::string_view k : {"BACKEND", "odd key"}) {
        entries.push_back(random_literal(depth - 1));
        entries.back().set_key(pool_.str(k));
      }
      return Arg::dict(std::move(entries));
    }
    default:
      if (program_.symbols.empty()) return Arg::none();
      return Arg::expr(pool_.exprs.add(pool_.exprs.symbol(program_.symbols[0].name), pool_.exprs.constant(3)));
  }
}

}  // namespace sg::test
