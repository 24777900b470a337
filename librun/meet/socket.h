// TCP sockets over which ranks meet: closed with their owner, and not inherited by other programs.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libgraph/base/result.h"

namespace sg::meet {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int fd) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket();

  int fd() const { return fd_; }
  bool is_open() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

// A non-blocking listener on every address of this machine; port 0 = any free one.
Result<Socket> listen_on(uint16_t port);
uint16_t port_of(const Socket& listening);
// None: there is no call. An error: this process may not open more files.
Result<std::optional<Socket>> accept_call(const Socket& listening);
// Raises the limit of open files as far as the system allows.
void allow_many_sockets();

// None: nothing listens there yet; `why` says what is known.
std::optional<Socket> call(const std::string& host, uint16_t port, std::chrono::milliseconds patience,
                           std::string* why);

// Addresses at which others may reach this machine; loopback comes last.
std::vector<std::string> own_addresses();

// Whether the socket has something to read (or was closed) within this time.
bool wait_readable(const Socket& socket, std::chrono::milliseconds patience);

}  // namespace sg::meet
