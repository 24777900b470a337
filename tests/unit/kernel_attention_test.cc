// Attention against its definition in double, and against itself with other numbers of threads.
#include <catch2/catch.hpp>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/kernel_call.h"
#include "tests/support/rng.h"

using namespace sg;
using test::Buffer;
using test::Rng;

namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

struct AttentionSizes {
  int64_t batch, heads, key_heads, length, keys, width, value_width;
};

// One attention from its definition, forward and backward. Tensors in logical order.
struct AttentionOracle {
  AttentionSizes s;
  bool causal;
  double scale;
  std::vector<double> q, k, v, mask, grad;  // mask: added; empty: none
  std::vector<double> out, lse, dq, dk, dv, dmask;
  std::vector<double> factors = {};  // of the weights, from dropout; empty: all 1

  double& at(std::vector<double>& t, int64_t b, int64_t h, int64_t i, int64_t j, int64_t heads, int64_t length,
             int64_t width) {
    return t[static_cast<size_t>(((b * heads + h) * length + i) * width + j)];
  }
  double dot(std::vector<double>& x, double* row, int64_t b, int64_t h, int64_t i, int64_t heads, int64_t length,
             int64_t width) {
    double sum = 0;
    for (int64_t e = 0; e < width; ++e) sum += at(x, b, h, i, e, heads, length, width) * row[e];
    return sum;
  }
  void row(int64_t b, int64_t h, int64_t i) {
    int64_t kh = h / (s.heads / s.key_heads);
    std::vector<double> p(static_cast<size_t>(s.keys));
    double max = -kInfinity, sum = 0, delta = 0;
    double* query = &at(q, b, h, i, 0, s.heads, s.length, s.width);
    double* result = &at(out, b, h, i, 0, s.heads, s.length, s.value_width);
    double* g = &at(grad, b, h, i, 0, s.heads, s.length, s.value_width);
    auto factor = [&](int64_t j) { return factors.empty() ? 1 : at(factors, b, h, i, j, s.heads, s.length, s.keys); };
    for (int64_t j = 0; j < s.keys; ++j) {
      double& score = p[static_cast<size_t>(j)];
      score = scale * dot(k, query, b, kh, j, s.key_heads, s.keys, s.width);
      if (!mask.empty()) score += at(mask, b, h, i, j, s.heads, s.length, s.keys);
      if (causal && j > i) score = -kInfinity;
      max = std::max(max, score);
    }
    for (double& x : p) sum += x = max == -kInfinity ? 0 : std::exp(x - max);
    at(lse, b, h, i, 0, s.heads, s.length, 1) = max == -kInfinity ? max : max + std::log(sum);
    for (int64_t j = 0; j < s.keys; ++j) {
      if (sum > 0) p[static_cast<size_t>(j)] /= sum;
      for (int64_t e = 0; e < s.value_width; ++e)
        result[e] += p[static_cast<size_t>(j)] * factor(j) * at(v, b, kh, j, e, s.key_heads, s.keys, s.value_width);
    }
    for (int64_t e = 0; e < s.value_width; ++e) delta += result[e] * g[e];
    for (int64_t j = 0; j < s.keys; ++j) {
      double pj = p[static_cast<size_t>(j)];
      double ds = pj * (factor(j) * dot(v, g, b, kh, j, s.key_heads, s.keys, s.value_width) - delta);
      pj *= factor(j);
      if (!mask.empty()) at(dmask, b, h, i, j, s.heads, s.length, s.keys) = ds;
      for (int64_t e = 0; e < s.value_width; ++e) at(dv, b, kh, j, e, s.key_heads, s.keys, s.value_width) += pj * g[e];
      for (int64_t e = 0; e < s.width; ++e) {
        at(dq, b, h, i, e, s.heads, s.length, s.width) += scale * ds * at(k, b, kh, j, e, s.key_heads, s.keys, s.width);
        at(dk, b, kh, j, e, s.key_heads, s.keys, s.width) += scale * ds * query[e];
      }
    }
  }
  void run() {
    out.assign(grad.size(), 0), lse.assign(static_cast<size_t>(s.batch * s.heads * s.length), 0);
    dq.assign(q.size(), 0), dk.assign(k.size(), 0), dv.assign(v.size(), 0), dmask.assign(mask.size(), 0);
    for (int64_t b = 0; b < s.batch; ++b)
      for (int64_t h = 0; h < s.heads; ++h)
        for (int64_t i = 0; i < s.length; ++i) row(b, h, i);
  }
};

template <class T>
Buffer<T> random_tensor(Rng& rng, std::vector<int64_t> shape, bool heads_inside, std::vector<double>* values) {
  std::vector<int64_t> stride{shape[1] * shape[2] * shape[3], shape[2] * shape[3], shape[3], 1};
  if (heads_inside) stride = {shape[1] * shape[2] * shape[3], shape[3], shape[1] * shape[3], 1};
  Buffer<T> out(shape, {}, stride);
  for (int64_t i = 0; i < out.tensor().elements(); ++i) {
    out.at(i) = T(static_cast<Compute<T>>(static_cast<double>(rng.below(4001)) / 1000 - 2));
    values->push_back(static_cast<double>(static_cast<Compute<T>>(out.at(i))));
  }
  return out;
}

// The largest difference, in units of the largest expected value.
template <class T>
constexpr double kTolerance = std::is_same_v<T, double>  ? 1e-13
                              : std::is_same_v<T, float> ? 2e-6
                              : std::is_same_v<T, F16>   ? 2e-3
                                                         : 1.2e-2;

enum class Mask { none, boolean, added };

template <class T>
void check(Rng& rng, AttentionSizes s, bool causal, Mask kind, int threads) {
  CAPTURE(s.batch, s.heads, s.key_heads, s.length, s.keys, s.width, s.value_width, causal, static_cast<int>(kind),
          threads);
  AttentionOracle oracle{s, causal, 0.3, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
  Buffer<T> q = random_tensor<T>(rng, {s.batch, s.heads, s.length, s.width}, true, &oracle.q);
  Buffer<T> k = random_tensor<T>(rng, {s.batch, s.key_heads, s.keys, s.width}, rng.below(2), &oracle.k);
  Buffer<T> v = random_tensor<T>(rng, {s.batch, s.key_heads, s.keys, s.value_width}, rng.below(2), &oracle.v);
  Buffer<T> grad = random_tensor<T>(rng, {s.batch, s.heads, s.length, s.value_width}, true, &oracle.grad);
  Buffer<bool> flags({s.batch, 1, s.length, s.keys});
  Buffer<T> added({s.length, s.keys});
  if (kind != Mask::none) {
    oracle.mask.resize(static_cast<size_t>(s.batch * s.heads * s.length * s.keys));
    for (int64_t i = 0; i < flags.tensor().elements(); ++i)
      flags.at(i) = rng.below(3) > 0 && i / s.keys % 7 != 3;  // some rows attend to nothing
    for (int64_t i = 0; i < added.tensor().elements(); ++i)
      added.at(i) = T(static_cast<Compute<T>>(rng.below(8) == 0 ? -kInfinity : static_cast<double>(rng.below(9)) / 4));
    for (size_t i = 0; i < oracle.mask.size(); ++i) {
      auto e = static_cast<int64_t>(i);
      int64_t in_head = e % (s.length * s.keys), batch = e / (s.heads * s.length * s.keys);
      oracle.mask[i] = kind == Mask::boolean ? (flags.at(batch * s.length * s.keys + in_head) ? 0 : -kInfinity)
                                             : double(static_cast<Compute<T>>(added.at(in_head)));
    }
  }
  oracle.run();
  using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;
  Buffer<T> out({s.batch, s.heads, s.length, s.value_width}, {},
                {s.heads * s.length * s.value_width, s.value_width, s.heads * s.value_width, 1});
  Buffer<Sum> lse({s.batch, s.heads, s.length}, {}, {s.heads * s.length, 1, s.heads});
  std::vector<test::Argument> args{{"query", q}, {"key", k}, {"value", v}, {"is_causal", causal}, {"scale", 0.3}};
  if (kind == Mask::boolean) args.emplace_back("attn_mask", flags);
  if (kind == Mask::added) args.emplace_back("attn_mask", added);
  const std::string op = "aten._scaled_dot_product_flash_attention_for_cpu";
  REQUIRE(test::call(op + ".default", args, {out.tensor(), lse.tensor()}, threads).ok());
  CHECK(relative_error(out, oracle.out) < kTolerance<T>);
  CHECK(relative_error(lse, oracle.lse) < kTolerance<Sum>);
  Buffer<T> dq(std::vector<int64_t>{s.batch, s.heads, s.length, s.width}),
      dk(std::vector<int64_t>{s.batch, s.key_heads, s.keys, s.width});
  Buffer<T> dv(std::vector<int64_t>{s.batch, s.key_heads, s.keys, s.value_width});
  args.insert(args.end(), {{"grad_out", grad}, {"out", out}, {"logsumexp", lse}, {"dropout_p", 0.0}});
  REQUIRE(test::call(op + "_backward.default", args, {dq.tensor(), dk.tensor(), dv.tensor()}, threads).ok());
  CHECK(relative_error(dq, oracle.dq) < 3 * kTolerance<T>);
  CHECK(relative_error(dk, oracle.dk) < 3 * kTolerance<T>);
  CHECK(relative_error(dv, oracle.dv) < 3 * kTolerance<T>);
}

template <class T>
void check_all(uint64_t seed) {
  Rng rng(seed);
  for (Mask kind : {Mask::none, Mask::boolean, Mask::added})
    for (bool causal : {false, true}) {
      check<T>(rng, {2, 4, 2, 30, 30, 16, 16}, causal, kind, 2);
      check<T>(rng, {1, 2, 2, 115, 300, 5, 33}, causal, kind, 1);
      check<T>(rng, {2, 3, 1, 260, 7, 24, 8}, causal, kind, 4);
      check<T>(rng, {1, 4, 2, 140, 270, 33, 18}, causal, kind, 2);
    }
  check<T>(rng, {1, 2, 1, 3, 0, 4, 4}, false, Mask::none, 1);
  check<T>(rng, {0, 2, 1, 3, 5, 4, 4}, false, Mask::none, 1);
}

}  // namespace

TEST_CASE("attention: f32, forward and backward, masks, shared key heads") { check_all<float>(1); }
TEST_CASE("attention: f64") { check_all<double>(2); }
TEST_CASE("attention: bf16") { check_all<BF16>(3); }
TEST_CASE("attention: f16") { check_all<F16>(4); }

TEST_CASE("attention: threads do not change a bit") {
  Rng rng(5);
  std::vector<double> unused;
  Buffer<float> q = random_tensor<float>(rng, {2, 4, 200, 32}, true, &unused),
                k = random_tensor<float>(rng, {2, 2, 600, 32}, true, &unused);
  Buffer<float> v = random_tensor<float>(rng, {2, 2, 600, 32}, false, &unused),
                grad = random_tensor<float>(rng, {2, 4, 200, 32}, true, &unused);
  std::vector<std::vector<float>> first;
  for (int threads : {1, 2, 4}) {
    Buffer<float> out({2, 4, 200, 32}), lse({2, 4, 200}), dq({2, 4, 200, 32}), dk({2, 2, 600, 32}), dv({2, 2, 600, 32});
    std::vector<test::Argument> args{{"query", q}, {"key", k}, {"value", v}, {"is_causal", true}};
    REQUIRE(test::call("aten._scaled_dot_product_flash_attention_for_cpu.default", args, {out.tensor(), lse.tensor()},
                       threads)
                .ok());
    args.insert(args.end(), {{"grad_out", grad}, {"out", out}, {"logsumexp", lse}, {"dropout_p", 0.0}});
    REQUIRE(test::call("aten._scaled_dot_product_flash_attention_for_cpu_backward.default", args,
                       {dq.tensor(), dk.tensor(), dv.tensor()}, threads)
                .ok());
    std::vector<std::vector<float>> results{out.values(), lse.values(), dq.values(), dk.values(), dv.values()};
    if (first.empty()) first = results;
    REQUIRE(results == first);
  }
}

TEST_CASE("attention: weights are not above 1 where scores are so large that rounding their logarithm is a factor") {
  Rng rng(7);
  for (double scale : {3e3, 3e5, 3e8, 1e12}) {
    CAPTURE(scale);
    AttentionOracle oracle{{1, 2, 1, 30, 40, 8, 8}, false, scale, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
    Buffer<float> q = random_tensor<float>(rng, {1, 2, 30, 8}, true, &oracle.q),
                  k = random_tensor<float>(rng, {1, 1, 40, 8}, true, &oracle.k);
    Buffer<float> v = random_tensor<float>(rng, {1, 1, 40, 8}, true, &oracle.v),
                  grad = random_tensor<float>(rng, {1, 2, 30, 8}, true, &oracle.grad);
    oracle.run();
    Buffer<float> out({1, 2, 30, 8}), lse({1, 2, 30}), dq({1, 2, 30, 8}), dk({1, 1, 40, 8}), dv({1, 1, 40, 8});
    std::vector<test::Argument> args{{"query", q}, {"key", k}, {"value", v}, {"is_causal", false}, {"scale", scale}};
    const std::string op = "aten._scaled_dot_product_flash_attention_for_cpu";
    REQUIRE(test::call(op + ".default", args, {out.tensor(), lse.tensor()}).ok());
    args.insert(args.end(), {{"grad_out", grad}, {"out", out}, {"logsumexp", lse}, {"dropout_p", 0.0}});
    REQUIRE(test::call(op + "_backward.default", args, {dq.tensor(), dk.tensor(), dv.tensor()}).ok());
    CHECK(relative_error(dv, oracle.dv) < 0.02);  // two scores may be as close as their rounding
    for (Buffer<float>* gradient : {&dq, &dk})
      for (float x : gradient->values()) CHECK(std::isfinite(x));
  }
}

TEST_CASE("attention: what the CUDA ops return beside the output") {
  Rng rng(6);
  AttentionSizes s{1, 2, 2, 40, 40, 8, 8};
  AttentionOracle oracle{s, true, 1 / std::sqrt(8.0), {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
  Buffer<float> q = random_tensor<float>(rng, {1, 2, 40, 8}, true, &oracle.q),
                k = random_tensor<float>(rng, {1, 2, 40, 8}, true, &oracle.k);
  Buffer<float> v = random_tensor<float>(rng, {1, 2, 40, 8}, true, &oracle.v),
                grad = random_tensor<float>(rng, {1, 2, 40, 8}, true, &oracle.grad);
  Buffer<float> bias({1, 2, 40, 40});
  for (int64_t i = 0; i < 3200; ++i) oracle.mask.push_back(bias.at(i) = static_cast<float>(rng.below(9)) / 4);
  oracle.run();
  Buffer<float> out({1, 2, 40, 8}), padded({1, 2, 64});
  Buffer<int64_t> seed({}, {7}), offset({}, {7});
  std::vector<test::Argument> args{{"query", q}, {"key", k}, {"value", v}, {"attn_bias", bias}, {"is_causal", true}};
  std::vector<test::Argument> forward = args;
  forward.emplace_back("compute_log_sumexp", true);
  REQUIRE(test::call("aten._scaled_dot_product_efficient_attention.default", forward,
                     {out.tensor(), padded.tensor(), seed.tensor(), offset.tensor()})
              .ok());
  CHECK(relative_error(out, oracle.out) < 2e-6);
  CHECK(seed.at(0) == 0);
  for (int64_t i = 0; i < 128; ++i)
    CHECK((i % 64 < 40 ? std::abs(padded.at(i) - oracle.lse[static_cast<size_t>(i / 64 * 40 + i % 64)]) < 1e-5
                       : padded.at(i) == kInfinity));
  Buffer<float> dq({1, 2, 40, 8}), dk({1, 2, 40, 8}), dv({1, 2, 40, 8}), dbias({1, 2, 40, 40});
  args.insert(args.end(), {{"grad_out_", grad},
                           {"out", out},
                           {"logsumexp", padded},
                           {"philox_seed", seed},
                           {"philox_offset", offset},
                           {"dropout_p", 0.0},
                           {"grad_input_mask", test::ints({1, 1, 1, 1})}});
  REQUIRE(test::call("aten._scaled_dot_product_efficient_attention_backward.default", args,
                     {dq.tensor(), dk.tensor(), dv.tensor(), dbias.tensor()}, 2)
              .ok());
  CHECK(relative_error(dq, oracle.dq) < 5e-6);
  CHECK(relative_error(dbias, oracle.dmask) < 5e-6);
}

// The weights dropped are those that a dropout node of the same stream drops from a tensor of ones.
template <class T>
void check_dropout(const std::string& kind, double p, int threads) {
  CAPTURE(kind, p, threads);
  Rng rng(8);
  AttentionSizes s{2, 4, 2, 130, 300, 16, 8};
  const bool is_causal = kind != "flash";  // which has no kernel for it with fewer queries than keys
  AttentionOracle oracle{s, is_causal, 1 / std::sqrt(16.0), {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}};
  Buffer<T> q = random_tensor<T>(rng, {2, 4, 130, 16}, true, &oracle.q),
            k = random_tensor<T>(rng, {2, 2, 300, 16}, true, &oracle.k);
  Buffer<T> v = random_tensor<T>(rng, {2, 2, 300, 8}, true, &oracle.v),
            grad = random_tensor<T>(rng, {2, 4, 130, 8}, true, &oracle.grad);
  const RandomStream stream{3, 5, 7, 2, {}, {}};
  Buffer<double> ones({2, 4, 130, 300}, std::vector<double>(312000, 1.0)), dropped({2, 4, 130, 300});
  Buffer<bool> kept({2, 4, 130, 300});
  REQUIRE(test::draw("aten.native_dropout.default", {{"input", ones}, {"p", p}, {"train", true}},
                     {dropped.tensor(), kept.tensor()}, stream)
              .ok());
  oracle.factors = dropped.values();
  oracle.run();
  Buffer<T> out({2, 4, 130, 8}), dq({2, 4, 130, 16}), dk({2, 2, 300, 16}), dv({2, 2, 300, 8});
  const bool is_efficient = kind == "efficient", is_cudnn = kind == "cudnn";
  Buffer<std::conditional_t<std::is_same_v<T, double>, double, float>> lse({2, 4, is_efficient ? 160 : 130});
  Buffer<int64_t> low(is_efficient || is_cudnn ? std::vector<int64_t>{} : std::vector<int64_t>{2}), high({});
  std::vector<test::Argument> args{{"query", q}, {"key", k}, {"value", v}, {"is_causal", is_causal}, {"dropout_p", p}};
  std::vector<Tensor> results{out.tensor(), lse.tensor()};
  if (!is_efficient) results.resize(6);
  for (const Tensor* t : {&low.tensor(), &high.tensor()}) results.push_back(*t);
  if (!is_efficient) results.resize(9);
  const std::string op = "aten._scaled_dot_product_" + kind + "_attention";
  std::vector<test::Argument> forward = args;
  if (is_efficient || is_cudnn) forward.emplace_back("compute_log_sumexp", true);
  REQUIRE(test::draw(op + ".default", forward, results, stream, threads).ok());
  CHECK(relative_error(out, oracle.out) < kTolerance<T>);
  args.insert(args.end(), {{is_efficient ? "grad_out_" : "grad_out", grad},
                           {"out", out},
                           {"logsumexp", lse},
                           {"philox_seed", low},
                           {"philox_offset", high}});
  results = {dq.tensor(), dk.tensor(), dv.tensor()};
  if (is_efficient) args.emplace_back("grad_input_mask", test::ints({1, 1, 1, 0})), results.resize(4);
  REQUIRE(test::call(op + "_backward.default", args, results, threads).ok());
  CHECK(relative_error(dq, oracle.dq) < 3 * kTolerance<T>);
  CHECK(relative_error(dk, oracle.dk) < 3 * kTolerance<T>);
  CHECK(relative_error(dv, oracle.dv) < 3 * kTolerance<T>);
}

TEST_CASE("attention: dropout of the weights, forward and backward") {
  for (const char* kind : {"efficient", "flash", "cudnn"})
    for (double p : {0.1, 0.75, 1.0}) {
      check_dropout<float>(kind, p, 2);
      check_dropout<double>(kind, p, 1);
    }
  check_dropout<BF16>("flash", 0.2, 2);
}

TEST_CASE("attention: dropout where no backward knows of it and sizes that do not fit are refused") {
  Buffer<float> q({1, 2, 4, 8}), k({1, 2, 5, 8}), odd({1, 3, 5, 8}), out({1, 2, 4, 8}), lse({1, 2, 4});
  const char* op = "aten._scaled_dot_product_flash_attention_for_cpu.default";
  Status dropout =
      test::call(op, {{"query", q}, {"key", k}, {"value", k}, {"dropout_p", 0.1}}, {out.tensor(), lse.tensor()});
  REQUIRE(!dropout.ok());
  CHECK(dropout.error().message.find("dropout") != std::string::npos);
  CHECK(!test::call(op, {{"query", q}, {"key", odd}, {"value", odd}}, {out.tensor(), lse.tensor()}).ok());
  CHECK(!test::call(op, {{"query", q}, {"key", k}, {"value", odd}}, {out.tensor(), lse.tensor()}).ok());
}

TEST_CASE("attention: CUDA's flash attention is causal from the last key on, which is refused where that differs") {
  Buffer<float> q({1, 2, 4, 8}), k({1, 2, 5, 8}), out({1, 2, 4, 8}), lse({1, 2, 4});
  std::vector<Tensor> results{out.tensor(), lse.tensor()};
  results.resize(9);
  const auto run = [&](const Buffer<float>& keys, bool is_causal) {
    return test::call("aten._scaled_dot_product_flash_attention.default",
                      {{"query", q}, {"key", keys}, {"value", keys}, {"is_causal", is_causal}}, results);
  };
  CHECK(run(q, true).ok());
  CHECK(run(k, false).ok());
  const Status refused = run(k, true);
  REQUIRE(!refused.ok());
  CHECK(refused.error().message.find("the last query sees the last key") != std::string::npos);
}

TEST_CASE("scaled_dot_product_attention takes any number of batch axes") {
  Rng rng(7);
  Buffer<float> q({2, 3, 2, 5, 4}), out({2, 3, 2, 5, 4}), flat({6, 2, 5, 4});
  for (int64_t i = 0; i < 240; ++i) q.at(i) = static_cast<float>(rng.below(100)) / 50 - 1;
  REQUIRE(
      test::call("aten.scaled_dot_product_attention.default", {{"query", q}, {"key", q}, {"value", q}}, {out.tensor()})
          .ok());
  Buffer<float> four({6, 2, 5, 4}, q.values());
  REQUIRE(test::call("aten.scaled_dot_product_attention.default", {{"query", four}, {"key", four}, {"value", four}},
                     {flat.tensor()})
              .ok());
  CHECK(out.values() == flat.values());
  std::vector<float> first = q.values();
  first.resize(20);
  Buffer<float> two({5, 4}, first), small({5, 4});
  REQUIRE(test::call("aten.scaled_dot_product_attention.default", {{"query", two}, {"key", two}, {"value", two}},
                     {small.tensor()})
              .ok());
  std::vector<float> all = flat.values();
  CHECK(small.values() == std::vector<float>(all.begin(), all.begin() + 20));
}
