#include "librun/values/initialize.h"

#include <catch2/catch.hpp>

#include <algorithm>
#include <cmath>

#include "libgraph/infer/infer.h"
#include "librun/element.h"
#include "librun/thread_team.h"
#include "librun/values/input_use.h"
#include "tests/support/parse.h"

using namespace sg;
using sg::test::parse;
using Kind = InitRule::Kind;

namespace {

Job job_with(std::string_view body, int world = 1, std::string_view header = "") {
  Job job = parse("sg 1.0 job \"t\" world " + std::to_string(world) + "\n" + std::string(header) + "\ngraph rank *\n" +
                  std::string(body));
  infer_missing_types(*job.programs[0]);
  return job;
}

InitRule rule_of(const Job& job, std::string_view input) {
  const Graph& graph = job.programs[0]->graph;
  const ValueId v = graph.find_value(input);
  REQUIRE(v);
  return InitPlan(job).rule(*job.programs[0], graph.value(v).index);
}

InputSet made(const Job& job, uint32_t rank = 0, uint64_t seed = 0, ThreadTeam* team = nullptr) {
  InitPlan plan(job);
  InitMaker maker(plan, rank, seed, team);
  auto set = load_inputs(job, rank, {.maker = &maker});
  if (!set.ok()) FAIL(set.error().message);
  return std::move(*set);
}

std::vector<float> floats(const Tensor& t) {  // contiguous
  return {t.as<float>(), t.as<float>() + t.elements()};
}

}  // namespace

TEST_CASE("matrices are normal with a deviation by what they are summed over") {
  Job job = job_with(R"(
  param %linear : f32[64, 16] "linear"
  param %conv1d : f32[16, 64] "conv1d"
  param %experts : f32[4, 8, 16] "experts"
  param %kernel : f32[8, 3, 5, 5] "kernel"
  param %table : f32[100, 24] "table"
  param %square : f32[16, 16] "square"
  param %added : f32[9, 16] "added"
  input %x : f32[9, 16]
  input %image : f32[1, 3, 9, 9]
  input %ids : i64[7]
  input %offs : i32[4]

  forward -
    %t = aten.t(%linear)
    %a = aten.mm(%x, %t)
    %b = aten.mm(%x, %conv1d)
    %p = aten.transpose.int(%experts, -2, -1)
    %c = aten._grouped_mm(%x, %p, %offs) : f32[9, 8]
    %d = aten.convolution(%image, %kernel, none, [1, 1], [0, 0], [1, 1], false, [0, 0], 1)
    %e = aten.embedding(%table, %ids)
    %h = aten._to_copy(%square, dtype=bf16)
    %i = aten._to_copy(%x, dtype=bf16)
    %f = aten.mm(%i, %h)
    %g = aten.add.Tensor(%x, %added)

  output %a
)");
  auto fan = [&](std::string_view name) {
    InitRule rule = rule_of(job, name);
    REQUIRE(rule.kind == Kind::normal);
    return std::lround(1 / (rule.scale * rule.scale));
  };
  CHECK(fan("linear") == 16);
  CHECK(fan("conv1d") == 16);
  CHECK(fan("experts") == 16);
  CHECK(fan("kernel") == 75);
  CHECK(fan("table") == 24);
  CHECK(fan("square") == 16);
  CHECK(fan("added") == 16);
}

TEST_CASE("vectors are ones where they scale and zeros where they are added, whatever leads there") {
  Job job = job_with(R"(
  param %weight : f32[8] "weight"
  param %bias : f32[8] "bias"
  param %ln_w : f32[8] "ln.w"
  param %ln_b : f32[8] "ln.b"
  param %mm_b : f32[8] "mm.b"
  param %sharded : f32[4] "sharded" shard [8] fsdp S(0)
  param %first : f32[4] "first" shard [8] fsdp S(0)
  param %second : f32[4] "second" shard [8] fsdp S(0)
  param %w : f32[8, 8] "w"
  input %x : f32[3, 8]

  forward -
    %u = aten.unsqueeze(%weight, 0)
    %a = aten.mul.Tensor(%x, %u)
    %b = aten.add.Tensor(%a, %bias)
    %c, %mean, %rstd = aten.native_layer_norm(%b, [8], %ln_w, %ln_b, 1e-05)
    %d = aten.addmm(%mm_b, %c, %w)
    %gather = _c10d_functional.all_gather_into_tensor(%sharded, 2, @fsdp) : f32[8]
    %wait = _c10d_functional.wait_tensor(%gather) : f32[8]
    %e = aten.add.Tensor(%d, %wait)
    %bucket = bucketing._pre_bucket_all_gather([%first, %second], 2, f32, [0, 0], 0) : f32[16]
    %part = aten.slice.Tensor(%bucket, 0, 0, 8)
    %all = _c10d_functional.all_gather_into_tensor_out(%part, 2, @fsdp, out=%bucket) : f32[16]
    %ready = _c10d_functional.wait_tensor(%all) : f32[16]
    %rows = aten.view(%ready, [2, 8])
    %empty_1 = aten.empty.memory_format([8], dtype=f32, device=cpu, pin_memory=false) : f32[8]
    %empty_2 = aten.empty.memory_format([8], dtype=f32, device=cpu, pin_memory=false) : f32[8]
    %out_1 = aten.view(%empty_1, [2, 4])
    %out_2 = aten.view(%empty_2, [2, 4])
    %split = aten.split_with_sizes_copy.out(%rows, [4, 4], 1, out=[%out_1, %out_2]) : ()
    %f = aten.add.Tensor(%e, %empty_1)
    %g = aten.mul.Tensor(%f, %empty_2)

  output %g
)",
                     2, "mesh [fsdp 2]\ngroup @fsdp [0 1]\ndevice cpu\n");
  CHECK(rule_of(job, "weight").kind == Kind::ones);
  CHECK(rule_of(job, "bias").kind == Kind::zeros);
  CHECK(rule_of(job, "ln_w").kind == Kind::ones);
  CHECK(rule_of(job, "ln_b").kind == Kind::zeros);
  CHECK(rule_of(job, "mm_b").kind == Kind::zeros);
  CHECK(rule_of(job, "sharded").kind == Kind::zeros);
  CHECK(rule_of(job, "first").kind == Kind::zeros);
  CHECK(rule_of(job, "second").kind == Kind::ones);
  CHECK(rule_of(job, "w").kind == Kind::normal);
}

TEST_CASE("integers stay within what their consumers index, through views, casts, shifts and calls") {
  Job job = job_with(R"(
  param %table : f32[100, 4] "table"
  param %small : f32[7, 4] "small"
  input %tokens : i64[2, 3] "tokens"
  input %shifted : i32[6] "shifted"
  input %labels : i64[6] "labels"
  input %chunked : i64[6] "chunked"
  input %picked : i64[2] "picked"
  input %called : i64[6] "called"
  input %logits : f32[6, 11] "logits"
  input %mask : bool[6] "mask"
  input %counts : i32[6] "counts"
  input %rows : i64[6] "rows"

  forward -
    %v = aten.view(%tokens, [6])
    %a = aten.embedding(%table, %v)
    %b = aten.embedding(%small, %v)
    %up = aten._to_copy(%shifted, dtype=i64)
    %plus = aten.add.Tensor(%up, 2)
    %c = aten.embedding(%table, %plus)
    %p = aten._log_softmax(%logits, 1, false)
    %d, %w = aten.nll_loss_forward(%p, %labels, none, 1, -100)
    %half_1, %half_2 = aten.split.Tensor(%chunked, 3)
    %p_1, %p_2 = aten.split.Tensor(%p, 3)
    %e, %w_2 = aten.nll_loss_forward(%p_2, %half_2, none, 1, -100)
    %f = aten.index.Tensor(%logits, [none, %picked])
    %i = aten.index.Tensor(%logits, [%mask, none]) : ?
    %r = aten.repeat_interleave.Tensor(%counts) : ?
    %x = aten.index.Tensor(%small, [%rows])
    %g = sg.call(graph:body, [%called, %table]) : f32[6, 4]

  output %a

graph rank * nested body
  input %ids : i64[6]
  input %rows_of : f32[100, 4]
  forward -
    %y = aten.embedding(%rows_of, %ids)
  output %y
)");
  auto below = [&](std::string_view name) {
    InitRule rule = rule_of(job, name);
    CHECK(rule.kind == Kind::index);
    return rule.below;
  };
  CHECK(below("tokens") == 7);
  CHECK(rule_of(job, "tokens").because == "rows of %small, in %b");
  CHECK(below("shifted") == 98);
  CHECK(below("labels") == 11);
  CHECK(below("chunked") == 11);
  CHECK(below("picked") == 11);
  CHECK(below("rows") == 7);
  CHECK(below("called") == 100);
  CHECK(rule_of(job, "mask").kind == Kind::every_other);
  CHECK(rule_of(job, "counts").kind == Kind::ask);

  InitPlan plan(job);
  InitMaker maker(plan, 0, 0);
  auto set = load_inputs(job, 0, {.maker = &maker});
  REQUIRE(!set.ok());
  CHECK(set.error().message == "1 graph input has no value: `counts` (%counts)");
}

TEST_CASE("classes that are spread out, counted from 1, or put among others, are bounded by their use") {
  Job job = job_with(R"(
  input %scores : f32[2, 5] "scores"
  input %classes : i64[2] "classes"
  input %labels : i64[2, 1] "labels"
  input %put : i64[1] "put"

  forward -
    %zeros = aten.zeros([2], dtype=i64, layout=strided, device=cpu)
    %at = aten.arange(1, dtype=i64)
    %e = aten.index_put_(%zeros, [%at], %put)
    %f, %total = aten.nll_loss_forward(%scores, %zeros, none, 1, -100)
    %numbers = aten.arange(3, dtype=i64)
    %a = aten.unsqueeze(%classes, 1)
    %b = aten.eq.Tensor(%a, %numbers)
    %c = aten.sub.Tensor(%labels, 1)
    %d = aten.gather(%scores, 1, %c)
  output %b
  output %d
  output %f
)");
  CHECK(rule_of(job, "put").below == 5);
  CHECK(rule_of(job, "classes").kind == Kind::index);
  CHECK(rule_of(job, "classes").below == 3);
  CHECK(rule_of(job, "classes").from == 0);
  CHECK(rule_of(job, "labels").below == 6);
  CHECK(rule_of(job, "labels").from == 1);

  InitPlan plan(job);
  for (uint64_t seed = 0; seed < 20; ++seed) {
    InitMaker maker(plan, 0, seed);
    auto set = load_inputs(job, 0, {.maker = &maker});
    REQUIRE(set.ok());
    for (int64_t i : {0, 1}) CHECK((set->tensors[2].as<int64_t>()[i] >= 1 && set->tensors[2].as<int64_t>()[i] < 6));
  }
}

TEST_CASE("rows of a mask have both values, and its shards are parts of one") {
  Job job = parse(R"(sg 1.0 job "t" world 2
mesh [dp 2]

graph rank *
  input %mask : bool[2, 2] "mask" shard [2, 4] dp S(1)
  forward -
    %y = aten.logical_not(%mask)
  output %y
)");
  InitPlan plan(job);
  for (uint32_t rank : {0U, 1U}) {
    InitMaker maker(plan, rank, 3);
    auto set = load_inputs(job, rank, {.maker = &maker});
    REQUIRE(set.ok());
    const bool* mask = set->tensors[0].as<bool>();
    CHECK((mask[0] && !mask[1] && mask[2] && !mask[3]));
    CHECK(maker.describe()[0] == "`mask` (%mask): every other one is true: a mask");
  }
}

TEST_CASE(
    "integers that are asked whether they are 0, taken from 1, or scale, are a mask, unless something bounds them") {
  Job job = job_with(R"(
  param %table : f32[7, 4] "table"
  input %weights : f32[2, 3] "weights"
  input %cast : i64[2, 3] "cast"
  input %held : i64[2, 3] "held"
  input %tokens : i64[2, 3] "tokens"
  input %scale : i64[2, 3] "scale"
  input %sets : i64[2, 3] "sets"
  input %other : i64[2, 3] "other"
  input %from_one : i64[2, 3] "from_one"
  input %clamped : i64[2] "clamped"
  input %starts : i64[2] "starts"
  buffer %seen : i64[] "seen"

  forward -
    %v = aten.view(%cast, [6])
    %a = aten._to_copy(%v, dtype=bool)
    %b = aten.eq.Scalar(%held, 0)
    %c = aten.ne.Scalar(%tokens, 1)
    %d = aten.embedding(%table, %tokens)
    %e = aten.eq.Scalar(%other, 2)
    %f = aten._to_copy(%seen, dtype=bool)
    %g = aten._to_copy(%scale, dtype=f32)
    %h = aten.mul.Tensor(%weights, %g)
    %j = aten._to_copy(%from_one, dtype=f32)
    %k = aten.rsub.Scalar(%j, 1.0)
    %l = aten.clamp(%clamped, 0, 9)
    %m, %total = aten.nll_loss_forward(%weights, %l, none, 1, 9)
    %m_at = aten.arange(6, dtype=i64)
    %n = aten.searchsorted.Tensor(%starts, %m_at, right=true)
    %i, %is_target = aten.multilabel_margin_loss_forward(%weights, %sets, 1)
  output %h
  output %k
  output %m
  output %n
  output %i
  output %a
  output %b
  output %c
  output %d
  output %e
  output %f
)");
  CHECK(rule_of(job, "cast").kind == Kind::every_other);
  CHECK(rule_of(job, "held").kind == Kind::every_other);
  CHECK(rule_of(job, "scale").kind == Kind::every_other);
  CHECK(rule_of(job, "tokens").below == 7);
  CHECK(rule_of(job, "sets").below == 3);
  CHECK(rule_of(job, "other").kind == Kind::ask);
  CHECK(rule_of(job, "from_one").kind == Kind::every_other);
  CHECK(rule_of(job, "clamped").below == 3);
  CHECK(rule_of(job, "starts").kind == Kind::starts);
  CHECK(rule_of(job, "starts").below == 6);
  CHECK(rule_of(job, "seen").kind == Kind::zeros);
}

TEST_CASE("offsets of bags begin parts as even as may be") {
  Job job = job_with(R"(
  input %starts : i64[4] "starts"

  forward -
    %at = aten.arange(7, dtype=i64)
    %bag = aten.searchsorted.Tensor(%starts, %at, right=true)
  output %bag
)");
  const InputSet set = made(job);
  const Tensor& starts = set.tensors[0];
  CHECK(std::vector<int64_t>(starts.as<int64_t>(), starts.as<int64_t>() + 4) == std::vector<int64_t>{0, 1, 3, 5});
}

TEST_CASE("a rank's part of a vocabulary is no bound on the tokens") {
  const std::string part_0 = R"(graph rank 0
  param %w : f32[4, 2] "w"
  input %ids : i64[5] "ids"
  forward -
    %lt = aten.lt.Scalar(%ids, 0)
    %ge = aten.ge.Scalar(%ids, 4)
    %or = aten.bitwise_or.Tensor(%lt, %ge)
    %sub = aten.sub.Tensor(%ids, 0)
    %in = aten.masked_fill.Scalar(%sub, %or, 0)
    %clamp = aten.clamp(%in, 0, 3)
    %y = aten.embedding(%w, %clamp)
  output %y
)";
  std::string part_1 = part_0;
  for (auto [from, to] :
       std::vector<std::pair<std::string, std::string>>{{"rank 0", "rank 1"},
                                                        {"lt.Scalar(%ids, 0)", "lt.Scalar(%ids, 4)"},
                                                        {"ge.Scalar(%ids, 4)", "ge.Scalar(%ids, 8)"},
                                                        {"sub.Tensor(%ids, 0)", "sub.Tensor(%ids, 4)"}})
    part_1.replace(part_1.find(from), from.size(), to);
  Job job = parse("sg 1.0 job \"t\" world 2\n" + part_0 + part_1);
  CHECK(rule_of(job, "ids").below == 8);
  Job mask = job_with(R"(
  input %mask : i64[5] "mask"
  forward -
    %gt = aten.gt.Scalar(%mask, 0)
  output %gt
)");
  CHECK(rule_of(mask, "mask").kind == Kind::ask);
}

TEST_CASE("beside a loss other outputs have tangents of 0; without one all are 1") {
  const std::string graph = R"(
  input %x : f32[3] "x"
  tangent %t : f32[]
  tangent %u : f32[3]

  forward -
    %y = aten.exp.default(%x)
    %loss = aten.sum.default(%y)
  backward -
    %d = aten.add.Tensor(%u, %t)

  loss %loss
  output %y
  grad %d of %x
)";
  Job job = job_with(graph);
  CHECK(rule_of(job, "t").kind == Kind::ones);
  CHECK(rule_of(job, "u").kind == Kind::zeros);
  std::string other = graph;
  other.replace(other.find("loss %loss"), 4, "output");
  Job outside = job_with(other);
  CHECK(rule_of(outside, "u").kind == Kind::ones);
}

TEST_CASE("buffers, inputs and tangents have values that a step can live with") {
  Job job = job_with(R"(
  buffer %rope : c64[6, 2] "rope"
  buffer %bias : f32[4] "bias"
  buffer %count : i64[] "count"
  buffer %frequency : f32[4] "frequency"
  buffer %var : f32[3] "var"
  buffer %mean : f32[3] "mean"
  buffer %positions : i64[4] "positions"
  constant %constant : f32[4]
  buffer %blur : f32[3, 1, 2] "blur"
  buffer %direction : f32[4] "direction"
  buffer %batches : i64[] "batches"
  input %share : f32[4] "share"
  input %tokens_seen : f32[] "tokens_seen"
  input %x : f32[2, 3, 4] "x"
  tangent %t : f32[4]

  forward -
    %r = aten.mul.Tensor(%rope, %rope)
    %a = aten.add.Tensor(%x, %bias)
    %n = aten.add_.Tensor(%count, 1)
    %b = aten.mul.Tensor(%a, %frequency)
    %c = aten.div.Tensor(%b, %tokens_seen)
    %y, %m, %s = aten._native_batch_norm_legit(%x, none, none, %mean, %var, true, 0.1, 1e-05)
    %d = aten.index.Tensor(%rope, [%positions])
    %e = aten.mul.Tensor(%c, %t)
    %f = aten.mul.Tensor(%e, %constant)
    %g = aten.log(%share)
    %h = aten.add.Tensor(%batches, 1)
    %b2 = aten.select.int(%b, 0, 0)
    %k = aten.convolution(%x, %blur, none, [1], [0], [1], false, [0], 3)
    %v = aten.mv(%b2, %direction)

  output %k
  output %v
  output %h
  output %g
  output %f
)");
  CHECK(rule_of(job, "rope").kind == Kind::unit_circle);
  CHECK(rule_of(job, "bias").kind == Kind::zeros);
  CHECK(rule_of(job, "count").kind == Kind::zeros);
  CHECK(rule_of(job, "batches").kind == Kind::zeros);
  CHECK(rule_of(job, "share").kind == Kind::above_zero);
  CHECK(rule_of(job, "frequency").kind == Kind::uniform);
  CHECK(rule_of(job, "var").kind == Kind::ones);
  CHECK(rule_of(job, "mean").kind == Kind::zeros);
  CHECK(rule_of(job, "blur").kind == Kind::normal);
  CHECK(rule_of(job, "direction").kind == Kind::normal);
  CHECK(rule_of(job, "positions").below == 6);
  CHECK(rule_of(job, "constant").kind == Kind::ask);
  CHECK(rule_of(job, "tokens_seen").kind == Kind::ones);
  CHECK(rule_of(job, "x").kind == Kind::normal);
  CHECK(rule_of(job, "t").kind == Kind::ones);

  InitPlan plan(job);
  InitMaker maker(plan, 0, 0);
  REQUIRE(load_inputs(job, 0, {.maker = &maker, .may_miss = true}).ok());
  const auto lines = maker.describe();
  REQUIRE(!lines.empty());
  CHECK(lines[0] == "`positions` (%positions): integers in [0, 6): axis 0 of %rope, in %d");
}

TEST_CASE("integers stay below the sizes of this run, not below those of the capture") {
  Job job = job_with(R"(
  symbol s0 input [2, inf] hint 100
  param %table : f32[s0, 4] "table"
  input %ids : i64[64] "ids"
  forward -
    %e = aten.embedding(%table, %ids)
  output %e
)");
  InitPlan plan(job);
  InitMaker maker(plan, 0, 0);
  const SizeBinding rows{"table[0]=3", "table", 0, 3};
  auto set = load_inputs(job, 0, {.maker = &maker, .bindings = std::span(&rows, 1)});
  REQUIRE(set.ok());
  CHECK(set->tensors[0].dim(0) == 3);
  const auto* ids = set->tensors[1].as<int64_t>();
  CHECK(*std::max_element(ids, ids + 64) == 2);
  CHECK(maker.describe()[0].find("[0, 3)") != std::string::npos);
}

TEST_CASE("shards are parts of one global tensor, replicas are equal, seeds and names matter") {
  const char* const body = R"(
  param %w : f32[6, 4] "w" shard [12, 8] fsdp S(0), tp S(1)
  param %r : f32[12, 8] "r" shard [12, 8] fsdp R, tp R
  param %s : f32[3, 8] "s" shard [12, 8] fsdp _S(0, 2), tp S(0)
  input %x : f32[2, 12] "x"
  forward -
    %a = aten.mm(%x, %r)
    %b = aten.mm(%a, %w) : ?
    %c = aten.mm(%b, %s) : ?
  output %a
)";
  Job job = job_with(body, 4, "mesh [fsdp 2, tp 2]\n");
  Job whole = job_with(R"(
  param %w : f32[12, 8] "w"
  param %s : f32[12, 8] "s"
  input %x : f32[8, 12] "x"
  forward -
    %a = aten.mm(%x, %w)
    %b = aten.mm(%x, %s)
  output %a
)");
  InputSet all = made(whole);
  const std::vector<float> w = floats(all.tensors[0]), s = floats(all.tensors[1]);
  CHECK(w != s);
  for (uint32_t rank = 0; rank < 4; ++rank) {
    const uint32_t fsdp = rank / 2, tp = rank % 2;
    InputSet part = made(job, rank);
    for (uint32_t i = 0; i < 6; ++i)
      for (uint32_t j = 0; j < 4; ++j)
        CHECK(part.tensors[0].as<float>()[i * 4 + j] == w[(6 * fsdp + i) * 8 + 4 * tp + j]);
    CHECK(floats(part.tensors[1]) == floats(made(job, 0).tensors[1]));
    for (uint32_t i = 0; i < 24; ++i)
      CHECK(std::signbit(part.tensors[2].as<float>()[i]) == std::signbit(s[(6 * tp + 3 * fsdp) * 8 + i]));
  }
  CHECK(floats(made(whole, 0, 1).tensors[0]) != w);
  CHECK(floats(made(whole, 0, 0).tensors[0]) == w);
}

TEST_CASE("values depend on neither threads nor strides, and narrower types round the same") {
  const char* const body = R"(
  param %w : f32[700, 300] "w"
  input %x : f32[2, 700] "x"
  forward -
    %a = aten.mm(%x, %w)
  output %a
)";
  Job job = job_with(body);
  ThreadTeam team(3);
  const std::vector<float> alone = floats(made(job).tensors[0]);
  CHECK(floats(made(job, 0, 0, &team).tensors[0]) == alone);
  double sum = 0, squares = 0;
  for (float v : alone) sum += v, squares += double{v} * v;
  CHECK(std::fabs(sum / 210000) < 1e-3);
  CHECK(squares / 210000 == Approx(1.0 / 700).epsilon(0.02));

  std::string transposed = body, narrow = body;
  transposed.replace(transposed.find("\"w\""), 3, "stride [1, 700] \"w\"");
  narrow.replace(narrow.find("f32[700"), 3, "bf16");
  InputSet t = made(job_with(transposed));
  CHECK(t.tensors[0].step(0) == 1);
  for (int64_t i = 0; i < 700; i += 99)
    for (int64_t j = 0; j < 300; j += 7)
      CHECK(t.tensors[0].as<float>()[i + 700 * j] == alone[static_cast<size_t>(i * 300 + j)]);

  narrow.replace(narrow.find("f32[2"), 3, "bf16");
  InputSet n = made(job_with(narrow));
  for (size_t i = 0; i < alone.size(); i += 77) CHECK(n.tensors[0].as<BF16>()[i].bits == BF16(alone[i]).bits);
}

TEST_CASE("a plan made like another makes the same integers, whatever its own graph indexes by them") {
  const Job compared = job_with(R"(
  input %l : i64[64] "labels"
  param %w : f32[4, 2] "w"
  forward -
    %above = aten.ge.Scalar(%l, 4)
    %below = aten.lt.Scalar(%l, 8)
    %a = aten.logical_and(%above, %below)
  output %a
)");
  const Job indexed = job_with(R"(
  input %l : i64[64] "labels"
  param %w : f32[4, 2] "w"
  forward -
    %a = aten.embedding(%w, %l)
  output %a
)");
  const auto labels = [](const Job& job, const InitPlan& plan) {
    InitMaker maker(plan, 0, 3);
    auto set = load_inputs(job, 0, {.maker = &maker});
    REQUIRE(set.ok());
    const auto* data = set->tensors[0].as<int64_t>();
    return std::vector<int64_t>(data, data + 64);
  };
  const InitPlan first(compared);
  REQUIRE(first.rule(*compared.programs[0], 0).below == 8);
  CHECK(labels(indexed, InitPlan(indexed, &first)) == labels(compared, first));
}

TEST_CASE("a plan made like another takes its rules, and the spelling of a seed is checked") {
  const char* const scaled = R"(
  param %w : f32[4] "w"
  input %x : f32[4] "x"
  forward -
    %a = aten.add.Tensor(%x, %w)
  output %a
)";
  std::string hidden = scaled;
  hidden.replace(hidden.find("add"), 3, "maximum");
  hidden.replace(hidden.find(".Tensor"), 7, "");
  Job first = job_with(scaled), second = job_with(hidden);
  InitPlan plan(first);
  CHECK(InitPlan(second).rule(*second.programs[0], 0).kind == Kind::ones);
  CHECK(InitPlan(second, &plan).rule(*second.programs[0], 0).kind == Kind::zeros);

  CHECK(*parse_init("seed:18446744073709551615") == UINT64_MAX);
  for (const char* bad : {"", "seed", "seed:", "seed:-1", "seed:1x", "seed:18446744073709551616", "7", "Seed:1"})
    CHECK(parse_init(bad).error().kind == ErrorKind::usage);
}
