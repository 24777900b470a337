// Files that Stepgraph's writer never makes, built with the generated code: each must be refused with its place.
#include <catch2/catch.hpp>
#include <functional>

#include "libgraph/binary/binary.h"
#include "schema/graph_generated.h"

using namespace sg;

namespace {

using Builder = flatbuffers::FlatBufferBuilder;
template <class T>
using Offset = flatbuffers::Offset<T>;
template <class T>
using List = Offset<flatbuffers::Vector<T>>;

constexpr uint32_t kNone = 0xFFFFFFFFu;

// A graph of input `a` (value 0) and one node `b = op(args)`; each test breaks one part of it.
struct FileParts {
  Builder builder;
  uint16_t minor = kSchemaMinor;
  std::vector<std::string> strings = {"a", "b", "op", "u0", "u1"};
  std::vector<uint32_t> value_names = {0, 1};
  std::vector<Offset<fb::Expr>> exprs;
  std::vector<Offset<fb::Type>> types;
  std::vector<Offset<fb::Arg>> args;
  std::vector<Offset<fb::Group>> groups;
  uint32_t op = 0, result_count = 1, meta = kNone, forward = kNone;

  uint32_t constant(int64_t v) {
    exprs.push_back(fb::CreateExpr(builder, v));
    return static_cast<uint32_t>(exprs.size() - 1);
  }
  Offset<fb::Term> symbol_term(int64_t coefficient, uint32_t name) {
    std::vector<Offset<fb::Factor>> factors = {fb::CreateFactor(builder, fb::AtomKind::symbol, name)};
    return fb::CreateTerm(builder, coefficient, builder.CreateVector(factors));
  }
  uint32_t sum(const std::vector<Offset<fb::Term>>& terms) {
    exprs.push_back(fb::CreateExpr(builder, 0, builder.CreateVector(terms)));
    return static_cast<uint32_t>(exprs.size() - 1);
  }
  Offset<fb::Arg> list(const std::vector<Offset<fb::Arg>>& items) {
    return fb::CreateArg(builder, fb::ArgKind::list, 0, kNone, 0, flatbuffers::nullopt, builder.CreateVector(items));
  }

  std::string bytes() {
    Builder& b = builder;
    std::vector<Offset<fb::Input>> inputs = {fb::CreateInput(b)};
    std::vector<Offset<fb::Node>> nodes = {fb::CreateNode(b, op, b.CreateVector(args), result_count, false, kNone,
                                                          fb::Phase::forward, kNone, kNone, meta, forward)};
    std::vector<uint32_t> value_types(value_names.size(), kNone), ops = {2};
    auto graph = fb::CreateGraph(b, b.CreateVector(inputs), b.CreateVector(nodes), 0, b.CreateVector(value_names),
                                 b.CreateVector(value_types));
    std::vector<Offset<fb::Program>> programs = {fb::CreateProgram(b, 0, 0, 0, graph)};
    fb::FinishJobBuffer(b, fb::CreateJob(b, 0, kSchemaMajor, minor, 0, 0, 1, b.CreateVectorOfStrings(strings),
                                         b.CreateVector(exprs), b.CreateVector(types), 0, 0, b.CreateVector(ops), 0, 0,
                                         b.CreateVector(groups), b.CreateVector(programs)));
    return {reinterpret_cast<const char*>(b.GetBufferPointer()), b.GetSize()};
  }
};

struct Case {
  std::string name, path, message;  // of the error; the actual message contains this one
  std::function<void(FileParts&)> break_it;
};

const std::string kNode = "programs[0].graph.nodes[0].";

void refuse(const Case& c) {
  INFO(c.name);
  FileParts parts;
  c.break_it(parts);
  Result<Job> job = read_unsealed(parts.bytes(), "hostile.sg");
  REQUIRE(!job.ok());
  CHECK(job.error().kind == ErrorKind::unreadable);
  CHECK(job.error().where.file == "hostile.sg");
  CHECK(job.error().where.path == c.path);
  CHECK(job.error().message.find(c.message) != std::string::npos);
  CHECK(!job.error().hint.empty());
}

}  // namespace

TEST_CASE("the file that the others are made from is good") {
  FileParts parts;
  parts.args = {fb::CreateArg(parts.builder)};
  Result<Job> job = read_unsealed(parts.bytes(), "good.sg");
  REQUIRE(job.ok());
  CHECK(job->programs[0]->graph.name(ValueId(1)) == "b");
}

TEST_CASE("a broken node is refused at its place") {
  for (const Case& c : std::vector<Case>{
           {"unknown kind of argument", kNode + "args[1].kind", "unknown value 77",
            [](FileParts& p) {
              p.args = {fb::CreateArg(p.builder), fb::CreateArg(p.builder, static_cast<fb::ArgKind>(77))};
            }},
           {"own result as argument", kNode + "args[0].index", "value 1 is used before it is made",
            [](FileParts& p) { p.args = {fb::CreateArg(p.builder, fb::ArgKind::value, 1)}; }},
           {"no such value", kNode + "args[0].items[0].index", "index 2 is out of range, there are 2",
            [](FileParts& p) { p.args = {p.list({fb::CreateArg(p.builder, fb::ArgKind::value, 2)})}; }},
           {"float without number", kNode + "args[0].real", "is required",
            [](FileParts& p) { p.args = {fb::CreateArg(p.builder, fb::ArgKind::floating)}; }},
           {"slice of two", kNode + "args[0].items", "of a slice are three",
            [](FileParts& p) { p.args = {fb::CreateArg(p.builder, fb::ArgKind::slice)}; }},
           {"dict entry without key", kNode + "args[0].items[0].key", "is required",
            [](FileParts& p) {
              std::vector<Offset<fb::Arg>> items = {fb::CreateArg(p.builder)};
              p.args = {fb::CreateArg(p.builder, fb::ArgKind::dict, 0, kNone, 0, flatbuffers::nullopt,
                                      p.builder.CreateVector(items))};
            }},
           {"no such group", kNode + "args[0].index", "index 0 is out of range, there are 0",
            [](FileParts& p) { p.args = {fb::CreateArg(p.builder, fb::ArgKind::group)}; }},
           {"no such op", kNode + "op", "out of range", [](FileParts& p) { p.op = 1; }},
           {"no such metadata", kNode + "meta", "out of range", [](FileParts& p) { p.meta = 0; }},
           {"no such forward node", kNode + "forward", "out of range", [](FileParts& p) { p.forward = 1; }},
           {"four billion results", kNode + "result_count", "passes the end",
            [](FileParts& p) { p.result_count = kNone; }},
           {"a name twice", kNode + "name", "taken",
            [](FileParts& p) {
              p.value_names = {0, 0};
            }},
           {"values that nothing makes", "programs[0].graph.value_names", "more than inputs and results",
            [](FileParts& p) {
              p.value_names = {0, 1, 2};
            }},
           {"lists nested 70 deep", "", "structure is broken",
            [](FileParts& p) {
              Offset<fb::Arg> arg = fb::CreateArg(p.builder);
              for (int i = 0; i < 70; ++i) arg = p.list({arg});
              p.args = {arg};
            }},
       })
    refuse(c);
}

TEST_CASE("broken tables of the root are refused at their place") {
  for (const Case& c : std::vector<Case>{
           {"text that is no UTF-8", "strings[0]", "UTF-8", [](FileParts& p) { p.strings[0] = "\xC3\x28"; }},
           {"terms out of order", "exprs[0].terms", "normal form",
            [](FileParts& p) {
              p.sum({p.symbol_term(1, 4), p.symbol_term(1, 3)});
            }},
           {"a coefficient of 0", "exprs[0].terms", "normal form", [](FileParts& p) { p.sum({p.symbol_term(0, 3)}); }},
           {"a symbol that is none", "exprs[0].terms[0].factors[0].symbol", "is required",
            [](FileParts& p) { p.sum({p.symbol_term(1, kNone)}); }},
           {"a division by zero", "exprs[1].terms", "normal form",
            [](FileParts& p) {
              std::vector<uint32_t> operands = {p.constant(0), 0};
              std::vector<Offset<fb::Factor>> factors = {
                  fb::CreateFactor(p.builder, fb::AtomKind::mod, kNone, p.builder.CreateVector(operands))};
              p.sum({fb::CreateTerm(p.builder, 1, p.builder.CreateVector(factors))});
            }},
           {"an operand that comes later", "exprs[0].terms[0].factors[0].operands[0]", "out of range",
            [](FileParts& p) {
              std::vector<uint32_t> operands = {0, 1};
              std::vector<Offset<fb::Factor>> factors = {
                  fb::CreateFactor(p.builder, fb::AtomKind::max, kNone, p.builder.CreateVector(operands))};
              p.sum({fb::CreateTerm(p.builder, 1, p.builder.CreateVector(factors))});
            }},
           {"strides of another rank", "types[0].stride", "not as long",
            [](FileParts& p) {
              std::vector<uint32_t> shape = {p.constant(4)};
              p.types = {fb::CreateType(p.builder, fb::TypeKind::tensor, fb::DType::f32, 0,
                                        p.builder.CreateVector(shape), 0, 0)};
            }},
           {"a list of itself", "types[0].elements", "come after",
            [](FileParts& p) {
              std::vector<uint32_t> elements = {0};
              p.types = {fb::CreateType(p.builder, fb::TypeKind::list, fb::DType::none, kNone, 0, 0, kNone, false,
                                        kNone, flatbuffers::nullopt, kNone, p.builder.CreateVector(elements))};
            }},
       })
    refuse(c);
}

TEST_CASE("a newer minor version is read, and named when something in it is not known") {
  FileParts good;
  good.minor = 7;
  CHECK(read_unsealed(good.bytes(), "newer.sg").ok());
  FileParts bad;
  bad.minor = 7;
  bad.args = {fb::CreateArg(bad.builder, static_cast<fb::ArgKind>(77))};
  Result<Job> job = read_unsealed(bad.bytes(), "newer.sg");
  REQUIRE(!job.ok());
  CHECK(job.error().hint == "the file's schema is 1.7, newer than our 1.0: a newer stepgraph may read it");
}

// A few kilobytes that stand for 2^28 arguments or a gigabyte of ranks: refused without expanding them.
TEST_CASE("tables and vectors that are used twice are refused") {
  FileParts nested;
  Offset<fb::Arg> arg = fb::CreateArg(nested.builder);
  for (int i = 0; i < 28; ++i) arg = nested.list({arg, arg});
  nested.args = {arg};
  CHECK(!read_unsealed(nested.bytes(), "bomb.sg").ok());

  FileParts shared;
  auto ranks = shared.builder.CreateVector(std::vector<uint32_t>(20000, 1));
  std::vector<Offset<fb::GroupPart>> parts;
  for (int i = 0; i < 5000; ++i) parts.push_back(fb::CreateGroupPart(shared.builder, ranks));
  shared.groups = {fb::CreateGroup(shared.builder, 0, 0, 0, shared.builder.CreateVector(parts))};
  Result<Job> job = read_unsealed(shared.bytes(), "bomb.sg");
  REQUIRE(!job.ok());
  CHECK(job.error().message == "parts of the file overlap");
}
