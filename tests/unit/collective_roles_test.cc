#include "libgraph/facts/collective_roles.h"

#include <catch2/catch.hpp>

#include "tests/support/parse.h"
#include "tests/support/random_job.h"

using namespace sg;
using sg::test::parse_programs;

namespace {

Job two_ranks(std::string_view body) { return parse_programs("graph rank *\n" + std::string(body)); }

std::string label(const Job& job, NodeId n) { return n ? std::string(job.programs[0]->graph.label(n)) : "none"; }

std::vector<std::string> labels(const Job& job, const std::vector<NodeId>& nodes) {
  std::vector<std::string> out;
  for (NodeId n : nodes) out.push_back(label(job, n));
  return out;
}

std::vector<CollectiveChain> chains_of(const Job& job) {
  return CollectiveRoles(*job.programs[0], job.programs[0]->graph).chains();
}

// Labels of the launches with a role.
std::vector<std::string> launches_of(const Job& job) {
  std::vector<std::string> out;
  for (const CollectiveChain& chain : chains_of(job)) out.push_back(label(job, chain.launch));
  return out;
}

using Words = std::vector<std::string>;

}  // namespace

TEST_CASE("an unshard is made of parameters alone, through casts, pads and scales") {
  Job job = two_ranks(R"(  param %w : f32[3, 4] "w"
  param %s : f32[] "s"
  input %x : f32[4, 4]
  forward -
    %p = aten.constant_pad_nd(%w, [0, 0, 0, 1])
    %z = aten.zeros([4, 4], dtype=f32, device=cpu)
    %q = aten.mul.Tensor(%p, %s)
    %r = aten.add.Tensor(%q, %z)
    %c = aten._to_copy(%r, dtype=bf16)
    %g = _c10d_functional.all_gather_into_tensor(%c, 2, @g)
    %v = _c10d_functional.wait_tensor(%g)
    %a = aten.view(%v, [4, 8])
    %b = aten._to_copy(%a, dtype=f32)
    %m = aten.mm(%x, %b)
    %h = _c10d_functional.all_gather_into_tensor(%m, 2, @g)
    %hw = _c10d_functional.wait_tensor(%h)
  output %hw
)");
  auto chains = chains_of(job);
  REQUIRE(chains.size() == 1);
  CHECK(chains[0].role == CollectiveRole::unshard);
  CHECK(labels(job, chains[0].before) == Words{"p", "z", "q", "r", "c"});
  CHECK(label(job, chains[0].wait) == "v");
  CHECK(labels(job, chains[0].after) == Words{"a", "b"});
  CHECK(chains[0].parameters == std::vector<uint32_t>{0, 1});
}

TEST_CASE("gathers behind one another count their depth") {
  Job job = two_ranks(R"(  param %w : f32[2, 4] "w"
  forward -
    %g = _c10d_functional.all_gather_into_tensor(%w, 2, @g)
    %v = _c10d_functional.wait_tensor(%g)
    %h = _c10d_functional.all_gather_into_tensor(%v, 2, @g)
    %u = _c10d_functional.wait_tensor(%h)
    %s = aten.sum(%u)
  output %s
)");
  auto chains = chains_of(job);
  REQUIRE(chains.size() == 2);
  CHECK(chains[0].depth == 0);
  CHECK(chains[1].depth == 1);
}

TEST_CASE("what reads memory that is written before it is no unshard") {
  constexpr const char* kStep = R"(  param %w : f32[2, 4] "w"
  buffer %k : f32[2, 4] "k"
  forward -
    %c = aten.clone(%w)
    {}
    %g = _c10d_functional.all_gather_into_tensor(%c, 2, @g)
    %v = _c10d_functional.wait_tensor(%g)
    %s = aten.sum(%v)
    {}
  output %s
)";
  auto with = [&](std::string before, std::string after) {
    std::string text = kStep;
    text.replace(text.find("{}"), 2, before);
    text.replace(text.find("{}"), 2, after);
    return launches_of(two_ranks(text)).size();
  };
  CHECK(with("", "") == 1);
  CHECK(with("%d = aten.mul_.Tensor(%c, 2.0)", "") == 0);
  CHECK(with("%d = aten.mul_.Tensor(%w, 2.0)", "") == 0);
  CHECK(with("%d = aten.mul_.Tensor(%k, 2.0)", "") == 1);
  CHECK(with("", "%d = aten.mul_.Tensor(%w, 2.0)") == 1);  // an optimizer
}

TEST_CASE("a reduction ends as gradients and nothing else") {
  constexpr const char* kStep = R"(  param %w : f32[2, 4] "w"
  input %x : f32[4, 4]
  backward -
    %c = aten._to_copy(%x, dtype=bf16)
    %r = _c10d_functional.reduce_scatter_tensor(%c, "sum", 2, @g)
    %v = _c10d_functional.wait_tensor(%r)
    %f = aten._to_copy(%v, dtype=f32)
    %m = aten.div.Tensor(%f, 2.0)
    {}
  grad %m of %w
)";
  auto with = [&](std::string more) {
    std::string text = kStep;
    text.replace(text.find("{}"), 2, more);
    return launches_of(two_ranks(text)).size();
  };
  CHECK(with("") == 1);
  CHECK(with("%s = aten.neg(%f)") == 0);  // unused, but not a gradient
  CHECK(with("%s = aten.neg(%f)\n  output %s") == 1);
  CHECK(with("%s = aten.item(%f)") == 0);
  CHECK(with("%s = aten.mul_.Tensor(%x, 2.0)") == 1);  // %x is not read after the launch
  Job job = two_ranks([&] {
    std::string t = kStep;
    t.replace(t.find("{}"), 2, "");
    return t;
  }());
  auto chains = chains_of(job);
  CHECK(labels(job, chains[0].before) == Words{"c"});
  CHECK(labels(job, chains[0].after) == Words{"f", "m"});
  CHECK(chains[0].parameters == std::vector<uint32_t>{0});
}

TEST_CASE("gradients of activations are summed as data of the step, not as gradients") {
  auto with = [](const std::string& last) {
    return launches_of(two_ranks(R"(  param %w : f32[4, 4] "w"
  param %b : f32[4] "b"
  input %x : f32[4, 4]
  input %mean : f32[4, 1]
  backward -
    %d = aten.mm(%x, %w)
    %r = _c10d_functional.all_reduce(%d, "sum", @g)
    %v = _c10d_functional.wait_tensor(%r)
)" + last))
        .size();
  };
  CHECK(with("    %m = aten.mm(%v, %x)\n  grad %m of %w\n") == 0);
  CHECK(with("    %h = aten.mul.Tensor(%v, %x)\n    %m = aten.sum.dim_IntList(%h, [0])\n  grad %m of %b\n") == 0);
  CHECK(with("    %i, %m, %u = aten.native_layer_norm_backward(%v, %x, [4], %mean, %mean, %b, %b, [false, true, true])"
             " : none, f32[4], f32[4]\n  grad %m of %b\n") == 0);
  CHECK(with("    %t = aten.t(%v)\n    %m = aten.mul.Tensor(%t, 0.5)\n  grad %m of %w\n") == 1);
  CHECK(with("    %s = aten.slice.Tensor(%v, 0, 0, 2)\n    %m = aten.constant_pad_nd(%s, [0, 0, 0, 2])\n  grad %m of "
             "%w\n") == 1);
}

TEST_CASE("sums of reductions may be written in place while all writers belong to them") {
  constexpr const char* kStep = R"(  param %w : f32[2, 4] "w"
  input %x : f32[4, 4]
  input %y : f32[2, 4]
  backward -
    %r = _c10d_functional.reduce_scatter_tensor(%x, "sum", 2, @g)
    %v = _c10d_functional.wait_tensor(%r)
    %q = _c10d_functional.reduce_scatter_tensor(%x, "sum", 2, @g)
    %u = _c10d_functional.wait_tensor(%q)
    {}
  grad %m of %w
)";
  auto with = [&](std::string more) {
    std::string text = kStep;
    text.replace(text.find("{}"), 2, more);
    return launches_of(two_ranks(text));
  };
  CHECK(with("%m = aten.add_.Tensor(%v, %u)") == Words{"r", "q"});
  CHECK(with("%o = aten.alias(%v)\n    %m = aten.add_.Tensor(%o, %u)") == Words{"r", "q"});
  // Another reader of the memory that is written: moving the sum would change what it reads.
  CHECK(with("%o = aten.neg(%v)\n    %i = aten.item(%o)\n    %m = aten.add_.Tensor(%v, %u)").empty());
  // Into memory that is not of a reduction.
  CHECK(with("%m = aten.add_.Tensor(%y, %u)").empty());
}

TEST_CASE("gradients that are clipped are reduced for themselves, and end in front of their norm") {
  Job job = two_ranks(R"(  param %w : f32[2, 4] "w"
  param %b : f32[] "b"
  buffer %k : f32[2, 4] "k"
  buffer %z : f32[2, 4] "z"
  input %x : f32[4, 4]
  backward -
    %l = aten.sum(%x) : f32[]
    %r = _c10d_functional.reduce_scatter_tensor(%x, "sum", 2, @g)
    %v = _c10d_functional.wait_tensor(%r)
    %d = aten.div.Tensor(%v, 2.0)
    %a = aten.alias(%d)
    %q = _c10d_functional.all_reduce(%l, "sum", @g)
    %u = _c10d_functional.wait_tensor(%q)
  optimizer -
    %p = aten.pow.Tensor_Scalar(%a, 2.0)
    %n = aten.sum(%p) : f32[]
    %o = _c10d_functional.all_reduce(%n, "sum", @g) : f32[]
    %t = _c10d_functional.wait_tensor(%o) : f32[]
    %c = aten.clamp(%t, none, 1.0) : f32[]
    %m = aten.mul_.Tensor(%a, %c)
    %s = aten.mul_.Tensor(%u, %c)
    %e = aten.alias(%a)
    %h = aten.mul_.Tensor(%k, 0.9)
    %i = aten.add_.Tensor(%h, %a)
    %f = aten.square(%a)
    %y = aten.add_.Tensor(%f, 1e-8)
    %A = aten.add_.Tensor(%z, %y)
    %j = aten.add_.Tensor(%w, %i, alpha=-0.1)
  loss %l
  grad %e of %w
  grad %s of %b
  output %n
)");
  const auto chains = chains_of(job);
  CHECK(launches_of(job) == Words{"r", "q"});  // not %o
  REQUIRE(chains.size() == 2);
  CHECK(label(job, chains[0].launch) == "r");
  CHECK(labels(job, chains[0].after) == Words{"d", "a", "m", "e"});
  CHECK(label(job, chains[0].consumer) == "p");
  CHECK(chains[0].parameters == std::vector<uint32_t>{0});
  CHECK(label(job, chains[1].launch) == "q");
  CHECK(labels(job, chains[1].after) == Words{"s"});
  CHECK(label(job, chains[1].consumer) == "none");
  CHECK(chains[1].parameters == std::vector<uint32_t>{1});
}

TEST_CASE("what the loss is made of is no measure of gradients") {
  constexpr const char* kStep = R"(  param %w : f32[4, 4] "w"
  input %x : f32[4, 4]
  forward -
    %r = _c10d_functional.all_reduce(%x, "sum", @g)
    %v = _c10d_functional.wait_tensor(%r)
    %s = aten.sum(%v) : f32[]
  backward -
    %m = aten.div.Tensor(%v, 2.0)
  {} %s
  grad %m of %w
)";
  auto with = [&](std::string kind) {
    std::string text = kStep;
    text.replace(text.find("{}"), 2, kind);
    return launches_of(two_ranks(text)).size();
  };
  CHECK(with("loss") == 0);
  CHECK(with("output") == 1);
}

TEST_CASE("stored roles are there, and storing again changes nothing") {
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    INFO("seed " << seed);
    Job job = sg::test::random_job(seed);
    for (auto& program : job.programs) {
      const CollectiveRoles roles(*program, program->graph);
      store_roles(&program->graph, roles);
      CHECK(store_roles(&program->graph, CollectiveRoles(*program, program->graph)) == 0);
      for (const CollectiveChain& chain : roles.chains())
        CHECK(program->graph.meta(chain.launch).collective.role == chain.role);
    }
  }
}
