// The text form: a printed job parses back to the same job, a parsed text prints back to the same text, and no text
// makes the parser crash.

#include <catch2/catch.hpp>

#include <bit>
#include <limits>
#include <string>
#include <vector>

#include "libgraph/binary/binary.h"
#include "libgraph/text/text.h"
#include "tests/support/random_job.h"
#include "tests/support/rng.h"

namespace sg {
namespace {

// Everything in the grammar, spelled as the printer spells it.
const char kEverything[] = R"(sg 1.0 job "all \"of\" it" world 4
producer "odd key" {"a":[1,-2.5e-3,null,true],"b":{}}
producer "torch" "2.15.0"
note "two\nlines, \xff and é"
mesh [fsdp 2, tp 2]
mesh sparse [efsdp 1, ep 4]
group @fsdp [0 2] "23" [1 3] "24"
group @tp [0 1] {0 "113", 1 "114"} [2 3] priority -5
group @batch/loss [0 1 2 3]
group @batch/loss:1 [0 1 2 3]
group @"odd axis" [3 1 0]
extra "note" raw "not json"
device cuda:0
from sg-import 0.1.0 {"spmd": true, "x": "y"} sha256:ab12
from "odd tool" 1.0

graph rank 0 1
  symbol u4 data [0, 256] hint 7 divisor 8 "tokens"
  symbol s0 input [2, inf]
  symbol of data
  guard s0 + u4 <= 1024 at "moe.py":12 forward
  guard s0 != 3
  param %wqkv : bf16[64, 192] "layers.0.wqkv.weight" shard [256, 192] fsdp S(0), tp _S(0, 4)
  input %tokens : i64[128] "tokens"
  input %"odd \"name\" %" : f32[4, 3] stride [1, 4] +2 on cpu
  buffer %b : f32[] "b"
  state %m : f32[s0, 4] "m" extra {"k": 1}
  tangent %t : f32[s0, s0*u4] stride [s0*u4 + 1, 1] +s0//2 on cuda:1
  constant %c : u8[3] data sha256:00ff
  opaque %mesh : opaque "DeviceMesh" of "layers.0.wqkv.weight" attribute device_mesh

  %r = aten.mm(%wqkv, %b)                                        : ?
  backward -
    %plain = aten.foo()                                          : none
  forward layers.1.moe
    at "moe.py":212 forward
    %n0, %n1 = aten.split(%tokens, 4)                            : i64[4], i64[4] +4  label split
    %one, = aten.split(%tokens, 9)                               : i64[4]
    at "moe.py":213 "<lambda>"
    %_assert = aten._assert_async.msg(%b, "m\u0000\u007f")       : ()
    %nothing, = foo.bar(%b)                                      : ()
    at -
    %u = aten._local_scalar_dense(%n0)                           : int u4  binds [u4]
    %v = python.add(%u, 3)                                       : int (of + u4)  binds []
    %args = "aten.odd"(true, false, none, -5, 1.0, -0.0, 1e+30, inf, -inf, nan, "s", [], [1, [%u, 2]], slice(none, u4 - 1, 2), {a: 1, "b c": [2]}, complex(1.5, nan), bf16, dtype:none, expr(12), of, -u4 + 3, s0//2, @fsdp, @batch/loss:1, @"odd axis", graph:body, graph:"odd graph", device:cpu, layout:strided, memory_format:contiguous_format, enum:"Foo.bar", op:"aten.add.Tensor", opaque:"x y", size=s0*u4, dtype=f32, device=cuda:1, layout=strided, memory_format=contiguous_format, "odd key"=5) : list(int 1, float 0.5, bool true, bool, float, int, none, opaque -, list())
  backward "a module with blanks"
    %g = higher_order.flex(%n0, device=device:none, layout="strided", memory_format=expr(s0)) : f32[4]  of %split recompute must_save recompute_region 3 ep dispatch token_exchange chunk 0 in layers.1.moe role body from graph original mm_3 backward true
    %h, %i = aten.rand([4])                                      : f32[4], bool[4]  of %j recompute prefer_save ep none count_sync chunk all role split_boundary chunks [0 original mm_3, all] stream 4 shared origin [64, s0] at [0, 16]
    %j = _c10d_functional.all_gather_into_tensor(%g, 2, "23")    : f32[8]  unshard bucket 3 forward plan [layers.0, "odd one"] remat_of mm
  optimizer -
    %k = "odd op"(%h)                                            : f32[4]  collective bucket 1 copy_of x also [a, b.c] extra {"b": "x", "custom": {"a":1}}
    %l = torch.a.b.c(%h)                                         : f32[4]  reduce backward

  loss %b
  grad %g of %wqkv shard [256, 192] fsdp S(0)  # "layers.0.wqkv.weight"
  grad none of %b  # "b"
  update %h of %b  # "b"
  output %j extra {"k": []}
  output none
  none
  output opaque %mesh of %wqkv of "other" attribute device_mesh  # "layers.0.wqkv.weight"

graph rank 0 1 nested body
  input %x : f32[2]

  %y = aten.relu(%x)                                             : f32[2]

  output %y

graph rank 0 1 nested "odd graph"

graph rank 2 3
  symbol u4 data
  input %x : f32[u4]

  output %x
)";

Job parsed(const std::string& text) {
  Diagnostics d;
  auto job = parse_text(text, "test.txt", &d);
  for (const Diagnostic& x : d.list()) UNSCOPED_INFO(print_location(x.where) << ": " << x.message << "  " << x.hint);
  REQUIRE(job.ok());
  return std::move(*job);
}

std::vector<Diagnostic> errors_of(const std::string& text) {
  Diagnostics d;
  auto job = parse_text(text, "test.txt", &d);
  CHECK(job.ok() == !d.has_errors());
  return d.list();
}

std::string bytes_of(const Job& job) {
  auto bytes = write_binary(job);
  if (!bytes.ok()) UNSCOPED_INFO(bytes.error().message);
  REQUIRE(bytes.ok());
  return std::move(*bytes);
}

void check_round_trip(const Job& job) {
  std::string text = print_text(job);
  Job again = parsed(text);
  REQUIRE(print_text(again) == text);
  REQUIRE(bytes_of(again) == bytes_of(job));
}

}  // namespace

TEST_CASE("every construct prints as it was written") {
  std::string text = kEverything;
  Job job = parsed(text);
  CHECK(print_text(job) == text);
  check_round_trip(job);
}

TEST_CASE("a text may be written by another hand") {
  Job a = parsed(
      "sg 1.0\r\ngraph rank *\r\n\tinput\t%x:f32 [2 , 3]  # a comment\r\n%y=aten.relu.default( %x ):f32[2,3]"
      " stride[3,1]+0 on cpu\n\n   # nothing\n output %y");
  Job b = parsed(
      "sg 1.0 world 1\ndevice cpu\n\ngraph rank *\n  input %x : f32[2, 3]\n  %y = aten.relu(%x) : f32[2, 3]\n"
      "  output %y\n");
  CHECK(print_text(a) == print_text(b));
  CHECK(bytes_of(a) == bytes_of(b));
}

TEST_CASE("types that are left out are unknown, and ops without results have none") {
  Job job = parsed(
      "sg 1.0\ngraph rank *\n input %x : bool[]\n %a, %b = foo.two(%x)\n %c = aten._assert_async.msg(%x, \"m\")\n");
  const Graph& g = job.programs[0]->graph;
  CHECK(g.node(g.first()).result_count == 2);
  CHECK(g.type(g.find_value("a")).kind == TypeKind::unknown);
  CHECK(g.node(g.find_node("c")).result_count == 0);
}

TEST_CASE("floats keep their bits, but all NaNs are one") {
  test::Rng rng(7);
  Job job;
  Program& p = job.add_program();
  auto any = [&](bool is_large) {
    double v = std::bit_cast<double>(rng.next() | (is_large ? 0x7FE0ull << 48 : 0));
    return v == v ? v : std::numeric_limits<double>::quiet_NaN();
  };
  for (int i = 0; i < 400; ++i) {
    NodeSpec spec;
    spec.op = job.pool->op("foo.f");
    spec.args = {Arg::floating(any(false))};
    Type t;
    t.kind = TypeKind::floating, t.has_value = true, t.float_value = any(i % 2 == 1);
    spec.result_types = {job.pool->types.intern(t)};
    p.graph.append(spec);
  }
  check_round_trip(job);
}

TEST_CASE("strings keep every byte") {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  all += "\xED\xA0\x80\xF4\x90\x80\x80\xC0\x80 \xC3\xA9\xE2\x82\xAC\xF0\x9F\x98\x80";
  Job job;
  job.title = job.pool->str(all);
  Program& p = job.add_program();
  NodeSpec spec;
  spec.op = job.pool->op(all + ".default");
  spec.args = {Arg::text(ArgKind::string, job.pool->str(all))};
  spec.result_types = {Pool::kUnknownType};
  spec.names = {all};
  spec.module = job.pool->str(all);
  p.graph.append(spec);
  std::string text = print_text(job);
  Job again = parsed(text);
  CHECK(job.pool->strings[job.title] == again.pool->strings[again.title]);
  CHECK(again.programs[0]->graph.find_value(all));
  CHECK(print_text(again) == text);
  CHECK(text.find('\x01') == std::string::npos);
}

TEST_CASE("an error has its place, and the lines after it are read") {
  auto list = errors_of(
      "sg 1.0\ngraph rank *\n  input %x : f32[2\n  %y = aten.relu(%x) : f32[2]\n  %z = aten.relu(%yy) : f33[2]\n"
      "  %w = aten.relu(%z)  frob 3\n  output %q of %x\n");
  REQUIRE(list.size() == 4);
  CHECK(print_location(list[0].where) == "test.txt:3:19");
  CHECK(list[0].source_line == "  input %x : f32[2");
  CHECK(print_location(list[1].where) == "test.txt:5:18");
  CHECK(list[1].hint == "did you mean `%y`?");
  CHECK(print_location(list[2].where) == "test.txt:6:23");
  CHECK(print_location(list[3].where) == "test.txt:7:10");
}

TEST_CASE("at most as many errors as asked for") {
  std::string text = "sg 1.0\ngraph rank *\n";
  for (int i = 0; i < 3000; ++i) text += "  %a = foo.b(%missing)\n";
  Diagnostics d(20);
  CHECK_FALSE(parse_text(text, "t", &d).ok());
  CHECK(d.list().size() == 20);
  CHECK(d.hidden() > 300);
}

TEST_CASE("hostile texts are refused or read, never more") {
  std::string head = "sg 1.0\ngraph rank *\n";
  auto nested = [](const char* open, size_t n) {
    std::string s;
    for (size_t i = 0; i < n; ++i) s += open;
    return s;
  };
  for (const char* open : {"[", "{a: ", "slice(", "(", "list(", "-", "expr("})
    for (size_t n : {size_t{150}, size_t{300}, size_t{100000}}) {
      errors_of(head + " %a = foo.b(" + nested(open, n) + ")\n");
      errors_of(head + " %a = foo.b() : " + nested(open, n) + "\n");
      errors_of(head + " %a = foo.b() : int " + nested(open, n) + "\n");
      errors_of(head + " %a = foo.b() : ?  extra {a: " + nested(open, n) + "}\n");
    }
  for (const char* text :
       {"", "\n", "#", "sg", "sg 1.0 world 99999999999999999999\n", "sg 2.0\n", "sg 99999999999999.1\n",
        "sg 1.0\ngroup @a [0..4294967294 0..4294967294]\n", "sg 1.0\ngraph rank * nested x\n %a = b.c()\n",
        "sg 1.0\ngraph\n %a = b.c()\n", "sg 1.0\ngraph rank *\n %a = b.c(graph:x)\n"})
    errors_of(text);
  CHECK(errors_of(head + std::string(" %a = foo.b(1\0)", 15)).size() == 1);
  CHECK(errors_of(head + " %a = foo.b(99999999999999999999)").size() == 1);
  CHECK(errors_of(head + " %a = foo.b(1e999)").size() == 1);
  std::string long_list = head + " %a = foo.b([0";
  for (int i = 1; i < 1000000; ++i) long_list += ", 1";
  CHECK(errors_of(long_list + "])").empty());
}

TEST_CASE("every cut and many changed bytes of a text are refused or read") {
  std::string text = kEverything;
  for (size_t i = 0; i < text.size(); i += 7) errors_of(text.substr(0, i));
  test::Rng rng(11);
  for (int i = 0; i < 3000; ++i) {
    std::string changed = text;
    changed[rng.below(changed.size())] = static_cast<char>(rng.next());
    Diagnostics d;
    auto job = parse_text(changed, "t", &d);
    if (!job.ok()) continue;
    std::string printed = print_text(*job);
    CHECK(print_text(parsed(printed)) == printed);
  }
}

TEST_CASE("random jobs round-trip: binary, text, binary and text, binary, text") {
  for (uint64_t seed = 0; seed < 80; ++seed) {
    INFO("seed " << seed);
    Job job = test::random_job(seed);
    check_round_trip(job);
    auto read = read_binary(bytes_of(parsed(print_text(job))), "x");
    REQUIRE(read.ok());
    REQUIRE(print_text(*read) == print_text(job));
  }
}

}  // namespace sg
