#include "librun/meet/socket.h"

#include <fcntl.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>

namespace sg::meet {
namespace {

constexpr int kFlags = SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK;

// Sends small messages immediately, and lets the system detect a vanished machine after a minute.
void prepare(int fd) {
  const int yes = 1, idle_s = 30, between_s = 10, tries = 3;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &between_s, sizeof between_s);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &tries, sizeof tries);
}

Socket bound(int family, uint16_t port) {
  Socket out(socket(family, kFlags, 0));
  if (!out.is_open()) return out;
  const int yes = 1, no = 0;
  setsockopt(out.fd(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_storage address = {};
  socklen_t size = sizeof(sockaddr_in);
  if (family == AF_INET6) {
    setsockopt(out.fd(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    auto* six = reinterpret_cast<sockaddr_in6*>(&address);
    six->sin6_family = AF_INET6, six->sin6_port = htons(port), six->sin6_addr = in6addr_any;
    size = sizeof(sockaddr_in6);
  } else {
    auto* four = reinterpret_cast<sockaddr_in*>(&address);
    four->sin_family = AF_INET, four->sin_port = htons(port), four->sin_addr.s_addr = htonl(INADDR_ANY);
  }
  if (bind(out.fd(), reinterpret_cast<sockaddr*>(&address), size) != 0 || listen(out.fd(), SOMAXCONN) != 0)
    return Socket();
  return out;
}

// Returns 0 or the error number.
int try_connect(const Socket& s, const addrinfo& to, std::chrono::milliseconds patience) {
  if (connect(s.fd(), to.ai_addr, to.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd wait = {s.fd(), POLLOUT, 0};
  if (poll(&wait, 1, static_cast<int>(patience.count())) != 1) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  return getsockopt(s.fd(), SOL_SOCKET, SO_ERROR, &error, &size) == 0 ? error : errno;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) close(fd_);
}

Result<Socket> listen_on(uint16_t port) {
  Socket out = bound(AF_INET6, port);
  if (!out.is_open()) out = bound(AF_INET, port);
  if (out.is_open()) return out;
  return Error{ErrorKind::missing,
               "rank 0 cannot listen on port " + std::to_string(port) + ": " + std::strerror(errno),
               {},
               "another port: MASTER_PORT, or --rendezvous HOST:PORT"};
}

uint16_t port_of(const Socket& listening) {
  sockaddr_storage address = {};
  socklen_t size = sizeof address;
  if (getsockname(listening.fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0) return 0;
  return ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&address)->sin6_port
                                             : reinterpret_cast<sockaddr_in*>(&address)->sin_port);
}

Result<std::optional<Socket>> accept_call(const Socket& listening) {
  Socket out(accept4(listening.fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!out.is_open() && (errno == EMFILE || errno == ENFILE))
    return Error{ErrorKind::missing,
                 "rank 0 may not open as many files as there are ranks: " + std::string(std::strerror(errno)),
                 {},
                 "ulimit -n says how many; each rank is one"};
  if (!out.is_open()) return std::optional<Socket>();
  prepare(out.fd());
  return std::optional<Socket>(std::move(out));
}

void allow_many_sockets() {
  rlimit files = {};
  if (getrlimit(RLIMIT_NOFILE, &files) != 0 || files.rlim_cur == files.rlim_max) return;
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
}

std::optional<Socket> call(const std::string& host, uint16_t port, std::chrono::milliseconds patience,
                           std::string* why) {
  addrinfo wanted = {}, *found = nullptr;
  wanted.ai_family = AF_UNSPEC, wanted.ai_socktype = SOCK_STREAM, wanted.ai_flags = AI_NUMERICSERV;
  if (const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found); code != 0) {
    *why = "no machine is known as '" + host + "': " + gai_strerror(code);
    return std::nullopt;
  }
  const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(found, freeaddrinfo);
  for (const addrinfo* a = found; a; a = a->ai_next) {
    Socket out(socket(a->ai_family, kFlags, 0));
    const int error = out.is_open() ? try_connect(out, *a, patience) : errno;
    if (error == 0) {
      prepare(out.fd());
      return out;
    }
    *why = std::strerror(error);
  }
  return std::nullopt;
}

std::vector<std::string> own_addresses() {
  std::vector<std::string> out, loopback;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return {"127.0.0.1"};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || !(i->ifa_flags & IFF_UP)) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    if (family == AF_INET6 && IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<sockaddr_in6*>(i->ifa_addr)->sin6_addr)) continue;
    char text[NI_MAXHOST];
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(i->ifa_addr, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) == 0)
      (i->ifa_flags & IFF_LOOPBACK ? loopback : out).push_back(text);
  }
  out.insert(out.end(), loopback.begin(), loopback.end());
  return out;
}

bool wait_readable(const Socket& socket, std::chrono::milliseconds patience) {
  pollfd wait = {socket.fd(), POLLIN, 0};
  return poll(&wait, 1, static_cast<int>(std::max<int64_t>(patience.count(), 0))) == 1;
}

}  // namespace sg::meet
