#include "librun/comm/comm_plugin.h"

#include <string>

#include "librun/comm/comm_local.h"
#include "librun/plugin.h"

namespace sg {

Result<std::unique_ptr<Communicator>> load_communicator(std::string_view name, const Job& job, double timeout_s) {
  const std::string title = "the communicator '" + std::string(name) + "'";
  SG_ASSIGN(Plugin plugin,
            Plugin::load("comm", name, SG_COMM_ABI, title,
                         "install its library (mpi: libopenmpi-dev) and build again, or use --comm local"));
  Error error;
  auto* make = plugin.find<Communicator*(const Job&, double, Error&)>("sg_comm_make");
  if (!make)
    return Error{ErrorKind::missing, title + " comes from a different build", {}, "rebuild and reinstall all of it"};
  std::unique_ptr<Communicator> comm(make(job, timeout_s, error));
  if (!comm) return error;
  return comm;
}

Result<std::vector<std::unique_ptr<Communicator>>> make_communicators(std::string_view name, const Job& job,
                                                                      double timeout_s) {
  if (name == "local") return make_local_communicators(job);
  SG_ASSIGN(std::unique_ptr<Communicator> one, load_communicator(name, job, timeout_s));
  std::vector<std::unique_ptr<Communicator>> out;
  out.push_back(std::move(one));
  return out;
}

}  // namespace sg
