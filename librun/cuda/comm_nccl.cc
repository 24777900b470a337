#include "librun/cuda/comm_nccl.h"

#include <algorithm>
#include <cstdlib>

#include "librun/comm/watchdog.h"
#include "librun/cuda/comm_over.h"
#include "librun/cuda/flight_record.h"
#include "librun/cuda/nccl_collectives.h"
#include "librun/cuda/nccl_connect.h"
#include "librun/cuda/nccl_groups.h"

namespace sg::cuda {
namespace {

class NcclCommunicator : public CommunicatorOver {
 public:
  NcclCommunicator(const Nccl& nccl, Device& device, Communicator& host, const BackendOptions& options)
      : CommunicatorOver(host),
        nccl_(nccl),
        device_(device),
        options_(options),
        groups_(nccl, host, options),
        flights_(device) {}

  ~NcclCommunicator() override {
    device_.set_watch({});
    const bool failed = !is_ready_ || host_.failure().has_value();  // do not wait for ranks that never arrived
    for (const NcclChannel& channel : channels_)
      if (channel.stream && !failed) device_.driver().cuStreamSynchronize(channel.stream);
    failed ? groups_.abort() : groups_.finish();
    for (const NcclChannel& channel : channels_)
      if (channel.stream) device_.driver().cuStreamDestroy_v2(channel.stream);
    if (arrived_) device_.driver().cuEventDestroy_v2(arrived_);
  }

  Status start() {
    SG_TRY(require_own_gpu());
    const std::vector<RankGroup> groups = groups_of_rank(*options_.job, rank());
    SG_CU(device_.driver(), cuEventCreate(&arrived_, CU_EVENT_DISABLE_TIMING));
    SG_TRY(groups_.make(groups));
    channels_.resize(groups.size());
    for (size_t g = 0; g < groups.size(); ++g) {
      channels_[g].comm = groups_.of_group(g);
      if (!channels_[g].comm) continue;
      SG_TRY(device_.make_urgent_stream(&channels_[g].stream));
    }
    device_.set_watch([this] { return watch(); });
    SG_TRY(connect(groups));
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
    const NcclRank by = issuer("start " + flight.text());
    const uint64_t begin = device_.clock().mark_in(channel.stream);
    SG_TRY(issue_collective(by, call, members, channel, &flight.staging));
    const int64_t bytes = call.output.is_none() ? call.input.bytes() : call.output.bytes();
    device_.clock().add({DeviceClock::Span::Kind::collective, bytes, begin, device_.clock().mark_in(channel.stream)});
    SG_TRY(flights_.started(std::move(flight), channel.stream));
    return ticket;
  }

  // Makes the compute stream wait; the host continues.
  Status wait(Ticket ticket) override { return flights_.wait(ticket.id); }

  std::string text() const { return groups_.text(); }

  Status drain() override {
    for (uint64_t number : flights_.open()) SG_TRY(flights_.wait(number));
    return device_.synchronize();
  }

 private:
  // Fails if ranks share a GPU: they may deadlock, so NCCL refuses this, without naming a rank. NCCL accepts it if
  // NCCL_HOSTID differs, which tests use.
  Status require_own_gpu() {
    SG_ASSIGN(const Texts gpus, host_.exchange(device_.identity()));
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

  // `what` is what NCCL may wait for other ranks to do.
  NcclRank issuer(const std::string& what) {
    return {nccl_, device_, rank(), options_.deterministic, [this, what](ncclComm_t comm, const char* by_nccl) {
              return groups_.issued(comm, by_nccl, "the other ranks to " + what);
            }};
  }

  // Connects the groups of which any rank says that they need it: a rank may hold its own program alone.
  Status connect(const std::vector<RankGroup>& groups) {
    std::string mine;
    for (const bool exchanges : exchanging_groups(*options_.job, options_.deterministic)) mine += exchanges ? '1' : '0';
    SG_ASSIGN(const Texts all, host_.exchange(mine));
    std::byte* bytes = device_.memory().take(2 * static_cast<int64_t>(world()));
    if (!bytes) return Error{ErrorKind::missing, "the GPU has no memory to connect the ranks of groups"};
    for (size_t g = 0; g < groups.size(); ++g) {
      auto exchanges = [&](const std::string& said) { return g < said.size() && said[g] == '1'; };
      if (groups[g].ranks.size() < 2 || std::ranges::none_of(all, exchanges)) continue;
      SG_TRY(connect_members(issuer("connect group " + groups[g].name), groups[g], channels_[g], bytes));
      SG_CU(device_.driver(), cuEventRecord(arrived_, channels_[g].stream));
      SG_CU(device_.driver(), cuStreamWaitEvent(device_.stream(), arrived_, 0));
    }
    SG_TRY(device_.synchronize());
    device_.memory().give(bytes);
    return ok_status();
  }

  // --- what goes wrong ---

  Status end_all_with(Error error) {
    error.hint = flights_.text();
    host_.abort(error);
    groups_.abort();
    for (NcclChannel& channel : channels_) channel.comm = nullptr;
    return error;
  }

  // Called while the host waits for the device.
  Status watch() {
    host_.heartbeat().beat();
    if (auto failed = host_.failure()) return end_all_with(*failed);
    if (Status held = groups_.check(); !held.ok()) return end_all_with(held.error());
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
  NcclGroups groups_;
  std::vector<NcclChannel> channels_;  // by GroupId
  CUevent arrived_ = nullptr;          // on the compute stream, at a launch
  bool is_ready_ = false;
  FlightRecord flights_;
};

}  // namespace

Status require_nccl() {
  auto nccl = load_nccl();
  return nccl.ok() ? ok_status() : Status(nccl.error());
}

Result<std::unique_ptr<Communicator>> make_nccl_communicator(Device& device, Communicator& host,
                                                             const BackendOptions& options, std::string* explained) {
  SG_ASSIGN(const Nccl* nccl, load_nccl());
  auto out = std::make_unique<NcclCommunicator>(*nccl, device, host, options);
  if (Status started = out->start(); !started.ok()) {
    host.abort(started.error());  // first: the end of what it has made is an error of NCCL's to ranks that come later
    return started.error();
  }
  *explained = out->text();
  return std::unique_ptr<Communicator>(std::move(out));
}

}  // namespace sg::cuda
