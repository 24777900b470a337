#include "tools/cli/cli_output.h"

#include <fcntl.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <iterator>

#include "libgraph/base/mapped_file.h"
#include "libgraph/base/output_file.h"
#include "libgraph/base/result.h"

namespace sg::cli {
namespace {

void remove_outputs_and_die(int number) {
  remove_pending_outputs();
  std::signal(number, SIG_DFL);
  ::raise(number);
}

std::atomic_flag reported = ATOMIC_FLAG_INIT;

// Somebody has shortened a file that is mapped. All threads that read it get here, the first one speaks.
void report_shortened_file(int number, siginfo_t* info, void*) {
  const char* file = mapped_file_at(info->si_addr);
  if (!file) return remove_outputs_and_die(number);
  while (reported.test_and_set()) ::pause();
  remove_pending_outputs();
  const char said[] = ": error: it became shorter while it was read\n";
  const iovec line[] = {{const_cast<char*>(file), std::strlen(file)}, {const_cast<char*>(said), sizeof said - 1}};
  (void)!::writev(STDERR_FILENO, line, std::size(line));
  std::_Exit(static_cast<int>(ErrorKind::unreadable));
}

}  // namespace

void handle_ends(void (*handler)(int number)) {
  for (int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction old;
    if (::sigaction(number, nullptr, &old) == 0 && old.sa_handler == SIG_IGN) continue;  // nohup, background jobs
    std::signal(number, handler);
  }
}

void outlive_readers() {
  std::signal(SIGPIPE, [](int) {});  // not SIG_IGN, which a child would inherit
}

void end_without_reader() {
  std::signal(SIGPIPE, SIG_DFL);
  ::raise(SIGPIPE);
  std::_Exit(static_cast<int>(ErrorKind::missing));  // the caller blocks the signal
}

void install_signal_handlers() {
  std::signal(SIGPIPE, remove_outputs_and_die);  // even if the caller ignored it: `| head` is no error
  std::signal(SIGXFSZ, SIG_IGN);                 // exceeding a file size limit (ulimit -f) becomes a write error
  handle_ends(remove_outputs_and_die);
  struct sigaction shortened = {};
  shortened.sa_sigaction = report_shortened_file;
  shortened.sa_flags = SA_SIGINFO;
  ::sigaction(SIGBUS, &shortened, nullptr);
}

void guard_standard_streams() {
  // Deliberately the wrong direction: reading a closed input or writing a closed output still fails.
  for (int fd = 0; fd <= STDERR_FILENO; ++fd)
    if (::fcntl(fd, F_GETFD) < 0 && ::open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) < 0) std::_Exit(5);
}

}  // namespace sg::cli
