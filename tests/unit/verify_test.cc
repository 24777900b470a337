// Each rule of the verifier on a job that breaks just that rule, and all rules on random jobs, intact and damaged.
#include "libgraph/verify/verify.h"

#include <catch2/catch.hpp>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "tests/support/integer_type.h"
#include "tests/support/parse.h"
#include "tests/support/random_job.h"
#include "tests/support/rng.h"

namespace sg {
namespace {

// A small valid job with a bit of everything; the cases below damage it.
struct Step {
  Job job;
  Pool& pool = *job.pool;
  Program* program = nullptr;
  Graph* graph = nullptr;
  ValueId w, x, fixed, mesh;
  NodeId turned, product, curve, expanded, launch, wait, ids, number, sized, call, loss, random;

  Expr num(int64_t n) { return pool.exprs.constant(n); }
  Expr sym(std::string_view s) { return pool.exprs.symbol(s); }
  TypeId f32(std::vector<Expr> shape) { return pool.tensor(DType::f32, std::move(shape), pool.str("cpu")); }
  TypeId i64(std::vector<Expr> shape) { return pool.tensor(DType::i64, std::move(shape), pool.str("cpu")); }
  Arg text(std::string_view s) { return Arg::text(ArgKind::string, pool.str(s)); }
  Arg named(std::string_view key, Arg a) { return a.set_key(pool.str(key)); }

  void hold(DType dtype, const std::vector<int64_t>& shape, std::string_view data) {
    std::vector<Expr> sizes;
    for (int64_t n : shape) sizes.push_back(num(n));
    Input constant;
    constant.kind = InputKind::constant, constant.digest = pool.str(data);
    graph->add_input("c", pool.tensor(dtype, std::move(sizes), pool.str("cpu")), std::move(constant));
  }
  NodeId add(std::string_view op, std::vector<Arg> args, std::vector<TypeId> types, bool tuple = false) {
    NodeSpec spec;
    spec.op = pool.op(op);
    spec.args = std::move(args);
    spec.result_types = std::move(types);
    spec.is_tuple = tuple;
    spec.source = pool.sources.intern({pool.str("dir/moe.py"), 212, pool.str("forward")});
    return graph->append(spec);
  }
  ValueId result(NodeId n) const { return graph->node(n).first_result; }
  void damage(NodeId n, const std::function<void(NodeMeta&)>& fn) {
    NodeMeta meta = graph->meta(n);
    fn(meta);
    graph->set_meta(n, std::move(meta));
  }
  void retype(ValueId v, const std::function<void(Type&)>& fn) {
    Type t = graph->type(v);
    fn(t);
    graph->set_type(v, pool.types.intern(std::move(t)));
  }

  Step() {
    job.world = 2;
    job.meshes.push_back({StringTable::kEmpty, {pool.str("ep")}, {2}});
    job.groups.push_back({pool.str("ep"), 0, 0, {{{0, 1}, {{0, pool.str("7")}, {1, pool.str("8")}}}}});
    job.provenance.push_back({pool.str("sg-import"), pool.str("0.1.0"), {}, StrId()});
    program = &job.add_program();
    graph = &program->graph;
    program->symbols.push_back({pool.str("s0"), SymbolKind::input, 2, 64, 8, 2, StrId()});
    program->symbols.push_back({pool.str("u0"), SymbolKind::data, 0, 100, std::nullopt, 1, StrId()});
    program->guards.push_back({Relation::le, sym("s0"), num(1024), SourceId()});
    add_nested();
    add_inputs();
    add_nodes();
    add_outputs();
  }

  void add_nested() {
    program->nested.push_back(std::make_unique<Nested>(Nested{pool.str("body"), Graph(&pool)}));
    Graph* outer = graph;
    graph = &program->nested[0]->graph;
    ValueId in = graph->add_input("in", f32({num(4), num(4)}), {});
    NodeId neg = add("aten.neg.default", {Arg::value(in)}, {f32({num(4), num(4)})});
    Output out;
    out.value = result(neg);
    graph->add_output(out);
    graph = outer;
  }

  void add_inputs() {
    Input parameter, user, constant, opaque;
    parameter.kind = InputKind::parameter;
    parameter.fqn = pool.str("layer.weight");
    parameter.sharding = {{num(8), num(8)}, {pool.str("S(0)")}, {pool.str("ep")}};
    w = graph->add_input("w", f32({num(4), num(8)}), parameter);
    x = graph->add_input("x", f32({sym("s0"), num(8)}), user);
    constant.kind = InputKind::constant;
    fixed = graph->add_input("fixed", f32({num(4), num(4)}), constant);
    opaque.kind = InputKind::opaque;
    opaque.of = parameter.fqn;
    opaque.attribute = pool.str("device_mesh");
    Type mesh_type;
    mesh_type.kind = TypeKind::opaque;
    mesh_type.text = pool.str("DeviceMesh");
    mesh = graph->add_input("mesh", pool.types.intern(mesh_type), opaque);
  }

  void add_nodes() {
    Type t = graph->type(w);
    std::swap(t.shape[0], t.shape[1]);
    std::swap(t.stride[0], t.stride[1]);
    turned = add("aten.t.default", {Arg::value(w)}, {pool.types.intern(t)});
    product = add("aten.mm.default", {Arg::value(x), Arg::value(result(turned))}, {f32({sym("s0"), num(4)})});
    curve = add("aten.tanh.default", {Arg::value(result(product))}, {f32({sym("s0"), num(4)})});
    launch = add("_c10d_functional.all_reduce.default", {Arg::value(fixed), text("sum"), Arg::group(GroupId(0))},
                 {f32({num(4), num(4)})});
    wait = add("_c10d_functional.wait_tensor.default", {Arg::value(result(launch))}, {f32({num(4), num(4)})});
    Type e = graph->type(fixed);
    e.shape.insert(e.shape.begin(), num(3));
    e.stride.insert(e.stride.begin(), num(0));
    expanded = add("aten.expand.default",
                   {Arg::value(result(wait)), Arg::list({Arg::integer(3), Arg::integer(-1), Arg::integer(-1)})},
                   {pool.types.intern(e)});
    ids = add("aten.arange.default",
              {Arg::integer(1), named("device", Arg::text(ArgKind::device, pool.str("cpu"))),
               named("pin_memory", Arg::boolean(false))},
              {i64({num(1)})});
    number = add("aten._local_scalar_dense.default", {Arg::value(result(ids))}, {test::integer_type(&pool, sym("u0"))});
    sized = add("aten.new_zeros.default", {Arg::value(w), Arg::list({Arg::value(result(number)), Arg::integer(4)})},
                {f32({sym("u0"), num(4)})});
    call =
        add("sg.call", {Arg::graph(NestedId(0)), Arg::list({Arg::value(result(wait))})}, {f32({num(4), num(4)})}, true);
    NodeId fresh = add("aten.empty_like.default", {Arg::value(w)}, {f32({num(4), num(8)})});
    random = add("aten.bernoulli_.float", {Arg::value(result(fresh)), Arg::floating(0.5)}, {f32({num(4), num(8)})});
    damage(random, [](NodeMeta& m) { m.random.stream = 1; });
    graph->set_phase(random, Phase::backward);
    graph->set_forward(random, curve);
    loss = add("aten.sum.default", {Arg::value(result(curve))}, {f32({})});
  }

  void add_outputs() {
    Output out;
    out.kind = OutputKind::loss;
    out.value = result(loss);
    graph->add_output(out);
    out.kind = OutputKind::gradient;
    out.value = result(random);
    out.of = w;
    graph->add_output(out);
  }
};

std::vector<Diagnostic> findings(const Job& job, VerifyOptions options = {}) {
  Diagnostics found(50);
  verify(job, options, &found);
  return found.list();
}

std::string print(const std::vector<Diagnostic>& list) {
  std::string out;
  for (const Diagnostic& d : list) out += "[" + d.rule + "] " + d.where.path + ": " + d.message + "\n";
  return out;
}

struct Case {
  const char* rule;
  const char* place;  // part of the place of the finding, or of the message if the whole job is at fault
  std::function<void(Step&)> damage;
};

// Draws from the stream of `s.random`.
NodeId add_random(Step& s) {
  NodeId n =
      s.add("aten.bernoulli_.float", {Arg::value(s.result(s.random)), Arg::floating(0.5)}, {s.graph->value(s.w).type});
  s.damage(n, [](NodeMeta& m) { m.random.stream = 1; });
  return n;
}

// Adds `depth` bodies below the body that the step calls, each with `calls` calls of the next.
void nest(Step& s, size_t depth, size_t calls) {
  for (size_t i = 1; i <= depth; ++i) {
    s.program->nested.push_back(
        std::make_unique<Nested>(Nested{s.pool.str("deep" + std::to_string(i)), Graph(&s.pool)}));
    NodeSpec call;
    call.op = s.pool.op("mylib.higher_order");
    call.args = {Arg::graph(NestedId(static_cast<uint32_t>(i)))};
    for (size_t n = 0; n < calls; ++n) s.program->nested[i - 1]->graph.append(call);
  }
}

const Case kCases[] = {
    {"index", "node %tanh", [](Step& s) { s.graph->set_forward(s.curve, NodeId(1u << 30)); }},
    {"index", "node %tanh", [](Step& s) { s.graph->set_source(s.curve, SourceId(77)); }},
    {"index", "node %all_reduce",
     [](Step& s) {
       s.graph->set_args(s.launch, {Arg::value(s.fixed), s.text("sum"), Arg::group(GroupId(9))});
     }},
    {"index", "node %call", [](Step& s) { s.graph->set_args(s.call, {Arg::graph(NestedId(5))}); }},
    {"index", "node %mm", [](Step& s) { s.graph->set_args(s.product, {Arg::expr(Expr(1u << 30))}); }},
    {"index", "input 0", [](Step& s) { s.graph->mutable_input(0).fqn = StrId(1u << 30); }},
    {"index", "output 1", [](Step& s) { s.graph->mutable_output(1).of = ValueId(1u << 30); }},
    {"index", "type", [](Step& s) { s.retype(s.result(s.curve), [](Type& t) { t.shape[0] = Expr(1u << 30); }); }},
    {"index", "nests lists too deeply",
     [](Step& s) {
       Type list;
       list.kind = TypeKind::list;
       list.elements = {s.f32({})};
       for (int i = 0; i < 40; ++i) list.elements = {s.pool.types.intern(list)};
     }},
    {"world", "rank 5 is outside",
     [](Step& s) {
       s.program->ranks = {0, 5};
       s.graph->set_args(s.launch, {Arg::value(s.fixed)});
       s.graph->set_op(s.launch, s.pool.op("f"));
     }},
    {"world", "no graph", [](Step& s) { s.job.programs.clear(); }},
    {"group", "rank 1 twice",
     [](Step& s) {
       s.job.groups[0].parts[0].ranks = {0, 1, 1};
       s.graph->set_op(s.launch, s.pool.op("f"));
     }},
    {"group", "rank 7, outside",
     [](Step& s) {
       s.job.groups[0].parts.push_back({{7}, {}});
     }},
    {"group", "two groups are group @ep", [](Step& s) { s.job.groups.push_back(s.job.groups[0]); }},
    {"group", "has a name on rank 9", [](Step& s) { s.job.groups[0].parts[0].aliases[1].rank = 9; }},
    {"mesh", "more places", [](Step& s) { s.job.meshes[0].shape = {4}; }},
    {"mesh", "2 sizes",
     [](Step& s) {
       s.job.meshes[0].shape = {1, 2};
     }},
    {"provenance", "no version", [](Step& s) { s.job.provenance[0].version = s.pool.str("new"); }},
    {"provenance", "digest", [](Step& s) { s.job.provenance[0].input_digest = s.pool.str("sha256:12"); }},
    {"keys", "the job",
     [](Step& s) {
       s.job.extra = {{s.pool.str("b"), s.pool.str("1")}, {s.pool.str("a"), s.pool.str("1")}};
     }},
    {"keys", "node %mm",
     [](Step& s) {
       s.damage(s.product, [&](NodeMeta& m) {
         m.extra = {{s.pool.str("a"), s.pool.str("1")}, {s.pool.str("a"), s.pool.str("2")}};
       });
     }},
    {"nested", "contains itself",
     [](Step& s) {
       NodeSpec spec;
       spec.op = s.pool.op("mylib.higher_order");
       spec.args = {Arg::graph(NestedId(0))};
       s.program->nested[0]->graph.append(spec);
     }},
    {"nested", "calls of nested graphs lie 64 deep in each other; the most is 63", [](Step& s) { nest(s, 63, 1); }},
    {"nested", "with its calls the graph has more than 67108864 nodes", [](Step& s) { nest(s, 30, 2); }},
    {"nested", "two nested graphs",
     [](Step& s) {
       s.program->nested.push_back(std::make_unique<Nested>(Nested{s.pool.str("body"), Graph(&s.pool)}));
     }},
    {"symbol", "declared twice", [](Step& s) { s.program->symbols.push_back(s.program->symbols[0]); }},
    {"symbol", "hint is outside", [](Step& s) { s.program->symbols[0].hint = 80; }},
    {"symbol", "not a multiple of 3", [](Step& s) { s.program->symbols[0].divisor = 3; }},
    {"guard", "s0 <= 4 does not hold", [](Step& s) { s.program->guards[0].right = s.num(4); }},
    {"guard", "can never hold",
     [](Step& s) {
       s.program->guards.push_back({Relation::eq, s.num(1), s.num(2), SourceId()});
     }},
    {"guard", "no sizes meet",
     [](Step& s) {
       s.program->guards.push_back({Relation::gt, s.sym("u0"), s.num(200), SourceId()});
     }},
    {"guard", "guard 1: guard u9 < 3: the symbol u9 is not declared",
     [](Step& s) {
       s.program->guards.push_back({Relation::lt, s.sym("u9"), s.num(3), SourceId()});
     }},
    {"bind", "node %_local_scalar_dense_1",
     [](Step& s) {
       s.add("aten._local_scalar_dense.default", {Arg::value(s.result(s.ids))},
             {test::integer_type(&s.pool, s.sym("u0"))});
     }},
    {"bind", "node %_local_scalar_dense",
     [](Step& s) { s.damage(s.number, [&](NodeMeta& m) { m.binds = {{s.pool.str("s0")}}; }); }},
    {"name", "control characters", [](Step& s) { s.graph->rename(s.result(s.curve), "a\nb"); }},
    {"name", "control characters", [](Step& s) { s.graph->rename(s.result(s.curve), "\xC3\x28"); }},
    {"input", "input 0 %w", [](Step& s) { s.graph->mutable_input(0).sharding.mesh_axes[0] = s.pool.str("tp"); }},
    {"input", "input 0 %w", [](Step& s) { s.graph->mutable_input(0).sharding.global_shape.pop_back(); }},
    {"input", "input 1 %x", [](Step& s) { s.graph->mutable_input(1).digest = s.pool.str("sha256:"); }},
    {"input", "input 4 %c: its data is not made of whole bytes",
     [](Step& s) { s.hold(DType::f32, {2}, "bytes:0000803"); }},
    {"input", "input 4 %c: its data is not made of whole bytes", [](Step& s) { s.hold(DType::u8, {1}, "bytes:0G"); }},
    {"input", "has 4 bytes of data for a tensor of 8", [](Step& s) { s.hold(DType::f32, {2}, "bytes:0000803f"); }},
    {"input", "a bool that is neither 0 nor 1", [](Step& s) { s.hold(DType::boolean, {2}, "bytes:0102"); }},
    {"input", "has data, and a size that is not a number",
     [](Step& s) {
       s.hold(DType::u8, {1}, "bytes:00");
       s.graph->set_type(s.graph->inputs().back().value, s.f32({s.sym("s0")}));
     }},
    {"input", "node %f", [](Step& s) { s.add("f", {Arg::value(s.mesh)}, {}); }},
    {"output", "output 0", [](Step& s) { s.graph->set_output_value(0, s.result(s.curve)); }},
    {"output", "output 1", [](Step& s) { s.graph->set_output_value(1, s.result(s.curve)); }},
    {"output", "output 1", [](Step& s) { s.graph->mutable_output(1).of = ValueId(); }},
    {"output", "output 1", [](Step& s) { s.graph->mutable_output(1).kind = OutputKind::none; }},
    {"type", "node %f",
     [](Step& s) { s.retype(s.result(s.add("f", {}, {s.f32({s.num(2)})})), [](Type& t) { t.stride.clear(); }); }},
    {"type", "node %f", [](Step& s) { s.add("f", {}, {s.f32({s.num(-2)})}); }},
    {"type", "node %f", [](Step& s) { s.add("f", {}, {s.f32({ExprPool::kInvalid})}); }},
    {"type", "node %f",
     [](Step& s) {
       s.add("f", {}, {s.f32({s.num(int64_t{1} << 40), s.num(int64_t{1} << 30)})});
     }},
    {"scope", "node %f", [](Step& s) { s.add("f", {}, {s.f32({s.sym("s9")})}); }},
    {"scope", "node %f", [](Step& s) { s.add("f", {Arg::list({Arg::expr(s.sym("s9"))})}, {}); }},
    {"scope", "always negative", [](Step& s) { s.add("f", {}, {s.f32({s.pool.exprs.sub(s.num(1), s.sym("s0"))})}); }},
    {"result", "node %f",
     [](Step& s) {
       s.add("f", {}, {s.f32({}), s.f32({})});
     }},
    {"order", "node %mm", [](Step& s) { s.graph->move_before(s.product, s.turned); }},
    {"order", "which it defines itself", [](Step& s) { s.graph->set_args(s.curve, {Arg::value(s.result(s.curve))}); }},
    {"symbol-order", "node %f",
     [](Step& s) { s.graph->move_before(s.add("f", {Arg::expr(s.sym("u0"))}, {}), s.number); }},
    {"arguments", "node %tanh",
     [](Step& s) {
       s.graph->set_args(s.curve, {Arg::value(s.result(s.product)), Arg::integer(1)});
     }},
    {"arguments", "node %sum", [](Step& s) { s.graph->set_args(s.loss, {}); }},
    {"arguments", "node %tanh",
     [](Step& s) {
       s.graph->set_args(s.curve, {Arg::value(s.result(s.product)), s.named("alpha", Arg::integer(1))});
     }},
    {"arguments", "node %all_reduce",
     [](Step& s) {
       s.graph->set_args(s.launch, {Arg::value(s.fixed), Arg::integer(3), Arg::group(GroupId(0))});
     }},
    {"arguments", "node %all_reduce",
     [](Step& s) {
       s.graph->set_args(s.launch, {Arg::value(s.fixed), s.text("sum"), s.text("0")});
     }},
    {"call", "node %call",
     [](Step& s) {
       s.graph->set_args(s.call, {Arg::graph(NestedId(0)), Arg::list({})});
     }},
    {"call", "node %call",
     [](Step& s) {
       s.graph->set_args(s.call, {Arg::graph(NestedId(0)), Arg::list({Arg::value(s.w)})});
     }},
    {"extent", "node %as_strided",
     [](Step& s) {
       const NodeId made = s.add("aten.tanh.default", {Arg::value(s.fixed)}, {s.graph->value(s.fixed).type});
       s.add("aten.as_strided.default",
             {Arg::value(s.result(made)), Arg::list({Arg::integer(1000)}), Arg::list({Arg::integer(1)})},
             {s.f32({s.num(1000)})});
     }},
    {"write", "node %add_",
     [](Step& s) {
       s.add("aten.add_.Scalar", {Arg::value(s.result(s.expanded)), Arg::integer(1)},
             {s.graph->value(s.result(s.expanded)).type});
     }},
    {"write", "the constant %fixed",
     [](Step& s) {
       s.add("aten.add_.Scalar", {Arg::value(s.fixed), Arg::integer(1)}, {s.graph->value(s.fixed).type});
     }},
    {"write", "the constant %fixed through its view %alias",
     [](Step& s) {
       NodeId view = s.add("aten.alias.default", {Arg::value(s.fixed)}, {s.graph->value(s.fixed).type});
       s.add("aten.add_.Scalar", {Arg::value(s.result(view)), Arg::integer(1)}, {s.graph->value(s.fixed).type});
     }},
    {"write", "node %call_1",
     [](Step& s) {  // the body writes to its argument
       s.program->nested.push_back(std::make_unique<Nested>(Nested{s.pool.str("writer"), Graph(&s.pool)}));
       Graph* outer = s.graph;
       s.graph = &s.program->nested[1]->graph;
       ValueId in = s.graph->add_input("in", outer->value(s.fixed).type, {});
       Output out;
       out.value = s.result(s.add("aten.add_.Scalar", {Arg::value(in), Arg::integer(1)}, {outer->value(s.fixed).type}));
       s.graph->add_output(out);
       s.graph = outer;
       s.add("sg.call", {Arg::graph(NestedId(1)), Arg::list({Arg::value(s.fixed)})}, {outer->value(s.fixed).type},
             true);
     }},
    {"wait", "node %tanh_1",
     [](Step& s) {
       s.graph->move_before(
           s.add("aten.tanh.default", {Arg::value(s.result(s.launch))}, {s.graph->value(s.fixed).type}), s.wait);
     }},
    {"wait", "node %tanh_1",
     [](Step& s) {  // a view of it is the same thing
       NodeId view = s.add("aten.alias.default", {Arg::value(s.result(s.launch))}, {s.graph->value(s.fixed).type});
       NodeId use = s.add("aten.tanh.default", {Arg::value(s.result(view))}, {s.graph->value(s.fixed).type});
       s.graph->move_before(view, s.wait);
       s.graph->move_before(use, s.wait);
     }},
    {"wait", "node %all_reduce_1",
     [](Step& s) {  // an output is a view of a result that is not waited for
       NodeId sent = s.add("_c10d_functional.all_reduce.default",
                           {Arg::value(s.w), s.text("sum"), Arg::group(GroupId(0))}, {s.graph->value(s.w).type});
       Output out;
       out.value = s.result(s.add("aten.alias.default", {Arg::value(s.result(sent))}, {s.graph->value(s.w).type}));
       s.graph->add_output(out);
     }},
    {"wait", "%all_reduce_1 still sends it",
     [](Step& s) {
       TypeId t = s.graph->value(s.w).type;
       NodeId sent =
           s.add("_c10d_functional.all_reduce.default", {Arg::value(s.w), s.text("sum"), Arg::group(GroupId(0))}, {t});
       NodeId view = s.add("aten.alias.default", {Arg::value(s.w)}, {t});
       s.add("aten.add_.Scalar", {Arg::value(s.result(view)), Arg::integer(1)}, {t});
       s.add("_c10d_functional.wait_tensor.default", {Arg::value(s.result(sent))}, {t});
     }},
    {"wait", "%all_reduce_1 still sends it",
     [](Step& s) {  // written by the body of a call
       TypeId t = s.graph->value(s.w).type;
       Graph* outer = s.graph;
       s.program->nested.push_back(std::make_unique<Nested>(Nested{s.pool.str("writer"), Graph(&s.pool)}));
       s.graph = &s.program->nested[1]->graph;
       ValueId in = s.graph->add_input("in", t, {});
       Output out;
       out.value = s.result(s.add("aten.add_.Scalar", {Arg::value(in), Arg::integer(1)}, {t}));
       s.graph->add_output(out);
       s.graph = outer;
       NodeId sent =
           s.add("_c10d_functional.all_reduce.default", {Arg::value(s.w), s.text("sum"), Arg::group(GroupId(0))}, {t});
       s.add("sg.call", {Arg::graph(NestedId(1)), Arg::list({Arg::value(s.w)})}, {t}, true);
       s.add("_c10d_functional.wait_tensor.default", {Arg::value(s.result(sent))}, {t});
     }},
    {"random-stream", "node %bernoulli__1", [](Step& s) { add_random(s); }},
    {"random-stream", "node %bernoulli__1",
     [](Step& s) {  // a copy of something else
       s.damage(add_random(s), [&](NodeMeta& m) { m.copy = {CopyKind::remat, s.pool.str("tanh")}; });
     }},
    {"random", "node %bernoulli_", [](Step& s) { s.graph->set_meta(s.random, {}); }},
    {"random", "node %tanh", [](Step& s) { s.damage(s.curve, [](NodeMeta& m) { m.random.stream = 4; }); }},
    {"random", "outside its original",
     [](Step& s) {
       s.damage(s.random, [&](NodeMeta& m) {
         m.random.origin_shape = {s.num(4), s.num(8)}, m.random.origin_offset = {s.num(1), s.num(0)};
       });
     }},
    {"group-use", "rank 1 runs this",
     [](Step& s) {
       s.job.groups[0].parts[0] = {{0}, {}};
     }},
    {"group-use", "calls for 4 ranks",
     [](Step& s) {
       NodeId n = s.add("_c10d_functional.all_gather_into_tensor.default",
                        {Arg::value(s.w), Arg::integer(4), Arg::group(GroupId(0))}, {s.f32({s.num(16), s.num(8)})});
       s.add("_c10d_functional.wait_tensor.default", {Arg::value(s.result(n))}, {s.f32({s.num(16), s.num(8)})});
     }},
    {"link", "node %bernoulli_", [](Step& s) { s.graph->set_forward(s.random, s.random); }},
    {"link", "was removed",
     [](Step& s) {
       NodeId gone = s.add("f", {}, {});
       s.graph->set_forward(s.random, gone);
       s.graph->erase(gone);
     }},
    {"metadata", "node %mm", [](Step& s) { s.damage(s.product, [](NodeMeta& m) { m.chunk.index = 2; }); }},
    {"metadata", "node %mm", [](Step& s) { s.damage(s.product, [](NodeMeta& m) { m.result_chunks.resize(3); }); }},
    {"metadata", "node %mm", [](Step& s) { s.damage(s.product, [](NodeMeta& m) { m.copy.kind = CopyKind::remat; }); }},
    {"collective-order", "sends 1 to rank 0, which expects 3",
     [](Step& s) {
       Arg one = Arg::list({Arg::integer(1), Arg::integer(1)}), uneven = Arg::list({Arg::integer(3), Arg::integer(1)});
       NodeId n = s.add("_c10d_functional.all_to_all_single.default",
                        {Arg::value(s.w), uneven, one, Arg::group(GroupId(0))}, {s.graph->value(s.w).type});
       s.add("_c10d_functional.wait_tensor.default", {Arg::value(s.result(n))}, {s.graph->value(s.w).type});
     }},
};

// --- several ranks ---

// Two ranks, two groups of both; each rank launches and waits as its script says: "a" launches on @a, "A" waits for it.
Job two_ranks(std::string_view first, std::string_view second, int64_t size_on_second = 4) {
  Job job;
  Pool& pool = *job.pool;
  job.world = 2;
  for (std::string_view axis : {"a", "b"}) job.groups.push_back({pool.str(axis), 0, 0, {{{0, 1}, {}}}});
  for (uint32_t rank : {0u, 1u}) {
    Program& p = job.add_program();
    p.ranks = {rank};
    TypeId t = pool.tensor(DType::f32, {pool.exprs.constant(rank == 0 ? 4 : size_on_second)}, pool.str("cpu"));
    ValueId x = p.graph.add_input("x", t, {});
    ValueId launched[2];
    for (char c : rank == 0 ? first : second) {
      bool launch = c >= 'a';
      uint32_t g = static_cast<uint32_t>((launch ? c - 'a' : c - 'A'));
      NodeSpec spec;
      spec.op = pool.op(launch ? "_c10d_functional.all_reduce.default" : "_c10d_functional.wait_tensor.default");
      spec.args = {Arg::value(launch ? x : launched[g])};
      if (launch)
        spec.args.insert(spec.args.end(), {Arg::text(ArgKind::string, pool.str("sum")), Arg::group(GroupId(g))});
      spec.result_types = {t};
      ValueId made = p.graph.node(p.graph.append(spec)).first_result;
      if (launch) launched[g] = made;
    }
  }
  return job;
}

}  // namespace

TEST_CASE("the undamaged job is valid") { REQUIRE(print(findings(Step().job)) == ""); }

TEST_CASE("each rule finds what breaks it, and nothing else does") {
  for (const Case& test : kCases) {
    Step step;
    test.damage(step);
    std::vector<Diagnostic> found = findings(step.job, {.types = false});
    INFO(test.rule << ", " << test.place << "\n" << print(found));
    REQUIRE(!found.empty());
    bool placed = false;
    for (const Diagnostic& d : found) {
      CHECK(d.rule == test.rule);
      placed |= (d.where.path + ": " + d.message).find(test.place) != std::string::npos;
    }
    CHECK(placed);
  }
}

TEST_CASE("every rule has a case") {
  std::set<std::string_view> with_case = {"inferred-type", "deadlock",
                                          "op-name"};  // these have test cases of their own
  for (const Case& test : kCases) with_case.insert(test.rule);
  for (const VerifyRule& rule : verify_rules()) {
    INFO(rule.name);
    CHECK(with_case.count(rule.name) == 1);
    CHECK(!rule.promise.empty());
    with_case.erase(rule.name);
  }
  CHECK(with_case.empty());
}

TEST_CASE("a recorded type that the op does not give is found") {
  Step step;
  step.retype(step.result(step.curve), [](Type& t) { t.dtype = DType::bf16; });
  std::vector<Diagnostic> found = findings(step.job);
  INFO(print(found));
  REQUIRE(!found.empty());
  CHECK(found[0].rule == "inferred-type");
  CHECK(found[0].where.path == "graph rank *, node %tanh");
  CHECK(found[0].message == "%tanh is recorded as bf16, but the op gives f32 (from moe.py:212)");
  CHECK(findings(step.job, {.types = false}).empty());
}

TEST_CASE("an axis of ranks that no mesh lays out may be that of a group") {
  auto valid = [](std::string_view header) {
    const Job job = sg::test::parse(R"(sg 1.0 job "t" world 8
)" + std::string(header) + R"(
graph rank *
  param %w : f32[4] "w" shard [8] dp_tp S(0)
)");
    return findings(job).empty();
  };
  CHECK(valid("mesh [dp_tp 8]"));
  CHECK(valid("group @\"loss/dp_tp\" [0 1 4 5] [2 3 6 7]"));
  CHECK_FALSE(valid("group @dp [0 1 4 5] [2 3 6 7]"));
}

TEST_CASE("sizes that nothing tells apart pass where they were equal at capture") {
  // s0 is even, 8 at capture and from 2 to 64; u0 had no value.
  auto message = [](std::string_view recorded, std::string_view other = "") {
    Step step;
    ExprPool& exprs = step.pool.exprs;
    Expr half = exprs.floordiv(step.sym("s0"), step.num(2));
    NodeId view = step.add("aten.view.default",
                           {Arg::value(step.x), Arg::list({Arg::expr(half), Arg::integer(2), Arg::integer(8)})},
                           {step.f32({half, *exprs.parse(recorded), step.num(8)})});
    if (!other.empty()) step.retype(step.result(view), [&](Type& t) { t.stride[0] = *exprs.parse(other); });
    std::vector<Diagnostic> found = findings(step.job);
    return found.empty() ? std::string() : found[0].message;
  };
  CHECK(message("2") == "");
  CHECK(message("s0//(s0//2)", "16") == "");
  CHECK(message("s0//(s0//2)") == "");  // the strides follow it: 8*(s0//(s0//2))
  CHECK(message("s0//4", "16") == "");  // 2 at capture, and nothing contradicts it
  CHECK(message("s0//3", "16") == "");
  CHECK(message("s0//8", "16").find("but the op gives [s0//2, 2, 8]") != std::string::npos);  // 1 at capture
  CHECK(message("s0 + 1", "16").find("but the op gives") != std::string::npos);               // odd
  CHECK(message("3", "16").find("but the op gives") != std::string::npos);
  CHECK(message("2", "17").find("recorded with strides [17, 8, 1], but the op gives [16, 8, 1]") != std::string::npos);
  CHECK(message("2", "2*s0") == "");  // 16 at capture
  CHECK(message("2", "s0").find("recorded with strides [s0, 8, 1]") != std::string::npos);
  CHECK(message("u0", "16").find("but the op gives") != std::string::npos);  // no value at capture
}

TEST_CASE("a gradient has its parameter's shape where that was so at capture") {
  auto messages = [](std::string_view size) {
    Job job = sg::test::parse(R"(sg 1.0 job "t" world 1
graph rank *
  symbol s0 input [2, 64] hint 8
  param %w : f32[4] "w"
  input %x : f32[s0] "x"
  backward -
    %g = mylib.grad(%w, %x) : f32[)" +
                              std::string(size) + R"(]
  grad %g of %w
)");
    std::vector<Diagnostic> found;
    for (Diagnostic& d : findings(job))
      if (d.severity == Severity::error) found.push_back(std::move(d));
    return print(found);
  };
  CHECK(messages("4") == "");
  CHECK(messages("2*(s0//(s0//2))") == "");  // 4 at capture, which a run checks again
  CHECK(messages("s0").find("the gradient %g does not have the shape of %w") != std::string::npos);
  CHECK(messages("5").find("the gradient %g does not have the shape of %w") != std::string::npos);
}

TEST_CASE("attention lies as a kernel leaves it, densely") {
  auto fits = [](std::vector<int64_t> query, std::vector<int64_t> result) {  // strides of [2, 4, 6, 8]
    Step step;
    auto typed = [&](const std::vector<int64_t>& stride) {
      Type t = step.pool.types[step.f32({step.num(2), step.num(4), step.num(6), step.num(8)})];
      for (size_t i = 0; i < 4; ++i) t.stride[i] = step.num(stride[i]);
      return step.pool.types.intern(std::move(t));
    };
    Arg q = Arg::value(step.graph->add_input("q", typed(query), {}));
    step.add("aten.scaled_dot_product_attention.default", {q, q, q}, {typed(result)});
    return findings(step.job).empty();
  };
  CHECK(fits({192, 48, 8, 1}, {192, 48, 8, 1}));
  CHECK(fits({192, 48, 8, 1}, {192, 8, 32, 1}));  // as [batch, length, heads, width]
  CHECK(fits({32, 8, 64, 1}, {32, 8, 64, 1}));    // as the query
  CHECK(fits({192, 48, 8, 1}, {192, 48, 1, 6}));
  CHECK_FALSE(fits({192, 48, 8, 1}, {384, 96, 16, 1}));
  CHECK_FALSE(fits({192, 48, 8, 1}, {48, 48, 8, 1}));
}

TEST_CASE("an unknown op that is spelt nearly like a known one is warned of, any other is let go") {
  auto warning = [](std::string_view op) {
    Step step;
    step.add(op, {Arg::value(step.x)}, {step.f32({step.num(4)})});
    std::vector<Diagnostic> found = findings(step.job);
    INFO(print(found));
    if (found.empty()) return std::string();
    CHECK((found.size() == 1 && found[0].severity == Severity::warning && found[0].rule == "op-name"));
    return found[0].message + "; " + found[0].hint;
  };
  CHECK(warning("aten.thanh.default") ==
        "%thanh calls aten.thanh.default, which is not in the op table and is kept as an opaque op; did you mean "
        "`aten.tanh.default`?");
  CHECK(warning("aten.mul.default").find("its overloads are aten.mul.Tensor") != std::string::npos);
  CHECK(warning("my_library.fused_thing.default").empty());
}

TEST_CASE("uses of a collective's result and memory that are no hazard are none to the verifier") {
  Step step;
  TypeId t = step.graph->value(step.fixed).type;
  step.add("aten.tanh.default", {Arg::value(step.result(step.launch))}, {t});  // after the wait, under the old name
  NodeId view = step.add("aten.alias.default", {Arg::value(step.result(step.launch))}, {t});
  step.graph->move_before(view, step.wait);  // a view made before, used after
  step.add("aten.tanh.default", {Arg::value(step.result(view))}, {t});
  NodeId copy = step.add("aten.clone.default", {Arg::value(step.fixed)}, {t});
  step.add("aten.add_.Scalar", {Arg::value(step.result(copy)), Arg::integer(1)}, {t});
  CHECK(print(findings(step.job)) == "");
}

TEST_CASE("copies and chunks of one original share its random stream, also when it is gone") {
  for (bool erase : {false, true}) {
    Step step;
    StrId original = step.graph->node(step.random).label;
    NodeId copy = add_random(step), chunk = add_random(step), copy_of_copy = add_random(step);
    step.damage(copy, [&](NodeMeta& m) { m.copy = {CopyKind::remat, original}; });
    step.damage(chunk, [&](NodeMeta& m) {
      m.chunk.region = step.pool.str("moe"), m.chunk.index = 0, m.chunk.original = original;
    });
    step.damage(copy_of_copy, [&](NodeMeta& m) { m.copy = {CopyKind::remat, step.graph->node(copy).label}; });
    if (erase) {
      step.graph->set_output_value(1, step.result(copy_of_copy));
      step.graph->set_args(copy, {Arg::value(step.graph->node(step.random).args[0].as_value()), Arg::floating(0.5)});
      for (NodeId n : {chunk, copy_of_copy})
        step.graph->set_args(n, {Arg::value(step.result(copy)), Arg::floating(0.5)});
      step.graph->erase(step.random);
    }
    CHECK(print(findings(step.job)) == "");
  }
}

TEST_CASE("what the rules across ranks leave out for want of time is said") {
  auto warned = [](const Job& job, VerifyOptions options) {
    std::vector<Diagnostic> list = findings(job, options);
    return list.size() == 1 && list[0].severity == Severity::warning && list[0].rule == "collective-order";
  };
  CHECK(warned(two_ranks("aA", "aA", 5), {.max_rank_events = 3}));
  CHECK(!warned(two_ranks("aA", "aA", 5), {.max_rank_events = 8}));
  Step step;
  Arg one = Arg::list({Arg::integer(1), Arg::integer(1)}), uneven = Arg::list({Arg::integer(3), Arg::integer(1)});
  NodeId n = step.add("_c10d_functional.all_to_all_single.default",
                      {Arg::value(step.w), uneven, one, Arg::group(GroupId(0))}, {step.graph->value(step.w).type});
  step.add("_c10d_functional.wait_tensor.default", {Arg::value(step.result(n))}, {step.graph->value(step.w).type});
  CHECK(warned(step.job, {.types = false, .max_split_checks = 4}));
  CHECK(!warned(step.job, {.types = false, .max_split_checks = 5}));
  step.graph->set_args(n, {Arg::value(step.w), one, one, Arg::group(GroupId(0))});
  CHECK(print(findings(step.job, {.types = false, .max_split_checks = 1})) == "");
  CHECK(warned(step.job, {.types = false, .max_split_checks = 0}));
}

TEST_CASE("findings beyond the cap are counted") {
  Step step;
  for (int i = 0; i < 100; ++i) step.add("f", {}, {step.f32({}), step.f32({})});
  Diagnostics found(5);
  verify(step.job, {}, &found);
  CHECK(found.list().size() == 5);
  CHECK(found.error_count() == 100);
}

TEST_CASE("ranks that do not call the same collectives are found before they hang") {
  struct {
    const char *first, *second;
    int64_t size;
    const char* rule;  // empty: no finding
    const char* message;
  } cases[] = {
      {"aAbB", "aAbB", 4, "", ""},
      {"abAB", "baBA", 4, "", ""},  // launched before any wait: the order of groups is free
      {"aAbB", "aA", 4, "collective-order", "call 1 of group @b has no partner on rank 1, which calls 0"},
      {"aA", "aAaA", 4, "collective-order", "call 2 of group @a has no partner on rank 0, which calls 1"},
      {"aA", "aA", 8, "collective-order", "it has 8 elements here, 4 there"},
      {"aAbB", "bBaA", 4, "deadlock",
       "rank 0 waits here for group @a, but rank 1 waits at %wait_tensor for group @b before it joins"},
  };
  for (const auto& test : cases) {
    std::vector<Diagnostic> found = findings(two_ranks(test.first, test.second, test.size), {.types = false});
    INFO(test.first << " " << test.second << "\n" << print(found));
    CHECK(found.empty() == (test.rule[0] == 0));
    if (found.empty()) continue;
    CHECK(found[0].rule == test.rule);
    CHECK(found[0].message.find(test.message) != std::string::npos);
    CHECK(found[0].where.path.find("graph rank") == 0);
    CHECK(findings(two_ranks(test.first, test.second, test.size), {.types = false, .ranks = false}).empty());
  }
}

TEST_CASE("random jobs are valid") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    INFO("seed " << seed);
    REQUIRE(print(findings(test::random_job(seed))) == "");
  }
}

TEST_CASE("no damage to a random job makes the verifier crash or forget its place") {
  size_t with_findings = 0;
  for (uint64_t seed = 0; seed < 150; ++seed) {
    INFO("seed " << seed);
    test::Rng rng(seed);
    Job job = test::random_job(seed % 30);
    Graph& g = rng.pick(job.programs)->graph;
    std::vector<NodeId> nodes;
    for (NodeId n : g.nodes()) nodes.push_back(n);
    for (int i = 0; i < 4; ++i) {
      NodeId n = rng.pick(nodes), m = rng.pick(nodes);
      switch (rng.below(8)) {
        case 0: g.move_before(n, m); break;
        case 1: g.set_op(n, g.node(m).op); break;
        case 2: g.set_args(n, g.node(m).args); break;
        case 3:
          if (g.node(n).result_count && g.node(m).result_count)
            g.set_type(g.node(n).first_result, g.value(g.node(m).first_result).type);
          break;
        case 4: g.set_forward(n, NodeId(static_cast<uint32_t>(rng.next()))); break;
        case 5: job.world = static_cast<uint32_t>(rng.next()); break;
        case 6:
          for (Group& group : job.groups) group.parts[0].ranks.push_back(static_cast<uint32_t>(rng.below(9)));
          break;
        default:
          if (!job.programs[0]->symbols.empty()) job.programs[0]->symbols.pop_back();
      }
    }
    for (const Diagnostic& d : findings(job)) {
      CHECK(!d.rule.empty());
      CHECK(!d.message.empty());
      ++with_findings;
    }
  }
  CHECK(with_findings > 100);
}

}  // namespace sg
