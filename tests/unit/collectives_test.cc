#include <catch2/catch.hpp>
#include <mutex>

#include "librun/comm/collectives.h"
#include "librun/comm/comm_local.h"
#include "tests/support/collective_script.h"
#include "tests/support/kernel_call.h"

using namespace sg;
using namespace sg::test;

namespace {

ParamValue group_zero() {
  ParamValue p;
  p.kind = ParamValue::Kind::group;
  p.group = GroupId(0);
  return p;
}

ParamValue text(std::string_view t) {
  ParamValue p;
  p.kind = ParamValue::Kind::text;
  p.text = t;
  return p;
}

// Launches the op on one rank, and waits for all its results.
Status run_op(Communicator& comm, std::string_view op, std::vector<Argument> arguments, std::vector<Tensor> results) {
  KernelContext context;
  const OpInfo& info = *find_op(op);
  KernelCall call(info, &context);
  arguments.push_back({"group_name", group_zero()});
  for (Argument& a : arguments) call.params()[static_cast<size_t>(info.param_index(a.name))] = a.value;
  call.results = std::move(results);
  SG_ASSIGN(std::vector<Launched> launched, launch_collective(comm, call, "node"));
  for (size_t i = launched.size(); i-- > 0;) {
    SG_TRY(finish_collective(comm, launched[i]));
    SG_TRY(finish_collective(comm, launched[i]));  // a second wait is a no-op
  }
  return ok_status();
}

// Runs fn on each rank, one thread each, and returns their answers: "" or what is wrong.
std::vector<std::string> on_ranks(uint32_t world, const std::function<std::string(Communicator&)>& fn) {
  std::vector<std::string> out(world);
  auto job = job_of(world);
  run_ranks(make_local_communicators(*job), [&](Communicator& comm) { out[comm.rank()] = fn(comm); });
  return out;
}

template <class T>
std::string compare(Status status, Buffer<T>& got, const std::vector<T>& want) {
  if (!status.ok()) return status.error().message;
  if (got.values() == want) return "";
  std::string text = "got";
  for (T v : got.values()) text += " " + std::to_string(static_cast<double>(v));
  return text;
}

const std::vector<std::string> kFine2 = {"", ""};

}  // namespace

TEST_CASE("gather and reduce-scatter of strided tensors", "[collectives]") {
  CHECK(on_ranks(2, [](Communicator& comm) {
          float r = static_cast<float>(comm.rank()) * 10;
          Buffer<float> in({2, 3}, {r, r + 1, r + 2, r + 3, r + 4, r + 5}, {1, 2}), out({4, 3}, {}, {1, 4}, 2);
          Status s = run_op(comm, "_c10d_functional.all_gather_into_tensor.default", {{"input", in}, {"group_size", 2}},
                            {out.tensor()});
          return compare<float>(std::move(s), out, {0, 1, 2, 3, 4, 5, 10, 11, 12, 13, 14, 15});
        }) == kFine2);
  CHECK(on_ranks(2, [](Communicator& comm) {
          float r = static_cast<float>(comm.rank());
          Buffer<float> in({2, 2}, {1 + r, 2 + r, 3 + r, 4 + r}, {1, 2}), out({1, 2});
          Status s = run_op(comm, "_c10d_functional.reduce_scatter_tensor.default",
                            {{"input", in}, {"reduce_op", text("avg")}, {"group_size", 2}}, {out.tensor()});
          return compare<float>(std::move(s), out,
                                comm.rank() ? std::vector<float>{3.5, 4.5} : std::vector<float>{1.5, 2.5});
        }) == kFine2);
}

TEST_CASE("the out form gathers into memory that holds the input", "[collectives]") {
  CHECK(on_ranks(2, [](Communicator& comm) {
          Buffer<int64_t> out({4}, {-1, -1, -1, -1});
          Tensor mine = out.tensor();
          mine.shape[0] = 2;
          mine.data += comm.rank() * 16;
          mine.as<int64_t>()[0] = comm.rank();
          mine.as<int64_t>()[1] = 7;
          Status s = run_op(comm, "_c10d_functional.all_gather_into_tensor_out.default",
                            {{"input", mine}, {"group_size", 2}, {"out", out}}, {out.tensor()});
          return compare<int64_t>(std::move(s), out, {0, 7, 1, 7});
        }) == kFine2);
}

TEST_CASE("in place, coalesced and strided all at once", "[collectives]") {
  CHECK(on_ranks(2, [](Communicator& comm) {
          Buffer<int32_t> a({2, 2}, {1, 2, 3, 4}, {1, 3}), b({0}), c({}, {5});
          c.at(0) += static_cast<int32_t>(comm.rank());
          Status s = run_op(comm, "_c10d_functional.all_reduce_coalesced_.default",
                            {{"inputs", tensors({a.tensor(), b.tensor(), c.tensor()})}, {"reduce_op", text("sum")}},
                            {a.tensor(), b.tensor(), c.tensor()});
          std::string wrong = compare<int32_t>(std::move(s), a, {2, 4, 6, 8});
          return wrong.empty() ? compare<int32_t>(ok_status(), c, {11}) : wrong;
        }) == kFine2);
}

TEST_CASE("an exchange of rows, with split sizes from data and without", "[collectives]") {
  CHECK(on_ranks(2, [](Communicator& comm) {
          bool first = comm.rank() == 0;
          // Rank 0 keeps nothing and sends both rows; rank 1 sends one row and keeps one.
          Buffer<float> in({2, 2}, first ? std::vector<float>{1, 2, 3, 4} : std::vector<float>{5, 6, 7, 8});
          Buffer<float> out({first ? 1 : 3, 2});
          Status s = run_op(comm, "_c10d_functional.all_to_all_single.default",
                            {{"input", in},
                             {"output_split_sizes", first ? ints({0, 1}) : ints({2, 1})},
                             {"input_split_sizes", first ? ints({0, 2}) : ints({1, 1})}},
                            {out.tensor()});
          return compare<float>(std::move(s), out,
                                first ? std::vector<float>{5, 6} : std::vector<float>{1, 2, 3, 4, 7, 8});
        }) == kFine2);
  CHECK(on_ranks(2, [](Communicator& comm) {
          int64_t r = comm.rank() * 10;
          Buffer<int64_t> in({2}, {r, r + 1}), out({2});
          Status s = run_op(comm, "_c10d_functional.all_to_all_single.default",
                            {{"input", in}, {"output_split_sizes", ints({})}, {"input_split_sizes", ints({})}},
                            {out.tensor()});
          return compare<int64_t>(std::move(s), out,
                                  comm.rank() ? std::vector<int64_t>{1, 11} : std::vector<int64_t>{0, 10});
        }) == kFine2);
}

TEST_CASE("guarded, a result is of no use before its wait, and nobody may touch what is in flight", "[collectives]") {
  auto job = job_of(1);
  auto comms = make_local_communicators(*job);
  KernelContext context;
  const OpInfo& info = *find_op("_c10d_functional.all_gather_into_tensor_out.default");
  auto launch = [&](const Tensor& in, const Tensor& out) {
    KernelCall call(info, &context);
    for (const Argument& a :
         {Argument("input", in), Argument("group_size", 1), Argument("out", out), Argument("group_name", group_zero())})
      call.params()[static_cast<size_t>(info.param_index(a.name))] = a.value;
    call.results = {out};
    auto launched = launch_collective(*comms[0], call, "node", true);
    REQUIRE(launched.ok());
    return std::move((*launched)[0]);
  };
  Buffer<float> in({4}, {1, 2, 3, 4}), plain({4}), strided({4}, {}, {3}, 1), shared({8}, {1, 2, 3, 4, 5, 6, 7, 8});
  for (Buffer<float>* out : {&plain, &strided}) {
    Launched launched = launch(in.tensor(), out->tensor());
    for (int64_t i = 0; i < 4; ++i) CHECK(out->at(i) != out->at(i));  // NaN
    CHECK(finish_collective(*comms[0], launched).ok());
    CHECK(out->values() == in.values());
    out->at(1) = 0;  // after the wait it may be written
  }
  Tensor half = shared.tensor();
  half.shape[0] = 4;
  Launched in_place = launch(half, half);  // the input may be read, also in the place of the result
  CHECK(shared.values() == std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8});
  CHECK(finish_collective(*comms[0], in_place).ok());
  for (Buffer<float>* written : {&in, &plain}) {
    Launched launched = launch(in.tensor(), plain.tensor());
    written->at(3) = 7;
    Status s = finish_collective(*comms[0], launched);
    REQUIRE(!s.ok());
    CHECK(s.error().kind == ErrorKind::negative);
    std::string what = written == &in ? "input" : "result";
    CHECK(s.error().message == "the " + what + " of %node was written between its launch and its wait");
  }
}

TEST_CASE("conjugated tensors are sent as what they mean", "[collectives]") {
  CHECK(on_ranks(2, [](Communicator& comm) {
          Buffer<C64> in({1}, {C64(1, 2)}), out({1});
          Tensor conjugated = in.tensor();
          conjugated.conjugate = comm.rank() == 1;
          Status s = run_op(comm, "_c10d_functional.all_reduce.default",
                            {{"input", conjugated}, {"reduce_op", text("sum")}}, {out.tensor()});
          return s.ok() && out.at(0) == C64(2, 0) ? std::string() : std::string("wrong");
        }) == kFine2);
}

TEST_CASE("from shards along one axis to shards along another", "[collectives]") {
  CHECK(on_ranks(2, [](Communicator& comm) {
          // The whole is [[0 1 2 3], [4 5 6 7]]: split by rows before, by columns after.
          float r = static_cast<float>(comm.rank());
          Buffer<float> in({1, 4}, {4 * r, 4 * r + 1, 4 * r + 2, 4 * r + 3}), out({2, 2});
          Status s = run_op(comm, "_dtensor.shard_dim_alltoall.default",
                            {{"input", in}, {"gather_dim", 0}, {"shard_dim", 1}}, {out.tensor()});
          return compare<float>(std::move(s), out, {2 * r, 2 * r + 1, 2 * r + 4, 2 * r + 5});
        }) == kFine2);
}

TEST_CASE("broadcast from a rank of the group", "[collectives]") {
  CHECK(on_ranks(3, [](Communicator& comm) {
          Buffer<float> in({2}, {static_cast<float>(comm.rank()), 1}), out({2});
          Status s = run_op(comm, "_c10d_functional.broadcast.default", {{"input", in}, {"src", 2}}, {out.tensor()});
          return compare<float>(std::move(s), out, {2, 1});
        }) == std::vector<std::string>{"", "", ""});
}

TEST_CASE("what a node gets wrong is said before anything is launched", "[collectives]") {
  auto job = job_of(1);
  auto comms = make_local_communicators(*job);
  Buffer<float> in({2}), out({2});
  auto message = [&](std::string_view op, std::vector<Argument> arguments) {
    Status s = run_op(*comms[0], op, std::move(arguments), {out.tensor()});
    return s.ok() ? std::string("ok") : s.error().message;
  };
  CHECK(message("_c10d_functional.all_gather_into_tensor.default", {{"input", in}, {"group_size", 2}}) ==
        "%node is for 2 ranks, group @all has 1");
  CHECK(message("_c10d_functional.all_reduce.default", {{"input", in}, {"reduce_op", text("mean")}}) ==
        "unknown reduction 'mean'");
  CHECK(message("_c10d_functional.all_reduce.default", {{"input", in}, {"reduce_op", text("band")}}) ==
        "all_reduce %node: cannot reduce f32 by band");
  CHECK(message("_c10d_functional.broadcast.default", {{"input", in}, {"src", 1}}) == "source 1 is not in group @all");
  CHECK(message("_c10d_functional.all_reduce.default", {{"input", in}, {"reduce_op", text("sum")}}) == "ok");
}

TEST_CASE("every collective of the op table can be launched", "[collectives]") {
  auto job = job_of(1);
  auto comms = make_local_communicators(*job);
  for (const OpInfo& op : all_ops()) {
    if (!op.has(kCollective)) continue;
    Buffer<float> in({2, 2}, {1, 2, 3, 4}), out({2, 2});
    std::vector<Argument> arguments;
    auto give = [&](std::string_view name, ParamValue value) {
      if (op.param_index(name) >= 0) arguments.push_back({name, std::move(value)});
    };
    give("input", Argument("", in).value);
    give("inputs", tensors({in.tensor()}));
    give("out", Argument("", out).value);
    give("reduce_op", text("sum"));
    for (const char* name : {"group_size", "src", "gather_dim", "shard_dim"})
      give(name, Argument("", name == std::string_view("group_size") ? 1 : 0).value);
    give("input_split_sizes", ints({2}));
    give("output_split_sizes", ints({2}));
    bool in_place = op.results[0].written && op.param_index("out") < 0;
    INFO(op.name);
    Status s = run_op(*comms[0], op.name, std::move(arguments), {in_place ? in.tensor() : out.tensor()});
    CHECK((s.ok() ? "" : s.error().message) == "");
    CHECK((in_place ? in : out).values() == std::vector<float>{1, 2, 3, 4});
  }
}
