// What the tools do about output besides writing it: signals that could leave a temporary file behind, closed streams.
#pragma once

namespace sg::cli {

// Removes temporary files on SIGINT, SIGTERM, SIGHUP and SIGQUIT, then dies of the signal; on SIGPIPE, too, which so is
// quiet. Where a mapped file is shortened, says so and ends as with any unreadable file.
void install_signal_handlers();

// From now on a pipe that nobody reads any more is an error of the write; later, what it would have been at once: the
// end. For commands with files that still have to get their places.
void outlive_readers();
[[noreturn]] void end_without_reader();

// `handler` for SIGINT, SIGTERM, SIGHUP and SIGQUIT, but for those that the caller ignores: nohup, background jobs.
void handle_ends(void (*handler)(int number));

// Opens what the caller left closed of descriptors 0 to 2, so that no file of ours lands there.
void guard_standard_streams();

}  // namespace sg::cli
