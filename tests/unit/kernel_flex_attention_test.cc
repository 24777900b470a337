// FlexAttention against its definition: scores modified and masked one by one in C++, as the nested graphs do.
#include <catch2/catch.hpp>

#include <cmath>

#include "librun/cpu/lane_graph.h"
#include "tests/support/kernel_call.h"
#include "tests/support/parse.h"
#include "tests/support/rng.h"

using namespace sg;
using test::Buffer;
using test::Rng;

namespace {

constexpr int64_t kHeads = 2, kKeyHeads = 1, kLength = 120, kKeys = 270;
constexpr int64_t kWidth = 24;  // which matrix units multiply, of bf16

// score' = 2 tanh(score) + table[h, (m + n) % 7] + sum(rows[n % 5]) + rows[n % 5][1];
// unmasked where m >= n - 100, both are in one document, and m is not 3. `joint` is the derivative of score' by the
// score.
const char* kGraphs = R"(sg 1.0 job "flex" world 1
device cpu

graph rank *
  input %x : f32[1]

  output %x

graph rank * nested score
  input %s : f32[]
  input %b : i32[]
  input %h : i32[]
  input %m : i32[]
  input %n : i32[]
  input %table : f32[4, 7]
  input %rows : f32[5, 3]

  forward -
    %tanh = aten.tanh.default(%s) : f32[]
    %mul = aten.mul.Tensor(%tanh, 2.0) : f32[]
    %add = aten.add.Tensor(%m, %n) : i32[]
    %rem = aten.remainder.Scalar(%add, 7) : i32[]
    %bias = aten.index.Tensor(%table, [%h, %rem]) : f32[]
    %rem5 = aten.remainder.Scalar(%n, 5) : i32[]
    %row = aten.index.Tensor(%rows, [%rem5]) : f32[3]
    %sum = aten.sum.dim_IntList(%row, [0]) : f32[]
    %one = aten.select.int(%row, 0, 1) : f32[] +1
    %out1 = aten.add.Tensor(%mul, %bias) : f32[]
    %out2 = aten.add.Tensor(%out1, %sum) : f32[]
    %out3 = aten.add.Tensor(%out2, %one) : f32[]

  output %out3

graph rank * nested joint
  input %s : f32[]
  input %b : i32[]
  input %h : i32[]
  input %m : i32[]
  input %n : i32[]
  input %g : f32[]
  input %table : f32[4, 7]
  input %rows : f32[5, 3]

  forward -
    %tanh = aten.tanh.default(%s) : f32[]
    %mul = aten.mul.Tensor(%g, 2.0) : f32[]
    %out = aten.tanh_backward.default(%mul, %tanh) : f32[]

  output %out
  none
  none
  none
  none
  none
  none

graph rank * nested mask
  input %b : i32[]
  input %h : i32[]
  input %m : i32[]
  input %n : i32[]
  input %doc : i32[270]

  forward -
    %sub = aten.sub.Tensor(%n, 100) : i32[]
    %ge = aten.ge.Tensor(%m, %sub) : bool[]
    %dm = aten.index.Tensor(%doc, [%m]) : i32[]
    %dn = aten.index.Tensor(%doc, [%n]) : i32[]
    %eq = aten.eq.Tensor(%dm, %dn) : bool[]
    %ne = aten.ne.Scalar(%m, 3) : bool[]
    %and = aten.bitwise_and.Tensor(%ge, %eq) : bool[]
    %and2 = aten.bitwise_and.Tensor(%and, %ne) : bool[]

  output %and2
)";

ParamValue of_graph(uint32_t index) {
  ParamValue p;
  p.kind = ParamValue::Kind::graph;
  p.graph = NestedId(index);
  return p;
}

template <class T>
Buffer<T> noise(Rng& rng, std::vector<int64_t> shape) {
  Buffer<T> out(shape);
  for (int64_t i = 0; i < out.tensor().elements(); ++i) out.at(i) = T(static_cast<float>(rng.below(2001)) / 1000 - 1);
  return out;
}

struct Flex {
  Rng rng{1};
  Job job = test::parse(kGraphs);
  Buffer<float> table = noise<float>(rng, {4, 7}), rows = noise<float>(rng, {5, 3});
  Buffer<int32_t> doc{{kKeys}};
  Flex() {
    for (int64_t i = 0; i < kKeys; ++i) doc.at(i) = static_cast<int32_t>(i / 90);
  }

  Status call(std::string_view op, std::vector<test::Argument> args, std::vector<Tensor> results, int threads) {
    ThreadTeam team(threads);
    Scratch scratch;
    KernelContext context{&team, &scratch, Numerics::fast, job.programs[0].get()};
    KernelCall c(*find_op(op), &context);
    ParamValue block_mask;
    block_mask.kind = ParamValue::Kind::list;
    block_mask.items = {of_graph(2)};
    args.insert(args.end(), {{"block_mask", block_mask},
                             {"scale", 0.4},
                             {"score_mod_other_buffers", captures({table.tensor(), rows.tensor()})},
                             {"mask_mod_other_buffers", captures({doc.tensor()})}});
    for (test::Argument& a : args) c.params()[static_cast<size_t>(c.op().param_index(a.name))] = std::move(a.value);
    c.results = std::move(results);
    return find_cpu_kernel(op)(c);
  }
  static ParamValue captures(std::vector<Tensor> list) { return test::tensors(std::move(list)); }

  double changed(double score, int64_t h, int64_t m, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < 3; ++i) sum += rows.at(n % 5 * 3 + i);
    return 2 * std::tanh(score) + table.at(h * 7 + (m + n) % 7) + sum + rows.at(n % 5 * 3 + 1);
  }
  bool seen(int64_t m, int64_t n) { return m >= n - 100 && doc.at(m) == doc.at(n) && m != 3; }
};

struct FlexOracle {
  std::vector<double> out, lse, maxima, dq, dk, dv;

  template <class T>
  FlexOracle(Flex& f, Buffer<T>& q, Buffer<T>& k, Buffer<T>& v, Buffer<T>& grad, Buffer<float>& grad_lse) {
    auto size = [](Buffer<T>& b) { return static_cast<size_t>(b.tensor().elements()); };
    out.resize(size(q)), dq.resize(size(q)), dk.resize(size(k)), dv.resize(size(v)), lse.resize(size(q) / kWidth),
        maxima.resize(size(q) / kWidth);
    for (int64_t h = 0; h < kHeads; ++h)
      for (int64_t m = 0; m < kLength; ++m) row(f, q, k, v, grad, grad_lse, h, m);
  }

  template <class T>
  void row(Flex& f, Buffer<T>& q, Buffer<T>& k, Buffer<T>& v, Buffer<T>& grad, Buffer<float>& grad_lse, int64_t h,
           int64_t m) {
    int64_t kh = h / (kHeads / kKeyHeads), at = (h * kLength + m) * kWidth;
    std::vector<double> raw(kKeys), p(kKeys);
    double max = -INFINITY, sum = 0, delta = 0;
    auto key = [&](int64_t n, int64_t e) { return (kh * kKeys + n) * kWidth + e; };
    for (int64_t n = 0; n < kKeys; ++n) {
      for (int64_t e = 0; e < kWidth; ++e)
        raw[static_cast<size_t>(n)] += 0.4 * double(q.at(at + e)) * double(k.at(key(n, e)));
      p[static_cast<size_t>(n)] = f.seen(m, n) ? f.changed(raw[static_cast<size_t>(n)], h, m, n) : -INFINITY;
      max = std::max(max, p[static_cast<size_t>(n)]);
    }
    for (double& x : p) sum += x = max == -INFINITY ? 0 : std::exp(x - max);
    lse[static_cast<size_t>(h * kLength + m)] = max == -INFINITY ? max : (max + std::log(sum)) / std::log(2.0);
    maxima[static_cast<size_t>(h * kLength + m)] = max / std::log(2.0);
    for (int64_t n = 0; n < kKeys && sum > 0; ++n) {
      p[static_cast<size_t>(n)] /= sum;
      for (int64_t e = 0; e < kWidth; ++e)
        out[static_cast<size_t>(at + e)] += p[static_cast<size_t>(n)] * double(v.at(key(n, e)));
    }
    for (int64_t e = 0; e < kWidth; ++e) delta += out[static_cast<size_t>(at + e)] * double(grad.at(at + e));
    for (int64_t n = 0; n < kKeys; ++n) {
      double dp = 0, pn = p[static_cast<size_t>(n)], t = std::tanh(raw[static_cast<size_t>(n)]);
      for (int64_t e = 0; e < kWidth; ++e) {
        dp += double(grad.at(at + e)) * double(v.at(key(n, e)));
        dv[static_cast<size_t>(key(n, e))] += pn * double(grad.at(at + e));
      }
      double ds = pn * (dp - delta + grad_lse.at(h * kLength + m) / std::log(2.0)) * 2 * (1 - t * t) * 0.4;
      for (int64_t e = 0; e < kWidth; ++e) {
        dq[static_cast<size_t>(at + e)] += ds * double(k.at(key(n, e)));
        dk[static_cast<size_t>(key(n, e))] += ds * double(q.at(at + e));
      }
    }
  }
};

template <class T>
void check(Flex& f, int threads, double tolerance) {
  Buffer<T> q = noise<T>(f.rng, {1, kHeads, kLength, kWidth}), k = noise<T>(f.rng, {1, kKeyHeads, kKeys, kWidth});
  Buffer<T> v = noise<T>(f.rng, {1, kKeyHeads, kKeys, kWidth}), grad = noise<T>(f.rng, {1, kHeads, kLength, kWidth});
  Buffer<float> grad_lse = noise<float>(f.rng, {1, kHeads, kLength});
  FlexOracle oracle(f, q, k, v, grad, grad_lse);
  Buffer<T> out({1, kHeads, kLength, kWidth}), dq({1, kHeads, kLength, kWidth}), dk({1, kKeyHeads, kKeys, kWidth}),
      dv({1, kKeyHeads, kKeys, kWidth});
  Buffer<float> lse({1, kHeads, kLength}), maxima({1, kHeads, kLength});
  std::vector<test::Argument> args{{"query", q}, {"key", k}, {"value", v}};
  std::vector<test::Argument> forward = args;
  forward.emplace_back("score_mod", of_graph(0));
  Status status =
      f.call("higher_order.flex_attention", forward, {out.tensor(), lse.tensor(), maxima.tensor()}, threads);
  INFO((status.ok() ? "" : status.error().message));
  REQUIRE(status.ok());
  CHECK(relative_error(out, oracle.out) < tolerance);
  CHECK(relative_error(lse, oracle.lse) < 1e-6);
  CHECK(relative_error(maxima, oracle.maxima) < 1e-6);
  args.insert(args.end(), {{"out", out},
                           {"logsumexp", lse},
                           {"grad_out", grad},
                           {"grad_logsumexp", grad_lse},
                           {"fw_graph", of_graph(0)},
                           {"joint_graph", of_graph(1)}});
  status =
      f.call("higher_order.flex_attention_backward", args, {dq.tensor(), dk.tensor(), dv.tensor(), Tensor()}, threads);
  REQUIRE(status.ok());
  CHECK(relative_error(dq, oracle.dq) < 3 * tolerance);
  CHECK(relative_error(dk, oracle.dk) < 3 * tolerance);
  CHECK(relative_error(dv, oracle.dv) < 3 * tolerance);
}

}  // namespace

TEST_CASE("flex_attention: score_mod, mask_mod and their gradients, f32 and bf16") {
  Flex f;
  check<float>(f, 3, 1e-6);
  check<BF16>(f, 2, 8e-3);
}

TEST_CASE("flex_attention: an index that a mask_mod takes from data is checked") {
  Flex f;
  Buffer<float> q({1, 4, 310, 4}), k({1, 2, 8, 4}), out({1, 4, 310, 4}), lse({1, 4, 310}), maxima({1, 4, 310});
  Status status =
      f.call("higher_order.flex_attention", {{"query", q}, {"key", k}, {"value", k}, {"score_mod", of_graph(0)}},
             {out.tensor(), lse.tensor(), maxima.tensor()}, 2);
  CHECK(!status.ok());  // row 270 has no document
}

TEST_CASE("LaneGraph: scores stay in f32 where the graph was traced with halves") {
  Job job = test::parse(R"(sg 1.0 job "half" world 1
device cpu

graph rank *
  input %s : bf16[]

  forward -
    %mul = aten.mul.Tensor(%s, 3.0) : bf16[]
    %half = aten._to_copy.default(%mul, dtype=bf16) : bf16[]

  output %mul
  output %half
)");
  cpu::LaneGraph graph(*job.programs[0], job.programs[0]->graph, Numerics::fast);
  float scores[] = {1.001f, 2.002f, 3.003f};
  cpu::LaneValue in{make_tensor(reinterpret_cast<std::byte*>(scores), DType::f32, {}), {0, 0, 1}};
  auto out = graph.run({1, 1, 3}, std::span(&in, 1));
  REQUIRE(out.ok());
  REQUIRE((*out)[0].tensor.dtype == DType::f32);
  REQUIRE((*out)[1].tensor.dtype == DType::bf16);
  for (int64_t i = 0; i < 3; ++i) {
    CHECK((*out)[0].tensor.as<float>()[i * (*out)[0].step[2]] == scores[i] * 3.0f);
    CHECK(float((*out)[1].tensor.as<BF16>()[i * (*out)[1].step[2]]) == float(BF16(scores[i] * 3.0f)));
  }
}

TEST_CASE("LaneGraph: a value has as many blocks as its arguments have, along each axis of lanes") {
  Job job = test::parse(R"(sg 1.0 job "axes" world 1
device cpu

graph rank *
  input %h : i64[]
  input %q : i64[]
  input %k : i64[]
  input %table : i64[5]
  input %pairs : i64[4, 2]

  forward -
    %pick = aten.index.Tensor(%table, [%q]) : i64[]
    %twice = aten.mul.Tensor(%pick, 2) : i64[]
    %more = aten.add.Tensor(%twice, 1) : i64[]
    %sum = aten.add.Tensor(%more, %k) : i64[]
    %all = aten.mul.Tensor(%sum, %h) : i64[]
    %pair = aten.index.Tensor(%pairs, [%h]) : i64[2]
    %bit = aten.remainder.Scalar(%k, 2) : i64[]
    %one = aten.index.Tensor(%pair, [%bit]) : i64[]

  output %more
  output %sum
  output %all
  output %one
)");
  cpu::LaneGraph graph(*job.programs[0], job.programs[0]->graph, Numerics::fast);
  int64_t numbers[] = {0, 1, 2, 3, 4}, table[] = {7, 11, 13, 17, 19}, pairs[] = {3, 5, 20, 22, 31, 37, 41, 43};
  auto along = [&](cpu::PerLaneAxis step) {
    return cpu::LaneValue{make_tensor(reinterpret_cast<std::byte*>(numbers), DType::i64, {}), step};
  };
  auto same = [](int64_t* data, std::vector<int64_t> shape) {
    return cpu::LaneValue{make_tensor(reinterpret_cast<std::byte*>(data), DType::i64, shape)};
  };
  std::vector<cpu::LaneValue> in = {along({1, 0, 0}), along({0, 1, 0}), along({0, 0, 1}), same(table, {5}),
                                    same(pairs, {4, 2})};
  auto out = graph.run({4, 5, 3}, in);
  REQUIRE(out.ok());
  CHECK((*out)[0].step == cpu::PerLaneAxis{0, 1, 0});
  CHECK((*out)[1].step == cpu::PerLaneAxis{0, 3, 1});
  CHECK((*out)[2].step == cpu::PerLaneAxis{15, 3, 1});
  CHECK((*out)[3].step == cpu::PerLaneAxis{3, 0, 1});
  for (int64_t h = 0; h < 4; ++h)
    for (int64_t q = 0; q < 5; ++q)
      for (int64_t k = 0; k < 3; ++k) {
        auto at = [&](size_t i) {
          const cpu::PerLaneAxis& step = (*out)[i].step;
          return (*out)[i].tensor.as<int64_t>()[h * step[0] + q * step[1] + k * step[2]];
        };
        CHECK(at(0) == 2 * table[q] + 1);
        CHECK(at(1) == 2 * table[q] + 1 + k);
        CHECK(at(2) == (2 * table[q] + 1 + k) * h);
        CHECK(at(3) == pairs[h * 2 + k % 2]);
      }
}
