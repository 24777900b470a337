#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <thread>

#include "librun/comm/comm_local.h"
#include "librun/comm/watchdog.h"
#include "librun/ranks.h"
#include "tests/support/collective_script.h"
#include "tests/support/parse.h"

using namespace sg;
using namespace sg::test;

namespace {

// Two ranks and a clock that the test moves; looks ten times per second.
struct Scene {
  Heartbeat hearts[2];
  Watchdog dog{{{0, &hearts[0]}, {1, &hearts[1]}}, 5};
  double now = 1000;

  Scene() {
    for (Heartbeat& h : hearts) h.enter(Heartbeat::running);
  }
  // What is found within the next `seconds`; `each` runs before every look.
  std::optional<Stuck> pass(
      double seconds, const std::function<void()>& each = [] {}) {
    for (double end = now + seconds; now < end;) {
      now += 0.1;
      each();
      if (auto stuck = dog.look(now)) return stuck;
    }
    return std::nullopt;
  }
  void beat(int rank, uint32_t node = 1) { hearts[rank].at(NestedId(), NodeId(node)); }
};

const std::string kWatchedStep = R"(sg 1.0 world 2
group @all [0 1]
graph rank *
  param %w : f32[4] "w"
  forward m
    at "model.py":7 f
    %y = aten.relu(%w) : f32[4]
  output %y
)";

}  // namespace

TEST_CASE("ranks that get on are left alone", "[watchdog]") {
  Scene s;
  CHECK(!s.pass(60, [&] { s.beat(0), s.beat(1); }));
}

TEST_CASE("a rank that stays in one node is found within the timeout and a second", "[watchdog]") {
  Scene s;
  s.beat(1, 7);
  s.hearts[0].enter(Heartbeat::waiting);
  double start = s.now;
  auto stuck = s.pass(60);
  REQUIRE(stuck);
  CHECK(stuck->rank == 1);
  CHECK(stuck->how == Stuck::How::node);
  CHECK(static_cast<uint32_t>(stuck->place) == 7);
  CHECK(s.now - start < 6);
  CHECK(stuck->seconds > 5);
}

TEST_CASE("waiting is no fault while another computes, and is one when nobody does", "[watchdog]") {
  Scene s;
  s.hearts[0].enter(Heartbeat::waiting);
  CHECK(!s.pass(30, [&] { s.beat(1); }));
  s.hearts[1].enter(Heartbeat::waiting);
  auto stuck = s.pass(60);
  REQUIRE(stuck);
  CHECK(stuck->how == Stuck::How::wait);
  CHECK(stuck->rank == 0);  // the one that waits longest
}

TEST_CASE("ranks that have not begun or are done are not watched", "[watchdog]") {
  Scene s;
  for (Heartbeat& h : s.hearts) h.enter(Heartbeat::idle);
  CHECK(!s.pass(60));
}

TEST_CASE("a process that is stopped before its first step is found, one that is done is not missed", "[watchdog]") {
  Scene s;
  for (Heartbeat& h : s.hearts) h.enter(Heartbeat::idle), h.alive = 1;
  CHECK(!s.pass(60, [&] { ++s.hearts[0].alive, ++s.hearts[1].alive; }));
  auto stuck = s.pass(60, [&] { ++s.hearts[0].alive; });
  REQUIRE(stuck);
  CHECK(stuck->rank == 1);
  CHECK(stuck->how == Stuck::How::stopped);
  CHECK(stuck->reporter == 0);
  s.hearts[1].alive = 0;
  CHECK(!s.pass(60, [&] { ++s.hearts[0].alive; }));
}

TEST_CASE("a process that does not run is told from one that waits", "[watchdog]") {
  Scene s;
  for (Heartbeat& h : s.hearts) h.enter(Heartbeat::waiting), h.alive = 1;
  s.pass(0.5, [&] { ++s.hearts[0].alive, ++s.hearts[1].alive; });
  double start = s.now;
  auto stuck = s.pass(60, [&] { ++s.hearts[0].alive; });
  REQUIRE(stuck);
  CHECK(stuck->rank == 1);
  CHECK(stuck->how == Stuck::How::stopped);
  CHECK(stuck->reporter == 0);
  CHECK(s.now - start < 6);
  CHECK(stuck->seconds > 4);
}

TEST_CASE("a watcher that was stopped itself accuses nobody of that time", "[watchdog]") {
  Scene s;
  s.pass(1);
  s.now += 3600;
  CHECK(!s.dog.look(s.now));
  CHECK(!s.pass(2));
  auto stuck = s.pass(60);
  REQUIRE(stuck);
  CHECK(stuck->seconds < 6);
}

TEST_CASE("the report names rank, node, source line and collective", "[watchdog]") {
  Job job = parse(kWatchedStep);
  NodeId node = job.programs[0]->graph.first();
  Stuck stuck{1, Stuck::How::node, node.index, 5.25, 1};
  CHECK(stuck_error(job, stuck, {}).message == "rank 1 has been stuck for 5.2 s at %y (model.py:7)");
  stuck.how = Stuck::How::stopped;
  CHECK(stuck_error(job, stuck, {}).message == "rank 1 has not run for 5.2 s at %y (model.py:7)");
  stuck.place = uint64_t{9} << 32;  // a nested graph that the job does not have
  CHECK(stuck_error(job, stuck, {}).message == "rank 1 has not run for 5.2 s");
  CHECK(stuck_error(job, stuck, {}).kind == ErrorKind::rank_failed);
}

TEST_CASE("a rank that never comes is reported, and those that wait for it return", "[watchdog]") {
  Job job = parse(kWatchedStep);
  auto comms = make_local_communicators(job);
  std::vector<Communicator*> own = {comms[0].get(), comms[1].get()};
  for (Communicator* c : own) c->heartbeat().enter(Heartbeat::running);
  std::string reported, returned;
  {
    WatchdogThread dog(job, own, 0.4, [&](Error error) {
      reported = error.message;
      own[0]->abort(std::move(error));
    });
    (void)sg::run_ranks(comms, [&](Communicator& comm) -> Status {
      if (comm.rank() == 1) {  // computes until the job ends
        comm.heartbeat().at(NestedId(), job.programs[0]->graph.first());
        while (!comm.failure()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
        return ok_status();
      }
      CollectiveCall call;
      call.group = GroupId(0);
      call.label = "all_there";
      auto ticket = comm.launch(call);
      Status s = comm.wait(*ticket);
      returned = s.ok() ? "ok" : s.error().message;
      return ok_status();
    });
  }
  CHECK(reported.starts_with("rank 1 has been stuck for "));
  CHECK(reported.find(" at %y (model.py:7)") != std::string::npos);
  CHECK(returned == reported);
}

TEST_CASE("a wait that ends nowhere names who did not come", "[watchdog]") {
  Job job = parse(kWatchedStep);
  auto comms = make_local_communicators(job);
  std::vector<Communicator*> own = {comms[0].get(), comms[1].get()};
  own[0]->heartbeat().enter(Heartbeat::running);
  std::string reported;
  std::atomic<bool> done{false};
  {
    WatchdogThread dog(job, own, 0.4, [&](Error error) {
      reported = error.message;
      own[0]->abort(std::move(error));
    });
    (void)sg::run_ranks(comms, [&](Communicator& comm) -> Status {
      while (comm.rank() == 1 && !done) std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (comm.rank() == 1) return ok_status();
      CollectiveCall call;
      call.group = GroupId(0);
      call.label = "all_there";
      auto ticket = comm.launch(call);
      (void)comm.wait(*ticket).ok();
      done = true;
      return ok_status();
    });
  }
  CHECK(reported.find("in barrier %all_there of group @all") != std::string::npos);
  CHECK(reported.find("rank 1 did not come") != std::string::npos);
}
