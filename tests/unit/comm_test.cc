#include <algorithm>
#include <atomic>
#include <catch2/catch.hpp>
#include <chrono>
#include <mutex>
#include <thread>

#include "librun/comm/comm_inject.h"
#include "librun/comm/comm_local.h"
#include "librun/comm/comm_plugin.h"
#include "librun/ranks.h"
#include "librun/thread_team.h"
#include "tests/support/collective_script.h"
#include "tests/support/linear_time.h"

using namespace sg;
using namespace sg::test;

namespace {

using Communicators = std::vector<std::unique_ptr<Communicator>>;

Communicators slowed(Communicators comms,
                     const std::function<std::unique_ptr<Communicator>(std::unique_ptr<Communicator>)>& with) {
  for (auto& comm : comms) comm = with(std::move(comm));
  return comms;
}

std::vector<std::string> play_all(const Script& script, uint64_t seed, int threads = 1, bool injected = false) {
  std::vector<std::string> wrong(script.job->world);
  Communicators comms = make_local_communicators(*script.job);
  if (injected)
    comms = slowed(std::move(comms), [&](auto comm) {
      return with_chaos(with_link(std::move(comm), Link{1e-5, 1e9}), seed);
    });
  run_ranks(std::move(comms), [&](Communicator& comm) {
    ThreadTeam team(threads);
    comm.use_team(&team);
    wrong[comm.rank()] = play(script, comm, seed);
    if (!wrong[comm.rank()].empty()) comm.abort({ErrorKind::rank_failed, wrong[comm.rank()], {}, {}});
  });
  return wrong;
}

// Collects what ranks find wrong: the assertions of the test framework belong to one thread.
class Findings {
 public:
  void expect(bool ok, const std::string& what) {
    std::lock_guard lock(mutex_);
    if (!ok) text_ += what + "; ";
  }
  std::string text() const { return text_; }

 private:
  std::mutex mutex_;
  std::string text_;
};
#define EXPECT(condition) findings.expect((condition), #condition)

struct Vector {
  std::vector<float> values;
  Tensor tensor() {
    int64_t count[] = {static_cast<int64_t>(values.size())};
    return make_tensor(reinterpret_cast<std::byte*>(values.data()), DType::f32, count);
  }
};

CollectiveCall call_of(CollectiveKind kind, Vector& in, Vector& out, std::string_view label) {
  CollectiveCall call;
  call.kind = kind;
  call.group = GroupId(0);
  call.input = in.tensor();
  call.output = out.tensor();
  call.label = label;
  return call;
}

Status all_reduce(Communicator& comm, Vector& in, Vector& out, std::string_view label = "sum") {
  SG_ASSIGN(Ticket ticket, comm.launch(call_of(CollectiveKind::all_reduce, in, out, label)));
  return comm.wait(ticket);
}

// What is wrong with two collectives that a rank's computing hides, and two that it does not.
std::string overlapped_once() {
  auto job = job_of(2);
  Findings findings;
  using Clock = std::chrono::steady_clock;
  Communicators comms = slowed(make_local_communicators(*job), [](auto comm) {
    return with_link(std::move(comm), Link{0.05, 1e9});
  });
  run_ranks(std::move(comms), [&](Communicator& comm) {
    Vector in{{1, 2, 3}}, a{{0, 0, 0}}, b{{0, 0, 0}};
    EXPECT(comm.exchange("together").ok());
    auto start = Clock::now();
    auto first = comm.launch(call_of(CollectiveKind::all_reduce, in, a, "a"));
    auto second = comm.launch(call_of(CollectiveKind::all_reduce, in, b, "b"));
    std::this_thread::sleep_for(std::chrono::milliseconds(110));  // compute, which hides both
    auto computed = Clock::now();
    EXPECT(comm.wait(*second).ok() && comm.wait(*first).ok());
    EXPECT(Clock::now() - computed < std::chrono::milliseconds(40));
    auto third = comm.launch(call_of(CollectiveKind::all_reduce, in, a, "c"));
    auto fourth = comm.launch(call_of(CollectiveKind::all_reduce, in, b, "d"));
    EXPECT(comm.wait(*third).ok() && comm.wait(*fourth).ok());
    EXPECT(Clock::now() - start >= std::chrono::milliseconds(210));
    EXPECT((b.values == std::vector<float>{2, 4, 6}));
  });
  return findings.text();
}

}  // namespace

TEST_CASE("collectives match their definitions on random groups, types and sizes, in any order of waits", "[comm]") {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Script script = random_script(seed, 1 + static_cast<uint32_t>(seed % 8), 40, seed % 6 == 0);
    for (const std::string& wrong : play_all(script, seed)) REQUIRE(wrong == "");
  }
}

TEST_CASE("an injected link and chaos change no bits, whatever the order of waits", "[comm]") {
  for (uint64_t seed = 1; seed <= 12; ++seed) {
    Script script = random_script(seed, 1 + static_cast<uint32_t>(seed % 5), 15, false);
    for (const std::string& wrong : play_all(script, seed, 1, true)) REQUIRE(wrong == "");
  }
}

TEST_CASE("a link works while its rank computes, one collective after the other", "[comm]") {
  std::string wrong = overlapped_once();
  for (int more = 0; more < 5 && !wrong.empty(); ++more) wrong = overlapped_once();  // the machine may be busy
  CHECK(wrong == "");
}

TEST_CASE("a failure ends the sleep of those on a slow link", "[comm]") {
  auto job = job_of(2);
  Findings findings;
  auto start = std::chrono::steady_clock::now();
  Communicators comms = slowed(make_local_communicators(*job), [](auto comm) {
    return with_link(std::move(comm), Link{600, 1e9});
  });
  run_ranks(std::move(comms), [&](Communicator& comm) {
    Vector in{{1}}, out{{0}};
    auto ticket = comm.launch(call_of(CollectiveKind::all_reduce, in, out, "a"));
    if (comm.rank() == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      return comm.abort({ErrorKind::rank_failed, "enough", {}, {}});
    }
    Status s = comm.wait(*ticket);
    EXPECT(!s.ok() && s.error().message == "enough");
  });
  CHECK(findings.text() == "");
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
}

TEST_CASE("what a collective moves over a rank's link", "[comm]") {
  Vector part{{1, 2, 3}}, whole{std::vector<float>(12, 1)}, mine{std::vector<float>(8, 1)};
  auto bytes = [](const CollectiveCall& call, uint32_t position) { return link_bytes(call, 4, position); };
  CHECK(bytes(call_of(CollectiveKind::barrier, part, part, ""), 0) == 0);
  CHECK(bytes(call_of(CollectiveKind::all_gather, part, whole, ""), 1) == 3 * 12);
  CHECK(bytes(call_of(CollectiveKind::reduce_scatter, whole, part, ""), 1) == 3 * 12);
  CHECK(bytes(call_of(CollectiveKind::all_reduce, whole, whole, ""), 1) == 2 * 3 * 12);
  CHECK(bytes(call_of(CollectiveKind::broadcast, part, part, ""), 1) == 12);
  CHECK(bytes(call_of(CollectiveKind::gather, part, whole, ""), 0) == 36);
  CHECK(bytes(call_of(CollectiveKind::gather, part, whole, ""), 2) == 12);
  CHECK(bytes(call_of(CollectiveKind::all_to_all, whole, whole, ""), 2) == 36);
  CollectiveCall uneven = call_of(CollectiveKind::all_to_all, whole, mine, "");
  uneven.send = {1, 2, 9, 0};  // 9 of them stay on rank 2
  uneven.receive = {0, 5, 2, 1};
  CHECK(bytes(uneven, 2) == 6 * 4);
  CHECK(bytes(uneven, 0) == 11 * 4);
}

TEST_CASE("links are a latency and a bandwidth", "[comm]") {
  Result<Link> link = parse_link("50us,2GiB/s");
  REQUIRE(link.ok());
  CHECK(link->latency_s == Approx(50e-6));
  CHECK(link->bytes_per_s == 0x1p31);
  CHECK(parse_link("0,1000")->bytes_per_s == 1000);
  CHECK(parse_link("1.5ms,25GB")->latency_s == Approx(1.5e-3));
  for (const char* wrong :
       {"", ",", "1us", "1,1GiB", "us,1GiB", "1us,", "1us,-1", "nanus,1", "1us,0", "1e9s,1", "1us,1GiB,2"}) {
    INFO(wrong);
    CHECK(!parse_link(wrong).ok());
  }
}

TEST_CASE("idle threads of a rank help, and change no bits", "[comm]") {
  Script script = random_script(7, 2, 30, true);
  for (const std::string& wrong : play_all(script, 7, 3)) REQUIRE(wrong == "");
}

TEST_CASE("ranks that wait in opposite orders do not wait for each other", "[comm]") {
  auto job = job_of(2);
  Findings findings;
  run_ranks(make_local_communicators(*job), [&](Communicator& comm) {
    for (int round = 0; round < 200; ++round) {
      Vector in{{1, 2, 3}}, a{{0, 0, 0}}, b{{0, 0, 0}};
      auto first = comm.launch(call_of(CollectiveKind::all_reduce, in, a, "a"));
      auto second = comm.launch(call_of(CollectiveKind::all_reduce, in, b, "b"));
      bool swap = comm.rank() == 1;
      EXPECT(comm.wait(swap ? *second : *first).ok());
      EXPECT(comm.wait(swap ? *first : *second).ok());
      EXPECT((a.values == std::vector<float>{2, 4, 6}));
      EXPECT(b.values == a.values);
    }
  });
  CHECK(findings.text() == "");
}

TEST_CASE("an error of one rank reaches all that wait, at once", "[comm]") {
  auto job = job_of(4);
  std::atomic<int> failed{0};
  Findings findings;
  auto start = std::chrono::steady_clock::now();
  run_ranks(make_local_communicators(*job), [&](Communicator& comm) {
    Vector in{{1}}, out{{0}};
    if (comm.rank() == 2) {
      std::this_thread::sleep_for(std::chrono::milliseconds(30));
      return comm.abort({ErrorKind::rank_failed, "rank 2: out of luck", {}, {}});
    }
    Status s = comm.rank() == 0 ? all_reduce(comm, in, out) : ok_status();
    if (comm.rank() != 0) EXPECT(!comm.exchange("x").ok()), s = *comm.failure();
    EXPECT(!s.ok() && s.error().message == "rank 2: out of luck");
    EXPECT(!all_reduce(comm, in, out).ok());
    EXPECT(!comm.drain().ok());
    ++failed;
  });
  CHECK(findings.text() == "");
  CHECK(failed == 3);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(5));
}

TEST_CASE("no rank leaves while others still read its memory", "[comm]") {
  auto job = job_of(3);
  constexpr ptrdiff_t kElements = 400000;
  Findings findings;
  for (int round = 0; round < 30; ++round)
    run_ranks(make_local_communicators(*job), [&](Communicator& comm) {
      Vector in, out;
      in.values.assign(kElements, 1.0f);
      out.values.assign(kElements, 0.0f);
      auto ticket = comm.launch(call_of(CollectiveKind::all_reduce, in, out, "big"));
      if (comm.rank() == static_cast<uint32_t>(round % 3)) comm.abort({ErrorKind::rank_failed, "enough", {}, {}});
      const Status done = ticket.ok() ? comm.wait(*ticket) : Status(ticket.error());
      if (done.ok()) EXPECT(std::count(out.values.begin(), out.values.end(), 3.0f) == kElements);
      else EXPECT(done.error().message == "enough");
      // `in` and `out` are destroyed here; the sanitizers report later accesses.
    });
  CHECK(findings.text() == "");
}

TEST_CASE("a rank that ends early fails the collectives that lack it, by name", "[comm]") {
  auto job = job_of(2);
  Status got = ok_status();
  run_ranks(make_local_communicators(*job), [&](Communicator& comm) {
    if (comm.rank() == 1) return;
    Vector in{{1}}, out{{0}};
    got = all_reduce(comm, in, out, "mean_3");
  });
  REQUIRE(!got.ok());
  CHECK(got.error().kind == ErrorKind::rank_failed);
  CHECK(got.error().message == "rank 1 ended without all_reduce %mean_3, for which rank 0 waits");
}

TEST_CASE("calls that do not match name both nodes", "[comm]") {
  auto job = job_of(2);
  auto differing = [&](const std::function<void(CollectiveCall&)>& change) {
    std::vector<std::string> message(2);
    run_ranks(make_local_communicators(*job), [&](Communicator& comm) {
      Vector in{{1, 2, 3, 4}}, out{{0, 0, 0, 0}};
      CollectiveCall call = call_of(CollectiveKind::all_to_all, in, out, comm.rank() == 0 ? "here" : "there");
      call.send = call.receive = {2, 2};
      if (comm.rank() == 1) change(call);
      auto ticket = comm.launch(call);
      Status s = ticket.ok() ? comm.wait(*ticket) : Status(ticket.error());
      if (!s.ok()) message[comm.rank()] = s.error().message;
    });
    CHECK(message[0] == message[1]);
    return message[0];
  };
  CHECK(differing([](CollectiveCall&) {}) == "");
  std::string nodes = "the ranks of group @all do not do the same: %here (all_to_all) on rank 0 and %there (";
  CHECK(differing([](CollectiveCall& c) { c.kind = CollectiveKind::all_reduce; }) ==
        nodes + "all_reduce) on rank 1: they are different collectives");
  CHECK(differing([](CollectiveCall& c) {
          c.send = {3, 1};
        }) ==
        "the ranks of group @all do not do the same: %there (all_to_all) on rank 1 and %here (all_to_all) on rank 0: "
        "3 elements sent, 2 expected");
  CHECK(differing([](CollectiveCall& c) { c.input.dtype = c.output.dtype = DType::i32; }) ==
        nodes + "all_to_all) on rank 1: f32 against i32");
}

TEST_CASE("a call that cannot be right is refused by its own rank", "[comm]") {
  auto job = job_of(1);
  auto comms = make_local_communicators(*job);
  Vector in{{1, 2, 3}}, out{{0, 0}};
  auto message = [&](CollectiveCall call) { return comms[0]->launch(call).error().message; };
  CHECK(message(call_of(CollectiveKind::all_reduce, in, out, "x")) ==
        "all_reduce %x: 1 ranks of 3 elements each do not make 2");
  CollectiveCall call = call_of(CollectiveKind::all_to_all, in, out, "x");
  call.send = {3}, call.receive = {3};
  CHECK(message(call) == "all_to_all %x: output split sizes add up to 3 elements of 2");
  call.send = {-1};
  CHECK(message(call) == "all_to_all %x: input split sizes are out of range");
  call.group = GroupId(9);
  CHECK(message(call) == "all_to_all %x: rank 0 is not in the group");
}

TEST_CASE("what a rank is blocked in can be asked", "[comm]") {
  auto job = job_of(3);
  auto comms = make_local_communicators(*job);
  Communicator* first = comms[0].get();
  CHECK(!first->blocked_in());
  std::atomic<bool> seen{false};
  std::optional<BlockedIn> blocked;
  std::thread watcher([&, first] {
    for (int i = 0; i < 5000 && !(blocked && blocked->missing == std::vector<uint32_t>{2}); ++i) {
      blocked = first->blocked_in();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    seen = true;
  });
  Findings findings;
  run_ranks(std::move(comms), [&](Communicator& comm) {
    while (comm.rank() == 2 && !seen) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Vector in{{1}}, out{{0}};
    EXPECT(all_reduce(comm, in, out).ok());
    while (!seen) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  });
  watcher.join();
  CHECK(findings.text() == "");
  REQUIRE(blocked);
  CHECK(blocked->label == "sum");
  CHECK(blocked->group == "@all");
  CHECK(blocked->missing == std::vector<uint32_t>{2});
}

TEST_CASE("texts are exchanged between all ranks, again and again", "[comm]") {
  auto job = job_of(5);
  Findings findings;
  run_ranks(make_local_communicators(*job), [&](Communicator& comm) {
    for (int i = 0; i < 100; ++i) {
      auto all = comm.exchange(std::to_string(comm.rank() * 1000 + static_cast<uint32_t>(i)));
      for (uint32_t r = 0; r < 5; ++r)
        EXPECT(all.ok() && (*all)[r] == std::to_string(r * 1000 + static_cast<uint32_t>(i)));
    }
  });
  CHECK(findings.text() == "");
}

TEST_CASE("the ranks of one process share what is as long as their group", "[comm]") {
  constexpr uint32_t kWorld = 20'000;
  auto job = job_of(kWorld);
  const auto start = std::clock();
  const std::vector<std::vector<RankGroup>> groups = groups_of_all_ranks(*job);
  CHECK(seconds_since(start) < kLinearSeconds);
  REQUIRE(groups.size() == kWorld);
  for (uint32_t r : {0u, 7u, kWorld - 1}) {
    const RankGroup mine = groups_of_rank(*job, r)[0];
    CHECK(groups[r][0].name == mine.name);
    CHECK(groups[r][0].position == r);
    CHECK(groups[r][0].digest == mine.digest);
    CHECK(identity_of(groups[r][0]) == identity_of(mine));
    CHECK(groups[r][0].ranks.data() == job->groups[0].parts[0].ranks.data());
  }
  const std::string* first[3] = {};
  auto few = job_of(3);
  run_ranks(make_local_communicators(*few), [&](Communicator& comm) {
    const auto texts = comm.exchange("text");
    if (texts.ok()) first[comm.rank()] = &(*texts)[0];
    (void)comm.exchange("all have theirs").ok();
  });
  CHECK(first[0] != nullptr);
  CHECK((first[0] == first[1] && first[1] == first[2]));
}

TEST_CASE("names of reductions", "[comm]") {
  for (const char* name : {"sum", "avg", "product", "min", "max", "band", "bor", "bxor", "premul_sum:0.25"})
    CHECK(reduction_name(*parse_reduction(name)) == name);
  for (const char* name : {"", "mean", "premul_sum", "premul_sum:", "premul_sum:1x"})
    CHECK(!parse_reduction(name).ok());
}

TEST_CASE("a communicator that is not there is a missing resource, with a remedy", "[comm]") {
  auto job = job_of(2);
  for (const char* name : {"nosuch", "", "../evil", "Mpi"}) {
    auto comm = load_communicator(name, *job, 60);
    REQUIRE(!comm.ok());
    CHECK(comm.error().kind == ErrorKind::missing);
    CHECK(comm.error().hint != "");
  }
  CHECK(make_communicators("local", *job, 60)->size() == 2);
}

TEST_CASE("of ranks that fail by themselves the lowest is named, each time", "[comm]") {
  auto job = job_of(4);
  auto failure_of = [&](uint32_t lowest) {
    const Communicators comms = make_local_communicators(*job);
    auto meet = [](Communicator& comm) -> Status {
      auto texts = comm.exchange("x");
      return texts.ok() ? ok_status() : Status(texts.error());
    };
    Status status = sg::run_ranks(comms, [&](Communicator& comm) -> Status {
      SG_TRY(meet(comm));
      if (comm.rank() < lowest) return meet(comm);
      return Error{ErrorKind::missing, "rank " + std::to_string(comm.rank()), {}, {}};
    });
    return status.ok() ? "" : status.error().message;
  };
  for (int run = 0; run < 50; ++run) {
    CHECK(failure_of(0) == "rank 0");
    CHECK(failure_of(2) == "rank 2");  // ranks 0 and 1 are told
  }
}
