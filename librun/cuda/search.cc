// Positions of flags, and ops based on them. The host waits for their number.
#include <algorithm>
#include <array>

#include "librun/cuda/backend_cuda.h"
#include "librun/cuda/kernels/order.h"
#include "librun/work/run.h"
#include "librun/work/search.h"
#include "librun/work/shapes.h"

namespace sg::cuda {

Result<Tensor> places_of(KernelCall& call, const Tensor& flags) {
  CudaBackend& backend = backend_of(call);
  FlagArgs args;
  args.flags = Device::view(flags);
  args.runs = (args.flags.count + kFlagRun - 1) / kFlagRun;
  const Tensor counts = backend.scratch(DType::i32, std::array{args.runs + 1});
  const Tensor begin = backend.scratch(DType::i64, std::array{args.runs + 1});
  args.count = counts.as<unsigned>();
  args.begin = begin.as<int64_t>();
  backend.device().launch("flag_counts", blocks_for(args.runs), args);
  backend.device().launch("flag_offsets", 1, args);
  int64_t count = 0;
  SG_TRY(backend.download(reinterpret_cast<std::byte*>(&count), begin.data + args.runs * dtype_bytes(DType::i64),
                          sizeof count));
  Tensor places = backend.scratch(DType::i64, std::array{count});
  args.to = places.as<int64_t>();
  backend.device().launch("flag_places", blocks_for(args.runs), args);
  return places;
}

namespace {

Status nonzero(KernelCall& call) {
  const Tensor& self = call.tensor("self");
  SG_ASSIGN(Tensor places, places_of(call, self));
  SG_TRY(result_of_shape(call, 0, std::array{places.dim(0), int64_t{self.rank}}));
  Tensor positions = backend_of(call).scratch(DType::i64, call.result().sizes());
  work::Unravel work{places.as<int64_t>(), positions.as<int64_t>(), self.rank, {}};
  std::copy_n(self.shape.begin(), self.rank, work.shape);
  for_each(call, places.dim(0), 1, work);
  backend_of(call).copy(call.result(), positions);
  return ok_status();
}

work::MoveElements moving(const Tensor& to, const Tensor& from, const Tensor& places, bool gathers) {
  return {reinterpret_cast<const unsigned char*>(from.data), reinterpret_cast<unsigned char*>(to.data),
          places.as<int64_t>(), dtype_bytes(to.dtype), gathers};
}

Status masked_select(KernelCall& call) {
  const Tensor &given = call.tensor("self"), &mask = call.tensor("mask");
  const std::vector<int64_t> shape = broadcast_shape(given, mask);
  const Tensor self = in_rows_as(call, broadcast_to(given, shape), given.dtype);
  SG_ASSIGN(Tensor places, places_of(call, broadcast_to(mask, shape)));
  SG_TRY(result_of_shape(call, 0, places.sizes()));
  const Tensor out = backend_of(call).scratch(given.dtype, places.sizes());
  for_each(call, places.dim(0), 1, moving(out, self, places, true));
  backend_of(call).copy(call.result(), out);
  return ok_status();
}

Status masked_scatter(KernelCall& call) {
  const Tensor& out = call.result();
  const Tensor source = in_rows_as(call, call.tensor("source"), out.dtype);
  const Tensor values = backend_of(call).scratch(out.dtype, out.sizes());
  backend_of(call).copy(values, broadcast_to(call.tensor("self"), out.sizes()));
  SG_ASSIGN(Tensor places, places_of(call, broadcast_to(call.tensor("mask"), out.sizes())));
  if (places.dim(0) > source.elements())
    return call.fail("the mask has " + std::to_string(places.dim(0)) + " places, but the source " +
                     std::to_string(source.elements()) + " elements");
  for_each(call, places.dim(0), 1, moving(values, source, places, false));
  backend_of(call).copy(out, values);
  return ok_status();
}

Status masked_scatter_backward(KernelCall& call) {
  const Tensor &given = call.tensor("grad_output"), &mask = call.tensor("mask"), &out = call.result();
  const std::vector<int64_t> shape = broadcast_shape(given, mask);
  const Tensor grad = in_rows_as(call, broadcast_to(given, shape), out.dtype);
  SG_ASSIGN(Tensor places, places_of(call, broadcast_to(mask, shape)));
  if (places.dim(0) > out.elements())
    return call.fail("the mask has " + std::to_string(places.dim(0)) + " places, but the source " +
                     std::to_string(out.elements()) + " elements");
  const Tensor values = backend_of(call).scratch(out.dtype, out.sizes());
  backend_of(call).fill(values, Scalar::integer(0));
  for_each(call, places.dim(0), 1, moving(values, grad, places, true));
  backend_of(call).copy(out, values);
  return ok_status();
}

constexpr KernelRow kSearchRows[] = {
    {"aten.nonzero.default", nonzero},
    {"aten.masked_select.default", masked_select},
    {"aten.masked_scatter.default", masked_scatter},
    {"aten.masked_scatter_backward.default", masked_scatter_backward},
};

}  // namespace

std::span<const KernelRow> search_kernels() { return kSearchRows; }

}  // namespace sg::cuda
