#include "tools/reduce/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

namespace sg::reduce {
namespace {

constexpr int kSkip = 125, kNotRunnable = 126, kNotFound = 127;  // of the shell
constexpr size_t kMaxRunning = 64;

std::atomic<bool> stopped{false};
std::atomic<pid_t> running[kMaxRunning];  // process groups; 0 = a free place

// A place in `running` for as long as the child is there.
class Registered {
 public:
  explicit Registered(pid_t group) {
    for (size_t i = 0; i < kMaxRunning && !place_; ++i) {
      pid_t none = 0;
      if (running[i].compare_exchange_strong(none, group)) place_ = &running[i];
    }
    if (stopped) ::kill(-group, SIGKILL);
  }
  ~Registered() {
    if (place_) *place_ = 0;
  }
  Registered(const Registered&) = delete;

 private:
  std::atomic<pid_t>* place_ = nullptr;
};

// Between fork and exec of a program with threads: system calls only.
[[noreturn]] void become(char* const* words, bool show) {
  ::setpgid(0, 0);
  int nothing = ::open("/dev/null", O_RDWR);
  ::dup2(nothing, STDIN_FILENO);
  ::dup2(show ? STDERR_FILENO : nothing, STDOUT_FILENO);
  if (!show) ::dup2(nothing, STDERR_FILENO);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execv(words[0], words);
  ::_exit(127);
}

// True = it ended by itself.
bool wait_for(pid_t child, double seconds, int* status) {
  int handle = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
  int left = static_cast<int>(seconds * 1000);
  pollfd ended{handle, POLLIN, 0};
  int found = handle < 0 ? 1 : ::poll(&ended, 1, left);
  while (found < 0 && errno == EINTR && !stopped) found = ::poll(&ended, 1, left);
  if (handle >= 0) ::close(handle);
  if (found <= 0) ::kill(-child, SIGKILL);
  while (::waitpid(child, status, 0) < 0 && errno == EINTR) {
  }
  ::kill(-child, SIGKILL);  // what it left behind
  return found > 0;
}

Result<Answer> ask_once(const ProbeOptions& options, const std::string& candidate) {
  if (stopped) return Answer::stopped;
  std::string script = options.command + " \"$1\"";
  const char* words[] = {"/bin/sh", "-c", script.c_str(), "sg-reduce", candidate.c_str(), nullptr};
  pid_t child = ::fork();
  if (child == 0) become(const_cast<char* const*>(words), options.show);
  if (child < 0)
    return Error{ErrorKind::missing, std::string("cannot start a process: ") + std::strerror(errno), {}, {}};
  ::setpgid(child, child);  // whoever comes first
  Registered registered(child);
  int status = 0;
  bool ended = wait_for(child, options.timeout_seconds, &status);
  if (stopped) return Answer::stopped;
  if (!ended || !WIFEXITED(status)) return Answer::no;
  int code = WEXITSTATUS(status);
  if (code == kNotFound || code == kNotRunnable)
    return Error{ErrorKind::usage,
                 "the shell cannot run `" + options.command + "`",
                 {},
                 "is it executable, and its path given (./NAME)? --show passes on what the shell says"};
  return code == 0 ? Answer::yes : code == kSkip ? Answer::skip : Answer::no;
}

}  // namespace

Result<Answer> probe(const ProbeOptions& options, const std::string& candidate) {
  Answer answer = Answer::no;
  for (int i = 0; i < options.attempts && answer == Answer::no; ++i) {
    SG_ASSIGN(answer, ask_once(options, candidate));
  }
  return answer;
}

void stop_probing() {
  stopped = true;
  for (std::atomic<pid_t>& group : running)
    if (pid_t g = group; g != 0) ::kill(-g, SIGKILL);
}

}  // namespace sg::reduce
