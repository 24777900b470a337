// Sockets that ranks meet over: TCP, closed with their owner, not handed down to other programs.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libgraph/result.h"

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

// Listens on every address of this machine, without blocking; port 0 = any that is free.
Result<Socket> listen_on(uint16_t port);
uint16_t port_of(const Socket& listening);
// None: nobody has called. An error: this process may open no more files.
Result<std::optional<Socket>> accept_call(const Socket& listening);
// As many as the system lets this process have.
void allow_many_sockets();

// None: nobody listens there, or not yet; `why` says what is known of it.
std::optional<Socket> call(const std::string& host, uint16_t port, std::chrono::milliseconds patience,
                           std::string* why);

// What others may reach this machine by; loopback comes last.
std::vector<std::string> own_addresses();

// Whether the socket has something to read (or was closed) within this time.
bool wait_readable(const Socket& socket, std::chrono::milliseconds patience);

}  // namespace sg::meet
