// Composite operators: what replaces them, which are kept and why, and that nothing else of the graph changes.
#include <catch2/catch.hpp>

#include "libgraph/composite/composite.h"
#include "libgraph/text/text.h"
#include "libgraph/verify/verify.h"

using namespace sg;

namespace {

struct Expanded {
  Job job;
  Diagnostics notes;
  const Graph& graph() const { return job.programs[0]->graph; }
};

Expanded expand(std::string_view lines, std::string_view header = "\n") {
  Diagnostics findings;
  auto job = parse_text("sg 1.0" + std::string(header) + "graph rank *\n" + std::string(lines), "composite", &findings);
  INFO(findings.as_error(ErrorKind::unreadable).message);
  REQUIRE(job.ok());
  Expanded out{std::move(job).value(), Diagnostics()};
  ImportTally tally;
  expand_composites(out.job.programs[0].get(), false, &tally);
  tally.report(ImportTally::kNoRank, &out.notes);
  return out;
}

std::string_view after_namespace(std::string_view op) { return op.substr(op.find('.') + 1); }

std::string ops(const Graph& graph) {
  std::string out;
  for (NodeId n : graph.nodes()) out += (out.empty() ? "" : " ") + std::string(after_namespace(graph.op_name(n)));
  return out;
}

std::string said(const Expanded& e) {
  std::string out;
  for (const Diagnostic& d : e.notes.list()) out += d.message + "\n";
  return out;
}

bool is_valid(const Expanded& e) {
  Diagnostics findings;
  verify(e.job, {}, &findings);
  return !findings.has_errors();
}

}  // namespace

TEST_CASE("composite: the last part has the name, the type and the place of the whole") {
  Expanded e = expand(R"(  input %x : f32[4, 3]
  input %y : f32[4, 3]
  at "model.py":7 forward
  %loss = aten.l1_loss(%x, %y) : f32[]
  output %loss
)");
  CHECK(ops(e.graph()) == "sub.Tensor abs.default mean.default");
  NodeId last = e.graph().last();
  CHECK(e.graph().label(last) == "loss");
  CHECK(e.graph().outputs()[0].value == e.graph().node(last).result(0));
  CHECK(e.graph().node(e.graph().first()).source == e.graph().node(last).source);
  CHECK(said(e) == "composite operators taken apart, in 1 call: aten.l1_loss.default (1)\n");
  CHECK(is_valid(e));
}

TEST_CASE("composite: results of several parts, each under its name") {
  Expanded e = expand(R"(  input %x : f32[4, 6]
  %low, %high = aten.aminmax(%x, dim=1) : f32[4], f32[4]
  %a, %b = aten.hsplit.int(%x, 2) : f32[4, 3] stride [6, 1], f32[4, 3] stride [6, 1] +3
  %sum = aten.add.Tensor(%a, %b) : f32[4, 3]
  output %low
  output %high
  output %sum
)");
  CHECK(ops(e.graph()) == "amin.default amax.default slice.Tensor slice.Tensor add.Tensor");
  CHECK(e.graph().find_value("high") == e.graph().outputs()[1].value);
  CHECK(is_valid(e));
}

TEST_CASE("composite: a weight's norm over all dimensions but one, or over all") {
  Expanded e = expand(R"(  input %v : f32[4, 3, 2]
  input %g : f32[1, 3, 1]
  input %all : f32[]
  %w = aten._weight_norm(%v, %g, 1) : f32[4, 3, 2]
  %u = aten._weight_norm(%v, %all, -1) : f32[4, 3, 2]
  %n = aten.norm_except_dim(%v, 2, 0) : f32[4, 1, 1]
  output %w
)");
  CHECK(ops(e.graph()) ==
        "linalg_vector_norm.default div.Tensor mul.Tensor linalg_vector_norm.default div.Tensor mul.Tensor "
        "linalg_vector_norm.default");
  CHECK(is_valid(e));
}

TEST_CASE("composite: symbolic sizes stay symbols") {
  Expanded e = expand(R"(  symbol s0 input [2, 64]
  input %x : f32[s0, 5, 8]
  %out = aten.einsum("bij,bkj->bik", [%x, %x])
  output %out
)");
  INFO(said(e));
  CHECK(ops(e.graph()).find("bmm.default") != std::string::npos);
  const Type& t = e.graph().type(e.graph().outputs()[0].value);
  REQUIRE(t.shape.size() == 3);
  CHECK(e.job.pool->exprs.print(t.shape[0]) == "s0");
  CHECK(e.job.pool->exprs.print(t.shape[2]) == "5");
}

TEST_CASE("composite: what cannot be taken apart stays as it was, with the reason") {
  Expanded e = expand(R"(  symbol s0 input [2, 64]
  input %x : f32[s0, 2, 6]
  input %h : f32[1, 2, 4]
  input %w : f32[12, 6]
  input %u : f32[12, 4]
  %out, %last = aten.gru.input(%x, %h, [%w, %u], false, 1, 0.0, false, false, false)
  %bad = aten.einsum("ij->i", [%x])
  output %out
  output %bad
)");
  CHECK(ops(e.graph()) == "gru.input einsum.default");
  CHECK(said(e).find("aten.gru.input: needs a known size where it is s0") != std::string::npos);
  CHECK(said(e).find("the equation is not one of the operands' dimensions") != std::string::npos);
  CHECK(e.graph().find_value("last"));
}

TEST_CASE("composite: arguments that are none of the schema's") {
  for (std::string_view call :
       {"aten.tile(%x)", "aten.tile(%x, [2], [3])", "aten.tile(%x, times=[2])", "aten.tile(%x, %x)",
        "aten.einsum(\"i...,...i->\", 3)", "aten.rot90(%x, 1, [0, 0])", "aten.rot90(%x, 1, [0, 9])",
        "aten.tensor_split.sections(%x, 0)", "aten.kthvalue(%x, 0)", "aten.movedim.intlist(%x, [0, 0], [1, 2])",
        "aten.cosine_similarity(%x, %x, 5)", "aten.diag_embed(%x, 0, 1, 1)", "aten.fft_rfft(%x, 0)",
        "aten.fft_fftn(%x, [1, 2, 3])", "aten.lstm.input(%x, [], [], true, 1, 0.0, false, false, false)"}) {
    Expanded e = expand("  input %x : f32[4, 3]\n  %y = " + std::string(call) + "\n  output %y\n");
    INFO(call);
    CHECK(e.graph().node_count() == 1);
    CHECK(said(e).find("stays whole") != std::string::npos);
  }
}

TEST_CASE("composite: other names of an operator") {
  Expanded e =
      expand("  input %x : f32[4]\n  %y = aten.multiply.Tensor(%x, %x)\n  %z = aten.clip(%y, 0, 1)\n  output %z\n");
  CHECK(ops(e.graph()) == "mul.Tensor clamp.default");
  CHECK(e.graph().type(e.graph().outputs()[0].value).kind == TypeKind::tensor);
  Expanded shifts = expand(
      "  input %i : u8[4]\n  %h = aten.__rshift__.Scalar(%i, 4)\n  %l = aten.__lshift__.Tensor(%h, %i)\n  output %l\n");
  CHECK(ops(shifts.graph()) == "bitwise_right_shift.Tensor_Scalar bitwise_left_shift.Tensor");
  Expanded none = expand("  input %x : f32[4]\n  %y = aten._efficientzerotensor([4], dtype=f32)\n  output %y\n");
  CHECK(ops(none.graph()) == "zeros.default");
}

TEST_CASE("composite: random parts draw from a stream of their own") {
  Expanded e = expand(R"(  input %x : f32[4, 3, 2]
  %y = aten.feature_dropout(%x, 0.5, true)
  %z = aten.feature_dropout(%y, 0.5, true)
  %same = aten.feature_dropout(%z, 0.5, false)
  output %same
)");
  std::vector<uint64_t> streams;
  for (NodeId n : e.graph().nodes())
    if (draws_random(e.graph(), n)) streams.push_back(e.graph().meta(n).random.stream);
  CHECK(streams == std::vector<uint64_t>{1, 2});
  CHECK(e.graph().op_name(e.graph().last()) == "aten.alias.default");
  CHECK(is_valid(e));
}

// --- PyTorch's primitives ---

TEST_CASE("composite: primitives are other names, or a call or two") {
  Expanded e = expand(R"(  symbol s0 input [2, 64]
  input %x : f32[s0, 4]
  %wide = prims.convert_element_type(%x, f64)
  %rev = prims.rev(%wide, [1])
  %places = prims.iota(s0, start=0, step=2, dtype=i64, device=cpu, requires_grad=false)
  %fma = prims.fma(%x, %x, %x)
  %sum = prims.sum(%fma, [0])
  %mean = prims.div(%sum, 3.0)
  %rows = prims.broadcast_in_dim(%mean, [7, 4], [1])
  %split = prims.split_dim(%rows, 1, 2)
  %out = prims.collapse_view(%split, 1, 2)
  output %rev
  output %places
  output %out
)");
  INFO(said(e));
  CHECK(ops(e.graph()) ==
        "_to_copy.default flip.default arange.start_step mul.Tensor add.Tensor sum.dim_IntList div.Tensor "
        "reshape.default expand.default view.default reshape.default");
  CHECK(is_valid(e));
}

TEST_CASE("composite: a max pool's offsets stay indices where nothing else reads them") {
  constexpr std::string_view kPool = R"(  input %x : f32[2, 3, 8, 8]
  %y, %offsets = prims._low_memory_max_pool_with_offsets(%x, [2, 2], [2, 2], [0, 0], [1, 1], false) : f32[2, 3, 4, 4], i8[2, 3, 4, 4]
  %indices = prims._low_memory_max_pool_offsets_to_indices(%offsets, [2, 2], [8, 8], [2, 2], [0, 0], [1, 1]) : i64[2, 3, 4, 4]
  output %y
  output %indices
)";
  Expanded pair = expand(kPool);
  INFO(said(pair));
  CHECK(ops(pair.graph()) == "max_pool2d_with_indices.default alias.default");
  CHECK(is_valid(pair));
  Expanded apart = expand(std::string(kPool) + "  output %offsets\n");
  INFO(said(apart));
  CHECK(apart.graph().type(apart.graph().find_value("offsets")).dtype == DType::i8);
  CHECK(apart.graph().type(apart.graph().find_value("indices")).dtype == DType::i64);
  CHECK(is_valid(apart));
}

TEST_CASE("composite: who draws by one seed draws the same") {
  Expanded e = expand(R"(  input %x : f32[4]
  %own = aten.rand_like(%x) : f32[4]
  %seeds = prims.inductor_seeds(2, device:cpu)
  %first = prims.inductor_lookup_seed(%seeds, 0)
  %second = prims.inductor_lookup_seed(%seeds, 1)
  %again = prims.inductor_lookup_seed(%seeds, 0)
  %a = prims.inductor_random([4], %first, "rand")
  %b = prims.inductor_random([4], %second, "randn")
  %c = prims.inductor_random([4], %again, "rand")
  %d = prims.inductor_randint(0, 9, [4], %second)
  output %own
  output %a
  output %b
  output %c
  output %d
)");
  INFO(said(e));
  auto stream = [&](std::string_view name) { return e.graph().meta(e.graph().find_node(name)).random.stream; };
  CHECK(stream("a") == stream("c"));
  CHECK(stream("a") != stream("b"));
  CHECK(stream("b") != stream("d"));  // other numbers from the same seed
  const NodeMeta& again = e.graph().meta(e.graph().find_node("c"));
  CHECK(again.copy.kind == CopyKind::remat);
  CHECK(e.job.pool->strings[again.copy.of] == "a");
  CHECK(stream("own") != stream("a"));
  CHECK(stream("seeds") != stream("a"));
  CHECK(is_valid(e));
}

TEST_CASE("composite: an index that a mask rules out") {
  Expanded e = expand(R"(  input %x : f32[5, 3]
  input %i : i64[2, 1]
  input %m : bool[2, 3]
  input %v : f32[2, 3]
  input %j : i64[3]
  %get = aten._unsafe_masked_index(%x, %m, [%i, %j], 0.5)
  %put = aten._unsafe_masked_index_put_accumulate(%x, %m, [%i, %j], %v)
  output %get
  output %put
)");
  INFO(said(e));
  CHECK(ops(e.graph()) ==
        "clamp.default clamp.default _unsafe_index.Tensor logical_not.default masked_fill.Scalar "
        "logical_not.default masked_fill.Scalar clamp.default clamp.default _unsafe_index_put.default");
  CHECK(is_valid(e));
}

// PyTorch's own decompositions, except that the statistics are written: cuDNN does so, though the schema does not say
// it.
TEST_CASE("composite: batch norms of cuDNN") {
  Expanded e = expand(R"(  input %x : f32[4, 3, 5, 5]
  input %g : f32[4, 3, 5, 5]
  input %w : f32[3]
  buffer %m : f32[3]
  buffer %v : f32[3]
  %y, %mean, %istd, %kept = aten.cudnn_batch_norm(%x, %w, none, %m, %v, true, 0.1, 1e-05) : f32[4, 3, 5, 5], f32[3], f32[3], u8[0]
  %z, %a, %b, %c = aten.cudnn_batch_norm(%x, %w, none, %m, %v, false, 0.1, 1e-05) : f32[4, 3, 5, 5], f32[0], f32[0], u8[0]
  %dx, %dw, %db = aten.cudnn_batch_norm_backward(%x, %g, %w, none, none, %mean, %istd, 1e-05, %kept) : f32[4, 3, 5, 5], f32[3], f32[3]
  output %y
  output %z
  output %dx
)");
  INFO(said(e));
  CHECK(ops(e.graph()) ==
        "native_batch_norm.default new_empty.default native_batch_norm.default new_empty.default new_empty.default "
        "new_empty.default native_batch_norm_backward.default");
  CHECK(e.graph().op_name(e.graph().value(e.graph().find_value("dw")).def) ==
        "aten.native_batch_norm_backward.default");
  CHECK(is_valid(e));
}

// --- control flow ---

TEST_CASE("composite: both branches run, and a choice of each result, where a branch has no effect") {
  auto with = [](std::string_view op) {
    return "  input %p : bool[]\n  input %x : f32[4]\n  %y, = higher_order.cond(%p, graph:yes, graph:no, [%x]) : "
           "f32[4]\n  output %y\ngraph rank * nested yes\n  input %v : f32[4]\n  %s = " +
           std::string(op) + "(%v) : f32[4]\n  output %s\ngraph rank * nested no\n  input %v : f32[4]\n  output %v\n";
  };
  Expanded e = expand(with("aten.sin"));
  INFO(said(e));
  REQUIRE(e.graph().node_count() == 3);
  CHECK(e.graph().op_name(e.graph().first()) == "sg.call");
  CHECK(e.graph().op_name(e.graph().find_node("y")) == "aten.where.self");
  CHECK(is_valid(e));
  Expanded kept = expand(with("aten.sin_"));
  CHECK(kept.graph().node_count() == 1);
  CHECK(said(kept).find("only the one that is taken may run: aten.sin_.default") != std::string::npos);
}

// --- communication ---

TEST_CASE("composite: a wait of several is a wait of each") {
  Expanded e = expand(R"(  input %x : f32[4]
  input %y : f32[2, 3]
  %a, %b = _c10d_functional.all_reduce_coalesced([%x, %y], "sum", @dp)
  %c, %d = _c10d_functional.wait_tensors([%a, %b])
  %z = aten.sin(%d)
  output %c
  output %z
)",
                      " world 2\ngroup @dp [0 1]\n");
  CHECK(ops(e.graph()) == "all_reduce_coalesced.default wait_tensor.default wait_tensor.default sin.default");
  CHECK(e.graph().type(e.graph().outputs()[1].value).shape.size() == 2);
  CHECK(said(e) == "composite operators taken apart, in 1 call: _c10d_functional.wait_tensors.default (1)\n");
  CHECK(is_valid(e));
}

TEST_CASE("composite: a collective that a backward is registered for is the collective") {
  Expanded e = expand(R"(  input %x : f32[4]
  %a = _c10d_functional_autograd.all_gather_into_tensor(%x, 2, @dp)
  %b = _c10d_functional.wait_tensor(%a)
  output %b
)",
                      " world 2\ngroup @dp [0 1]\n");
  CHECK(ops(e.graph()) == "all_gather_into_tensor.default wait_tensor.default");
  CHECK(is_valid(e));
}

TEST_CASE("composite: an exchange of shards waits for itself, as PyTorch calls it") {
  const char* head = " world 2\ngroup @tp [0 1]\n";
  Expanded bare = expand(R"(  input %x : f32[4, 6]
  %a = _dtensor.shard_dim_alltoall(%x, 0, 1, @tp) : f32[8, 3]
  %b = aten.sin(%a)
  output %b
)",
                         head);
  CHECK(ops(bare.graph()) == "shard_dim_alltoall.default wait_tensor.default sin.default");
  CHECK(is_valid(bare));
  Expanded waited = expand(R"(  input %x : f32[4, 6]
  %a = _dtensor.shard_dim_alltoall(%x, 0, 1, @tp) : f32[8, 3]
  %b = _c10d_functional.wait_tensor(%a)
  output %b
)",
                           head);
  CHECK(ops(waited.graph()) == "shard_dim_alltoall.default wait_tensor.default");
  CHECK(is_valid(waited));
}

TEST_CASE("composite: what is done to each tensor of lists") {
  Expanded e = expand(R"(  input %a : f32[4]
  input %b : f32[2, 3]
  input %s : f32[]
  %n0, %n1 = aten._foreach_norm.Scalar([%a, %b], 2) : f32[], f32[]
  %p0, %p1 = aten._foreach_add.List([%a, %b], [%a, %b], alpha=2) : f32[4], f32[2, 3]
  %q0, %q1 = aten._foreach_addcmul.ScalarList([%a, %b], [%p0, %p1], [%p0, %p1], [0.5, 2.0]) : f32[4], f32[2, 3]
  %m0, %m1 = aten._foreach_maximum.Scalar([%q0, %q1], 1) : f32[4], f32[2, 3]
  %w0, %w1 = aten._foreach_pow.ScalarAndTensor(0.5, [%m0, %m1]) : f32[4], f32[2, 3]
  %none = aten._foreach_mul_.Tensor([%a, %b], %s)
  %none_1 = aten._foreach_maximum_.List([%a], [%m0])
  output %w0
  output %w1
  output %n0
  output %n1
)");
  INFO(said(e));
  CHECK(ops(e.graph()) ==
        "linalg_vector_norm.default linalg_vector_norm.default add.Tensor add.Tensor addcmul.default addcmul.default "
        "clamp_min.default clamp_min.default pow.Scalar pow.Scalar mul_.Tensor mul_.Tensor maximum.default "
        "copy_.default");
  CHECK(is_valid(e));
  Expanded powers = expand(R"(  input %a : f32[4]
  input %b : f32[2, 3]
  %p0, %p1 = aten._foreach_pow.Scalar([%a, %b], 0.75) : f32[4], f32[2, 3]
  %q0, %q1 = aten._foreach_pow.ScalarList([%p0, %p1], [2, 3]) : f32[4], f32[2, 3]
  output %q0
  output %q1
)");
  INFO(said(powers));
  CHECK(ops(powers.graph()) == "pow.Tensor_Scalar pow.Tensor_Scalar pow.Tensor_Scalar pow.Tensor_Scalar");
  CHECK(is_valid(powers));
  Expanded unequal = expand(R"(  input %a : f32[4]
  %p0 = aten._foreach_add.List([%a], [%a, %a]) : f32[4]
  output %p0
)");
  CHECK(said(unequal).find("its lists have unequal lengths") != std::string::npos);
}

TEST_CASE("composite: what is written to `out` is what the call with these arguments gives") {
  Expanded e = expand(R"(  input %x : f32[4, 3]
  forward -
  %to = aten.empty([4]) : f32[4]
  %whole = aten.empty([]) : f32[]
  %mean = aten.mean.out(%x, [1], out=%to) : f32[4]
  %sum = aten.sum.IntList_out(%x, [1], out=%to) : f32[4]
  %product = aten.prod.int_out(%x, 1, out=%to) : f32[4]
  %all = aten.sum.out(%x, out=%whole) : f32[]
  %spread = aten.std.correction_out(%x, [1], out=%to) : f32[4]
  output %spread
)");
  CHECK(ops(e.graph()) ==
        "empty.default empty.default mean.dim copy_.default sum.dim_IntList copy_.default prod.dim_int "
        "copy_.default sum.default copy_.default std.correction copy_.default");
}

TEST_CASE("composite: an in-place call without a row is the result, copied into the tensor") {
  Expanded e = expand(R"(  input %x : f32[4, 3]
  input %row : f32[3]
  input %at : i64[2]
  input %b : f32[2]
  forward -
  %to = aten.clone(%x) : f32[4, 3]
  %p = aten.cumprod_(%to, 0) : f32[4, 3]
  %q = aten.pow_.Tensor(%p, %row) : f32[4, 3]
  %r = aten.put_(%q, %at, %b) : f32[4, 3]
  %s = aten.relu_(%r) : f32[4, 3]
  output %s
)");
  INFO(said(e));
  CHECK(ops(e.graph()) ==
        "clone.default cumprod.default copy_.default pow.Tensor_Tensor copy_.default reshape.default reshape.default "
        "reshape.default index_put.default clone.default view.default copy.default copy_.default relu_.default");
  CHECK(is_valid(e));
  Expanded view = expand(R"(  input %x : f32[4, 3]
  %y = aten.swapaxes_(%x, 0, 1) : f32[3, 4]
  output %y
)");
  CHECK(ops(view.graph()) == "swapaxes_.default");  // no copy makes the tensor itself another view
}

TEST_CASE("composite: marks of the profiler go, and nothing is said") {
  Expanded e = expand(R"(  input %a : f32[4]
  %outer = profiler._record_function_enter_new.default("layer", none) : opaque "ScriptObject"
  %inner = profiler._record_function_enter_new.default("relu", none) : opaque "ScriptObject"
  %y = aten.relu(%a) : f32[4]
  %end = profiler._record_function_exit._RecordFunction(%inner)
  %end_1 = profiler._record_function_exit._RecordFunction(%outer)
  output %y
)");
  CHECK(ops(e.graph()) == "relu.default");
  CHECK(said(e).empty());
  CHECK(is_valid(e));
}

TEST_CASE("composite: blocks of a matrix and the place of a kth value may be sizes of inputs") {
  Expanded e = expand(R"(  symbol b input [2, inf] hint 7 "x.size()[0]"
  input %x : f32[b, 6]
  %size = aten.sym_size.int(%x, 0) : int b
  %half = python.floordiv(%size, 2) : int b//2
  %blocks = aten.block_diag([%x, %x]) : f32[2*b, 12]
  %value, %place = aten.kthvalue(%x, %half, 0) : f32[6], i64[6]
  output %blocks
  output %value
  output %place
)");
  CHECK(ops(e.graph()).find("block_diag") == std::string::npos);
  CHECK(ops(e.graph()).find("kthvalue") == std::string::npos);
  CHECK(is_valid(e));
}

TEST_CASE("composite: parts of tensors are joined, whatever length the data gives them") {
  Expanded e = expand(R"(  symbol s0 input [2, 64]
  input %x : f32[4, 3]
  input %y : f32[s0, 2]
  %rows = aten._chunk_cat([%x, %y], 0, 2)
  output %rows
)");
  CHECK(ops(e.graph()) == "reshape.default constant_pad_nd.default reshape.default cat.default");
  CHECK(e.graph().type(e.graph().outputs()[0].value).shape.size() == 2);
  CHECK(is_valid(e));
}

TEST_CASE("composite: fractional pooling of any number of images") {
  Expanded e = expand(R"(  symbol s0 input [2, 64]
  input %x : f32[s0, 3, 8, 8]
  input %at : f32[s0, 3, 2]
  input %grad : f32[s0, 3, 4, 3]
  %y, %place = aten.fractional_max_pool2d(%x, [2, 3], [4, 3], %at) : f32[s0, 3, 4, 3], i64[s0, 3, 4, 3]
  %back = aten.fractional_max_pool2d_backward(%grad, %x, [2, 3], [4, 3], %place) : f32[s0, 3, 8, 8]
  output %y
  output %back
)");
  INFO(said(e));
  CHECK(ops(e.graph()).find("fractional") == std::string::npos);
  CHECK(is_valid(e));
}

TEST_CASE("composite: numbers between tensors need one step of known count and ends without dimensions") {
  Expanded e = expand(R"(  input %from : f32[]
  input %ends : f32[2]
  %good = aten.linspace.Tensor_Scalar(%from, 3, 5) : f32[5]
  %bad = aten.linspace.Scalar_Tensor(0, %ends, 5)
  output %good
)");
  CHECK(ops(e.graph()).ends_with("_to_copy.default linspace.Scalar_Tensor"));
  CHECK(said(e).find("without dimensions") != std::string::npos);
}
