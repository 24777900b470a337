#include "tools/reduce/probe.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "tools/children.h"

namespace sg::reduce {
namespace {

constexpr int kSkip = 125, kNotRunnable = 126, kNotFound = 127;  // of the shell
constexpr size_t kMaxLine = 4096;                                // longer lines are searched in pieces

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

  bool matches(const std::regex& wanted) const {
    std::string line;
    bool found = false;
    auto end_line = [&] {
      found = found || std::regex_search(line, wanted);
      line.clear();
    };
    char part[4096];
    ::lseek(fd_, 0, SEEK_SET);
    for (ssize_t n; (n = ::read(fd_, part, sizeof part)) > 0;) {
      if (show_) {
        [[maybe_unused]] ssize_t shown =
            ::write(STDERR_FILENO, part, static_cast<size_t>(n));  // the reader may be gone
      }
      for (char c : std::string_view(part, static_cast<size_t>(n))) {
        if (c == '\n' || line.size() == kMaxLine) end_line();
        if (c != '\n') line += c;
      }
    }
    end_line();
    return found;
  }

 private:
  int fd_ = -1;
  bool show_;
};

Result<Answer> ask_once(const ProbeOptions& options, const std::string& candidate) {
  if (stopped) return Answer::stopped;
  Printed printed(options.show);
  if (options.interest.kind == Interest::Kind::print) SG_TRY(printed.keep());
  std::string script = options.command + " \"$1\"";
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
    case Interest::Kind::print: return printed.matches(options.interest.printed) ? Answer::yes : Answer::no;
  }
  return Answer::no;
}

}  // namespace

Result<Interest> parse_interest(const std::string& text) {
  Interest out;
  if (text == "pass") return out;
  out.kind = Interest::Kind::fail;
  if (text == "fail") return out;
  out.kind = Interest::Kind::print;
  constexpr std::string_view kRegex = "regex:";
  try {
    if (text.starts_with(kRegex)) {
      out.printed = std::regex(text.substr(kRegex.size()), std::regex::ECMAScript);
      return out;
    }
  } catch (const std::regex_error&) {
    return Error{
        ErrorKind::usage, "--interesting-if " + text + " has no regular expression", {}, "for example regex:'nan|inf'"};
  }
  return Error{ErrorKind::usage, "--interesting-if takes pass, fail or regex:RE, not `" + text + "`", {}, {}};
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
