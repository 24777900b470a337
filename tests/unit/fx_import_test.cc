// FX text and TORCH_TRACE logs: what the grammar reads, what it refuses and where, and mutated bytes.
#include <catch2/catch.hpp>
#include <ctime>

#include "libgraph/import/fx_import.h"
#include "libgraph/import/trace_log.h"
#include "libgraph/names.h"
#include "libgraph/verify/verify.h"
#include "tests/support/rng.h"

using namespace sg;

namespace {

Result<Job> import(std::string text, Diagnostics* notes = nullptr, const ImportOptions& options = {}) {
  return import_fx({{"fx.txt", std::move(text)}}, options, notes);
}

Job import_ok(std::string text, const ImportOptions& options = {}) {
  Diagnostics notes;
  Result<Job> job = import(std::move(text), &notes, options);
  INFO((job.ok() ? "" : print_location(job.error().where) + ": " + job.error().message));
  REQUIRE(job.ok());
  Diagnostics findings;
  verify(*job, {}, &findings);
  for (const Diagnostic& d : findings.list()) INFO(d.message);
  CHECK_FALSE(findings.has_errors());
  return std::move(job).value();
}

// The error of an unreadable text, as "3:5: message".
std::string refused(std::string text) {
  Result<Job> job = import(std::move(text));
  if (job.ok()) return "imported";
  CHECK(job.error().kind == ErrorKind::unreadable);
  CHECK(job.error().where.file == "fx.txt");
  return std::to_string(job.error().where.line) + ":" + std::to_string(job.error().where.column) + ": " +
         job.error().message;
}

std::string body(std::string_view lines, std::string_view params = "x: \"f32[4, 8]\"") {
  return "class G(torch.nn.Module):\n    def forward(self, " + std::string(params) + "):\n" + std::string(lines);
}

const Node& node(const Graph& graph, std::string_view label) {
  NodeId n = graph.find_node(label);
  REQUIRE(n);
  return graph.node(n);
}

std::string type_text(const Job& job, const Graph& graph, std::string_view name) {
  const Type& t = graph.type(graph.find_value(name));
  std::string out = std::string(name_of(t.kind)) + " " + std::string(dtype_name(t.dtype));
  for (Expr e : t.shape) out += " " + job.pool->exprs.print(e);
  out += " |";
  for (Expr e : t.stride) out += " " + job.pool->exprs.print(e);
  return t.kind == TypeKind::tensor ? out + " " + std::string(job.pool->strings[t.device]) : out;
}

constexpr std::string_view kForward = R"fx(class GraphModule(torch.nn.Module):
    def forward(
        self,
        primals_1: "f32[4, 8][8, 1]cpu",  # PlainAOTInput(idx=0)
        primals_2: "f32[8, 3][3, 1]cpu",  # ParamAOTInput(target='head.weight')
    ):
        # File: model.py:7 in forward, code: y = x @ w
        mm: "f32[4, 3][3, 1]cpu" = torch.ops.aten.mm.default(primals_1, primals_2)
        sum_1: "f32[][]cpu" = torch.ops.aten.sum.default(mm)
        relu: "f32[4, 3][3, 1]cpu" = torch.ops.aten.relu.default(mm);  mm = None
        return (
            sum_1,  # PlainAOTOutput(idx=0)
            primals_1,  # SavedForBackwardsAOTOutput(idx=0)
            relu,  # SavedForBackwardsAOTOutput(idx=1)
        )
)fx";

constexpr std::string_view kBackward = R"fx(class GraphModule(torch.nn.Module):
    def forward(
        self,
        primals_1: "f32[4, 8][8, 1]cpu",  # PlainAOTInput(idx=0)
        relu: "f32[4, 3][3, 1]cpu",
        tangents_1: "f32[][]cpu",  # TangentAOTInput(output=PlainAOTOutput(idx=0))
    ):
        # Backward of forward node: File: model.py:7 in forward, code: y = x @ w
        expand: "f32[4, 3][0, 0]cpu" = torch.ops.aten.expand.default(tangents_1, [4, 3]);  tangents_1 = None
        mm: "f32[4, 3][3, 1]cpu" = torch.ops.aten.mul.Tensor(expand, relu);  expand = relu = None
        t: "f32[8, 4][1, 8]cpu" = torch.ops.aten.t.default(primals_1);  primals_1 = None
        mm_1: "f32[8, 3][3, 1]cpu" = torch.ops.aten.mm.default(t, mm);  t = mm = None
        return (
            None,  # None
            mm_1,  # GradAOTOutput(grad_of=ParamAOTInput(target='head.weight'))
        )
)fx";

constexpr std::string_view kNested = R"fx(class <lambda>(torch.nn.Module):
    def forward(self, p: "b8[]", x: "f32[2]"):
        # Annotation: {'module_fqn': 'layers.0', 'EP': 'dispatch', 'mine': [1, None]} File: a b.py:3 in f, code: pass
        true_graph_0 = self.true_graph_0
        false_graph_0 = self.false_graph_0
        cond = torch.ops.higher_order.cond(p, true_graph_0, false_graph_0, (x,));  p = x = None
        getitem: "f32[2]" = cond[0];  cond = None
        return (getitem,)

    class true_graph_0(torch.nn.Module):
        def forward(self, x: "f32[2]"):
            sin: "f32[2]" = torch.ops.aten.sin.default(x);  x = None
            return (sin,)

    class false_graph_0(torch.nn.Module):
        def forward(self, x: "f32[2]"):
            return (x,)
)fx";

constexpr std::string_view kSymbolicModule = R"fx(class <lambda>(torch.nn.Module):
    def forward(self, s0: "Sym(s0)", x: "f32[s0, 4]", y: "i64[Max(1, s0)*2]"):
        # No stacktrace found for following nodes
        mul: "Sym(2*s0)" = s0 * 2
        sym_max: "Sym(Max(4, s0))" = torch.sym_max(s0, 4)
        view: "f32[2*s0, 2]" = torch.ops.aten.view.default(x, [mul, 2]);  x = None
        split = torch.ops.aten.split_with_sizes.default(view, [s0, s0], 0);  view = None
        a: "f32[s0, 2]" = split[0]
        b: "f32[s0, 2]" = split[1];  split = None
        item: "Sym(u0)" = torch.ops.aten._local_scalar_dense.default(y)
        return [a, {'k': b}, (item, None, 3)]
)fx";

}  // namespace

TEST_CASE("fx: statements, literals and types") {
  Job job = import_ok(body(R"(        # File: dir/m.py:12 in step, code: y = "in" + 'x'
        full: "f32[4, 8]" = torch.ops.aten.full.default([4, 8], -inf, dtype = torch.float32, layout = torch.strided, device = device(type='cpu'), pin_memory = False)
        mul: "c64[4, 8]" = torch.ops.aten.mul.Tensor(x, (0.5-2j));  x = None
        add: "f32[4, 8]" = torch.ops.aten.add.Scalar(full, -1e-05, 3)
        clone: "f32[4, 8]" = torch.ops.aten.clone.default(
            add,  # the first
            memory_format = torch.preserve_format,
        );  add = None
        return (mul, clone, None)
)"));
  const Graph& graph = job.programs[0]->graph;
  CHECK(graph.node_count() == 4);
  const Node& full = node(graph, "full");
  CHECK(full.args[1].as_float() == -std::numeric_limits<double>::infinity());
  CHECK(full.args[2].as_dtype() == DType::f32);
  CHECK(job.pool->strings[full.args[3].as_text()] == "strided");
  CHECK(job.pool->strings[full.args[4].as_text()] == "cpu");
  CHECK(node(graph, "mul").args[1].items()[1].as_float() == -2.0);
  CHECK(node(graph, "add").args[1].as_float() == -1e-05);
  const Source& source = job.pool->sources[full.source];
  CHECK(job.pool->strings[source.file] == "dir/m.py");
  CHECK(source.line == 12);
  CHECK(job.pool->strings[source.function] == "step");
  CHECK(type_text(job, graph, "clone") == "tensor f32 4 8 | 8 1 cpu");
  CHECK(graph.outputs().size() == 3);
  CHECK(graph.outputs()[2].kind == OutputKind::none);
}

TEST_CASE("fx: arithmetic on complex literals has both parts") {
  Job job = import_ok(body(R"(        mul: "c64[4, 8]" = torch.ops.aten.mul.Tensor(x, 1 + -(2+3j));  x = None
        return (mul,)
)"));
  const Arg& number = node(job.programs[0]->graph, "mul").args[1];
  CHECK(number.items()[0].as_float() == -1.0);
  CHECK(number.items()[1].as_float() == -3.0);
}

TEST_CASE("fx: a forward and its backward are joined at what is saved") {
  Job job = import_ok(std::string(kForward) + "\n" + std::string(kBackward));
  const Graph& graph = job.programs[0]->graph;
  REQUIRE(graph.inputs().size() == 3);
  CHECK(graph.inputs()[1].kind == InputKind::parameter);
  CHECK(job.pool->strings[graph.inputs()[1].fqn] == "head.weight");
  CHECK(graph.inputs()[2].kind == InputKind::tangent);
  REQUIRE(graph.outputs().size() == 3);
  CHECK(graph.outputs()[0].kind == OutputKind::loss);
  CHECK(graph.outputs()[2].kind == OutputKind::gradient);
  CHECK(graph.outputs()[2].of == graph.inputs()[1].value);
  // The backward's `mm` is a different node from the forward's.
  CHECK(graph.op_name(graph.find_node("mm")) == "aten.mm.default");
  CHECK(graph.op_name(graph.find_node("mm_again")) == "aten.mul.Tensor");
  CHECK(node(graph, "mm_again").args[1].as_value() == graph.find_value("relu"));
  CHECK(node(graph, "mm_again").phase == Phase::backward);
  CHECK(node(graph, "relu").phase == Phase::forward);
  CHECK(refused(std::string(kForward) + std::string(kForward)).find("the text holds 2 graphs: GraphModule at line 1") !=
        std::string::npos);
}

TEST_CASE("fx: nested graphs and annotations") {
  Job job = import_ok(std::string(kNested));
  const Program& program = *job.programs[0];
  REQUIRE(program.nested.size() == 2);
  CHECK(program.nested[0]->graph.node_count() == 1);
  // Both branches, and a choice.
  REQUIRE(program.graph.node_count() == 3);
  const NodeId taken = program.graph.first();
  CHECK(program.graph.node(taken).args[0].as_graph() == NestedId(0));
  CHECK(program.graph.node(program.graph.next(taken)).args[0].as_graph() == NestedId(1));
  const Node& choice = node(program.graph, "getitem");
  CHECK(program.graph.op_name(program.graph.find_node("getitem")) == "aten.where.self");
  CHECK(job.pool->strings[choice.module] == "layers.0");
  const NodeMeta& meta = program.graph.meta(program.graph.find_node("getitem"));
  CHECK(meta.ep_role == EpRole::dispatch);
  REQUIRE(meta.extra.size() == 1);
  CHECK(job.pool->strings[meta.extra[0].key] == "custom.mine");
  CHECK(job.pool->strings[meta.extra[0].json] == "[1,null]");
}

TEST_CASE("fx: of an annotation's key that comes twice the last value counts") {
  Job job = import_ok(R"fx(class G(torch.nn.Module):
    def forward(self, x: "f32[4]"):
        # Annotation: {'mine': 'a', 'module_fqn': 'm', 'mine': 'b'} File: a.py:3 in f, code: y = f(x)
        y: "f32[4]" = torch.ops.aten.relu.default(x);  x = None
        return (y,)
)fx");
  const Graph& graph = job.programs[0]->graph;
  const NodeMeta& meta = graph.meta(graph.find_node("y"));
  REQUIRE(meta.extra.size() == 1);
  CHECK(job.pool->strings[meta.extra[0].json] == "\"b\"");
}

TEST_CASE("fx: symbolic sizes") {
  Job job = import_ok(std::string(kSymbolicModule));
  const Program& program = *job.programs[0];
  CHECK(program.symbols.size() == 2);
  CHECK(program.graph.op_name(program.graph.find_node("mul")) == "python.mul");
  CHECK(program.graph.op_name(program.graph.find_node("sym_max")) == "python.sym_max");
  CHECK(node(program.graph, "split").result_count == 2);
  CHECK(type_text(job, program.graph, "view") == "tensor f32 2*s0 2 | 2 1 cpu");
  REQUIRE(program.graph.outputs().size() == 5);
  CHECK(program.graph.outputs()[2].value == program.graph.find_value("item"));
}

TEST_CASE("fx: offsets and the order of strides behind symbolic sizes") {
  // t[1] of a stack, as nn.MultiheadAttention takes q, k and v: text states its strides, but not its offset.
  Job job = import_ok(R"fx(class G(torch.nn.Module):
    def forward(self, s0: "Sym(s0)", s1: "Sym(s1)", x: "f32[3, s0, s1, 8][8*s0*s1, 8*s1, 8, 1]cpu"):
        select: "f32[s0, s1, 8][8*s1, 8, 1]cpu" = torch.ops.aten.select.int(x, 0, 1);  x = None
        mul: "Sym(2*s1)" = s1 * 2
        view: "f32[s0, 2*s1, 4][8*s1, 4, 1]cpu" = torch.ops.aten.view.default(select, [s0, mul, 4]);  select = None
        transpose: "f32[2*s1, s0, 4][4, 8*s1, 1]cpu" = torch.ops.aten.transpose.int(view, 0, 1);  view = None
        sin: "f32[2*s1, s0, 4][4, 8*s1, 1]cpu" = torch.ops.aten.sin.default(transpose);  transpose = None
        return (sin,)
)fx");
  const Graph& graph = job.programs[0]->graph;
  CHECK(job.pool->exprs.print(graph.type(graph.find_value("transpose")).offset) == "8*s0*s1");
  CHECK(job.pool->exprs.print(graph.type(graph.find_value("sin")).offset) == "0");
  CHECK(job.programs[0]->symbols[0].min == 2);
}

TEST_CASE("fx: what else prints graphs") {
  // graph_module.code; a log of TORCH_LOGS; terminal colours; inputs that PyTorch unpacks.
  CHECK(
      refused("\n\n\ndef forward(self, x):\n    relu = torch.ops.aten.relu.default(x);  x = None\n    return relu\n") ==
      "imported");
  std::string log;
  for (std::string_view line :
       {"TRACED GRAPH", " class G(torch.nn.Module):", "     def forward(self, x: \"f32[2]cuda:0\"):",
        "         relu: \"f32[2][1]cuda:0\" = torch.ops.aten.relu.default(x)", "         return (relu,)", " "})
    log += "V1121 02:33:03.218000 13001 torch/x.py:28] [0/0] [__aot_graphs]" + std::string(line) + "\n";
  Job job = import_ok(log);
  CHECK(type_text(job, job.programs[0]->graph, "relu") == "tensor f32 2 | 1 cuda:0");
  import_ok(
      "\033[2mclass\033[0m G(torch.nn.Module):\n    def forward(self, x: \"\033[31mf32\033[0m\033[34m[2]\033[0m\"):\n  "
      "      return x\n");
  Job unpacked = import_ok(
      body("        x: \"f32[2]\"; y: \"f32[3]\";\n\n        x, y, = fx_pytree.tree_flatten_spec([a], self._in_spec)\n"
           "        return pytree.tree_unflatten([y, x], self._out_spec)\n",
           "a"));
  CHECK(unpacked.programs[0]->graph.inputs().size() == 2);
  CHECK(unpacked.programs[0]->graph.outputs()[0].value == unpacked.programs[0]->graph.inputs()[1].value);
}

namespace {

// What each output is, and of which input: "loss, grad primals_2, output".
std::string ports(const Job& job) {
  const Graph& graph = job.programs[0]->graph;
  std::string out;
  for (const Output& output : graph.outputs()) {
    out += (out.empty() ? "" : ", ") + std::string(name_of(output.kind));
    if (output.of) out += " " + std::string(graph.name(output.of));
  }
  return out;
}

}  // namespace

TEST_CASE("fx: a backward alone is no joint graph, though its inputs may look like one's") {
  // Gradients of all primals, of which it takes the first: the last is not of the first.
  const std::string_view inputs = "primals_1: \"f32[6, 6]\", tangents_1: \"f32[6, 6]\"";
  const std::string gradient = "        mm_1: \"f32[6, 6]\" = torch.ops.aten.mm.default(primals_1, tangents_1)\n";
  CHECK(ports(import_ok(body(gradient + "        return (None, mm_1)\n", inputs))) == "none, output");
  CHECK(ports(import_ok(body(gradient + "        return (mm_1, mm_1)\n", inputs))) == "output, output");
  const std::string result = "        r: \"f32[6, 6]\" = torch.ops.aten.sin.default(primals_1)\n";
  CHECK(ports(import_ok(body(result + gradient + "        return (r, mm_1)\n", inputs))) == "output, grad primals_1");
}

TEST_CASE("fx: an object that the backward takes is saved like a value, and passed through in place of a gradient") {
  Job job = import_ok(R"(class fw(torch.nn.Module):
    def forward(self, primals_1: "f32[4, 8]", primals_2: "f32[8, 8]", primals_3):
        mm: "f32[4, 8]" = torch.ops.aten.mm.default(primals_1, primals_2)
        return (mm, primals_1, primals_2, primals_3)

class bw(torch.nn.Module):
    def forward(self, primals_1: "f32[4, 8]", primals_2: "f32[8, 8]", primals_3, tangents_1: "f32[4, 8]"):
        t: "f32[8, 8]" = torch.ops.aten.t.default(primals_2)
        mm_1: "f32[4, 8]" = torch.ops.aten.mm.default(tangents_1, t)
        t_1: "f32[8, 4]" = torch.ops.aten.t.default(primals_1)
        mm_2: "f32[8, 8]" = torch.ops.aten.mm.default(t_1, tangents_1)
        return (mm_1, mm_2, primals_3)
)");
  CHECK(ports(job) == "output, grad primals_1, grad primals_2, opaque");
  CHECK(job.programs[0]->graph.inputs().size() == 4);
}

TEST_CASE("fx: an assertion keeps its place without a token, and tokens have no gradients") {
  Job job = import_ok(R"(class fw(torch.nn.Module):
    def forward(self, primals_1: "f32[0]", primals_2: "f32[6, 6]", primals_3: "f32[6, 6]"):
        mul: "f32[6, 6]" = torch.ops.aten.mul.Tensor(primals_2, primals_3)
        info: "i32[]" = torch.ops.aten.full.default([], 0, dtype = torch.int32)
        with_effects = torch.ops.higher_order.with_effects(primals_1, torch.ops.aten._linalg_check_errors.default, info, 'cholesky', is_matrix = True);  primals_1 = info = None
        getitem: "f32[0]" = with_effects[0];  with_effects = None
        with_effects_1 = torch.ops.higher_order.with_effects(getitem, torch.ops.mine.log.default, mul)
        getitem_1: "f32[0]" = with_effects_1[0]
        getitem_2: "f32[6, 6]" = with_effects_1[1];  with_effects_1 = None
        return (getitem_1, getitem_2, primals_2, primals_3)

class bw(torch.nn.Module):
    def forward(self, primals_2: "f32[6, 6]", primals_3: "f32[6, 6]", tangents_1: "f32[6, 6]"):
        mul_1: "f32[6, 6]" = torch.ops.aten.mul.Tensor(tangents_1, primals_3)
        mul_2: "f32[6, 6]" = torch.ops.aten.mul.Tensor(tangents_1, primals_2)
        return (mul_1, mul_2)
)");
  CHECK(ports(job) == "output, output, grad primals_2, grad primals_3");
  const Graph& graph = job.programs[0]->graph;
  const Node& check = node(graph, "with_effects");
  CHECK(check.args.size() == 3);
  CHECK(check.args[0].as_value() == graph.find_value("info"));
  CHECK(graph.op_name(graph.find_node("with_effects")) == "aten._linalg_check_errors.default");
  CHECK(node(graph, "with_effects_1").args[0].as_value() == graph.inputs()[0].value);
}

TEST_CASE("fx: a region whose body runs once is the call of it") {
  Job job = import_ok(R"(class G(torch.nn.Module):
    def forward(self, x: "f32[3, 4]", w: "f32[4, 4]"):
        body = self.body_0
        region = torch.ops.higher_order.invoke_subgraph(body, 'body_0', x, w);  body = x = None
        getitem: "f32[3, 4]" = region[0];  region = None
        quiet = self.quiet_0
        without = torch.ops.higher_order.wrap_with_set_grad_enabled(False, quiet, getitem)
        getitem_1: "f32[3, 4]" = without[0];  without = None
        return (getitem_1,)

    class body_0(torch.nn.Module):
        def forward(self, x: "f32[3, 4]", w: "f32[4, 4]"):
            mm: "f32[3, 4]" = torch.ops.aten.mm.default(x, w)
            return (mm, x)

    class quiet_0(torch.nn.Module):
        def forward(self, x: "f32[3, 4]"):
            sin: "f32[3, 4]" = torch.ops.aten.sin.default(x)
            return (sin,)
)");
  const Graph& graph = job.programs[0]->graph;
  for (std::string_view name : {"region", "without"}) CHECK(graph.op_name(graph.find_node(name)) == "sg.call");
  CHECK(node(graph, "region").result_count == 2);  // one of them is not used
  CHECK(node(graph, "without").args[1].items()[0].as_value() == graph.find_value("getitem"));
}

TEST_CASE("fx: groups, and one text for all ranks") {
  std::string text = body(
      "        g: \"f32[16, 8]\" = torch.ops._c10d_functional.all_gather_into_tensor.default(x, 4, '0')\n"
      "        w: \"f32[16, 8]\" = torch.ops._c10d_functional.wait_tensor.default(g);  g = None\n        return w\n");
  Job one = import_ok(text);
  CHECK(one.world == 4);
  CHECK(one.programs[0]->ranks == std::vector<uint32_t>{0});
  REQUIRE(one.groups.size() == 1);
  CHECK(one.groups[0].parts[0].ranks.size() == 4);
  ImportOptions options;
  options.spmd = true;
  CHECK(import_ok(text, options).is_spmd());
}

TEST_CASE("fx: an all_reduce does not say among how many ranks") {
  const std::string text = body(
      "        r: \"f32[4, 8]\" = torch.ops._c10d_functional.all_reduce.default(x, 'sum', '0')\n"
      "        w: \"f32[4, 8]\" = torch.ops._c10d_functional.wait_tensor.default(r);  r = None\n        return w\n");
  ImportOptions options;
  for (bool spmd : {false, true}) {
    options.spmd = spmd;
    Result<Job> open = import(text, nullptr, options);
    REQUIRE_FALSE(open.ok());
    CHECK(open.error().message == "the graph communicates, and the text does not say among how many ranks");
  }
  options.world = 4;
  Job job = import_ok(text, options);
  CHECK(job.is_spmd());
  CHECK(job.world == 4);
  CHECK(job.groups[0].parts[0].ranks.size() == 4);
  options.world = 1;  // said, so believed
  CHECK(import_ok(text, options).world == 1);
  // The texts of all ranks say it.
  Result<Job> ranks = import_fx({{"fx0.txt", text}, {"fx1.txt", text}}, {}, nullptr);
  REQUIRE(ranks.ok());
  CHECK(ranks->groups[0].parts[0].ranks.size() == 2);
  // A size that the text tells contradicts a smaller world.
  options = {};
  options.world = 2;
  Result<Job> small =
      import(body("        g: \"f32[16, 8]\" = torch.ops._c10d_functional.all_gather_into_tensor.default(x, 4, '0')\n"
                  "        return g\n"),
             nullptr, options);
  REQUIRE_FALSE(small.ok());
  CHECK(small.error().kind == ErrorKind::usage);
  CHECK(small.error().message == "--world 2: the job has at least 4 ranks");
}

TEST_CASE("fx: a backward may stand before its forward, and the last attempt in a log counts") {
  Job job = import_ok(std::string(kBackward) + std::string(kForward));
  CHECK(job.programs[0]->graph.inputs().size() == 3);
  CHECK(node(job.programs[0]->graph, "mm_again").phase == Phase::backward);

  auto logged = [](std::string tag, std::string op) {
    const std::string prefix = "V1121 02:33:03.218000 13001 torch/file.py:10] [" + tag + "] [__aot_graphs] ";
    return prefix + "class G(torch.nn.Module):\n" + prefix + "    def forward(self, x: \"f32[4]\"):\n" + prefix +
           "        y: \"f32[4]\" = torch.ops.aten." + op + ".default(x)\n" + prefix + "        return y\n";
  };
  Job last = import_ok(logged("0/0", "sin") + logged("0/0_2", "cos") + logged("0/0_1", "tan"));
  CHECK(last.programs[0]->graph.op_name(last.programs[0]->graph.find_node("y")) == "aten.cos.default");
  CHECK(refused(logged("0/0", "sin") + logged("1/0", "cos")).find("the text holds 2 graphs") != std::string::npos);
}

TEST_CASE("fx: what is refused, and where") {
  struct Case {
    std::string text, error;
  };
  const std::string op = "        y: \"f32[4]\" = torch.ops.aten.relu.default(x)\n";
  std::string deep(5000, '[');
  const Case cases[] = {
      {"nothing", "1:1: there is no module with a forward in it"},
      {body(op), "1:1: `G` has no return at its end"},
      {body("        return z\n"), "3:16: no node or input is called `z`"},
      {body(op + op + "        return y\n"), "4:9: the name `y` is taken"},
      {body("        a: \"f32[4, 8]\" = torch.ops.aten.relu.default(b)\n        b: \"f32[4, 8]\" = "
            "torch.ops.aten.relu.default(x)\n        return a\n"),
       "3:54: `b` is used before it is defined"},
      {body("        y: \"f32[4\" = torch.ops.aten.relu.default(x)\n        return y\n"),
       "3:12: in the type \"f32[4\": a bracket is not closed"},
      {body("        y: \"f32[4][1, 2]\" = torch.ops.aten.relu.default(x)\n        return y\n"),
       "3:12: in the type \"f32[4][1, 2]\": the shape has 1 axes, the stride 2"},
      {body("        y: \"f32[4/0]\" = torch.ops.aten.relu.default(x)\n        return y\n"), "3:12: in the type"},
      {body("        y = torch.ops.aten.relu.default(x\n        return y\n"),
       "4:9: expected `,` or `)` after an argument, found `return`"},
      {body("        y = torch.ops.aten.add.Scalar(x, 99999999999999999999)\n        return y\n"),
       "3:42: the integer 99999999999999999999 does not fit"},
      {body("        y = torch.ops.aten.view.default(x, " + deep + ")\n        return y\n"),
       "3:143: nested deeper than 100 levels"},
      {body("        y = torch.ops.aten.relu.default(x, k = 1, k = 2)\n        return y\n"),
       "3:51: the argument `k` occurs twice"},
      {body("        y = 'open\n        return y\n"), "3:13: the string is not closed"},
      {body("        y = 1.2.3\n        return y\n"), "3:13: a malformed number"},
      {body("        y = x.expand(2)\n        return y\n"),
       "3:13: this graph was taken before its calls became operators: 1 call such as the method `expand`"},
      {body("        x += 2\n        return x\n"), "3:9: a change in place that Python makes"},
      {"graph():\n    %x : [num_users=1] = placeholder[target=x]\n    return x\n", "1:1: this is `print(graph)`"},
  };
  for (const Case& c : cases) {
    INFO(c.text.substr(0, 400));
    CHECK(refused(c.text).substr(0, c.error.size()) == c.error);
  }
}

// --- traces ---

namespace {

std::string event(std::string_view name, std::string_view payload,
                  std::string_view id = R"("frame_id": 0, "frame_compile_id": 0, "attempt": 0)") {
  std::string out = R"(V1121 02:33:03.218000 13001 torch/x.py:28] {")" + std::string(name) + R"(": {}, )" +
                    std::string(id) + R"(, "has_payload": "00"})" + "\n\t";
  for (char c : payload) {
    out += c;
    if (c == '\n') out += '\t';
  }
  return out + "\n";
}

Result<Job> import_trace_of(const std::vector<std::string>& texts, TraceOptions options = {},
                            Diagnostics* told = nullptr) {
  std::vector<TraceLog> logs;
  static const std::string name = "trace.log";
  for (const std::string& text : texts) {
    Result<TraceLog> log = read_trace_log(name, text);
    if (!log.ok()) return log.error();
    logs.push_back(std::move(*log));
  }
  Diagnostics notes;
  return import_trace(logs, options, told != nullptr ? told : &notes);
}

}  // namespace

TEST_CASE("fx: a comment further in than the body does not say where the body stands") {
  Diagnostics notes;
  const std::string text = R"fx(class GraphModule(torch.nn.Module):
    def forward(self, x: "f32[2, 8]"):
         # File: a.py:1 in forward, code: return x.sin()
        sin: "f32[2, 8]" = torch.ops.aten.sin.default(x);  x = None
        return (sin,)
)fx";
  Result<Job> job = import_fx({{"a.txt", text}}, {}, &notes);
  INFO((job.ok() ? "" : job.error().message));
  REQUIRE(job.ok());
  CHECK(job->programs[0]->graph.node_count() == 1);
}

TEST_CASE("trace: choosing and joining") {
  std::string half = event("aot_forward_graph", kForward) +
                     "V1121 02:33:03.218000 13001 torch/x.py:28] {\"chromium_event\": {}}\n" +
                     event("aot_backward_graph", kBackward);
  Result<Job> joined = import_trace_of({half});
  REQUIRE(joined.ok());
  CHECK(joined->programs[0]->graph.outputs().size() == 3);

  std::string two =
      half + event("aot_inference_graph", kNested, R"("frame_id": 1, "frame_compile_id": 0, "attempt": 2)");
  Result<Job> open = import_trace_of({two});
  REQUIRE_FALSE(open.ok());
  CHECK(open.error().message == "the trace holds 2 compilations: 0/0 (aot_forward_graph), 1/0_2 (aot_inference_graph)");
  TraceOptions options;
  options.compile = "1/0";
  Result<Job> chosen = import_trace_of({two}, options);
  REQUIRE(chosen.ok());
  CHECK(chosen->programs[0]->nested.size() == 2);

  // One log per rank; an error in a payload has its line in the log.
  auto of_rank = [](std::string text, int rank) {
    for (size_t at = 0; (at = text.find("\"frame_id\"", at)) != std::string::npos; at += 24)
      text.insert(at, "\"rank\": " + std::to_string(rank) + ", ");
    return text;
  };
  Diagnostics told;
  Result<Job> ranks = import_trace_of({of_rank(half, 0), of_rank(half, 1)}, {}, &told);
  REQUIRE(ranks.ok());
  CHECK(std::ranges::any_of(told.list(), [](const Diagnostic& d) { return d.message.starts_with("no rank's graph"); }));
  CHECK(ranks->world == 2);
  CHECK(ranks->is_spmd());
  // Two runs of one process are not a job of two ranks, even if equal.
  Result<Job> runs = import_trace_of({half, half});
  REQUIRE_FALSE(runs.ok());
  CHECK(runs.error().message == "2 logs, and this one is of a process of its own: it names no rank");
  Result<Job> twice = import_trace_of({of_rank(half, 1), of_rank(half, 1)});
  REQUIRE_FALSE(twice.ok());
  CHECK(twice.error().message == "rank 1 has a log already: trace.log");
  Result<Job> broken = import_trace_of(
      {event("aot_inference_graph", "class G(torch.nn.Module):\n    def forward(self, x):\n        return y\n")});
  REQUIRE_FALSE(broken.ok());
  CHECK(print_location(broken.error().where) == "trace.log:4:17");
  Result<Job> begun = import_trace_of({event("dynamo_output_graph", kForward)});
  REQUIRE_FALSE(begun.ok());
  CHECK(begun.error().message == "the trace ends before a graph of operators: it holds no more than Dynamo's");
  Result<Job> cut = import_trace_of({"V1121 02:33:03.218000 13001 torch/x.py:28] {\"aot_joint_graph\": {\n"});
  REQUIRE_FALSE(cut.ok());
  CHECK(cut.error().where.line == 1);
}

TEST_CASE("trace: what symbols stand for") {
  auto fact = [](std::string_view json) {
    return R"(V1121 02:33:03.218000 13001 torch/x.py:28] {)" + std::string(json) +
           R"(, "frame_id": 0, "frame_compile_id": 0, "attempt": 0})" + "\n";
  };
  const std::string text =
      fact(R"("create_symbol": {"symbol": "s77", "val": "5", "vr": "[2, int_oo]", "source": "L['x'].size()[0]"})") +
      fact(R"("create_symbol": {"symbol": "s9", "val": "7", "vr": "[2, int_oo]", "source": "L['y'].size()[0]"})") +
      fact(R"("create_symbol": {"symbol": "zf1", "val": "0.25", "vr": "[-oo, oo]", "source": "L['self'].norm.eps"})") +
      fact(R"j("guard_added_fast": {"expr": "Ne(s77, 4)"})j") + fact(R"j("guard_added_fast": {"expr": "Eq(s9, 7)"})j") +
      fact(R"j("guard_added": {"expr": "Odd(s77)"})j") + fact(R"("guard_added": {"expr": "zf1 > 0.0"})") +
      fact(R"("create_symbol": {"symbol": 3})") + event("dynamo_output_graph", R"fx(class GraphModule(torch.nn.Module):
    def forward(self, s77: "Sym(s77)", L_x_: "f32[s77]", L_self_norm_eps: "f64[]", L_kwargs_ids_: "i64[s77]"):
        return (L_x_,)
)fx") +
      event("aot_inference_graph", R"fx(class G(torch.nn.Module):
    def forward(self, arg0_1: "Sym(s77)", arg1_1: "f32[s77][1]cpu", arg2_1: "f64[][]cpu", arg3_1: "i64[s77][1]cpu"):
        add: "f32[s77][1]cpu" = torch.ops.aten.add.Tensor(arg1_1, arg2_1);  arg1_1 = arg2_1 = None
        add_1: "f32[s77][1]cpu" = torch.ops.aten.add.Tensor(add, arg3_1);  add = arg3_1 = None
        return (add_1,)
)fx");
  Diagnostics told;
  Result<Job> job = import_trace_of({text}, {}, &told);
  INFO((job.ok() ? "" : job.error().message));
  REQUIRE(job.ok());
  const Program& program = *job->programs[0];
  REQUIRE(program.symbols.size() == 1);  // not those of other graphs
  CHECK(program.symbols[0].hint == 5);
  CHECK(program.symbols[0].min == 2);
  CHECK(job->pool->strings[program.symbols[0].source] == "x.size()[0]");
  REQUIRE(program.guards.size() == 1);
  CHECK(program.guards[0].relation == Relation::ne);
  REQUIRE_FALSE(told.list().empty());
  CHECK(told.list()[0].message.find("1 guard in words that can be read") !=
        std::string::npos);  // of sizes, not of floats
  // A number of the model is not an input; a keyword argument has the name that the caller uses.
  REQUIRE(program.graph.inputs().size() == 3);
  CHECK(job->pool->strings[program.graph.inputs()[2].fqn] == "ids");
  CHECK(node(program.graph, "arg2_1").args[1].as_float() == 0.25);
}

TEST_CASE("trace: versions that describe no ports, by place") {
  constexpr std::string_view kDynamo = R"fx(class GraphModule(torch.nn.Module):
    def forward(self, L_self_modules_head_parameters_weight_: "f32[8, 4]", L_x_: "f32[2, 8]"):
        matmul = L_x_ @ L_self_modules_head_parameters_weight_
        return (matmul.sum(),)
)fx";
  constexpr std::string_view kJointByPlace = R"fx(class joint_helper(torch.nn.Module):
    def forward(self, primals, tangents):
        primals_1: "f32[8, 4]"; primals_2: "f32[2, 8]"; tangents_1: "f32[]";

        primals_1, primals_2, tangents_1, = fx_pytree.tree_flatten_spec([primals, tangents], self._in_spec)
        mm: "f32[2, 4]" = torch.ops.aten.mm.default(primals_2, primals_1)
        sum_1: "f32[]" = torch.ops.aten.sum.default(mm);  mm = None
        expand: "f32[2, 4]" = torch.ops.aten.expand.default(tangents_1, [2, 4]);  tangents_1 = None
        permute: "f32[8, 2]" = torch.ops.aten.permute.default(primals_2, [1, 0]);  primals_2 = None
        mm_1: "f32[8, 4]" = torch.ops.aten.mm.default(permute, expand);  permute = expand = None
        return pytree.tree_unflatten([sum_1, mm_1, None], self._out_spec)
)fx";
  auto imported = [&](std::string_view dynamo) {
    return import_trace_of({event("dynamo_output_graph", dynamo) + event("aot_joint_graph", kJointByPlace)});
  };
  Result<Job> job = imported(kDynamo);
  INFO((job.ok() ? "" : job.error().message));
  REQUIRE(job.ok());
  const Graph& graph = job->programs[0]->graph;
  CHECK(graph.inputs()[0].kind == InputKind::parameter);
  CHECK(job->pool->strings[graph.inputs()[0].fqn] == "head.weight");
  CHECK(job->pool->strings[graph.inputs()[1].fqn] == "x");
  CHECK(graph.inputs()[2].kind == InputKind::tangent);
  REQUIRE(graph.outputs().size() == 3);
  CHECK(graph.outputs()[0].kind == OutputKind::loss);
  CHECK(graph.outputs()[1].kind == OutputKind::gradient);
  CHECK(graph.outputs()[1].of == graph.inputs()[0].value);
  // Inputs whose types differ from those of Dynamo have no names.
  std::string other(kDynamo);
  other.replace(other.find("f32[2, 8]"), 9, "f32[2, 9]");
  Result<Job> nameless = imported(other);
  REQUIRE(nameless.ok());
  CHECK(nameless->programs[0]->graph.inputs()[0].fqn.is_none());
}

TEST_CASE("trace: a number beside other results is the loss where one tangent is a number") {
  const std::string both = R"fx(class joint_helper(torch.nn.Module):
    def forward(self, primals, tangents):
        primals_1: "f32[2, 4]"; tangents_1: "f32[]"; tangents_2: "f32[2, 4]";

        primals_1, tangents_1, tangents_2, = fx_pytree.tree_flatten_spec([primals, tangents], self._in_spec)
        exp: "f32[2, 4]" = torch.ops.aten.exp.default(primals_1)
        sum_1: "f32[]" = torch.ops.aten.sum.default(exp)
        expand: "f32[2, 4]" = torch.ops.aten.expand.default(tangents_1, [2, 4])
        add: "f32[2, 4]" = torch.ops.aten.add.Tensor(tangents_2, expand)
        mul: "f32[2, 4]" = torch.ops.aten.mul.Tensor(add, exp)
        return pytree.tree_unflatten([exp, sum_1, mul], self._out_spec)
)fx";
  Result<Job> job = import_trace_of({event("aot_joint_graph", both)});
  REQUIRE(job.ok());
  const auto& outputs = job->programs[0]->graph.outputs();
  CHECK(outputs[0].kind == OutputKind::other);
  CHECK(outputs[1].kind == OutputKind::loss);
  std::string detached = both;  // a number without a gradient
  for (size_t at; (at = detached.find("tangents_1: \"f32[]\"")) != std::string::npos;)
    detached.replace(at, 19, "tangents_1: \"f32[1]\"");
  Result<Job> other = import_trace_of({event("aot_joint_graph", detached)});
  REQUIRE(other.ok());
  CHECK(other->programs[0]->graph.outputs()[1].kind == OutputKind::other);
}

TEST_CASE("trace: what a log holds, graphs and what to choose from") {
  static const std::string name = "trace.log";
  const std::string one = event("aot_inference_graph", kNested);
  const std::string text =
      event("chromium_event", "{}") + one +
      event("aot_inference_graph", kNested, R"("frame_id": 1, "frame_compile_id": 0, "attempt": 2)");
  Result<TraceLog> log = read_trace_log(name, text);
  REQUIRE(log.ok());
  const std::string said = describe_trace({*log});
  CHECK(said.find("chromium_event") == std::string::npos);
  CHECK(said.find("3 events, 3 artefacts, 1 of them no graphs (--json lists them)") != std::string::npos);
  CHECK(said.find("2 compilations for --compile-id: 0/0 (aot_inference_graph), 1/0_2") != std::string::npos);
}

TEST_CASE("trace: what a process logs before it knows its rank is its own") {
  const std::string text =
      event("aot_inference_graph", kNested) +
      event("aot_inference_graph", kNested, R"("frame_id": 1, "frame_compile_id": 0, "attempt": 0, "rank": 3)");
  Result<TraceLog> log = read_trace_log("trace.log", text);
  REQUIRE(log.ok());
  CHECK(describe_trace({*log}).starts_with("rank 3  compile 0/0  "));
  CHECK(trace_json({*log}).find(R"("rank": 0)") == std::string::npos);
}

TEST_CASE("trace: the log of a running job ends anywhere in its last line") {
  const std::string whole = event("aot_forward_graph", kForward) + event("aot_backward_graph", kBackward);
  const std::string torn = "V1201 02:33:03.218000 13001 x.py:1] {\"dynamo_start\": {\"st";
  const std::string cut = whole + torn;
  Result<TraceLog> log = read_trace_log("trace.log", cut);
  REQUIRE(log.ok());
  CHECK(log->cut_file == "trace.log");
  Diagnostics notes;
  CHECK(import_trace({*log}, {}, &notes).ok());
  const bool is_told = std::ranges::any_of(
      notes.list(), [](const Diagnostic& d) { return d.message.starts_with("the log ends within a line"); });
  CHECK(is_told);
  const std::string damaged = torn + "\n" + whole;
  CHECK_FALSE(read_trace_log("trace.log", damaged).ok());
}

TEST_CASE("trace: a tlparse folder") {
  std::vector<TraceFile> files = {{"-_0_0_0/aot_forward_graph_3.txt", "f", std::string(kForward)},
                                  {"-_0_0_0/aot_backward_graph_4.txt", "b", std::string(kBackward)},
                                  {"-_x_0_0/aot_joint_graph_4.txt", "c", "junk"}};
  Result<TraceLog> log = read_trace_folder(files);
  REQUIRE(log.ok());
  CHECK(log->artefacts.size() == 2);
  CHECK(import_trace({*log}, {}, nullptr).ok());
  CHECK(is_trace_graph_file("a/-_0_0_0/aot_joint_graph_5.txt"));
  CHECK_FALSE(is_trace_graph_file("-_0_0_0/inductor_output_code_abc_7.html"));
}

// --- hostile input ---

TEST_CASE("fx: any change of bytes is a graph or an error") {
  const std::vector<std::string> seeds = {
      std::string(kForward) + std::string(kBackward), std::string(kNested), std::string(kSymbolicModule),
      event("aot_forward_graph", kForward) + event("aot_backward_graph", kBackward)};
  const std::string signs = "()[]{}\"'#:;,.=\n \t-+*/<>%\\0x\x80";
  for (uint64_t seed = 1; seed <= 20'000; ++seed) {
    test::Rng rng(seed);
    size_t which = rng.below(seeds.size());
    std::string text = seeds[which];
    for (uint64_t edits = 1 + rng.below(4); edits > 0; --edits) {
      size_t at = rng.below(text.size());
      switch (rng.below(5)) {
        case 0: text[at] = static_cast<char>(text[at] ^ (1 << rng.below(8))); break;
        case 1: text[at] = signs[rng.below(signs.size())]; break;
        case 2: text.erase(at, 1 + rng.below(30)); break;
        case 3: text.insert(at, text.substr(rng.below(text.size()), rng.below(200))); break;
        default: text.resize(at + 1);
      }
      if (text.empty()) text = "x";
    }
    INFO("seed " << seed);
    Result<Job> job = which == 3 ? import_trace_of({text}) : import(text);
    if (!job.ok()) {
      CHECK((job.error().kind == ErrorKind::unreadable));
      CHECK(job.error().message.find('\n') == std::string::npos);
    } else {
      Diagnostics findings;
      verify(*job, {}, &findings);
    }
  }
}

TEST_CASE("fx: large texts cost time in proportion") {
  std::clock_t start = std::clock();
  std::string text = body("        a0: \"f32[4, 8]\" = torch.ops.aten.relu.default(x)\n");
  for (int i = 1; i <= 60'000; ++i)
    text += "\n        # Annotation: {'module_fqn': 'layers." + std::to_string(i) +
            "'} File: a.py:" + std::to_string(i) + " in f, code: x\n        a" + std::to_string(i) +
            ": \"f32[4, 8][8, 1]cpu\" = torch.ops.aten.relu.default(a" + std::to_string(i - 1) + ");  a" +
            std::to_string(i - 1) + " = None\n";
  text += "        return (a60000,)\n";
  CHECK(text.size() > 10'000'000);
  CHECK(refused(text) == "imported");
  std::string list = "        y: \"f32[4, 8]\" = torch.ops.aten.view.default(x, [";
  for (int i = 0; i < 1'000'000; ++i) list += "4, ";
  CHECK(refused(body(list + "8])\n        return y\n")) == "imported");
  std::string modules = body("        return x\n");
  for (int i = 0; i < 50'000; ++i)
    modules += "    class m(torch.nn.Module):\n        def forward(self, x):\n            return x\n";
  CHECK(refused(modules) == "imported");
  std::string groups;
  for (int i = 0; i < 1000; ++i)
    groups += "        g" + std::to_string(i) +
              " = torch.ops._c10d_functional.all_gather_into_tensor.default(x, 1000000, '" + std::to_string(i) + "')\n";
  CHECK(refused(body(groups + "        return x\n")).find("1000 groups with 1000000000 members") != std::string::npos);
  std::string sum = "        y: \"Sym(s0)\" = x";
  for (int i = 0; i < 200'000; ++i) sum += " + x";
  CHECK(refused(body(sum + "\n        return y\n")).find("nested deeper") != std::string::npos);
  CHECK(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC < 60);
}
