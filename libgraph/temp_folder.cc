#include "libgraph/temp_folder.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

namespace sg {

// Records live as long as the process: the handler may walk the list at any moment.
struct TempFolder::Pending {
  std::string path;
  std::atomic<bool> is_there{true};
  Pending* next = nullptr;
  static std::atomic<Pending*> head;

  static Pending* add(std::string path) {
    auto* p = new Pending{std::move(path), {true}, head.load()};
    while (!head.compare_exchange_weak(p->next, p)) {
    }
    return p;
  }
};

std::atomic<TempFolder::Pending*> TempFolder::Pending::head{nullptr};

namespace {

std::atomic<void (*)()> end_writers{nullptr};

// By the call that readdir(3) makes, as that one may allocate. Names are read anew behind each part that was removed, so
// none is passed over.
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

}  // namespace

Result<TempFolder> TempFolder::make(std::string_view program) {
  const char* base = std::getenv("TMPDIR");
  const std::string where = base && *base ? base : "/tmp";
  std::string path = where + "/" + std::string(program) + "-XXXXXX";
  if (::mkdtemp(path.data()) == nullptr)
    return Error{ErrorKind::missing,
                 "cannot make a folder in " + where + ": " + std::strerror(errno),
                 {},
                 "TMPDIR names the place for temporary files"};
  return TempFolder(Pending::add(std::move(path)));
}

TempFolder::~TempFolder() {
  if (pending_ == nullptr || !pending_->is_there.exchange(false)) return;
  std::error_code ignored;  // it lies where the system clears up
  std::filesystem::remove_all(pending_->path, ignored);
}

const std::string& TempFolder::path() const { return pending_->path; }

void end_writers_by(void (*end)()) { end_writers = end; }

void remove_pending_folders() {
  if (void (*end)() = end_writers.load()) end();
  for (TempFolder::Pending* p = TempFolder::Pending::head.load(); p != nullptr; p = p->next) {
    if (!p->is_there.exchange(false)) continue;
    const int folder = ::open(p->path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder < 0) continue;
    empty_folder(folder);
    ::close(folder);
    ::rmdir(p->path.c_str());
  }
}

}  // namespace sg
