#include "librun/meet/torch_store.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

namespace sg::meet {
namespace {

// The store's protocol: numbers in native byte order, texts preceded by a length of eight bytes.
enum class Query : uint8_t { validate = 0, set = 1, get = 3, check = 5 };
constexpr uint32_t kValidationMark = 0x3C85F7CE;
constexpr uint8_t kReady = 0;
constexpr uint64_t kLongestValue = 1 << 20;
constexpr std::chrono::milliseconds kPatience{10'000};

template <class T>
void add(std::string* out, T value) {
  out->append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Keys of a store begin with a slash on the wire.
void add_key(std::string* out, std::string_view key) {
  add(out, uint64_t{key.size() + 1});
  *out += '/';
  *out += key;
}

}  // namespace

Result<std::optional<TorchStore>> TorchStore::open(const std::string& host, uint16_t port, std::string* why) {
  std::optional<Socket> socket = call(host, port, kPatience, why);
  if (!socket) return std::optional<TorchStore>();
  TorchStore out(std::move(*socket), host + ":" + std::to_string(port));
  std::string hello;
  add(&hello, Query::validate);
  add(&hello, kValidationMark);
  SG_TRY(out.send_all(hello));
  return std::optional<TorchStore>(std::move(out));
}

Status TorchStore::set(std::string_view key, std::string_view value) {
  std::string query;
  add(&query, Query::set);
  add_key(&query, key);
  add(&query, uint64_t{value.size()});
  query += value;
  return send_all(query);
}

Result<std::optional<std::string>> TorchStore::get(std::string_view key) {
  std::string query;
  add(&query, Query::check);
  add(&query, uint64_t{1});
  add_key(&query, key);
  SG_TRY(send_all(query));
  uint8_t answer = kReady;
  SG_TRY(receive_all(reinterpret_cast<char*>(&answer), sizeof answer));
  if (answer != kReady) return std::optional<std::string>();
  query.clear();
  add(&query, Query::get);
  add_key(&query, key);
  SG_TRY(send_all(query));
  uint64_t size = 0;
  SG_TRY(receive_all(reinterpret_cast<char*>(&size), sizeof size));
  if (size > kLongestValue) return Error{ErrorKind::missing, "what listens at " + where_ + " is not torchrun's store"};
  std::string value(size, '\0');
  SG_TRY(receive_all(value.data(), size));
  return std::optional<std::string>(std::move(value));
}

Status TorchStore::send_all(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(socket_.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
      continue;
    }
    pollfd wait = {socket_.fd(), POLLOUT, 0};
    if (n < 0 && (errno == EAGAIN || errno == EINTR) && poll(&wait, 1, static_cast<int>(kPatience.count())) == 1)
      continue;
    return Error{ErrorKind::missing, "torchrun's store at " + where_ + " is gone"};
  }
  return ok_status();
}

Status TorchStore::receive_all(char* to, size_t size) {
  while (size > 0) {
    if (!wait_readable(socket_, kPatience))
      return Error{ErrorKind::missing, "what listens at " + where_ + " does not answer as torchrun's store"};
    const ssize_t n = recv(socket_.fd(), to, size, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0) return Error{ErrorKind::missing, "torchrun's store at " + where_ + " is gone"};
    to += n;
    size -= static_cast<size_t>(n);
  }
  return ok_status();
}

}  // namespace sg::meet
