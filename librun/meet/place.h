// MeetingPlace: where ranks that are processes find rank 0, given by a command-line option or by the launcher's
// environment variables.
//
//   --rendezvous HOST:PORT    rank 0 listens there
//   --rendezvous FILE         rank 0 writes its address into the file, which all ranks can read
//   torchrun                  its agent's store has rank 0's address; without a store, MASTER_ADDR and MASTER_PORT
//   MASTER_ADDR, MASTER_PORT  set by hand: rank 0 listens there
//   Slurm                     the first host of the step, at a port that follows from the numbers of job and step
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "libgraph/base/result.h"
#include "librun/comm/launch_env.h"

namespace sg::meet {

struct MeetingPlace {
  enum class Kind : uint8_t { address, store, file };
  Kind kind = Kind::address;
  std::string host;  // address, store
  uint16_t port = 0;
  std::string name;  // the key in the store, or the file

  std::string text() const;  // for people
};

using GetEnv = std::function<const char*(const char*)>;

// `rendezvous`: the option's value; empty = not given.
Result<MeetingPlace> find_meeting_place(std::string_view rendezvous, const LaunchEnv& env, const GetEnv& getenv);

// The first of "node[07-12,20],gpu3" is "node07".
std::string first_host(std::string_view node_list);

}  // namespace sg::meet
