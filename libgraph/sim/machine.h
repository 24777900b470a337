// Machine: what a simulation believes of the hardware, as numbers with names.
//
// Keys      Every number is a key of one flat table ("device.memory_gbps", "network.ll.base_us"): the YAML form,
//           `--set` and the printed form are made from it. In YAML the dots are nested maps.
// Base      A file may say `base: h100-8` and give only what differs; without a base it has to give every key.
// Built in  libgraph/sim/machines/*.yaml, found by name. A file is found by its path: what ends in .yaml or .yml, or
//           has a slash.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libgraph/base/result.h"
#include "libgraph/dtype.h"

namespace sg {

// Rates are decimal: 1 gbps moves 1e9 bytes a second, 1 tflops is 1e12 operations. Times are microseconds.
struct Machine {
  std::string name, about;

  struct Device {
    double memory_gib = 0;
    double memory_gbps = 0;
    double f64_tflops = 0, f32_tflops = 0, f16_tflops = 0, bf16_tflops = 0, f8_tflops = 0;  // of matrix products
    double vector_tflops = 0;                                                               // of everything else
    double multiprocessors = 0;  // tiles of a product that run at once
    double kernel_us = 0;        // the least that a kernel takes
    double copy_gbps = 0;        // to the host and back, each way
  } device;

  struct Host {
    double launch_us = 0;  // to launch a kernel, a collective or a copy
    double sync_us = 0;    // from the end of the device's work to a number in the host's hands
  } host;

  // Of the peak, for large sizes.
  struct Efficiency {
    double matmul = 0, grouped_matmul = 0, convolution = 0, attention = 0, attention_backward = 0;
    double memory = 0;     // what reads and writes in order
    double irregular = 0;  // what reads or writes by index
  } efficiency;

  struct Network {
    double ranks_per_node = 0;
    // NCCL's low-latency protocol on a ring, as PyTorch models it: comm_time.h.
    struct LowLatency {
      double within_gbps = 0, between_gbps = 0;  // of a link, within a node and between nodes
      double cap_one_node_gbps = 0, cap_two_nodes_gbps = 0, cap_more_nodes_gbps = 0;
      double base_us = 0, hop_one_node_us = 0, hop_within_us = 0, hop_between_us = 0;
    } ll;
    // The protocol for large messages: what a ring of this many nodes reaches. 0 = there is none.
    struct Simple {
      double one_node_gbps = 0, more_nodes_gbps = 0;
      double base_us = 0, hop_us = 0;
    } simple;
    // Each rank to each other: what a rank sends and receives within its node and beyond. 0 = as the ring.
    struct Exchange {
      double within_gbps = 0, between_gbps = 0;
      double base_us = 0;
    } exchange;
  } network;

  double matmul_tflops(DType t) const;
};

struct MachineKey {
  std::string_view path;
  double& (*field)(Machine& machine);
  std::string_view about;
  bool may_be_zero = false;
  bool may_be_left_out = false;  // where there is no base: it is 0 then

  // Why the key cannot have this number; empty if it can. Beyond these limits times are no numbers any more.
  std::string refusal(double number) const;
  static constexpr double kLeast = 1e-9, kMost = 1e15;
};
std::span<const MachineKey> machine_keys();  // in the order in which they are printed

std::vector<std::string_view> built_in_machines();
std::string list_machines();  // a line each: name, what it is
// `above`: how many machines have it for a base, the one of the one. Of more than eight in a row it is an error.
Result<Machine> find_machine(const std::string& name_or_file, size_t above = 0);
// `file` names the text in messages. Every mistake is found at once; the Error has the place of the first.
Result<Machine> parse_machine(std::string_view text, const std::string& file, size_t above = 0);
std::string machine_yaml(const Machine& machine);

// "device.memory_gbps=4000" or "nvlink=2x": sets or multiplies. A word for several keys (machine_words) multiplies
// only.
Status set_machine(Machine* machine, std::string_view assignment);
// find_machine, then each of them in order: --machine and --set.
Result<Machine> machine_with(const std::string& name_or_file, std::span<const std::string> assignments);

// A word that stands for several keys.
struct MachineWord {
  std::string_view word;
  std::vector<std::string_view> keys;
};
std::span<const MachineWord> machine_words();

}  // namespace sg
