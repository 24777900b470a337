#include "libgraph/facts/transfer.h"

namespace sg {

Transfer transfer_of(const OpInfo* op) {
  static const OpInfo* const kToHost[] = {find_op("sg.offload"), find_op("ao.offload.default")};
  static const OpInfo* const kToDevice[] = {find_op("sg.reload"), find_op("ao.reload.default")};
  if (op == nullptr) return Transfer::none;
  if (op == kToHost[0] || op == kToHost[1]) return Transfer::to_host;
  return op == kToDevice[0] || op == kToDevice[1] ? Transfer::to_device : Transfer::none;
}

}  // namespace sg
