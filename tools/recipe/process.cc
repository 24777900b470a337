#include "tools/recipe/process.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "libgraph/base/temp_folder.h"
#include "tools/cli/children.h"

namespace sg::recipe {
namespace {

constexpr size_t kMaxSaid = 4000;  // bytes of a tool's messages that are passed on

Error failed(const std::string& what) { return {ErrorKind::missing, what + ": " + std::strerror(errno), {}, {}}; }

cli::Children running;  // by their process groups: a command of the user's starts others

// A signal that ends this process kills them before their folders are removed.
void end_running() {
  running.take_each([](pid_t child) {
    ::kill(-child, SIGKILL);
    while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
    }
  });
}

struct Pipe {
  int ends[2] = {-1, -1};
  bool open() { return ::pipe2(ends, O_CLOEXEC) == 0; }
  void close(int end) {
    if (ends[end] >= 0) ::close(ends[end]);
    ends[end] = -1;
  }
  ~Pipe() { close(0), close(1); }
};

// While it lives, this thread's writes to a closed pipe fail with EPIPE instead of raising SIGPIPE. Other threads, and
// the program's own output, keep the signal.
class NoPipeSignal {
 public:
  NoPipeSignal() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoPipeSignal() {
    const timespec at_once{};
    while (::sigtimedwait(&pipe_, nullptr, &at_once) < 0 && errno == EINTR) {
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoPipeSignal(const NoPipeSignal&) = delete;

 private:
  sigset_t pipe_, before_;
};

// Feeds and drains until both outputs are closed, so that neither side can deadlock.
void exchange(std::string_view input, Pipe* in, Pipe* out, Pipe* err, Finished* done) {
  const NoPipeSignal no_signal;
  ::fcntl(in->ends[1], F_SETFL, O_NONBLOCK);
  if (input.empty()) in->close(1);
  char part[65536];
  while (out->ends[0] >= 0 || err->ends[0] >= 0) {
    pollfd wanted[3] = {{in->ends[1], POLLOUT, 0}, {out->ends[0], POLLIN, 0}, {err->ends[0], POLLIN, 0}};
    if (::poll(wanted, 3, -1) < 0 && errno != EINTR) return;
    if (wanted[0].revents != 0) {
      ssize_t n = ::write(in->ends[1], input.data(), input.size());
      if (n > 0) input.remove_prefix(static_cast<size_t>(n));
      if (input.empty() || (n < 0 && errno != EAGAIN)) in->close(1);  // a reader may stop early
    }
    for (int i : {1, 2}) {
      if (wanted[i].revents == 0) continue;
      Pipe* from = i == 1 ? out : err;
      ssize_t n = ::read(from->ends[0], part, sizeof part);
      if (n > 0) (i == 1 ? done->output : done->errors).append(part, static_cast<size_t>(n));
      else if (n == 0 || errno != EINTR) from->close(0);
    }
  }
}

}  // namespace

Result<Finished> run_process(const std::vector<std::string>& words, std::string_view input, const std::string& output) {
  Pipe in, out, err;
  if (!in.open() || !out.open() || !err.open()) return failed("cannot make a pipe");
  int file = output == "-" ? -1 : ::open(output.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (output != "-" && file < 0) return failed("cannot write " + output);
  std::vector<char*> arguments;
  for (const std::string& w : words) arguments.push_back(const_cast<char*>(w.c_str()));
  arguments.push_back(nullptr);
  pid_t child = ::fork();
  if (child == 0) {
    ::setpgid(0, 0);
    // Fires when the forking thread ends; that thread waits for the child.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    cli::become(arguments.data(), in.ends[0], file >= 0 ? file : out.ends[1], err.ends[1]);
  }
  if (file >= 0) ::close(file);
  if (child < 0) return failed("cannot start " + words[0]);
  ::setpgid(child, child);  // parent and child both do this, to avoid a race
  end_writers_by(end_running);
  cli::Children::Place registered(&running, child);
  in.close(0), out.close(1), err.close(1);
  Finished done;
  exchange(input, &in, &out, &err, &done);
  registered.leave();  // from here on the pid may be reused
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  done.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  if (done.code == 127 && done.errors.empty())
    return Error{ErrorKind::missing, "cannot run " + words[0], {}, "is the installation complete?"};
  return done;
}

std::string indented(std::string text) {
  while (!text.empty() && text.back() == '\n') text.pop_back();
  std::string out;
  for (char c : text) out += c == '\n' ? std::string("\n  ") : std::string(1, c);
  return out;
}

Error error_of(const Finished& done, const std::string& program, const Location& where) {
  std::string said = indented(done.errors.substr(0, kMaxSaid));
  if (const ErrorKind kind = error_kind_of(static_cast<uint64_t>(done.code)); kind != ErrorKind::internal)
    return {kind, said.empty() ? program + " failed" : said, where, {}};
  std::string how = done.code > 128 ? " was ended by signal " + std::to_string(done.code - 128)
                                    : " ended with exit code " + std::to_string(done.code);
  return {ErrorKind::internal, program + how + (said.empty() ? "" : ": " + said), where, {}};
}

}  // namespace sg::recipe
