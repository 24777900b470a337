// Communication calls that stand for several.
#include "libgraph/composite/composite_call.h"

namespace sg::composite {

void wait_each(CompositeCall& c) {
  for (ValueId launched : c.tensors("tensors")) c.give(c.make("_c10d_functional.wait_tensor.default", {launched}));
}

}  // namespace sg::composite
