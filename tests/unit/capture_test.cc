#include "libgraph/import/capture.h"

#include "libgraph/expr/range_infer.h"
#include "libgraph/import/capture_json.h"
#include "libgraph/import/source_kind.h"
#include "libgraph/verify/verify.h"

#include <algorithm>
#include <catch2/catch.hpp>
#include <optional>
#include <sstream>

#include "tests/support/traces.h"

using namespace sg;

namespace {

// "[file]: message" of the error, for INFO.
template <class T>
std::string why(const Result<T>& result) {
  return result.ok() ? "" : print_location(result.error().where) + ": " + result.error().message;
}

// A capture of the given nodes (JSON, comma-separated) over two f32 inputs. `more` adds top-level keys.
constexpr std::string_view kTensor = R"({"tensor":"float32","shape":[4,8],"stride":[8,1],"device":"cpu"})";

std::string capture(std::string_view nodes, std::string_view outputs = "", std::string_view more = "",
                    std::string_view world = R"({"size":1,"rank":0})") {
  std::string t(kTensor);
  return R"({"format":"step-capture","version":1,"world":)" + std::string(world) + "," + std::string(more) +
         R"("inputs":[{"name":"w","type":)" + t + R"(,"kind":"parameter","fqn":"layer.w"},{"name":"x","type":)" + t +
         R"(,"kind":"input","fqn":"x"}],"nodes":[)" + std::string(nodes) + R"(],"outputs":[)" + std::string(outputs) +
         "]}";
}

std::string node(std::string_view name, std::string_view op, std::string_view args, std::string_view more = "") {
  return R"({"name":")" + std::string(name) + R"(","op":")" + std::string(op) + R"(","args":)" + std::string(args) +
         R"(,"type":)" + std::string(kTensor) + std::string(more) + "}";
}

Result<Job> import(std::string text, const ImportOptions& options = {}, Diagnostics* notes = nullptr) {
  return import_captures({{"step.json", std::move(text)}}, options, notes);
}

Job import_ok(std::string text, const ImportOptions& options = {}, Diagnostics* notes = nullptr) {
  auto job = import(std::move(text), options, notes);
  INFO(why(job));
  REQUIRE(job.ok());
  return std::move(job).value();
}

const Graph& graph_of(const Job& job) { return job.programs[0]->graph; }

std::vector<std::string> result_names(const Graph& graph, NodeId n) {
  std::vector<std::string> out;
  for (uint32_t i = 0; i < graph.node(n).result_count; ++i) out.emplace_back(graph.name(graph.node(n).result(i)));
  return out;
}

std::string extra(const Job& job, const std::vector<KeyValue>& list, std::string_view key) {
  for (const KeyValue& kv : list)
    if (job.pool->strings[kv.key] == key) return job.pool->strings.str(kv.json);
  return "(none)";
}

std::string node_extra(const Job& job, std::string_view label, std::string_view key) {
  const Graph& graph = graph_of(job);
  return extra(job, graph.meta(graph.find_node(label)).extra, key);
}

bool says(const Diagnostics& notes, std::string_view what) {
  for (const Diagnostic& d : notes.list())
    if (d.message.find(what) != std::string::npos) return true;
  return false;
}

const std::string kSplitTypes =
    "[" + std::string(kTensor) + "," + std::string(kTensor) + "," + std::string(kTensor) + "]";

std::string split(std::string_view type, std::string_view more = "") {
  return R"({"name":"split","op":"aten.split_with_sizes.default","args":[{"ref":"x"},[2,1,1]],"type":)" +
         std::string(type) + R"(,"phase":"forward")" + std::string(more) + "}";
}

std::string getitem(std::string_view name, int index, std::string_view more = "") {
  return node(name, "python.getitem", R"([{"ref":"split"},)" + std::to_string(index) + "]", more);
}

// A symbol that the capture does not declare, and that no value has: only the guards mention it.
bool only_guards_name(const Job& job, const Symbol& symbol) {
  RangeInference ranges = infer_ranges(job);
  bool named = false;
  for (const Guard& guard : job.programs[0]->guards)
    for (Expr side : {guard.left, guard.right}) {
      std::vector<StrId> found;
      job.pool->exprs.collect_symbols(side, &found);
      named = named || std::find(found.begin(), found.end(), symbol.name) != found.end();
    }
  return named && !symbol.min && !symbol.max && !symbol.hint && ranges.used[0].count(symbol.name) == 0;
}

}  // namespace

TEST_CASE("every shared capture imports with the nodes that the manifest counts, and is valid") {
  const std::optional<std::string> told = test::trace("MANIFEST.tsv");
  if (!told) return;
  std::istringstream manifest(*told);
  std::string line;
  std::getline(manifest, line);
  size_t captures = 0;
  while (std::getline(manifest, line)) {
    std::istringstream fields(line);
    std::string file;
    size_t nodes = 0, getitems = 0, inputs = 0, outputs = 0, symbols = 0, nested = 0, world = 0;
    fields >> file >> nodes >> getitems >> inputs >> outputs >> symbols >> nested >> world;
    Diagnostics notes;
    auto job = import_captures({{file, *test::trace(file)}}, {}, &notes);
    INFO(file << " " << why(job));
    REQUIRE(job.ok());
    REQUIRE(job->programs.size() == 1);
    const Program& program = *job->programs[0];
    CHECK(program.graph.node_count() == nodes - getitems);
    CHECK(program.graph.inputs().size() == inputs);
    CHECK(program.graph.outputs().size() == outputs);
    REQUIRE(program.symbols.size() >= symbols);
    for (size_t i = symbols; i < program.symbols.size(); ++i) CHECK(only_guards_name(*job, program.symbols[i]));
    CHECK(program.nested.size() == nested);
    CHECK(job->world == world);
    CHECK(job->is_spmd() == (world == 1));
    Diagnostics findings;
    verify(*job, {.types = false}, &findings);  // sg-import --check compares recorded with inferred types
    CHECK(findings.error_count() == 0);
    for (NodeId n : program.graph.nodes())
      for (uint32_t i = 0; i < program.graph.node(n).result_count; ++i)
        if (program.graph.type(program.graph.node(n).result(i)).kind == TypeKind::unknown)
          FAIL_CHECK("%" << program.graph.name(program.graph.node(n).result(i)) << " has no type");
    ++captures;
  }
  CHECK(captures == 65);
}

TEST_CASE("rank sets merge where the programs are equal") {
  if (!test::traces_are_here()) return;
  // Classes of equal ranks, found by comparing the JSON of the ranks with their group names mapped.
  const std::pair<std::string, std::vector<std::vector<uint32_t>>> kSets[] = {
      {"dsv3-ep4", {{}}},
      {"dsv3-ep4-eagerchunk2", {{}}},
      {"llama3-fsdp4-chunkedloss", {{}}},
      {"llama3-fsdp4-fp32", {{}}},
      {"llama3-fsdp2-tp2-fp32", {{0, 2}, {1, 3}}}};
  for (const auto& [name, classes] : kSets) {
    std::vector<CaptureFile> files;
    for (int r = 0; r < 4; ++r) {
      const std::string path = "multi/" + name + "/rank" + std::to_string(r) + "/step.json";
      files.push_back({path, *test::trace(path)});
    }
    Diagnostics notes;
    auto job = import_captures(std::move(files), {}, &notes);
    INFO(name << " " << why(job));
    REQUIRE(job.ok());
    std::vector<std::vector<uint32_t>> found;
    for (const auto& program : job->programs) found.push_back(program->ranks);
    CHECK(found == classes);
    CHECK(says(notes, "programs that differ") == (classes.size() > 1));
    if (classes.size() == 1) continue;
    CHECK(
        says(notes,
             "4 ranks run 2 programs that differ: ranks 0 and 1 differ first in node %ge: argument 1: 0 against 128"));
    REQUIRE(job->groups.size() == 2);
    CHECK(job->groups[0].parts[1].ranks == std::vector<uint32_t>{1, 3});
    CHECK(job->pool->strings[job->groups[0].parts[1].aliases[1].name] == "24");
  }
}

TEST_CASE("getitems are folded into the node they take apart") {
  Job job = import_ok(capture(split(kSplitTypes) + "," + getitem("second", 1) + "," + getitem("last", -1) + "," +
                              getitem("again", 1) + "," +
                              node("add", "aten.add.Tensor", R"([{"ref":"second"},{"ref":"again"}])") + "," +
                              node("cat", "aten.cat.default", R"([{"ref":"split"}])")));
  const Graph& graph = graph_of(job);
  CHECK(graph.node_count() == 3);
  NodeId n = graph.find_node("split");
  REQUIRE(n);
  CHECK(graph.node(n).is_tuple);
  CHECK(result_names(graph, n) == std::vector<std::string>{"split.0", "second", "last"});
  CHECK(node_extra(job, "split", "getitem.again") == "1");
  const Node& add = graph.node(graph.find_node("add"));
  CHECK(add.args[0] == add.args[1]);
  const Node& cat = graph.node(graph.find_node("cat"));
  REQUIRE(cat.args[0].is(ArgKind::list));
  CHECK(cat.args[0].items().size() == 3);
  CHECK(cat.args[0].items()[1] == add.args[0]);
}

TEST_CASE("a name of the file wins over the default name of a result") {
  Job job = import_ok(capture(split(kSplitTypes) + "," + node("split.0", "aten.neg.default", R"([{"ref":"x"}])")));
  const Graph& graph = graph_of(job);
  CHECK(result_names(graph, graph.find_node("split"))[0] == "split.0_1");
  CHECK(graph.op_name(graph.find_node("split.0")) == "aten.neg.default");
}

TEST_CASE("nodes without a type have the results that their users and the op table tell") {
  Job job =
      import_ok(capture(split("null") + "," + getitem("b", 1) + "," +
                        R"({"name":"used","op":"my.op","args":[{"ref":"x"}],"type":null},)" +
                        R"({"name":"unused","op":"my.op","args":[{"ref":"used"}]},)" +
                        R"({"name":"check","op":"aten._assert_async.msg","args":[{"ref":"x"},"m"],"type":null},)" +
                        R"({"name":"empty","op":"my.op","args":[],"type":[]})"));
  const Graph& graph = graph_of(job);
  CHECK(graph.node(graph.find_node("split")).result_count == 3);  // one per size
  CHECK(graph.name(graph.node(graph.find_node("split")).result(1)) == "b");
  CHECK(graph.node(graph.find_node("used")).result_count == 1);
  CHECK(graph.node(graph.find_node("unused")).result_count == 0);
  CHECK(graph.node(graph.find_node("check")).result_count == 0);
  CHECK(!graph.node(graph.find_node("check")).is_tuple);
  CHECK(graph.node(graph.find_node("empty")).result_count == 0);
  CHECK(graph.node(graph.find_node("empty")).is_tuple);
}

TEST_CASE("getitems of one result, and with an index that is no constant, stay nodes") {
  Job job = import_ok(capture(node("a", "aten.neg.default", R"([{"ref":"x"}])") + "," +
                              node("g", "python.getitem", R"([{"ref":"a"},0])") + "," + split(kSplitTypes) + "," +
                              node("h", "python.getitem", R"([{"ref":"split"},{"ref":"w"}])")));
  CHECK(graph_of(job).node_count() == 4);
}

TEST_CASE("every kind of argument arrives") {
  Job job = import_ok(capture(
      node("n", "my.op", R"([null,true,7,2.5,"s",{"ref":"x"},[1,[{"ref":"w"}]],{"sym":"s0*2"},{"dtype":"bfloat16"},
           {"device":"cuda:0"},{"layout":"strided"},{"memory_format":"contiguous_format"},{"float":"-inf"},
           {"complex":[1,{"float":"nan"}]},{"slice":[null,{"ref":"x"},2]},{"dict":{"b":1,"a":[2]}},{"enum":"e"},
           {"op":"aten.add.Tensor"},{"opaque":"o"},{"group":"g"},{"graph":"body"},{"future":{"b":1,"a":2}}])",
           R"(,"kwargs":{"out":{"ref":"w"},"k":-1})"),
      "", R"("symbols":[{"name":"s0","kind":"input","min":2,"max":null,"hint":6,"source":"x.size()[0]"}],
             "groups":[{"name":"g","axis":"dp","ranks":[0]}],
             "graphs":{"body":{"inputs":[],"nodes":[],"outputs":[null]}},)"));
  const Graph& graph = graph_of(job);
  const std::vector<Arg>& args = graph.node(graph.first()).args;
  REQUIRE(args.size() == 24);
  const ArgKind kKinds[] = {ArgKind::none,       ArgKind::boolean, ArgKind::integer, ArgKind::floating,
                            ArgKind::string,     ArgKind::value,   ArgKind::list,    ArgKind::expr,
                            ArgKind::dtype,      ArgKind::device,  ArgKind::layout,  ArgKind::memory_format,
                            ArgKind::floating,   ArgKind::complex, ArgKind::slice,   ArgKind::dict,
                            ArgKind::enumerator, ArgKind::op,      ArgKind::opaque,  ArgKind::group,
                            ArgKind::graph,      ArgKind::opaque,  ArgKind::value,   ArgKind::integer};
  for (size_t i = 0; i < args.size(); ++i) {
    INFO("argument " << i);
    CHECK(args[i].kind() == kKinds[i]);
  }
  CHECK(job.pool->exprs.print(args[7].as_expr()) == "2*s0");
  CHECK(args[12].as_float() < -1e308);
  CHECK(args[14].items()[1].is(ArgKind::value));
  CHECK(job.pool->strings[args[15].items()[0].key()] == "b");
  CHECK(job.pool->strings[args[21].as_text()] == R"({"future":{"a":2,"b":1}})");
  CHECK(job.pool->strings[args[22].key()] == "out");
  CHECK(graph.users(graph.find_value("w")).size() == 1);
  const Symbol& symbol = job.programs[0]->symbols[0];
  CHECK((symbol.min == 2 && !symbol.max && symbol.hint == 6));
}

TEST_CASE("metadata arrives in its fields") {
  Job job = import_ok(capture(
      node("f", "my.op", R"([{"ref":"x"}])", R"(,"phase":"forward","seq":7,"module":"layers.0","recompute":"must_save",
        "source":{"file":"m.py","line":12,"function":"forward"},"custom":{"EP":"dispatch","EP_token_exchange":"dispatch"})") +
      "," +
      node("b", "my.op", R"([{"ref":"f"}])",
           R"(,"phase":"backward","seq":7,"custom":{"EP":"compute","EP_token_exchange":"combine"},
        "meta":{"ac_graph_id":3,"fsdp_bucket":{"plan_fqns":["norm","head"],"direction":"bwd"}})") +
      "," +
      node("c", "my.op", R"([{"ref":"f"}])", R"(,"phase":"backward","seq":8,"recompute":"maybe","bind_paths":{"u0":1},
        "custom":{"chunked_region_fqn":"layers.1.moe","chunked_region_role":"body","chunk_id":1},
        "meta":{"chunk_id":0,"chunked_region_producer":"graph","chunked_original_name":"o","chunked_region_is_backward":false})")));
  const Graph& graph = graph_of(job);
  const StringTable& strings = job.pool->strings;
  NodeId f = graph.find_node("f"), b = graph.find_node("b"), c = graph.find_node("c");
  CHECK(strings[graph.node(f).module] == "layers.0");
  CHECK(job.pool->sources[graph.node(f).source].line == 12);
  CHECK(graph.meta(f).recompute == Recompute::must_save);
  CHECK(graph.meta(f).ep_role == EpRole::dispatch);
  CHECK(graph.meta(f).ep_step == EpStep::token_exchange);
  CHECK(graph.meta(f).extra.empty());  // the `seq` of a forward node only serves the links
  CHECK(graph.node(b).forward == f);
  CHECK(graph.meta(b).ep_role == EpRole::compute);
  CHECK(graph.meta(b).ep_step == EpStep::none);  // a step of another region is kept
  CHECK(node_extra(job, "b", "custom.EP_token_exchange") == R"("combine")");
  CHECK(graph.meta(b).recompute_region == 3);
  CHECK(graph.meta(b).collective.direction == BucketDirection::backward);
  CHECK(graph.meta(b).collective.plan.size() == 2);
  CHECK(!graph.node(c).forward);
  CHECK(node_extra(job, "c", "seq") == "8");
  CHECK(node_extra(job, "c", "recompute") == R"("maybe")");
  CHECK(node_extra(job, "c", "bind_paths") == R"({"u0":1})");
  CHECK(node_extra(job, "c", "custom.chunk_id") == "1");  // meta says 0
  const ChunkInfo& chunk = graph.meta(c).chunk;
  CHECK((strings[chunk.region] == "layers.1.moe" && chunk.index == 0 && strings[chunk.producer] == "graph"));
  CHECK((strings[chunk.original] == "o" && chunk.is_backward == 0));
}

// The numbers of what an optimizer's step records go on behind those of a forward that a backward runs again.
TEST_CASE("a backward node belongs to no node behind it, and to no mark of the profiler") {
  Job job = import_ok(capture(
      node("mark", "profiler._record_function_enter_new.default", R"(["part"])", R"(,"phase":"forward","seq":3)") +
      "," + node("f", "my.op", R"([{"ref":"x"}])", R"(,"phase":"forward","seq":3)") + "," +
      node("b", "my.op", R"([{"ref":"f"}])", R"(,"phase":"backward","seq":3)") + "," +
      node("again", "my.op", R"([{"ref":"f"}])", R"(,"phase":"backward","seq":4)") + "," +
      node("later", "my.op", R"([{"ref":"x"}])", R"(,"phase":"forward","seq":4)")));
  const Graph& graph = graph_of(job);
  CHECK(graph.node(graph.find_node("b")).forward == graph.find_node("f"));
  CHECK(!graph.node(graph.find_node("again")).forward);
}

TEST_CASE("chunk facts of folded getitems are those of the results") {
  Job job = import_ok(capture(
      split(kSplitTypes, R"(,"meta":{"chunked_region_fqn":"m","chunked_original_name":"s"})") + "," +
      getitem(
          "a", 0,
          R"(,"meta":{"chunked_region_fqn":"m","chunk_id":0,"chunked_original_name":"g","odd":1},"recompute":"must_save")")));
  const Graph& graph = graph_of(job);
  const NodeMeta& meta = graph.meta(graph.find_node("split"));
  REQUIRE(meta.result_chunks.size() == 3);
  CHECK(meta.result_chunks[0].index == 0);
  CHECK(job.pool->strings[meta.result_chunks[0].original] == "g");
  CHECK(job.pool->strings[meta.result_chunks[1].original] == "s");
  CHECK(node_extra(job, "split", "getitem.a.recompute") == R"("must_save")");
  CHECK(node_extra(job, "split", "getitem.a.meta.odd") == "1");
}

TEST_CASE("where a folded getitem's keys differ, meta counts and custom is kept") {
  Job job = import_ok(
      capture(split(kSplitTypes, "") + "," +
              getitem("a", 0, R"(,"meta":{"chunk_id":0},"custom":{"chunk_id":1,"chunked_original_name":"g"})")));
  const NodeMeta& meta = graph_of(job).meta(graph_of(job).find_node("split"));
  REQUIRE(meta.result_chunks.size() == 3);
  CHECK(meta.result_chunks[0].index == 0);
  CHECK(job.pool->strings[meta.result_chunks[0].original] == "g");
  CHECK(node_extra(job, "split", "getitem.a.custom.chunk_id") == "1");
}

TEST_CASE("unknown keys travel and are noted once") {
  Diagnostics notes;
  Job job = import_ok(capture(node("a", "my.op", R"([{"ref":"x","hot":1}])",
                                   R"(,"colour":{"b":1.0,"a":[null]},"custom":{"mine":"y"})") +
                                  "," + node("b", "my.op", "[]", R"(,"colour":"red","type2":0)"),
                              R"({"value":{"ref":"a"},"kind":"metric","weight":2})", R"("shape_env":{"z":1},)",
                              R"({"size":1,"rank":0,"host":"h"})"),
                      {}, &notes);
  CHECK(node_extra(job, "a", "colour") == R"({"a":[null],"b":1.0})");
  CHECK(node_extra(job, "a", "custom.mine") == R"("y")");
  CHECK(node_extra(job, "a", "args[0].hot") == "1");
  CHECK(extra(job, job.extra, "shape_env") == R"({"z":1})");
  CHECK(extra(job, job.extra, "world.host") == R"("h")");
  CHECK(extra(job, graph_of(job).outputs()[0].extra, "kind") == R"("metric")");
  CHECK(extra(job, graph_of(job).outputs()[0].extra, "weight") == "2");
  CHECK(says(notes, "unknown key `colour` in nodes, 2 times"));
  CHECK(says(notes, "1 operator unknown to the op table, on 2 nodes: my.op (2)"));
}

TEST_CASE("outputs belong to inputs by name") {
  Job job = import_ok(capture(node("a", "my.op", R"([{"ref":"x"}])"),
                              R"({"value":{"ref":"a"},"kind":"loss"},{"value":null,"kind":"gradient","of":"layer.w"},
                                 {"value":{"ref":"a"},"kind":"gradient","of":"gone"},null)"));
  const Graph& graph = graph_of(job);
  CHECK(graph.outputs()[1].of == graph.find_value("w"));
  CHECK(graph.outputs()[1].kind == OutputKind::gradient);
  CHECK(!graph.outputs()[1].value);
  CHECK(job.pool->strings[graph.outputs()[2].of_name] == "gone");
  CHECK(graph.outputs()[3].kind == OutputKind::none);
}

TEST_CASE("random nodes are numbered in schedule order") {
  auto bernoulli = [](std::string_view name) { return node(name, "aten.bernoulli.p", R"([{"ref":"x"},0.5])"); };
  Job one = import_ok(
      capture(bernoulli("a") + "," + node("n", "aten.neg.default", R"([{"ref":"a"}])") + "," + bernoulli("b")));
  CHECK(graph_of(one).meta(graph_of(one).find_node("a")).random.stream == 1);
  CHECK(graph_of(one).meta(graph_of(one).find_node("b")).random.stream == 2);
  CHECK(!graph_of(one).meta(graph_of(one).find_node("b")).random.rank_local);
  CHECK(graph_of(one).meta(graph_of(one).find_node("n")).random.stream == 0);
  Job many = import_ok(capture(bernoulli("a"), "", "", R"({"size":2,"rank":1})"));
  CHECK(graph_of(many).meta(graph_of(many).find_node("a")).random.rank_local);
}

TEST_CASE("a node that draws again has the stream of the first, and is its copy") {
  auto bernoulli = [](std::string_view name, std::string_view as) {
    const std::string more = as.empty() ? "" : R"(,"phase":"backward","draws_as":")" + std::string(as) + "\"";
    return node(name, "aten.bernoulli.p", R"([{"ref":"x"},0.5])", more);
  };
  Job one = import_ok(capture(bernoulli("a", "") + "," + bernoulli("b", "") + "," + bernoulli("again", "a")));
  const NodeMeta& meta = graph_of(one).meta(graph_of(one).find_node("again"));
  CHECK(meta.random.stream == 1);
  CHECK(meta.copy.kind == CopyKind::remat);
  CHECK(one.pool->strings[meta.copy.of] == "a");
  CHECK(graph_of(one).meta(graph_of(one).find_node("b")).random.stream == 2);

  auto refusal = [](const std::string& nodes) {
    auto job = import(capture(nodes));
    return job.ok() ? "" : job.error().message;
  };
  CHECK(refusal(bernoulli("again", "a") + "," + bernoulli("a", "")).find("used before it is defined") !=
        std::string::npos);
  CHECK(refusal(bernoulli("again", "nobody")).find("no node or input is called `nobody`") != std::string::npos);
  CHECK(refusal(bernoulli("again", "x")).find("`x` does not draw random numbers as") != std::string::npos);
  CHECK(refusal(node("r", "aten.rand_like.default", R"([{"ref":"x"}])") + "," + bernoulli("again", "r"))
            .find("`r` does not draw random numbers as") != std::string::npos);
}

TEST_CASE("binds are kept where the rule of the op table says something else") {
  auto local_scalar = [](std::string_view binds) {
    return R"({"name":"u","op":"aten._local_scalar_dense.default","args":[{"ref":"x"}],"type":{"scalar":"int","value":{"sym":"u0"}},"binds":)" +
           std::string(binds) + "}";
  };
  constexpr std::string_view kSymbols =
      R"x("symbols":[{"name":"u0","kind":"data","min":0,"max":9,"hint":null}],"guards":[{"expr":"0<=u0"},{"expr":"Eq(u0,4)"}],)x";
  Job by_rule = import_ok(capture(local_scalar(R"(["u0"])"), "", kSymbols));
  CHECK(!graph_of(by_rule).meta(graph_of(by_rule).first()).binds);
  CHECK(by_rule.programs[0]->guards.size() == 2);
  Job other = import_ok(capture(local_scalar("[]"), "", kSymbols));
  REQUIRE(graph_of(other).meta(graph_of(other).first()).binds);
  CHECK(graph_of(other).meta(graph_of(other).first()).binds->empty());
}

// --- ranks ---

namespace {

std::string gather(std::string_view group) {
  return node("g", "_c10d_functional.all_gather_into_tensor.default",
              R"([{"ref":"x"},2,")" + std::string(group) + R"("])");
}

std::string world_of(int size, int rank, std::string_view mesh = R"({"axes":["dp","tp"],"shape":[2,2]})") {
  return R"({"size":)" + std::to_string(size) + R"(,"rank":)" + std::to_string(rank) + R"(,"mesh":)" +
         std::string(mesh) + "}";
}

std::string groups(std::string_view name, std::string_view axis, std::string_view ranks) {
  return R"("groups":[{"name":")" + std::string(name) + R"(","axis":")" + std::string(axis) + R"(","ranks":)" +
         std::string(ranks) + "}],";
}

}  // namespace

TEST_CASE("equal ranks become one SPMD program whatever their groups are called") {
  std::vector<CaptureFile> files;
  const char* kRanks[] = {"[0,2]", "[1,3]", "[0,2]", "[1,3]"};
  for (int r = 3; r >= 0; --r) {
    std::string name = "pg" + std::to_string(r);
    files.push_back(
        {"rank" + std::to_string(r), capture(gather(name), "", groups(name, "dp", kRanks[r]), world_of(4, r))});
  }
  auto partial = files;
  partial.pop_back();
  auto job = import_captures(std::move(files), {}, nullptr);
  INFO(why(job));
  REQUIRE(job.ok());
  CHECK(job->is_spmd());
  REQUIRE(job->groups.size() == 1);
  CHECK(job->groups[0].parts.size() == 2);
  CHECK(job->groups[0].parts[0].aliases.size() == 2);
  CHECK(graph_of(*job).node(graph_of(*job).first()).args[2].is(ArgKind::group));
  Diagnostics notes;
  auto some = import_captures(std::move(partial), {}, &notes);
  REQUIRE(some.ok());
  CHECK(says(notes, "the job has 4 ranks, and rank 0 is missing"));
  CHECK(some->programs.size() == 1);
  CHECK(some->programs[0]->ranks == std::vector<uint32_t>{1, 2, 3});
}

TEST_CASE("the note of a capture is kept, and repeated by the import") {
  Diagnostics notes;
  const Job job =
      import_ok(capture(node("a", "aten.neg.default", R"([{"ref":"x"}])"), "", R"("note":"x[1] is 8",)"), {}, &notes);
  CHECK(job.note == "x[1] is 8");
  CHECK(says(notes, "x[1] is 8"));
}

TEST_CASE("groups of one axis that share ranks are families of their own") {
  Job job = import_ok(capture(
      gather("c"), "", R"("groups":[{"name":"a","axis":"dp","ranks":[0,1]},{"name":"b","axis":"dp","ranks":[0,1]},
    {"name":"c","axis":"dp","ranks":[0,1,2,3]}],)",
      world_of(4, 0)));
  REQUIRE(job.groups.size() == 3);
  for (uint32_t i = 0; i < 3; ++i) CHECK(job.groups[i].ordinal == i);
  CHECK(graph_of(job).node(graph_of(job).first()).args[2].as_group() == GroupId(2));
}

TEST_CASE("one capture stands for all ranks when the mesh tells their groups") {
  struct Case {
    std::string_view ranks, mesh;
    std::vector<std::vector<uint32_t>> parts;  // none: they do not follow
  };
  const std::string_view kMesh = R"({"axes":["dp","tp"],"shape":[2,2],"sparse_axes":["a","b"],"sparse_shape":[4,1]})";
  const Case kCases[] = {{"[0,2]", kMesh, {{0, 2}, {1, 3}}},
                         {"[0,1]", kMesh, {{0, 1}, {2, 3}}},
                         {"[0,1,2,3]", "null", {{0, 1, 2, 3}}},
                         {"[3,2,1,0]", "null", {{3, 2, 1, 0}}},
                         {"[0]", kMesh, {{0}, {1}, {2}, {3}}},
                         {"[0,3]", kMesh, {}},
                         {"[0,2]", "null", {}},
                         {"[2,0]", kMesh, {}}};
  for (const Case& c : kCases) {
    INFO(c.ranks << " in " << c.mesh);
    auto job = import(capture(gather("g0"), "", groups("g0", "dp/x", c.ranks), world_of(4, 0, c.mesh)), {.spmd = true});
    CHECK(job.ok() == !c.parts.empty());
    if (!job.ok()) {
      CHECK(job.error().kind == ErrorKind::cannot_apply);
      CHECK(!job.error().hint.empty());
      continue;
    }
    CHECK(job->is_spmd());
    std::vector<std::vector<uint32_t>> parts;
    for (const GroupPart& part : job->groups[0].parts) parts.push_back(part.ranks);
    CHECK(parts == c.parts);
  }
}

TEST_CASE("meshes beside the main one are the job's, wherever they stand") {
  const std::string_view kMain = R"("mesh":{"axes":["dp","ep"],"shape":[2,2]})";
  const std::string kMore = R"("meshes":[{"name":"all","axes":["all"],"shape":[4]}])";
  for (const std::string& world : {std::string(kMain) + "," + kMore, kMore + "," + std::string(kMain)}) {
    Job job = import_ok(capture("", "", "", R"({"size":4,"rank":0,)" + world + "}"));
    REQUIRE(job.meshes.size() == 2);
    CHECK(job.pool->strings[job.meshes[0].name].empty());
    CHECK(job.pool->strings[job.meshes[1].name] == "all");
    CHECK(job.meshes[1].shape == std::vector<uint32_t>{4});
  }
  const auto nameless = import(capture("", "", "", R"({"size":4,"rank":0,"meshes":[{"axes":["all"],"shape":[4]}]})"));
  REQUIRE_FALSE(nameless.ok());
  CHECK(nameless.error().message == "a mesh beside the main one has a name");
}

TEST_CASE("one capture for all ranks warns of its own rank's number") {
  Diagnostics notes;
  Job job = import_ok(
      capture(node("p", "bucketing._pre_bucket_all_gather.default", R"([[{"ref":"x"}],2,{"dtype":"float32"},[1],1])"),
              "", "", world_of(2, 1, "null")),
      {.spmd = true}, &notes);
  CHECK(job.is_spmd());
  CHECK(says(notes, "that of rank 1 stands for all"));
}

// --- errors and their places ---

TEST_CASE("malformed captures are refused with file, path and offset") {
  struct Case {
    std::string text;
    std::string path, message;
  };
  const std::string neg = node("a", "aten.neg.default", R"([{"ref":"x"}])");
  const Case kCases[] = {
      {"[]", "the top level", "not a capture"},
      {R"({"format":"other"})", "the top level", "not a capture"},
      {R"({"format":"step-capture","version":2})", "version", "capture version 2; this program reads version 1"},
      {capture(node("a", "my.op", R"([{"ref":"y"}])")), "nodes[0].args[0].ref", "no node or input is called `y`"},
      {capture(node("a", "my.op", R"([[1,{"ref":"b"}]])") + "," + node("b", "my.op", "[]")), "nodes[0].args[0][1].ref",
       "`b` is used before it is defined, at nodes[1]"},
      {capture(node("a", "my.op", R"([{"ref":"a"}])")), "nodes[0].args[0].ref", "used before it is defined"},
      {capture(neg + "," + neg), "nodes[1].name", "the name `a` is taken by nodes[0]"},
      {capture(node("w", "my.op", "[]")), "nodes[0].name", "the name `w` is taken by inputs[0]"},
      {capture(node("a", "my.op", "[18446744073709551615]")), "nodes[0].args[0]", "does not fit 64 bits"},
      {capture(node("a", "my.op", R"([{"dtype":"float33"}])")), "nodes[0].args[0].dtype", "unknown dtype `float33`"},
      {capture(node("a", "my.op", R"([{"graph":"g"}])")), "nodes[0].args[0].graph", "no nested graph `g`"},
      {capture(gather("7")), "nodes[0].args[2]", "declares no group `7`"},
      {capture(gather("g0"), "", groups("g0", "dp", "[1]"), world_of(2, 0, "null")), "nodes[0].args[2]",
       "does not hold rank 0"},
      {capture(neg, "", groups("g0", "dp", "[0,5]"), world_of(2, 0, "null")), "groups[0].ranks[1]",
       "5 is outside 0 .. 1"},
      {capture(neg, "", groups("g0", "dp", "[1,1]"), world_of(2, 0, "null")), "groups[0].ranks", "twice"},
      {capture(neg, "", "", world_of(2, 2, "null")), "world", "rank 2 is not in a world of 2"},
      {capture(split(kSplitTypes) + "," + getitem("g", 3)), "nodes[1].args[1]", "`split` has no result 3; it has 3"},
      {capture(split("null") + "," + getitem("g", 1000000000)), "nodes[1].args[1]", "has no result 1000000000"},
      {capture(
           R"({"name":"a","op":"my.op","args":[],"type":{"tensor":"float32","shape":[2],"stride":[],"device":"cpu"}})"),
       "nodes[0].type", "the shape has 1 axes, the stride 0"},
      {capture(
           R"({"name":"a","op":"my.op","args":[],"type":{"tensor":"float32","shape":[{"sym":"u0+"}],"stride":[1],"device":"cpu"}})"),
       "nodes[0].type.shape[0].sym", "u0+"},
      {capture(node("a", "my.op", "[]", R"(,"phase":"sideways")")), "nodes[0].phase", "unknown phase"},
      {capture(node("a", "my.op", "[]", R"(,"phase":"forward","phase":"backward")")), "nodes[0].phase", "twice"},
      {capture(R"({"name":"a","args":[]})"), "nodes[0]", "no `op`"},
      {capture(R"({"op":"a","args":[]})"), "nodes[0]", "no `name`"},
      {capture(neg, "", R"("symbols":[{"name":"u0","kind":"data"},{"name":"u0","kind":"data"}],)"), "symbols[1]",
       "declared twice"},
      {capture(neg, "", R"("symbols":[{"name":"u0","kind":"data","min":3,"max":2}],)"), "symbols[0]", "is empty"},
      {capture(neg, "", R"("guards":[{"expr":"u0 ?? 4"}],)"), "guards[0].expr", "u0 ?? 4"},
      {capture(neg, R"({"value":5,"kind":"loss"})"), "outputs[0].value", "expected {\"ref\": name} or null"},
      {capture(split(kSplitTypes), R"({"value":{"ref":"split"},"kind":"loss"})"), "outputs[0].value.ref",
       "several results"},
  };
  for (const Case& c : kCases) {
    auto job = import(c.text);
    INFO(c.path << ": " << c.message << "\n got " << why(job));
    REQUIRE(!job.ok());
    CHECK(job.error().kind == ErrorKind::unreadable);
    CHECK(job.error().where.file == "step.json");
    CHECK(job.error().where.path == c.path);
    CHECK(job.error().where.offset);
    CHECK(job.error().message.find(c.message) != std::string::npos);
  }
}

TEST_CASE("a key that occurs twice is met again among few and among many") {
  for (size_t count : {1, 7, 8, 9, 100}) {
    KeysMet met;
    std::vector<std::string> keys;
    for (size_t i = 0; i < count; ++i) keys.push_back("key" + std::to_string(i));
    for (const std::string& key : keys) CHECK(met.add(key));
    for (const std::string& key : keys) CHECK_FALSE(met.add(key));
    CHECK(met.add("another"));
  }
}

TEST_CASE("text that is no JSON is refused where it stops being it") {
  const std::string good = capture(node("a", "aten.neg.default", R"([{"ref":"x"},"é\n",-1.5e3,true])"));
  REQUIRE(import(good).ok());
  // Every truncation gives an error at or before its end.
  for (size_t n = 0; n < good.size(); ++n) {
    auto job = import(good.substr(0, n));
    REQUIRE(!job.ok());
    REQUIRE(job.error().kind == ErrorKind::unreadable);
    if (job.error().where.offset) REQUIRE(*job.error().where.offset <= n);
  }
  const std::pair<std::string_view, uint64_t> kFaults[] = {
      {R"({"a" 1})", 5}, {"[1,]", 3}, {"[1 2]", 3},  {"{,}", 1}, {"[1e999]", 1}, {"[99999999999999999999]", 1},
      {"[nan]", 1},      {"{} x", 3}, {"\"\\q\"", 2}};
  for (const auto& [text, offset] : kFaults) {
    auto job = import(std::string(text));
    INFO(text << ": " << why(job));
    REQUIRE(!job.ok());
    REQUIRE(job.error().where.offset);
    CHECK(*job.error().where.offset == offset);
  }
}

TEST_CASE("hostile nesting and lists are bounded") {
  auto nest = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
  CHECK(import(capture(node("a", "my.op", nest(40)))).ok());
  CHECK(!import(capture(node("a", "my.op", nest(200)))).ok());
  CHECK(!import(capture(node("a", "my.op", nest(100000)))).ok());
  CHECK(!import(nest(1000000)).ok());
  std::string type = "\"type\":" + nest(200);
  CHECK(!import(capture(R"({"name":"a","op":"my.op","args":[],)" + type + "}")).ok());
  std::string million = "[0";
  for (int i = 0; i < 1000000; ++i) million += ",0";
  Job job = import_ok(capture(node("a", "my.op", "[" + million + "]]")));
  CHECK(graph_of(job).node(graph_of(job).first()).args[0].items().size() == 1000001);
}

TEST_CASE("rank sets that do not belong together are refused") {
  auto two = [](std::string a, std::string b) {
    return import_captures({{"a", std::move(a)}, {"b", std::move(b)}}, {}, nullptr);
  };
  const std::string rank0 = capture("", "", "", world_of(4, 0)), rank1 = capture("", "", "", world_of(4, 1));
  CHECK(two(rank0, rank1).ok());
  CHECK(two(rank0, rank0).error().message == "this is rank 0, and so is a");
  CHECK(two(rank0, capture("", "", "", world_of(2, 1, "null"))).error().message.find("world has 2") !=
        std::string::npos);
  CHECK(two(rank0, capture("", "", "", world_of(4, 1, "null"))).error().message.find("mesh") != std::string::npos);
  CHECK(import_captures({{"a", rank0}, {"b", rank1}}, {.spmd = true}, nullptr).error().kind == ErrorKind::usage);
  CHECK(import_captures({}, {}, nullptr).error().kind == ErrorKind::usage);
}

TEST_CASE("captures are told from other files by their beginning") {
  CHECK(source_kind_of(capture("")) == SourceKind::capture);
  CHECK(source_kind_of(" \n{ \"title\": \"t\", \"format\" :\n\"step-capture\"}") == SourceKind::capture);
  CHECK(source_kind_of("\x1f\x8b rest") == SourceKind::capture);
  CHECK(source_kind_of("") == SourceKind::unknown);
  CHECK(source_kind_of("[\"format\",\"step-capture\"]") == SourceKind::unknown);
  CHECK(source_kind_of("sg 1.0 job \"format\"") == SourceKind::unknown);
}
