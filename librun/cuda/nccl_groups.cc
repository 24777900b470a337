#include "librun/cuda/nccl_groups.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <numeric>
#include <thread>

#include "librun/cuda/flight_record.h"

namespace sg::cuda {
namespace {

constexpr double kFinishSeconds = 10;

ncclConfig_t own_config() {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.splitShare = 0;  // see the head of nccl_groups.h
  return config;
}

// The id that follows `title` in a rank's lines.
std::optional<ncclUniqueId> id_in(std::string_view lines, const std::string& title) {
  for (size_t at = 0; at < lines.size();) {
    const size_t end = std::min(lines.find('\n', at), lines.size());
    const std::string_view line = lines.substr(at, end - at);
    if (line.starts_with(title)) return id_of(line.substr(title.size()));
    at = end + 1;
  }
  return std::nullopt;
}

bool is_whole(const RankGroup& group, uint32_t world) {
  if (group.ranks.size() != world) return false;
  for (uint32_t r = 0; r < world; ++r)
    if (group.ranks[r] != r) return false;
  return true;
}

}  // namespace

NcclGroups::NcclGroups(const Nccl& nccl, Communicator& host, const BackendOptions& options)
    : nccl_(nccl), host_(host), options_(options) {}

Status NcclGroups::make(const std::vector<RankGroup>& groups) {
  of_group_.assign(groups.size(), nullptr);
  const bool has_many =
      std::ranges::count_if(options_.job->groups, [](const Group& family) { return !family.parts.empty(); }) > 1;
  if (has_many) {
    SG_ASSIGN(const bool splits, all_split());
    if (splits) return split(groups);
  }
  std::vector<Meeting> meetings;
  for (size_t g = 0; g < groups.size(); ++g)
    if (!groups[g].ranks.empty())
      meetings.push_back({g, "group " + groups[g].name, groups[g].ranks, groups[g].position, &of_group_[g]});
  return meet(meetings);
}

// A single rank that cannot split, or is told not to, decides for all: the others would wait for it.
Result<bool> NcclGroups::all_split() {
  const char* said = std::getenv("SG_CUDA_SPLIT");
  const std::string mine = !nccl_.ncclCommSplit   ? "it has no ncclCommSplit"
                           : said && *said == '0' ? "SG_CUDA_SPLIT says so"
                                                  : "";
  SG_ASSIGN(const Texts all, host_.exchange(mine));
  for (const std::string& text : all)
    if (!text.empty()) return why_not_ = text, false;
  return true;
}

// --- by an id ---

// In the file's order on every rank.
Status NcclGroups::meet(const std::vector<Meeting>& meetings) {
  std::string mine;
  for (const Meeting& meeting : meetings) {
    if (meeting.position != 0) continue;
    ncclUniqueId id;
    SG_TRY(check_nccl(nccl_.ncclGetUniqueId(&id), "ncclGetUniqueId"));
    mine += std::to_string(meeting.number) + " " + hex_of(id) + "\n";
  }
  SG_ASSIGN(const Texts all, host_.exchange(mine));
  for (const Meeting& meeting : meetings) {
    const std::optional<ncclUniqueId> id = id_in(all[meeting.ranks[0]], std::to_string(meeting.number) + " ");
    if (!id)
      return Error{ErrorKind::rank_failed,
                   "rank " + std::to_string(meeting.ranks[0]) + " gave no NCCL id for " + meeting.whom};
    SG_TRY(join(meeting, *id));
  }
  return ok_status();
}

Status NcclGroups::join(const Meeting& meeting, const ncclUniqueId& id) {
  ncclConfig_t config = own_config();
  ncclComm_t comm = nullptr;
  const ncclResult_t code = nccl_.ncclCommInitRankConfig(&comm, static_cast<int>(meeting.ranks.size()), id,
                                                         static_cast<int>(meeting.position), &config);
  SG_TRY(check_nccl(code, "ncclCommInitRankConfig"));
  made_.push_back(comm);
  SG_TRY(wait_for(comm, "ncclCommInitRankConfig", "the other ranks of " + meeting.whom + " to start NCCL",
                  options_.timeout_s));
  *meeting.comm = comm;
  ++met_;
  return ok_status();
}

// --- by splits ---

Status NcclGroups::split(const std::vector<RankGroup>& groups) {
  std::vector<uint32_t> all_ranks(host_.world());
  std::iota(all_ranks.begin(), all_ranks.end(), 0u);
  ncclComm_t all = nullptr;
  SG_TRY(meet({{0, "the job", all_ranks, host_.rank(), &all}}));
  bool is_taken = false;
  for (size_t g = 0; g < groups.size(); ++g) {
    if (options_.job->groups[g].parts.empty()) continue;
    if (!is_taken && is_whole(groups[g], host_.world())) {
      is_taken = true;
      of_group_[g] = all;
      continue;
    }
    SG_TRY(split_off(groups[g], &of_group_[g]));
  }
  return ok_status();
}

// The first rank of a part is its color, which is unique.
Status NcclGroups::split_off(const RankGroup& group, ncclComm_t* comm) {
  const bool is_member = !group.ranks.empty();
  ncclConfig_t config = own_config();
  split_off_ = nullptr;
  SG_TRY(check_nccl(nccl_.ncclCommSplit(made_[0], is_member ? static_cast<int>(group.ranks[0]) : NCCL_SPLIT_NOCOLOR,
                                        static_cast<int>(group.position), &split_off_, &config),
                    "ncclCommSplit"));
  // The parent communicator is busy until the new one is complete, and only then is the result stored.
  const std::string what = "the other ranks of the job to split group " + group.name;
  SG_TRY(wait_for(made_[0], "ncclCommSplit", what, options_.timeout_s));
  if (!is_member) return ok_status();
  if (!split_off_)
    return Error{ErrorKind::rank_failed,
                 "rank " + std::to_string(host_.rank()) + ": ncclCommSplit gave nothing for group " + group.name};
  made_.push_back(split_off_);
  SG_TRY(wait_for(split_off_, "ncclCommSplit", what, options_.timeout_s));
  *comm = split_off_;
  return ok_status();
}

// --- waiting ---

Status NcclGroups::wait_for(ncclComm_t comm, const char* call, const std::string& what, double seconds) const {
  constexpr double kAtOnce = 1e-3;  // most asynchronous work takes less
  const double since = now_s();
  for (;;) {
    ncclResult_t state = ncclInProgress;
    SG_TRY(check_nccl(nccl_.ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError"));
    if (state != ncclInProgress) return check_nccl(state, call);
    const double waited = now_s() - since;
    if (waited < kAtOnce) {
      std::this_thread::yield();
      continue;
    }
    host_.heartbeat().beat();
    if (auto failed = host_.failure()) return *failed;
    if (options_.timeout_s > 0 && waited > seconds)
      return Error{ErrorKind::rank_failed, "rank " + std::to_string(host_.rank()) + " waits since " +
                                               std::to_string(static_cast<int>(waited)) + " s for " + what};
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

Status NcclGroups::issued(ncclComm_t comm, const char* call, const std::string& what) const {
  return wait_for(comm, call, what, options_.timeout_s + kWatchdogFirst);
}

ncclResult_t NcclGroups::settle(ncclComm_t comm) const {
  ncclResult_t state = ncclInProgress;
  const double until = now_s() + kFinishSeconds;
  while (nccl_.ncclCommGetAsyncError(comm, &state) == ncclSuccess && state == ncclInProgress && now_s() < until)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return state;
}

Status NcclGroups::check() const {
  for (ncclComm_t comm : made_) {
    ncclResult_t state = ncclSuccess;
    SG_TRY(check_nccl(nccl_.ncclCommGetAsyncError(comm, &state), "ncclCommGetAsyncError"));
    SG_TRY(check_nccl(state, "NCCL"));
  }
  return ok_status();
}

// --- their end ---

// An unfinished split ends with its parent: NCCL waits for its thread, so nothing is written to `split_off_` any more,
// and NCCL frees what it may have stored there.
void NcclGroups::abort() {
  for (; !made_.empty(); made_.pop_back()) nccl_.ncclCommAbort(made_.back());
  of_group_.clear();
}

// In the same order on all ranks, each in its own thread: NCCL documents the end of a communicator as collective among
// the ranks of a machine. ncclCommFinalize itself waits for this rank's own work only.
void NcclGroups::finish() {
  for (; !made_.empty(); made_.pop_back()) {
    nccl_.ncclCommFinalize(made_.back());
    settle(made_.back());
    nccl_.ncclCommDestroy(made_.back());
  }
  of_group_.clear();
}

std::string NcclGroups::text() const {
  const int version = nccl_.version;
  std::string out = "communicators of NCCL " + std::to_string(version / 10000) + "." +
                    std::to_string(version / 100 % 100) + "." + std::to_string(version % 100) + ": " +
                    std::to_string(met_) + " by an id, " + std::to_string(made_.size() - met_) + " by splits";
  if (!why_not_.empty()) out += ": " + why_not_;
  return out;
}

}  // namespace sg::cuda
