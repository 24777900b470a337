// Ranks that meet without MPI: lines, places, announcements, and the communicator of threads that act as processes.
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch.hpp>
#include <fstream>
#include <map>
#include <random>
#include <thread>

#include "librun/meet/announce.h"
#include "librun/meet/comm_star.h"
#include "librun/meet/hub.h"
#include "librun/meet/meeting.h"
#include "tests/support/collective_script.h"

using namespace sg;
using namespace sg::meet;
using namespace std::chrono_literals;

namespace {

std::pair<Socket, Socket> joined() {
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends) == 0);
  return {Socket(ends[0]), Socket(ends[1])};
}

GetEnv words(std::map<std::string, std::string> variables) {
  return [variables](const char* name) -> const char* {
    auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  };
}

// A free port, for a rank 0 that is about to listen.
MeetingPlace free_place() {
  auto probe = listen_on(0);
  REQUIRE(probe.ok());
  return {MeetingPlace::Kind::address, "127.0.0.1", port_of(*probe), ""};
}

using Answers = std::vector<Status>;

// Runs every rank in its own thread, which ends with its communicator.
Answers act(const MeetingPlace& place, uint32_t world, const std::function<Status(Communicator&)>& part,
            double timeout_s = 30) {
  const std::unique_ptr<Job> job = test::job_of(world);
  Answers answers(world, ok_status());
  std::vector<std::thread> threads;
  for (uint32_t r = 0; r < world; ++r)
    threads.emplace_back([&, r] {
      auto comm = make_star_communicator(*job, {"a test", r, world}, place, {timeout_s, {}});
      answers[r] = comm.ok() ? part(**comm) : Status(comm.error());
    });
  for (std::thread& t : threads) t.join();
  return answers;
}

}  // namespace

TEST_CASE("messages arrive as they were sent, however the bytes are cut", "[meet]") {
  auto [mine, theirs] = joined();
  Line from(std::move(mine), 100), to(std::move(theirs), 1 << 22);
  std::mt19937 random(1);
  std::vector<std::string> sent;
  for (int i = 0; i < 200; ++i) {
    sent.push_back(std::string(random() % (i % 20 == 0 ? 1'000'000 : 100), static_cast<char>('a' + i % 26)));
    from.post(MessageKind::text, sent.back());
  }
  std::vector<Message> came;
  while (came.size() < sent.size()) {
    REQUIRE(from.advance(&came));
    REQUIRE(to.advance(&came));
  }
  for (size_t i = 0; i < sent.size(); ++i) CHECK((came[i].kind == MessageKind::text && came[i].body == sent[i]));
  CHECK(!from.has_unsent());
}

TEST_CASE("a line ends where the peer sends what no peer of ours sends", "[meet]") {
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), std::string("\xff\xff\xff\xff\xff\xff\xff\xff"),
        std::string("\x65\0\0\0\0\0\0\0", 8)}) {
    auto [mine, theirs] = joined();
    Line line(std::move(mine), 100);
    REQUIRE(write(theirs.fd(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size()));
    std::vector<Message> came;
    CHECK(!line.advance(&came));
    CHECK(came.empty());
    CHECK(!line.is_open());
  }
}

TEST_CASE("what came before the peer left is heard", "[meet]") {
  auto [mine, theirs] = joined();
  Line line(std::move(mine), 100);
  std::vector<Message> came;
  {
    Line other(std::move(theirs), 100);
    other.post(MessageKind::bye);
    other.advance(&came);
  }
  line.post(MessageKind::heart, "too late");
  CHECK(!line.advance(&came));
  REQUIRE(came.size() == 1);
  CHECK(came[0].kind == MessageKind::bye);
}

TEST_CASE("bodies that are cut read as nothing, and say so", "[meet]") {
  const std::string whole = BodyWriter().number(7).text("seven").number(1).take();
  BodyReader in(whole);
  CHECK(in.number() == 7);
  CHECK(in.text() == "seven");
  CHECK(in.number() == 1);
  CHECK(in.at_end());
  for (size_t size = 0; size < whole.size(); ++size) {
    BodyReader cut(std::string_view(whole).substr(0, size));
    cut.number(), cut.text(), cut.number();
    CHECK(!cut.ok());
  }
  CHECK(BodyReader(BodyWriter().number(~uint64_t{0}).take()).text().empty());
}

TEST_CASE("where ranks meet", "[meet]") {
  const LaunchEnv torchrun{"torchrun", 1, 2}, slurm{"Slurm", 1, 2};
  auto place = [](std::string_view option, const LaunchEnv& env, std::map<std::string, std::string> variables) {
    auto found = find_meeting_place(option, env, words(std::move(variables)));
    return found.ok() ? found->text() : found.error().message;
  };
  CHECK(place("node1:29500", torchrun, {}) == "node1:29500");
  CHECK(place("[::1]:29500", torchrun, {}) == "::1:29500");
  CHECK(place("/tmp/meet:1", torchrun, {}) == "/tmp/meet:1");
  CHECK(find_meeting_place("/tmp/meet:1", torchrun, words({}))->kind == MeetingPlace::Kind::file);
  CHECK(find_meeting_place("meet", torchrun, words({}))->kind == MeetingPlace::Kind::file);
  CHECK(place("node1:", torchrun, {}) == "--rendezvous node1:: neither a host and a port nor a file");
  CHECK(place("node1:99999", torchrun, {}) == "--rendezvous node1:99999: neither a host and a port nor a file");
  CHECK(place("", torchrun, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "1"}}) == "a:1");
  CHECK(place("", torchrun, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "x"}}) ==
        "the environment has MASTER_PORT='x', which is not a port");
  const auto store = find_meeting_place("", torchrun,
                                        words({{"MASTER_ADDR", "a"},
                                               {"MASTER_PORT", "1"},
                                               {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                               {"TORCHELASTIC_RUN_ID", "run"}}));
  CHECK(store->kind == MeetingPlace::Kind::store);
  CHECK(store->name == "stepgraph/run/rank0");
  CHECK(place("", torchrun, {}) == "torchrun started 2 ranks, and does not say where they meet");
  CHECK(
      place(
          "", slurm,
          {{"SLURM_PROCID", "1"}, {"SLURM_STEP_NODELIST", "n[3-4]"}, {"SLURM_JOB_ID", "10"}, {"SLURM_STEP_ID", "1"}}) ==
      "n3:20311");
  CHECK(place("", slurm,
              {{"SLURM_PROCID", "1"}, {"SLURM_JOB_NODELIST", "n9"}, {"SLURM_JOB_ID", "10"}, {"MASTER_ADDR", "a"}}) ==
        "n9:20310");
  CHECK(place("", slurm, {}) == "Slurm started 2 ranks, and does not say where they meet");
}

TEST_CASE("the first host of Slurm's lists", "[meet]") {
  CHECK(first_host("node7") == "node7");
  CHECK(first_host("a,b[1-2]") == "a");
  CHECK(first_host("node[07-12,20],gpu3") == "node07");
  CHECK(first_host("node[20,31]") == "node20");
  CHECK(first_host("rack[2-3]-ib,x") == "rack2-ib");
  CHECK(first_host("") == "");
  CHECK(first_host("broken[1") == "broken1");
}

TEST_CASE("an announcement is read as it was written, and nothing else is one", "[meet]") {
  const Announcement at{{"10.0.0.1", "fe80::1"}, 29500, "token"};
  const std::string text = at.text();
  auto read = Announcement::parse(text);
  REQUIRE(read);
  CHECK((read->addresses == at.addresses && read->port == at.port && read->token == at.token));
  for (size_t size = 0; size < text.size(); ++size) CHECK(!Announcement::parse(text.substr(0, size)));
  for (const char* other : {"somebody's file\n", "stepgraph-rank0 token 0 a\n", "stepgraph-rank0 token 70000 a\n"})
    CHECK(!Announcement::parse(other));
}

TEST_CASE("ranks that met give each other their texts", "[meet]") {
  for (uint32_t world : {1u, 2u, 5u, 9u}) {
    const Answers answers = act(free_place(), world, [&](Communicator& comm) -> Status {
      std::mt19937 random(comm.rank());
      for (uint32_t round = 0; round < 40; ++round) {
        if (random() % 4 == 0) std::this_thread::sleep_for(1ms);
        const size_t size = round == 20 ? 3'000'000 : comm.rank() * 10 + round;
        SG_ASSIGN(const Texts all, comm.exchange(std::string(size, static_cast<char>('a' + comm.rank()))));
        if (all.size() != world) return Error{ErrorKind::internal, "not all texts"};
        for (uint32_t r = 0; r < world; ++r)
          if (all[r] != std::string(round == 20 ? 3'000'000 : r * 10 + round, static_cast<char>('a' + r)))
            return Error{ErrorKind::internal, "rank " + std::to_string(r) + " said something else"};
      }
      return comm.ranks_of_machine().size() == world ? ok_status() : Status(Error{ErrorKind::internal, "machines"});
    });
    for (const Status& s : answers) CHECK(s.ok());
  }
}

TEST_CASE("one error is the failure of all ranks, and one of them speaks of it", "[meet]") {
  constexpr uint32_t kWorld = 4;
  for (uint32_t guilty : {0u, 2u}) {
    std::atomic<int> speakers{0};
    const Answers answers = act(free_place(), kWorld, [&](Communicator& comm) -> Status {
      if (comm.rank() == guilty) comm.abort({ErrorKind::cannot_apply, "index 9", {"f.py", 3}, "look"});
      const bool has_answer = comm.exchange("").ok();
      if (comm.speaks_of_failure()) speakers += comm.rank() == guilty ? 1 : 100;
      return has_answer ? ok_status() : Status(*comm.failure());  // by now rank 0 has told it to all
    });
    CHECK(speakers == 1);
    for (uint32_t r = 0; r < kWorld; ++r) {
      REQUIRE(!answers[r].ok());
      CHECK(answers[r].error().kind == ErrorKind::cannot_apply);
      CHECK(answers[r].error().message == (r == guilty ? "index 9" : "f.py:3: index 9"));
      CHECK(answers[r].error().hint == "look");
    }
  }
}

TEST_CASE("a rank that leaves before an exchange ends it for the others", "[meet]") {
  for (uint32_t gone : {0u, 2u}) {
    const Answers answers = act(free_place(), 3, [&](Communicator& comm) -> Status {
      SG_TRY(comm.exchange("all"));
      if (comm.rank() == gone) return ok_status();
      SG_TRY(comm.exchange("the others"));
      return ok_status();
    });
    for (uint32_t r = 0; r < 3; ++r) {
      REQUIRE(answers[r].ok() == (r == gone));
      if (r == gone) continue;
      CHECK(answers[r].error().kind == ErrorKind::rank_failed);
      CHECK(answers[r].error().message == "rank " + std::to_string(gone) + " has ended, and the others wait for it");
    }
  }
}

TEST_CASE("every rank sees what all are doing", "[meet]") {
  const Answers answers = act(free_place(), 3, [&](Communicator& comm) -> Status {
    comm.heartbeat().enter(Heartbeat::running);
    for (uint32_t i = 0; i < comm.rank(); ++i) comm.heartbeat().at(NestedId(), NodeId(7));
    SG_TRY(comm.exchange(""));
    std::this_thread::sleep_for(1s);
    for (const WatchedRank& seen : comm.in_sight())
      if (seen.heart->alive == 0 || seen.heart->state == Heartbeat::idle ||  // a rank that is ahead waits
          (seen.rank > 0 && static_cast<uint32_t>(seen.heart->place) != 7))
        return Error{ErrorKind::internal, "rank " + std::to_string(seen.rank) + " looks otherwise"};
    SG_TRY(comm.exchange(""));
    return ok_status();
  });
  for (const Status& s : answers) CHECK(s.ok());
}

TEST_CASE("strangers at the meeting are not waited for", "[meet]") {
  const MeetingPlace place = free_place();
  std::atomic<bool> over{false};
  std::thread stranger([&] {
    std::vector<Socket> silent;
    while (!over) {
      std::string why;
      auto socket = call(place.host, place.port, 1s, &why);
      if (!socket) continue;
      if (silent.size() % 2 == 0) (void)!write(socket->fd(), "GET / HTTP/1.1\r\n", 16);
      if (silent.size() < 20) silent.push_back(std::move(*socket));
      std::this_thread::sleep_for(5ms);
    }
  });
  const std::unique_ptr<Job> job = test::job_of(2);
  auto rank = [&](uint32_t r) { return make_star_communicator(*job, {"a test", r, 2}, place, {20, {}}); };
  Status first = ok_status();
  std::thread rank0([&] {
    auto comm = rank(0);
    first = comm.ok() && (*comm)->exchange("").ok() ? ok_status() : Status(Error{});
  });
  std::this_thread::sleep_for(200ms);
  auto comm = rank(1);
  REQUIRE(comm.ok());
  CHECK((*comm)->exchange("").ok());
  comm->reset();
  rank0.join();
  over = true;
  stranger.join();
  CHECK(first.ok());
}

TEST_CASE("who does not fit is told and turned away, and the ranks that do meet", "[meet]") {
  const MeetingPlace place = free_place();
  auto meet = [&](uint32_t rank, uint32_t world) { return meet_ranks(place, {rank, world, 20, {}}); };
  std::vector<Status> met(3, ok_status());
  std::vector<std::thread> ranks;
  auto come = [&](uint32_t r) {
    ranks.emplace_back([&, r] {
      auto meeting = meet(r, 3);
      if (meeting.ok()) Hub(r, std::move(*meeting));
      else met[r] = meeting.error();
    });
  };
  come(0), come(1);
  std::this_thread::sleep_for(300ms);
  auto other_world = meet(1, 4), other_rank = meet(1, 3), no_rank = meet(0, 3);
  come(2);
  for (std::thread& t : ranks) t.join();
  for (const Status& s : met) CHECK(s.ok());
  REQUIRE((!other_world.ok() && !other_rank.ok()));
  CHECK(other_world.error().message == "a process came as rank 1 of 4, rank 0 is of 3");
  CHECK(other_world.error().kind == ErrorKind::cannot_apply);
  CHECK(other_rank.error().message == "two processes say that they are rank 1");
  CHECK((!no_rank.ok() && no_rank.error().message.find("Address already in use") != std::string::npos));
}

TEST_CASE("a guest hears a long welcome, and what comes right behind it", "[meet]") {
  auto listening = listen_on(0);
  REQUIRE(listening.ok());
  const MeetingPlace place{MeetingPlace::Kind::address, "127.0.0.1", port_of(*listening), ""};
  constexpr uint32_t kWorld = 500;
  std::thread rank0([&] {
    std::optional<Socket> socket;
    while (!socket) socket = std::move(accept_call(*listening)).value();
    Line line(std::move(*socket), 1 << 20);
    std::vector<Message> came;
    while (came.empty() && line.advance(&came)) {
    }
    BodyWriter machines;
    for (uint32_t r = 0; r < kWorld; ++r) machines.text("a machine with a long name, number " + std::to_string(r));
    line.post(MessageKind::seen);
    line.post(MessageKind::welcome, machines.take());
    line.post(MessageKind::bye);
    while (line.has_unsent() && line.advance(&came)) {
    }
  });
  auto met = meet_ranks(place, {7, kWorld, 10, {}});
  rank0.join();
  REQUIRE(met.ok());
  CHECK(met->machines.size() == kWorld);
  while (met->early.empty() && met->lines[0].advance(&met->early)) {
  }
  REQUIRE(met->early.size() == 1);
  CHECK(met->early[0].kind == MessageKind::bye);
}

TEST_CASE("a rank that is gone when the others begin is missed", "[meet]") {
  Meeting meeting{{}, {"here", "there"}, {}};
  meeting.lines.emplace_back(Socket(), 100);
  Hub hub(0, std::move(meeting));
  auto texts = hub.exchange("");
  REQUIRE(!texts.ok());
  CHECK(texts.error().message == "rank 1 ended without reporting an error");
}

TEST_CASE("a rank that hangs up and calls again is one process", "[meet]") {
  const MeetingPlace place = free_place();
  std::vector<std::string> said(3);
  std::vector<std::thread> ranks;
  auto come = [&](uint32_t r) {
    ranks.emplace_back([&, r] {
      auto met = meet_ranks(place, {r, 3, 20, {}});
      if (met.ok()) Hub(r, std::move(*met));
      else said[r] = met.error().message;
    });
  };
  come(0);
  {
    std::optional<Socket> socket;
    for (std::string why; !socket;) socket = call(place.host, place.port, 1s, &why);
    Line line(std::move(*socket), 4096);
    line.post(MessageKind::hello,
              BodyWriter().text("stepgraph meeting 1").text("").number(1).number(3).text("here").take());
    std::vector<Message> came;
    while (came.empty() && line.advance(&came)) {
    }
    CHECK((came.size() == 1 && came[0].kind == MessageKind::seen));
  }
  come(1);
  std::this_thread::sleep_for(300ms);
  come(2);
  for (std::thread& t : ranks) t.join();
  for (const std::string& text : said) CHECK(text.empty());
}

TEST_CASE("a rank 0 that stands still is not waited for longer than told", "[meet]") {
  auto listening = listen_on(0);
  REQUIRE(listening.ok());
  std::thread rank0([&] {
    std::optional<Socket> socket;
    while (!socket) socket = std::move(accept_call(*listening)).value();
    Line line(std::move(*socket), 1 << 20);
    std::vector<Message> came;
    line.post(MessageKind::seen);
    line.advance(&came);
    std::this_thread::sleep_for(7s);
  });
  auto met = meet_ranks({MeetingPlace::Kind::address, "127.0.0.1", port_of(*listening), ""}, {1, 2, 0.5, {}});
  rank0.join();
  REQUIRE(!met.ok());
  CHECK(met.error().message.starts_with("rank 0 has made no progress at 127.0.0.1:"));
}

TEST_CASE("a file that is somebody's is not written over, nor removed", "[meet]") {
  const std::string name = "/tmp/sg_meet_precious." + std::to_string(getpid());
  std::ofstream(name) << "my weights";
  auto met = meet_ranks({MeetingPlace::Kind::file, "", 0, name}, {0, 2, 1, {}});
  REQUIRE(!met.ok());
  CHECK(met.error().kind == ErrorKind::usage);
  std::ifstream file(name);
  std::string text;
  std::getline(file, text);
  CHECK(text == "my weights");
  unlink(name.c_str());
}

TEST_CASE("ranks that do not come end the wait, by their numbers", "[meet]") {
  auto host = meet_ranks(free_place(), {0, 4, 0.5, {}});
  REQUIRE(!host.ok());
  CHECK(host.error().kind == ErrorKind::rank_failed);
  CHECK(host.error().message.starts_with("ranks 1, 2, 3 did not come to 127.0.0.1:"));
  const MeetingPlace place = free_place();
  Status first = ok_status();
  std::thread rank0([&] { first = Status(meet_ranks(place, {0, 3, 1, {}}).error()); });
  auto one = meet_ranks(place, {1, 3, 1, {}});
  rank0.join();
  REQUIRE(!one.ok());
  CHECK(one.error().message.starts_with("rank 2 did not come to 127.0.0.1:"));
  CHECK(one.error().message == first.error().message);
  auto guest = meet_ranks(free_place(), {3, 4, 0.5, {}});
  REQUIRE(!guest.ok());
  CHECK(guest.error().message.starts_with("rank 3 finds no rank 0 at 127.0.0.1:"));
  CHECK(guest.error().message.ends_with(": Connection refused"));
}

TEST_CASE("a port in use and a host without a name are said", "[meet]") {
  auto taken = listen_on(0);
  REQUIRE(taken.ok());
  auto host = meet_ranks({MeetingPlace::Kind::address, "127.0.0.1", port_of(*taken), ""}, {0, 2, 1, {}});
  REQUIRE(!host.ok());
  CHECK(host.error().kind == ErrorKind::missing);
  CHECK(host.error().message.find("Address already in use") != std::string::npos);
  auto guest = meet_ranks({MeetingPlace::Kind::address, "no.such.host.invalid", 1, ""}, {1, 2, 1, {}});
  REQUIRE(!guest.ok());
  CHECK(guest.error().message.find("no machine is known as 'no.such.host.invalid'") != std::string::npos);
}

TEST_CASE("ranks meet by a file, whatever an earlier run has left in it", "[meet]") {
  const std::string name = "/tmp/sg_meet_test." + std::to_string(getpid());
  const MeetingPlace place{MeetingPlace::Kind::file, "", 0, name};
  auto other = listen_on(0);  // another process took the port of that run, and is silent
  REQUIRE(other.ok());
  REQUIRE(announce(place, {{"127.0.0.1"}, port_of(*other), "stale"}).ok());
  const Answers answers = act(place, 3, [](Communicator& comm) -> Status {
    SG_TRY(comm.exchange(""));
    return ok_status();
  });
  for (const Status& s : answers) CHECK(s.ok());
  CHECK(access(name.c_str(), F_OK) != 0);  // nothing is left for the next run
}
