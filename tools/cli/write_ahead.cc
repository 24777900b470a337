#include "tools/cli/write_ahead.h"

#include <system_error>

#include "libgraph/binary/binary.h"

namespace sg::cli {
namespace {

constexpr size_t kLeastNodes = 2000;  // takes a millisecond to write; a thread costs a tenth of that

}  // namespace

WriteAhead::WriteAhead(const Job& job, size_t threads) {
  if (threads < 2 || job.node_count() < kLeastNodes) return;
  pool_.emplace(*job.pool);
  try {
    bytes_ = std::async(std::launch::async, [this, &job] { return write_binary(job, *pool_); });
  } catch (const std::system_error&) {
    pool_.reset();  // no thread: the bytes are made on demand
  }
}

std::optional<Result<std::string>> WriteAhead::take() {
  if (!bytes_.valid()) return std::nullopt;
  return bytes_.get();
}

}  // namespace sg::cli
