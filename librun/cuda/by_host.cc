// Calls without a device kernel: operands are copied to the host, the CPU kernel computes, and results are copied back.
// The device waits meanwhile; sg-run lists these ops.
#include <algorithm>
#include <vector>

#include "librun/cuda/backend_cuda.h"

namespace sg::cuda {
namespace {

// A range of device memory that contains tensors of the call, and its copy on the host.
struct Range {
  std::byte *begin, *end;
  std::unique_ptr<std::byte[]> copy;
  bool is_read = false, is_written = false;
};

class HostCall {
 public:
  explicit HostCall(KernelCall& call) : call_(call), context_(call.context()), host_(call.op(), &context_) {
    context_.team = &backend_of(call).host_team();
  }

  Status run(Kernel kernel) {
    collect();
    SG_TRY(bring());
    for (size_t i = 0; i < call_.params().size(); ++i) host_.params()[i] = on_host(call_.params()[i]);
    for (const Tensor& t : call_.results) host_.results.push_back(on_host(t));
    host_.scalars = call_.scalars;
    host_.random = call_.random;
    host_.allocate = [this](size_t i, std::span<const int64_t> shape) { return allocate(i, shape); };
    SG_TRY(kernel(host_));
    call_.scalars = host_.scalars;
    return give_back();
  }

 private:
  void add(const Tensor& t, bool reads, bool writes) {
    if (t.is_none() || t.elements() == 0) return;
    ranges_.push_back({t.data, t.data + extent_bytes(t), nullptr, reads, writes});
  }
  void add(const ParamValue& p, bool writes) {
    if (p.kind == ParamValue::Kind::tensor) add(p.tensor, true, writes);
    for (const ParamValue& item : p.items) add(item, writes);
  }

  // Overlapping ranges are merged. A range that is written with gaps is read first, so that the gaps are preserved.
  void collect() {
    for (size_t i = 0; i < call_.params().size(); ++i) add(call_.params()[i], call_.op().params[i].written);
    for (const Tensor& t : call_.results) add(t, !t.is_dense(), true);
    std::ranges::sort(ranges_, {}, &Range::begin);
    size_t kept = 0;
    for (size_t i = 0; i < ranges_.size(); ++i) {
      Range& r = ranges_[i];
      if (kept > 0 && r.begin < ranges_[kept - 1].end) {
        Range& last = ranges_[kept - 1];
        last.is_read |= r.is_read || r.begin != last.begin || r.end != last.end;
        last.is_written |= r.is_written;
        last.end = std::max(last.end, r.end);
      } else {
        if (kept != i) ranges_[kept] = std::move(r);
        ++kept;
      }
    }
    ranges_.resize(kept);
  }

  Status bring() {
    for (Range& r : ranges_) {
      r.copy = std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(r.end - r.begin));
      if (r.is_read) SG_TRY(backend_of(call_).download(r.copy.get(), r.begin, r.end - r.begin));
    }
    return ok_status();
  }

  Tensor on_host(Tensor t) const {
    if (t.is_none() || t.elements() == 0) return t;
    auto r = std::ranges::find_if(ranges_, [&](const Range& x) { return t.data >= x.begin && t.data < x.end; });
    t.data = r->copy.get() + (t.data - r->begin);
    return t;
  }
  ParamValue on_host(ParamValue p) const {
    p.tensor = on_host(p.tensor);
    for (ParamValue& item : p.items) item = on_host(std::move(item));
    for (Tensor& t : p.tensors) t = on_host(t);
    return p;
  }

  // Allocates a result with a data-dependent size on both sides.
  Status allocate(size_t i, std::span<const int64_t> shape) {
    SG_TRY(call_.allocate_result(i, shape));
    const Tensor& there = call_.results[i];
    const int64_t bytes = extent_bytes(there);
    ranges_.push_back({there.data, there.data + bytes,
                       std::make_unique<std::byte[]>(static_cast<size_t>(std::max<int64_t>(bytes, 1))), false, true});
    host_.results[i] = there;
    host_.results[i].data = ranges_.back().copy.get();
    return ok_status();
  }

  Status give_back() {
    for (const Range& r : ranges_)
      if (r.is_written) SG_TRY(backend_of(call_).upload(r.begin, r.copy.get(), r.end - r.begin));
    return ok_status();
  }

  KernelCall& call_;
  KernelContext context_;
  KernelCall host_;
  std::vector<Range> ranges_;
};

}  // namespace

Status run_by_host(KernelCall& call) {
  Kernel kernel = find_cpu_kernel(call.op().name);
  if (!kernel) return call.fail("there is no kernel");
  return HostCall(call).run(kernel);
}

}  // namespace sg::cuda
