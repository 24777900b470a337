// play_ranks MODE: one rank of a test of the mpi communicator; run under mpirun by run_mpi_tests.py.
//
//   script SEED STEPS   random collectives against their definitions: the same bits as every other communicator
//   agree               ranks detect that their jobs differ
//   stop                rank 1 stops itself (SIGSTOP) before a collective
//   endless             rank 1 stays in one node forever
//   deadlock            rank 1 waits for a different collective than the others
//   kill                rank 1 dies by SIGKILL
//   fail                rank 1 fails with an error of its own
//   mismatch            ranks send other sizes than their peers expect
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "librun/comm/agree.h"
#include "librun/comm/comm_plugin.h"
#include "librun/comm/launch_env.h"
#include "librun/comm/watchdog.h"
#include "tests/support/collective_script.h"

using namespace sg;
using namespace sg::test;

namespace {

constexpr double kTimeout = 2;

int report(Communicator& comm, const Error& error) {
  std::printf("rank %u: %s\n", comm.rank(), error.message.c_str());
  std::fflush(stdout);
  return static_cast<int>(error.kind);
}

struct Floats {
  std::vector<float> values;
  Tensor tensor() {
    int64_t count[] = {static_cast<int64_t>(values.size())};
    return make_tensor(reinterpret_cast<std::byte*>(values.data()), DType::f32, count);
  }
};

Status all_reduce(Communicator& comm, std::string_view label, uint32_t group = 0, size_t count = 4) {
  Floats in{std::vector<float>(count, 1)}, out = in;
  CollectiveCall call;
  call.kind = CollectiveKind::all_reduce;
  call.group = GroupId(group);
  call.input = in.tensor();
  call.output = out.tensor();
  call.label = label;
  SG_ASSIGN(Ticket ticket, comm.launch(call));
  return comm.wait(ticket);
}

// Rank 0 sends three elements to rank 1, which expects two.
Status exchange_badly(Communicator& comm) {
  std::vector<int64_t> send(comm.world(), 2), receive(comm.world(), 2);
  if (comm.rank() == 0) send[1] = 3;
  int64_t sent = 0;
  for (int64_t n : send) sent += n;
  Floats in{std::vector<float>(static_cast<size_t>(sent), 1)}, out{std::vector<float>(2 * comm.world(), 0)};
  CollectiveCall call;
  call.kind = CollectiveKind::all_to_all;
  call.group = GroupId(0);
  call.input = in.tensor();
  call.output = out.tensor();
  call.send = send;
  call.receive = receive;
  call.label = "routed";
  SG_ASSIGN(Ticket ticket, comm.launch(call));
  return comm.wait(ticket);
}

Status misbehave(Communicator& comm, std::string_view mode) {
  comm.heartbeat().enter(Heartbeat::running);
  SG_TRY(all_reduce(comm, "first"));
  bool guilty = comm.rank() == 1;
  if (mode == "mismatch") SG_TRY(exchange_badly(comm));
  if (guilty && mode == "stop") raise(SIGSTOP);
  if (guilty && mode == "kill") raise(SIGKILL);
  if (guilty && mode == "fail") return Error{ErrorKind::cannot_apply, "index 9 is out of range", {}, {}};
  while (guilty && mode == "endless") std::this_thread::sleep_for(std::chrono::seconds(1));
  // Two groups of the same ranks: rank 1 uses one, all others the other.
  SG_TRY(all_reduce(comm, "second", guilty && mode == "deadlock" ? 1 : 0));
  return comm.drain();
}

std::unique_ptr<Job> job_for(std::string_view mode, uint32_t world, bool odd) {
  auto job = job_of(world);
  Group twin = job->groups[0];
  twin.axis = job->pool->strings.intern("twin");
  job->groups.push_back(twin);
  if (mode != "agree") return job;
  Program& program = job->add_program();
  NodeSpec spec;
  spec.op = job->pool->op(odd ? "_c10d_functional.broadcast.default" : "_c10d_functional.all_reduce.default");
  TypeId type = job->pool->tensor(DType::f32, {job->pool->exprs.constant(4)}, job->pool->str("cpu"));
  ValueId x = program.graph.add_input("x", type, {});
  spec.args = {Arg::value(x), odd ? Arg::integer(0) : Arg::text(ArgKind::string, job->pool->str("sum")),
               Arg::group(GroupId(0))};
  spec.result_types = {type};
  spec.label = odd ? "odd" : "even";
  program.graph.append(spec);
  return job;
}

int play_script(uint32_t world, uint64_t seed, size_t steps) {
  Script script = random_script(seed, world, steps, true);
  auto comm = load_communicator("mpi", *script.job, 60);
  if (!comm.ok()) return std::printf("%s\n", comm.error().message.c_str()), 1;
  std::string wrong = play(script, **comm, seed);
  if (!wrong.empty()) {
    std::printf("rank %u: %s\n", (*comm)->rank(), wrong.c_str());
    std::fflush(stdout);
    (*comm)->end_all(1);
  }
  auto texts = (*comm)->exchange("rank" + std::to_string((*comm)->rank()));
  for (uint32_t r = 0; r < world; ++r)
    if (!texts.ok() || (*texts)[r] != "rank" + std::to_string(r)) return 1;
  if ((*comm)->rank() == 0) std::printf("%u ranks agree with the definitions\n", world);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::string mode = argc > 1 ? argv[1] : "";
  auto env = detect_launch([](const char* name) { return std::getenv(name); });
  if (!env.ok() || !*env) return std::printf("run me under mpirun\n"), 2;
  uint32_t world = (*env)->world;
  if (mode == "script" && argc == 4)
    return play_script(world, std::strtoull(argv[2], nullptr, 10), std::strtoull(argv[3], nullptr, 10));
  auto job = job_for(mode, world, (*env)->rank == 1);
  auto loaded = load_communicator("mpi", *job, 60);
  if (!loaded.ok()) return std::printf("%s\n", loaded.error().message.c_str()), static_cast<int>(loaded.error().kind);
  Communicator& comm = **loaded;
  if (mode == "agree") {
    Status s = agree_on_collectives(
        comm, *job, [](StrId) { return std::optional<int64_t>(); }, "");
    return s.ok() ? 0 : report(comm, s.error());
  }
  WatchdogThread dog(*job, {&comm}, kTimeout, [&](Error error) { comm.end_all(report(comm, error)); });
  Status s = misbehave(comm, mode);
  comm.heartbeat().enter(Heartbeat::idle);
  if (s.ok()) return 0;
  comm.abort(s.error());
  int code = report(comm, s.error());
  comm.end_all(code);
  return code;
}
