// TorchStore: the key-value store of a torchrun agent, where its workers learn rank 0's address.
//
// The agent itself listens at MASTER_ADDR:MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE), so rank 0 cannot; it leaves its
// address in the store. Tested with torch 2.15.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "librun/meet/socket.h"

namespace sg::meet {

class TorchStore {
 public:
  // None: nothing listens there yet; `why` says what is known.
  static Result<std::optional<TorchStore>> open(const std::string& host, uint16_t port, std::string* why);

  // Errors (missing): the peer is not such a store, or is gone.
  Status set(std::string_view key, std::string_view value);
  Result<std::optional<std::string>> get(std::string_view key);

 private:
  TorchStore(Socket socket, std::string where) : socket_(std::move(socket)), where_(std::move(where)) {}
  Status send_all(std::string_view bytes);
  Status receive_all(char* to, size_t size);

  Socket socket_;
  std::string where_;
};

}  // namespace sg::meet
