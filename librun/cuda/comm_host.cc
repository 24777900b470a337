#include "librun/cuda/comm_host.h"

#include <map>

#include "librun/cuda/comm_over.h"

namespace sg::cuda {
namespace {

class HostCommunicator : public CommunicatorOver {
 public:
  HostCommunicator(Backend& backend, Communicator& host) : CommunicatorOver(host), backend_(backend) {}

  Result<Ticket> launch(const CollectiveCall& call) override {
    Staged staged;
    CollectiveCall on_host = call;
    SG_TRY(bring(call.input, &staged.input, &on_host.input));
    if (!call.output.is_none()) SG_TRY(stage(call.output, &staged.output, &on_host.output));
    if (call.input.data == call.output.data && !call.input.is_none())
      SG_TRY(bring(call.output, &staged.output, &on_host.output));
    SG_ASSIGN(staged.ticket, host_.launch(on_host));
    staged.to = call.output;
    staged.from = on_host.output;
    staged_.emplace(++last_, std::move(staged));
    return Ticket{last_};
  }

  Status wait(Ticket ticket) override {
    auto it = staged_.find(ticket.id);
    if (it == staged_.end()) return ok_status();
    SG_TRY(host_.wait(it->second.ticket));
    if (!it->second.to.is_none())
      SG_TRY(backend_.upload(it->second.to.data, it->second.from.data, it->second.to.bytes()));
    staged_.erase(it);
    return ok_status();
  }

  Status drain() override {
    while (!staged_.empty()) SG_TRY(wait(Ticket{staged_.begin()->first}));
    return host_.drain();
  }

  void progress() override { host_.progress(); }

 private:
  using Memory = std::unique_ptr<std::byte, MemoryRelease>;
  struct Staged {
    Ticket ticket;
    Tensor to, from;
    Memory input, output;
  };

  // Contiguous host memory of the size of `t`.
  Status stage(const Tensor& t, Memory* memory, Tensor* out) {
    if (!*memory) *memory = Memory(backend_.host_memory().take(t.bytes()), MemoryRelease{&backend_.host_memory()});
    if (!*memory)
      return Error{ErrorKind::missing,
                   "no memory of the host for " + std::to_string(t.bytes()) + " bytes of a collective"};
    *out = make_tensor(memory->get(), t.dtype, t.sizes());
    return ok_status();
  }
  Status bring(const Tensor& t, Memory* memory, Tensor* out) {
    if (t.is_none()) return ok_status();
    SG_TRY(stage(t, memory, out));
    return backend_.download(memory->get(), t.data, t.bytes());
  }

  Backend& backend_;
  uint64_t last_ = 0;
  std::map<uint64_t, Staged> staged_;
};

}  // namespace

std::unique_ptr<Communicator> make_host_communicator(Backend& backend, Communicator& host) {
  return std::make_unique<HostCommunicator>(backend, host);
}

}  // namespace sg::cuda
