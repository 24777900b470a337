// --optimizer: which one, and its numbers.
//
//   sgd:lr=0.1,momentum=0.9,dampening=0,nesterov=1,wd=0.01      torch.optim.SGD
//   adamw:lr=1e-3,betas=0.9:0.999,eps=1e-8,wd=0.01              torch.optim.AdamW
// Every key may be omitted and then has PyTorch's default. `betas=0.9,0.999` is accepted too.
#pragma once

#include <cstdint>
#include <string_view>

#include "libgraph/base/result.h"

namespace sg {

struct OptimizerOptions {
  enum class Kind : uint8_t { sgd, adamw };
  Kind kind = Kind::sgd;
  double lr = 1e-3;
  double weight_decay = 0;                        // adamw: 0.01 by default
  double momentum = 0, dampening = 0;             // sgd
  bool nesterov = false;                          // sgd
  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // adamw
};

Result<OptimizerOptions> parse_optimizer(std::string_view text);

}  // namespace sg
