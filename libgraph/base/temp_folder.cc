#include "libgraph/base/temp_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

namespace sg {

// Records live as long as the process: the signal handler may walk the list at any moment.
struct TempFolder::Pending {
  enum State : uint8_t { gone, being_made, there };
  std::string path;
  std::atomic<State> state{gone};
  Pending* next = nullptr;
  static std::atomic<Pending*> head;

  static Pending* add(std::string path) {
    auto* p = new Pending{std::move(path), being_made, head.load()};
    while (!head.compare_exchange_weak(p->next, p)) {
    }
    return p;
  }
};

std::atomic<TempFolder::Pending*> TempFolder::Pending::head{nullptr};

namespace {

std::atomic<void (*)()> end_writers{nullptr};

// Removes the files of a folder. Uses the system call behind readdir(3), which itself may allocate memory. Starts over
// after each batch of removals, so that no name is missed.
void empty_folder(int folder) {
  alignas(dirent64) char part[4096];
  while (true) {
    ::lseek(folder, 0, SEEK_SET);
    const long bytes = ::syscall(SYS_getdents64, folder, part, sizeof part);
    bool removed = false;
    for (long at = 0; at < bytes;) {
      const auto* entry = reinterpret_cast<const dirent64*>(part + at);
      removed |= ::unlinkat(folder, entry->d_name, 0) == 0;
      at += entry->d_reclen;
    }
    if (!removed) return;
  }
}

std::string random_letters() {
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  std::random_device device;
  std::string out;
  for (int i = 0; i < 8; ++i) out += kLetters[device() % kLetters.size()];
  return out;
}

}  // namespace

// The name is registered with the handler before the folder exists, so that none is ever left behind.
Result<TempFolder> TempFolder::make(std::string_view program) {
  constexpr int kMostTries = 100;
  const char* base = std::getenv("TMPDIR");
  const std::string where = base && *base ? base : "/tmp";
  for (int i = 0; i < kMostTries; ++i) {
    Pending* pending = Pending::add(where + "/" + std::string(program) + "-" + random_letters());
    if (::mkdir(pending->path.c_str(), 0700) == 0) {
      pending->state = Pending::there;
      return TempFolder(pending);
    }
    pending->state = Pending::gone;
    if (errno != EEXIST) break;
  }
  return Error{ErrorKind::missing,
               "cannot make a folder in " + where + ": " + std::strerror(errno),
               {},
               "TMPDIR names the place for temporary files"};
}

TempFolder::~TempFolder() {
  if (pending_ == nullptr) return;
  std::error_code ignored;  // if it fails, the folder is in a place that the system cleans up
  std::filesystem::remove_all(pending_->path, ignored);
  pending_->state = Pending::gone;
}

const std::string& TempFolder::path() const { return pending_->path; }

void end_writers_by(void (*end)()) { end_writers = end; }

void remove_pending_folders() {
  if (void (*end)() = end_writers.load()) end();
  for (TempFolder::Pending* p = TempFolder::Pending::head.load(); p != nullptr; p = p->next) {
    const TempFolder::Pending::State was = p->state.exchange(TempFolder::Pending::gone);
    if (was == TempFolder::Pending::gone) continue;
    if (was == TempFolder::Pending::being_made) {  // it may belong to another process, and is not empty then
      ::rmdir(p->path.c_str());
      continue;
    }
    const int folder = ::open(p->path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) continue;
    empty_folder(folder);
    ::close(folder);
    ::rmdir(p->path.c_str());
  }
}

}  // namespace sg
