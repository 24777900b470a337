#include "libgraph/facts/alias.h"

#include <catch2/catch.hpp>

#include "libgraph/facts/view_rule.h"
#include "tests/support/parse.h"
#include "tests/support/random_job.h"
#include "tests/support/rng.h"

using namespace sg;
using sg::test::parse;

namespace {

struct Fixture {
  Job job;
  const Program& program;
  const Graph& graph;
  AliasAnalysis alias;

  explicit Fixture(std::string_view body, const AliasOptions& options = {})
      : job(parse("sg 1.0 job \"t\" world 4\ngroup @g [0 1 2 3]\ndevice cpu\n\n" + std::string(body))),
        program(*job.programs[0]),
        graph(program.graph),
        alias(program, graph, options) {}

  ValueId v(std::string_view name) const {
    ValueId id = graph.find_value(name);
    INFO(name);
    REQUIRE(id);
    return id;
  }
  bool same(std::string_view a, std::string_view b) const { return alias.must_alias(v(a), v(b)); }
  bool may(std::string_view a, std::string_view b) const { return alias.may_alias(v(a), v(b)); }
  bool contains(std::span<const StorageId> list, std::string_view value) const {
    StorageId s = alias.storage_of(v(value));
    return std::find(list.begin(), list.end(), s) != list.end();
  }
  bool writes(std::string_view node, std::string_view value) const {
    return contains(alias.writes(graph.find_node(node)), value);
  }
  bool reads(std::string_view node, std::string_view value) const {
    return contains(alias.reads(graph.find_node(node)), value);
  }
};

}  // namespace

TEST_CASE("views and written arguments share their argument's storage") {
  Fixture f(R"(graph rank *
  input %x : f32[4, 6] "x"
  input %y : f32[4, 6] "y"

  forward -
    %t = aten.t(%x)                    : f32[6, 4] stride [1, 6]
    %a, %b = aten.split.Tensor(%t, 3)         : f32[3, 4] stride [1, 6], f32[3, 4] stride [1, 6] +3
    %c = aten.add.Tensor(%x, %y)       : f32[4, 6]
    %d = aten.add_.Tensor(%c, %y)      : f32[4, 6]
    %r = aten.reshape(%t, [24])        : f32[24]
    %s = aten.reshape(%c, [24])        : f32[24]

  output %d
)");
  CHECK(f.same("a", "x"));
  CHECK(f.same("a", "b"));
  CHECK_FALSE(f.may("c", "x"));
  CHECK(f.same("d", "c"));
  CHECK_FALSE(f.may("r", "x"));  // a transposed matrix cannot be flattened without a copy
  CHECK(f.same("s", "c"));
  CHECK(f.writes("d", "c"));
  CHECK(f.reads("d", "y"));
  CHECK_FALSE(f.reads("d", "c"));
  CHECK_FALSE(f.reads("a", "x"));  // a view reads nothing
  CHECK(f.reads("r", "x"));
  CHECK_FALSE(f.reads("s", "c"));
  CHECK(f.alias.escapes(f.alias.storage_of(f.v("c"))));
  CHECK(f.alias.may_be_input(f.alias.storage_of(f.v("b"))));
  CHECK_FALSE(f.alias.escapes(f.alias.storage_of(f.v("r"))));
}

TEST_CASE("what strides cannot decide may alias, and numbers decide it") {
  const char* text = R"(graph rank *
  symbol s0 input [2, inf] hint 6
  input %x : f32[s0, 6] "x"

  forward -
    %t = aten.t(%x)                    : f32[6, s0] stride [1, 6]
    %r = aten.reshape(%t, [-1])        : f32[6*s0]
    %c = aten.clone(%x)                : f32[s0, 6]
    %q = aten.reshape(%c, [-1])        : f32[6*s0]
    %v = aten.view(%r, [6, -1])        : f32[6, s0]

  output %v
)";
  Fixture f(text);
  CHECK(f.may("r", "x"));
  CHECK_FALSE(f.same("r", "x"));
  CHECK(f.same("v", "r"));
  CHECK(f.alias.root_set(f.v("v")).size() == 2);
  CHECK(f.same("q", "c"));  // contiguous for all sizes
  SizeValues six = [](StrId) -> std::optional<int64_t> { return 6; };
  Fixture g(text, {&six});
  CHECK_FALSE(g.may("r", "x"));
  SizeValues one = [](StrId) -> std::optional<int64_t> { return 1; };
  Fixture h(text, {&one});
  CHECK(h.same("r", "x"));
}

// Ranks share the pool and query concurrently.
TEST_CASE("what numbers decide adds no expression to the pool") {
  SizeValues six = [](StrId) -> std::optional<int64_t> { return 6; };
  const AliasOptions options[] = {{}, {&six}};
  const char* sizes[] = {"5, 7, 9", "s0, 7, 9"};
  for (size_t i = 0; i < 2; ++i) {
    const Job job =
        parse("sg 1.0\ngraph rank *\n  symbol s0 input [2, inf] hint 6\n  input %x : f32[" + std::string(sizes[i]) +
              "] \"x\"\n  %c = aten.contiguous(%x) : f32[" + sizes[i] + "]\n  output %c\n");
    const size_t before = job.pool->exprs.size();
    const AliasAnalysis alias(*job.programs[0], job.programs[0]->graph, options[i]);
    CHECK(job.pool->exprs.size() == before);
  }
}

TEST_CASE("ops without a row may alias and write all they take") {
  Fixture f(R"(graph rank *
  input %x : f32[4] "x"
  input %y : f32[4] "y"

  forward -
    %c = aten.add.Tensor(%x, %y)  : f32[4]
    %m = my.mystery(%c, [%y], 3)  : f32[4]

  output %m
)");
  CHECK(f.may("m", "c"));
  CHECK(f.may("m", "y"));
  CHECK_FALSE(f.may("m", "x"));
  CHECK(f.writes("m", "y"));
  CHECK(f.writes("m", "c"));
  CHECK((f.alias.effects(f.graph.find_node("m")) & kEffectOpaque) != 0);
}

TEST_CASE("results that nothing names are reached through what was written") {
  Fixture f(R"(graph rank *
  input %x : f32[8] "x"

  forward -
    %buf = aten.empty.memory_format([8])                       : f32[8]
    %lo  = aten.slice.Tensor(%buf, 0, 0, 3)                    : f32[3]
    %hi  = aten.slice.Tensor(%buf, 0, 3, 8)                    : f32[5] +3
    %copy = aten.split_with_sizes_copy.out(%x, [3, 5], 0, out=[%lo, %hi])  : ()
    %mul = aten.mul.Scalar(%buf, 2.0)                          : f32[8]

  output %mul
)");
  CHECK(f.writes("copy", "buf"));
  CHECK(f.reads("copy", "x"));
  CHECK(f.reads("mul", "buf"));
}

TEST_CASE("a collective holds its inputs and its buffer until the wait") {
  Fixture f(R"(graph rank *
  input %x : f32[8] "x"

  forward -
    %y    = aten.mul.Scalar(%x, 2.0)                                          : f32[8]
    %buf  = aten.empty.memory_format([32])                                    : f32[32]
    %out  = _c10d_functional.all_gather_into_tensor_out(%y, 4, @g, out=%buf)  : f32[32]
    %wait = _c10d_functional.wait_tensor(%out)                                : f32[32]

  output %wait
)");
  CHECK(f.same("wait", "buf"));
  CHECK(f.writes("out", "buf"));
  CHECK(f.writes("wait", "buf"));
  CHECK(f.reads("wait", "y"));
  CHECK(f.alias.launch_of(f.v("wait")) == f.graph.find_node("out"));
  CHECK(f.alias.groups(f.graph.find_node("out")).size() == 1);
}

TEST_CASE("a call does what its body does") {
  Fixture f(R"(graph rank *
  input %x : f32[8] "x"
  input %y : f32[8] "y"

  forward -
    %a, %b, %c = sg.call(graph:body, [%x, %y])  : f32[8], f32[4], f32[8]
    %d, = sg.call(graph:again, [%x])            : f32[8]

  output %a
  output %c

graph rank * nested "body"
  input %p : f32[8] "p"
  input %q : f32[8] "q"

  forward -
    %w = aten.add_.Tensor(%p, %q)            : f32[8]
    %s = aten.slice.Tensor(%q, 0, 0, 4)      : f32[4]
    %n = aten.neg(%q)                        : f32[8]

  output %w
  output %s
  output %n

graph rank * nested "again"
  input %p : f32[8] "p"

  forward -
    %r, = sg.call(graph:again, [%p])  : f32[8]

  output %r
)");
  CHECK(f.same("a", "x"));
  CHECK(f.same("b", "y"));
  CHECK_FALSE(f.may("c", "y"));
  CHECK(f.writes("a", "x"));
  CHECK(f.reads("a", "y"));
  CHECK((f.alias.effects(f.graph.find_node("a")) & kEffectOpaque) == 0);
  CHECK((f.alias.effects(f.graph.find_node("d")) & kEffectOpaque) != 0);  // calls itself
}

namespace {

// The offsets of all indices of `shape`, in row-major order.
std::vector<int64_t> offsets(const std::vector<int64_t>& shape, const std::vector<int64_t>& stride) {
  std::vector<int64_t> out{0};
  for (size_t i = 0; i < shape.size(); ++i) {
    std::vector<int64_t> next;
    for (int64_t base : out)
      for (int64_t k = 0; k < shape[i]; ++k) next.push_back(base + k * stride[i]);
    out = next;
  }
  return out;
}

// Whether some strides give `shape` the same row-major offsets; each must be the distance of the first two along its
// axis.
bool viewable(const std::vector<int64_t>& all, const std::vector<int64_t>& shape) {
  std::vector<int64_t> stride(shape.size(), 1);
  int64_t inner = 1;
  for (size_t i = shape.size(); i-- > 0; inner *= shape[i])
    if (shape[i] > 1) stride[i] = all[static_cast<size_t>(inner)] - all[0];
  return offsets(shape, stride) == all;
}

}  // namespace

TEST_CASE("can_view agrees with walking all elements") {
  sg::test::Rng rng(5);
  int yes = 0, no = 0;
  for (int i = 0; i < 6000; ++i) {
    std::vector<int64_t> shape, stride, new_shape;
    int64_t count = 1;
    for (uint64_t k = 1 + rng.below(3); k > 0; --k) shape.push_back(rng.between(1, 4)), count *= shape.back();
    stride.assign(shape.size(), 0);
    std::vector<size_t> order(shape.size());
    for (size_t k = 0; k < order.size(); ++k) order[k] = k;
    for (size_t k = order.size(); k > 1; --k)
      if (rng.percent(40)) std::swap(order[k - 1], order[rng.below(k)]);
    int64_t step = 1;
    for (size_t k = order.size(); k-- > 0;) {
      stride[order[k]] = rng.percent(8) ? 0 : step;
      step *= shape[order[k]] + (rng.percent(15) ? 1 : 0);
    }
    for (int64_t left = count; left > 1;) {
      int64_t d = rng.between(1, left);
      while (left % d) ++d;
      new_shape.push_back(d), left /= d;
      if (d == 1) continue;
    }
    std::vector<int64_t> all = offsets(shape, stride);
    bool expected = viewable(all, new_shape);
    INFO(i);
    REQUIRE(can_view(shape, stride, new_shape) == expected);
    (expected ? yes : no)++;
  }
  CHECK(yes > 1000);
  CHECK(no > 300);
}

TEST_CASE("alias analysis of random jobs names only storages there are") {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Job job = test::random_job(seed);
    for (const auto& program : job.programs) {
      AliasAnalysis alias(*program, program->graph);
      size_t members = 0;
      uint32_t classes = 0;
      for (const Storage& s : alias.storages()) classes = std::max(classes, s.alias_class + 1);
      for (uint32_t c = 0; c < classes; ++c) members += alias.class_members(c).size();
      REQUIRE(members == alias.storages().size());
      for (NodeId n : program->graph.nodes())
        for (StorageId s : alias.writes(n)) REQUIRE(s.index < alias.storages().size());
    }
  }
}
