#include "librun/meet/place.h"

#include <charconv>
#include <optional>

namespace sg::meet {
namespace {

// Ports that are neither reserved nor assigned dynamically.
constexpr uint32_t kFirstPort = 20'000, kPorts = 12'000;

template <class T>
std::optional<T> number_of(std::string_view text) {
  T n = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return n;
}

// Text with a colon is an address, unless it contains a slash; so is [::1]:29500.
Result<MeetingPlace> place_of(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || text.find('/') != std::string_view::npos)
    return MeetingPlace{MeetingPlace::Kind::file, "", 0, std::string(text)};
  const auto port = number_of<uint16_t>(text.substr(colon + 1));
  std::string_view host = text.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  if (host.empty() || !port || *port == 0)
    return Error{ErrorKind::usage,
                 "--rendezvous " + std::string(text) + ": neither a host and a port nor a file",
                 {},
                 "node1:29500; or ./" + std::string(text) + " for a file"};
  return MeetingPlace{MeetingPlace::Kind::address, std::string(host), *port, ""};
}

std::string word(const GetEnv& getenv, const char* name) {
  const char* value = getenv(name);
  return value ? value : "";
}

// Excludes the number of restarts, which each torchrun agent counts separately. The address of an earlier start is
// harmless.
std::string store_key(const GetEnv& getenv) { return "stepgraph/" + word(getenv, "TORCHELASTIC_RUN_ID") + "/rank0"; }

Result<MeetingPlace> master(const GetEnv& getenv) {
  const std::string port_text = word(getenv, "MASTER_PORT");
  const auto port = number_of<uint16_t>(port_text);
  if (!port || *port == 0)
    return Error{ErrorKind::usage, "the environment has MASTER_PORT='" + port_text + "', which is not a port"};
  MeetingPlace out{MeetingPlace::Kind::address, word(getenv, "MASTER_ADDR"), *port, ""};
  if (word(getenv, "TORCHELASTIC_USE_AGENT_STORE") == "True")
    out.kind = MeetingPlace::Kind::store, out.name = store_key(getenv);
  return out;
}

std::optional<MeetingPlace> slurm(const GetEnv& getenv) {
  std::string nodes = word(getenv, "SLURM_STEP_NODELIST");
  if (nodes.empty()) nodes = word(getenv, "SLURM_JOB_NODELIST");
  const auto job = number_of<uint32_t>(word(getenv, "SLURM_JOB_ID"));
  if (nodes.empty() || !job) return std::nullopt;
  const uint32_t step = number_of<uint32_t>(word(getenv, "SLURM_STEP_ID")).value_or(0);
  const auto port = static_cast<uint16_t>(kFirstPort + (*job * 31 + step) % kPorts);
  return MeetingPlace{MeetingPlace::Kind::address, first_host(nodes), port, ""};
}

}  // namespace

std::string MeetingPlace::text() const {
  switch (kind) {
    case Kind::address: return host + ":" + std::to_string(port);
    case Kind::store: return "torchrun's store at " + host + ":" + std::to_string(port);
    case Kind::file: return name;
  }
  return "";
}

Result<MeetingPlace> find_meeting_place(std::string_view rendezvous, const LaunchEnv& env, const GetEnv& getenv) {
  if (!rendezvous.empty()) return place_of(rendezvous);
  if (getenv("MASTER_ADDR") && getenv("MASTER_PORT")) return master(getenv);
  if (getenv("SLURM_PROCID"))
    if (auto place = slurm(getenv)) return *place;
  return Error{ErrorKind::usage,
               env.family + " started " + std::to_string(env.world) + " ranks, and does not say where they meet",
               {},
               "--rendezvous HOST:PORT, or a file that all ranks see; or set MASTER_ADDR and MASTER_PORT"};
}

std::string first_host(std::string_view list) {
  const size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string_view::npos || comma < bracket) return std::string(list.substr(0, comma));
  const size_t end = list.find_first_of(",-]", bracket);
  const size_t close = list.find(']', bracket);
  std::string out(list.substr(0, bracket));
  out += list.substr(bracket + 1, end == std::string_view::npos ? end : end - bracket - 1);
  if (close == std::string_view::npos) return out;
  return out + std::string(list.substr(close + 1, list.find(',', close) - close - 1));
}

}  // namespace sg::meet
