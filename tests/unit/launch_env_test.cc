#include "librun/comm/launch_env.h"

#include <catch2/catch.hpp>
#include <map>

using namespace sg;

namespace {

Result<std::optional<LaunchEnv>> detect(const std::map<std::string, std::string>& variables) {
  return detect_launch([&](const char* name) -> const char* {
    auto at = variables.find(name);
    return at == variables.end() ? nullptr : at->second.c_str();
  });
}

}  // namespace

TEST_CASE("a process started alone has no launcher", "[launch_env]") {
  CHECK(!*detect({}));
  CHECK(!*detect({{"RANK", "1"}}));
}

TEST_CASE("the variables of each launcher", "[launch_env]") {
  auto torchrun = *detect({{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}});
  REQUIRE(torchrun);
  CHECK(torchrun->family == "torchrun");
  CHECK(torchrun->rank == 3);
  CHECK(torchrun->world == 8);
  CHECK(torchrun->local_rank == 1);
  CHECK(torchrun->local_world == 2);
  CHECK((*detect({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}))->family == "Open MPI");
  CHECK((*detect({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}))->rank == 1);
  CHECK((*detect({{"SLURM_PROCID", "1"}, {"SLURM_STEP_NUM_TASKS", "2"}}))->world == 2);
  CHECK(!*detect({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"}}));  // a job script
}

TEST_CASE("launchers that disagree are an error, Slurm's inherited numbers are not", "[launch_env]") {
  auto both =
      detect({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}});
  REQUIRE(!both.ok());
  CHECK(both.error().message == "two launchers disagree: torchrun says rank 0 of 2, Open MPI says rank 1 of 2");
  CHECK((*detect({{"SLURM_PROCID", "0"},
                  {"SLURM_STEP_NUM_TASKS", "1"},
                  {"OMPI_COMM_WORLD_RANK", "1"},
                  {"OMPI_COMM_WORLD_SIZE", "2"}}))
            ->rank == 1);
}

TEST_CASE("nonsense in the environment is an error", "[launch_env]") {
  CHECK(!detect({{"RANK", "one"}, {"WORLD_SIZE", "2"}}).ok());
  CHECK(!detect({{"RANK", "2"}, {"WORLD_SIZE", "2"}}).ok());
  CHECK(!detect({{"RANK", "-1"}, {"WORLD_SIZE", "2"}}).ok());
  CHECK(!detect({{"RANK", "99999999999"}, {"WORLD_SIZE", "2"}}).ok());
}
