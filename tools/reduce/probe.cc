#include "tools/reduce/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <utility>

#include "tools/cli/children.h"
#include "tools/cli/cli_words.h"

namespace sg::reduce {
namespace {

constexpr int kSkip = 125, kNotRunnable = 126, kNotFound = 127;  // of the shell

std::atomic<bool> stopped{false};
cli::Children running;  // by their process groups

// Runs between fork and exec. Both streams of the command go to `kept`, to standard error, or nowhere.
[[noreturn]] void become_shell(char* const* words, bool show, int kept) {
  ::setpgid(0, 0);
  const int nothing = ::open("/dev/null", O_RDWR);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const int printed = kept >= 0 ? kept : show ? STDERR_FILENO : nothing;
  cli::become(words, nothing, printed, printed);
}

// True = it ended on its own. 0 seconds: it may take any time.
bool wait_for(pid_t child, double seconds, int* status) {
  int handle = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
  int left = seconds > 0 ? static_cast<int>(seconds * 1000) : -1;
  pollfd ended{handle, POLLIN, 0};
  int found = handle < 0 ? 1 : ::poll(&ended, 1, left);
  while (found < 0 && errno == EINTR && !stopped) found = ::poll(&ended, 1, left);
  if (handle >= 0) ::close(handle);
  if (found <= 0) ::kill(-child, SIGKILL);
  while (::waitpid(child, status, 0) < 0 && errno == EINTR) {
  }
  ::kill(-child, SIGKILL);  // kill what it left running
  return found > 0;
}

// What a command prints, if needed: in an anonymous file.
class Printed {
 public:
  explicit Printed(bool show) : show_(show) {}
  Status keep() {
    fd_ = ::memfd_create("sg-reduce", MFD_CLOEXEC);
    if (fd_ >= 0) return ok_status();
    return Error{ErrorKind::missing, std::string("cannot keep what a command prints: ") + std::strerror(errno), {}, {}};
  }
  ~Printed() {
    if (fd_ >= 0) ::close(fd_);
  }
  Printed(const Printed&) = delete;
  int fd() const { return fd_; }

  // In the order of the lines, up to the first that has a match; all that is to be shown is shown.
  Result<LineSearch::Found> search(const LineSearch& wanted, LineSearch::Clock::time_point deadline) const {
    ::lseek(fd_, 0, SEEK_SET);
    std::string_view left;
    char part[4096];
    const auto read_on = [&] {
      const ssize_t n = ::read(fd_, part, sizeof part);
      left = {part, n > 0 ? static_cast<size_t>(n) : 0};
      if (show_) {
        [[maybe_unused]] ssize_t shown = ::write(STDERR_FILENO, left.data(), left.size());  // the reader may be gone
      }
      return !left.empty();
    };
    const auto next_line = [&](std::string* line) {
      line->clear();
      while (!left.empty() || read_on()) {
        const char c = left.front();
        if (c != '\n' && line->size() == wanted.longest_line()) return true;
        left.remove_prefix(1);
        if (c == '\n') return true;
        *line += c;
      }
      return !line->empty();
    };
    auto found = wanted.found_in(next_line, deadline);
    while (read_on()) {
    }
    return found;
  }

 private:
  int fd_ = -1;
  bool show_;
};

Answer answer_of(LineSearch::Found found) {
  if (found == LineSearch::Found::late) return Answer::late;
  return found == LineSearch::Found::yes ? Answer::yes : Answer::no;
}

// 0 seconds: never.
LineSearch::Clock::time_point after(double seconds) {
  constexpr double kLong = 1e9;
  return LineSearch::Clock::now() +
         std::chrono::seconds(static_cast<int64_t>(seconds > 0 ? std::min(seconds, kLong) : kLong));
}

Result<Answer> ask_once(const ProbeOptions& options, const std::string& candidate) {
  if (stopped) return Answer::stopped;
  Printed printed(options.show);
  if (options.interest.kind == Interest::Kind::print) SG_TRY(printed.keep());
  const LineSearch::Clock::time_point deadline = after(options.timeout_seconds);
  const std::string script = cli::command_about(options.command, "\"$1\"");
  const char* words[] = {"/bin/sh", "-c", script.c_str(), "sg-reduce", candidate.c_str(), nullptr};
  pid_t child = ::fork();
  if (child == 0) become_shell(const_cast<char* const*>(words), options.show, printed.fd());
  if (child < 0)
    return Error{ErrorKind::missing, std::string("cannot start a process: ") + std::strerror(errno), {}, {}};
  ::setpgid(child, child);  // parent and child both do this, to avoid a race
  const cli::Children::Place registered(&running, child);
  if (stopped) ::kill(-child, SIGKILL);
  int status = 0;
  bool ended = wait_for(child, options.timeout_seconds, &status);
  if (stopped) return Answer::stopped;
  if (!ended) return Answer::late;
  constexpr int kBySignal = 128;  // as a shell says it
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : kBySignal + WTERMSIG(status);
  if (code == kNotFound || code == kNotRunnable)
    return Error{ErrorKind::usage,
                 "the shell cannot run `" + options.command + "`",
                 {},
                 "is it executable, and its path given (./NAME)? --show prints what the shell says"};
  if (code == kSkip) return Answer::skip;
  switch (options.interest.kind) {
    case Interest::Kind::pass: return code == 0 ? Answer::yes : Answer::no;
    case Interest::Kind::fail: return code != 0 ? Answer::yes : Answer::no;
    case Interest::Kind::print: break;
  }
  SG_ASSIGN(const LineSearch::Found found, printed.search(options.interest.printed, deadline));
  return answer_of(found);
}

}  // namespace

Result<Interest> parse_interest(const std::string& text) {
  Interest out;
  if (text == "pass") return out;
  out.kind = Interest::Kind::fail;
  if (text == "fail") return out;
  out.kind = Interest::Kind::print;
  constexpr std::string_view kRegex = "regex:";
  if (!text.starts_with(kRegex))
    return Error{ErrorKind::usage, "--interesting-if takes pass, fail or regex:RE, not `" + text + "`", {}, {}};
  Result<LineSearch> printed = LineSearch::parse(text.substr(kRegex.size()));
  if (!printed.ok())
    return Error{printed.error().kind,
                 "--interesting-if: " + printed.error().message,
                 {},
                 printed.error().hint.empty() ? "for example regex:'nan|inf'" : printed.error().hint};
  out.printed = std::move(*printed);
  return out;
}

Result<Answer> probe(const ProbeOptions& options, const std::string& candidate) {
  Answer answer = Answer::no;
  for (int i = 0; i < options.attempts && (answer == Answer::no || answer == Answer::late); ++i) {
    SG_ASSIGN(answer, ask_once(options, candidate));
  }
  return answer;
}

void stop_probing() {
  stopped = true;
  running.take_each([](pid_t group) { ::kill(-group, SIGKILL); });
}

}  // namespace sg::reduce
