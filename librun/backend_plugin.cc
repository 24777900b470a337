#include "librun/backend_plugin.h"

#include "librun/plugin.h"

namespace sg {

Result<std::unique_ptr<BackendMaker>> load_backend(std::string_view name, const BackendOptions& options) {
  const std::string title = "the backend '" + std::string(name) + "'";
  SG_ASSIGN(Plugin plugin, Plugin::load("backend", name, SG_BACKEND_ABI, title,
                                        "install the CUDA toolkit, build again, or use --backend cpu"));
  Error error;
  auto* make = plugin.find<BackendMaker*(const BackendOptions&, Error&)>("sg_backend_make");
  if (!make)
    return Error{ErrorKind::missing, title + " comes from a different build", {}, "rebuild and reinstall all of it"};
  std::unique_ptr<BackendMaker> maker(make(options, error));
  if (!maker) return error;
  return maker;
}

}  // namespace sg
