// kernel_probe FILE: runs kernels for a program in another language, tests/numeric/check_kernels.py, next to PyTorch.
//
// FILE is mapped and shared: tensors are offsets in it. Standard input has words, one request after the other:
//     call OP THREADS NUMERICS  {arg NAME VALUE}  {res VALUE}  go
//     VALUE   tensor DTYPE OFFSET CONJUGATE RANK SIZES STRIDES | int I | float F | bool B | complex RE IM | text T
//             | dtype D | ints N I... | tensors N VALUE... | values N VALUE... | none
// The answer is one line: "ok" and what the call determined (tensors that were allocated, numbers), or "error MESSAGE".
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <iostream>
#include <map>
#include <memory>
#include <string>

#include "librun/defaults.h"
#include "tests/support/kernel_call.h"

using namespace sg;

namespace {

std::byte* g_memory;
int64_t g_size, g_free;  // where results of data-dependent size may be put

template <class T>
T word() {
  T value{};
  std::cin >> value;
  return value;
}

Tensor read_tensor() {
  Tensor t;
  t.dtype = parse_torch_dtype(word<std::string>()).value_or(DType::none);
  t.data = g_memory + word<int64_t>();
  t.conjugate = word<int>() != 0;
  t.rank = word<int>();
  for (int i = 0; i < t.rank; ++i) t.shape[static_cast<size_t>(i)] = word<int64_t>();
  for (int i = 0; i < t.rank; ++i) t.stride[static_cast<size_t>(i)] = word<int64_t>();
  return t;
}

ParamValue scalar(Scalar s) {
  ParamValue p;
  p.kind = ParamValue::Kind::scalar;
  p.scalar = s;
  return p;
}

double real() { return std::stod(word<std::string>()); }  // accepts "inf" and "nan" too

ParamValue read_value(std::map<std::string, std::string>* texts) {
  std::string kind = word<std::string>();
  ParamValue p;
  if (kind == "int") return scalar(Scalar::integer(word<int64_t>()));
  if (kind == "bool") return scalar(Scalar::boolean(word<int>() != 0));
  if (kind == "float") return scalar(Scalar::floating(real()));
  if (kind == "complex") {
    double re = real();
    return scalar(Scalar::complex(re, real()));
  }
  if (kind == "tensor") p.kind = ParamValue::Kind::tensor, p.tensor = read_tensor();
  if (kind == "dtype")
    p.kind = ParamValue::Kind::dtype, p.dtype = parse_torch_dtype(word<std::string>()).value_or(DType::none);
  if (kind == "text") {
    std::string text = word<std::string>();
    p.kind = ParamValue::Kind::text;
    p.text = texts->emplace(text, text).first->second;
  }
  if (kind == "ints") {
    std::vector<int64_t> list(word<size_t>());
    for (int64_t& i : list) std::cin >> i;
    return test::ints(list);
  }
  if (kind == "values") {
    p.kind = ParamValue::Kind::list;
    for (size_t n = word<size_t>(); n > 0; --n) p.items.push_back(read_value(texts));
  }
  if (kind == "tensors") {
    std::vector<Tensor> list(word<size_t>());
    for (Tensor& t : list) t = read_value(texts).tensor;
    return test::tensors(list);
  }
  return p;
}

void print_tensor(size_t i, const Tensor& t) {
  std::cout << " tensor " << i << ' ' << t.data - g_memory << ' ' << t.rank;
  for (int64_t size : t.sizes()) std::cout << ' ' << size;
}

void answer(const OpInfo* op, KernelCall& call, const std::vector<DType>& allocated) {
  int64_t used = g_free;
  call.allocate = [&](size_t i, std::span<const int64_t> shape) -> Status {
    Tensor t = make_tensor(g_memory + used, allocated[i], shape);
    if (used + t.bytes() + 64 > g_size) return call.fail("the file is full");
    used += (t.bytes() + 63) / 64 * 64;
    call.results[i] = t;
    return ok_status();
  };
  Kernel kernel = find_cpu_kernel(op->name);
  if (!kernel) return void(std::cout << "missing" << std::endl);
  Status done = kernel(call);
  if (!done.ok()) return void(std::cout << "error " << done.error().message << std::endl);
  std::cout.precision(17);
  std::cout << "ok";
  for (size_t i = 0; i < allocated.size(); ++i)
    if (allocated[i] != DType::none) print_tensor(i, call.results[i]);
  for (const Scalar& s : call.scalars) std::cout << " number " << s.to_double();
  std::cout << std::endl;
}

void serve_one() {
  std::string name = word<std::string>();
  ThreadTeam team(word<int>());
  Numerics numerics = word<std::string>() == "f64" ? Numerics::f64 : Numerics::fast;
  Scratch scratch;
  KernelContext context{&team, &scratch, numerics};
  const OpInfo* op = find_op(name);
  if (!op) return void(std::cout << "missing" << std::endl);
  KernelCall call(*op, &context);
  std::map<std::string, std::string> texts;
  std::vector<DType> allocated;
  for (size_t i = 0; i < op->params.size(); ++i) call.params()[i] = default_of(op->params[i]);
  for (std::string what = word<std::string>(); what != "go"; what = word<std::string>()) {
    if (what == "arg") {
      int index = op->param_index(word<std::string>());
      ParamValue value = read_value(&texts);
      if (index >= 0) call.params()[static_cast<size_t>(index)] = value;
    } else if (what == "free") {
      g_free = word<int64_t>();
    } else {
      allocated.push_back(what == "alloc" ? parse_torch_dtype(word<std::string>()).value_or(DType::none) : DType::none);
      call.results.push_back(what == "res" ? read_value(&texts).tensor : Tensor{});
    }
  }
  answer(op, call, allocated);
}

}  // namespace

int main(int argc, char** argv) {
  int file = argc == 2 ? open(argv[1], O_RDWR) : -1;
  struct stat info {};
  if (file < 0 || fstat(file, &info) != 0) return 2;
  g_size = info.st_size;
  void* memory = mmap(nullptr, static_cast<size_t>(g_size), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (memory == MAP_FAILED) return 2;
  g_memory = static_cast<std::byte*>(memory);
  for (std::string what; std::cin >> what && what == "call";) serve_one();
  return 0;
}
