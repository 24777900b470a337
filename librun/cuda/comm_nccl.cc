#include "librun/cuda/comm_nccl.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <thread>

#include "librun/cuda/comm_over.h"
#include "librun/cuda/flight_record.h"
#include "librun/cuda/nccl.h"
#include "librun/cuda/nccl_collectives.h"
#include "librun/watchdog.h"

namespace sg::cuda {
namespace {

// A process that is stopped is named by the watchdog, in this time; the others only know that they wait.
constexpr double kWatchdogFirst = 1;

class NcclCommunicator : public CommunicatorOver {
 public:
  NcclCommunicator(const Nccl& nccl, Device& device, Communicator& host, const BackendOptions& options)
      : CommunicatorOver(host), nccl_(nccl), device_(device), options_(options), flights_(device) {}

  ~NcclCommunicator() override {
    device_.set_watch({});
    const bool failed = !is_ready_ || host_.failure().has_value();  // who never came is not waited for
    for (NcclChannel& channel : channels_) {
      if (channel.comm && failed) nccl_.ncclCommAbort(channel.comm);
      if (channel.stream && !failed) device_.driver().cuStreamSynchronize(channel.stream);
      if (channel.comm && !failed)
        nccl_.ncclCommFinalize(channel.comm), settle(channel.comm), nccl_.ncclCommDestroy(channel.comm);
      if (channel.stream) device_.driver().cuStreamDestroy_v2(channel.stream);
    }
    if (arrived_) device_.driver().cuEventDestroy_v2(arrived_);
  }

  // One NCCL communicator a group, in the order of the file on every rank. The first member's id goes to all.
  Status start() {
    SG_TRY(require_own_gpu());
    const std::vector<RankGroup> groups = groups_of_rank(*options_.job, rank());
    std::string mine;
    for (size_t g = 0; g < groups.size(); ++g) {
      if (groups[g].ranks.empty() || groups[g].position != 0) continue;
      ncclUniqueId id;
      SG_TRY(check_nccl(nccl_.ncclGetUniqueId(&id), "ncclGetUniqueId"));
      mine += std::to_string(g) + " " + hex_of(id) + "\n";
    }
    SG_ASSIGN(std::vector<std::string> all, host_.exchange(mine));
    SG_CU(device_.driver(), cuEventCreate(&arrived_, CU_EVENT_DISABLE_TIMING));
    channels_.resize(groups.size());
    for (size_t g = 0; g < groups.size(); ++g)
      if (!groups[g].ranks.empty()) SG_TRY(join(g, groups[g], all[groups[g].ranks[0]]));
    device_.set_watch([this] { return watch(); });
    is_ready_ = true;
    return ok_status();
  }

  Result<Ticket> launch(const CollectiveCall& call) override {
    if (auto failed = host_.failure()) return *failed;
    const RankGroup& members = host_.group(call.group);
    SG_TRY(check_call(call, members.ranks.size()));
    const NcclChannel& channel = channels_[call.group.index];
    Flight flight = flights_.next(call, members.name);
    const Ticket ticket{flight.number};
    SG_CU(device_.driver(), cuEventRecord(arrived_, device_.stream()));
    SG_CU(device_.driver(), cuStreamWaitEvent(channel.stream, arrived_, 0));
    const NcclRank by{nccl_, device_, rank(), options_.deterministic};
    const uint64_t begin = device_.clock().mark_in(channel.stream);
    SG_TRY(issue_collective(by, call, members, channel, &flight.staging));
    const int64_t bytes = call.output.is_none() ? call.input.bytes() : call.output.bytes();
    device_.clock().add({DeviceClock::Span::Kind::collective, bytes, begin, device_.clock().mark_in(channel.stream)});
    SG_TRY(flights_.started(std::move(flight), channel.stream));
    return ticket;
  }

  // The compute stream waits; the host goes on.
  Status wait(Ticket ticket) override { return flights_.wait(ticket.id); }

  Status drain() override {
    for (uint64_t number : flights_.open()) SG_TRY(flights_.wait(number));
    return device_.synchronize();
  }

 private:
  Status check_nccl(ncclResult_t code, const char* what) const { return nccl_.check(code, what, rank()); }

  // Two ranks on one GPU may wait for each other for ever, so NCCL refuses them, in words that name no rank. It takes
  // them where NCCL_HOSTID differs: for tests.
  Status require_own_gpu() {
    SG_ASSIGN(std::vector<std::string> gpus, host_.exchange(device_.identity()));
    const char* shares = std::getenv("SG_CUDA_SHARE");
    if (shares && *shares == '1') return ok_status();
    const std::vector<uint32_t> here = host_.ranks_of_machine();
    for (size_t i = 0; i < here.size(); ++i)
      for (size_t j = 0; j < i; ++j)
        if (gpus[here[i]] == gpus[here[j]])
          return Error{ErrorKind::missing,
                       "NCCL needs a GPU a rank: " + ranks_text({here[j], here[i]}) + " of this machine have the same",
                       {},
                       "--comm local lets ranks share a GPU; see CUDA_VISIBLE_DEVICES where a process sees too few"};
    return ok_status();
  }

  ncclResult_t settle(ncclComm_t comm) const {
    ncclResult_t state = ncclInProgress;
    const double until = now_s() + 10;
    while (nccl_.ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclInProgress && now_s() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return state;
  }

  Status join(size_t g, const RankGroup& group, std::string_view ids) {
    std::optional<ncclUniqueId> id;
    const std::string title = std::to_string(g) + " ";
    for (size_t at = 0; at < ids.size();) {
      const size_t end = std::min(ids.find('\n', at), ids.size());
      if (ids.substr(at, end - at).starts_with(title))
        id = id_of(ids.substr(at + title.size(), end - at - title.size()));
      at = end + 1;
    }
    if (!id)
      return Error{ErrorKind::rank_failed,
                   "rank " + std::to_string(group.ranks[0]) + " gave no NCCL id for group " + group.name};
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    NcclChannel& channel = channels_[g];
    SG_TRY(check_nccl(nccl_.ncclCommInitRankConfig(&channel.comm, static_cast<int>(group.ranks.size()), *id,
                                                   static_cast<int>(group.position), &config),
                      "ncclCommInitRankConfig"));
    SG_TRY(come_together(channel.comm, group));
    SG_CU(device_.driver(), cuStreamCreate(&channel.stream, CU_STREAM_NON_BLOCKING));
    return ok_status();
  }

  Status come_together(ncclComm_t comm, const RankGroup& group) {
    const double since = now_s();
    for (;;) {
      ncclResult_t state = ncclInProgress;
      SG_TRY(check_nccl(nccl_.ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError"));
      if (state != ncclInProgress) return check_nccl(state, "ncclCommInitRankConfig");
      if (auto failed = host_.failure()) return *failed;
      if (options_.timeout_s > 0 && now_s() - since > options_.timeout_s)
        return Error{ErrorKind::rank_failed, "rank " + std::to_string(rank()) + " waits since " +
                                                 std::to_string(static_cast<int>(now_s() - since)) +
                                                 " s for the other ranks of group " + group.name + " to start NCCL"};
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }

  // --- what goes wrong ---

  Status end_all_with(Error error) {
    error.hint = flights_.text();
    host_.abort(error);
    for (NcclChannel& channel : channels_)
      if (channel.comm) nccl_.ncclCommAbort(channel.comm), channel.comm = nullptr;
    return error;
  }

  // Asked while the host waits for the device.
  Status watch() {
    host_.heartbeat().beat();
    if (auto failed = host_.failure()) return end_all_with(*failed);
    for (const NcclChannel& channel : channels_) {
      ncclResult_t state = ncclSuccess;
      if (!channel.comm) continue;
      nccl_.ncclCommGetAsyncError(channel.comm, &state);
      if (Status held = check_nccl(state, "NCCL"); !held.ok()) return end_all_with(held.error());
    }
    const Flight* late = options_.timeout_s > 0 ? flights_.overdue(options_.timeout_s + kWatchdogFirst) : nullptr;
    if (late)
      return end_all_with({ErrorKind::rank_failed, "rank " + std::to_string(rank()) + " waits since " +
                                                       std::to_string(static_cast<int>(now_s() - late->since_s)) +
                                                       " s in " + late->text() + launched_at(*late)});
    return ok_status();
  }

  std::string launched_at(const Flight& flight) const {
    const std::string node = node_text(*options_.job, rank(), flight.place);
    return node.empty() ? "" : ", launched at " + node;
  }

  const Nccl& nccl_;
  Device& device_;
  BackendOptions options_;
  std::vector<NcclChannel> channels_;  // by GroupId
  CUevent arrived_ = nullptr;          // of the compute stream, at a launch
  bool is_ready_ = false;
  FlightRecord flights_;
};

}  // namespace

Status require_nccl() {
  auto nccl = load_nccl();
  return nccl.ok() ? ok_status() : Status(nccl.error());
}

Result<std::unique_ptr<Communicator>> make_nccl_communicator(Device& device, Communicator& host,
                                                             const BackendOptions& options) {
  SG_ASSIGN(const Nccl* nccl, load_nccl());
  auto out = std::make_unique<NcclCommunicator>(*nccl, device, host, options);
  SG_TRY(out->start());
  return std::unique_ptr<Communicator>(std::move(out));
}

}  // namespace sg::cuda
