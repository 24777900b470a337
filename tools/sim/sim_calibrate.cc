#include "tools/sim/sim_calibrate.h"

#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <thread>

#include "libgraph/base/median.h"
#include "librun/measure_rates.h"

namespace sg::cli {
namespace {

constexpr double kNever = 1e-3;  // for the low-latency protocol, which threads do not have

// The median of the repeats, and their range.
struct Figure {
  double value = 0, lowest = 0, highest = 0;
};

using Samples = std::vector<double>;

Figure figure_of(const Samples& samples) {
  const auto [lowest, highest] = std::ranges::minmax(samples);
  return {median(samples), lowest, highest};
}

// Rounded to the precision of the measurement.
double three_digits(double value) {
  if (!(value > 0)) return 0;
  double unit = std::pow(10.0, std::floor(std::log10(value)) - 2);
  double rounded = std::round(value / unit) * unit;
  char text[32];
  std::snprintf(text, sizeof text, "%.3g", rounded);
  return std::strtod(text, nullptr);
}

std::string percent(double part, double whole) {
  char text[32];
  std::snprintf(text, sizeof text, "%+.1f %%", whole > 0 ? 100 * (part / whole - 1) : 0.0);
  return text;
}

class Calibration {
 public:
  Calibration(Machine machine, const std::vector<ProbeTimes>& probes, double ranks)
      : machine_(std::move(machine)), ranks_(ranks) {
    for (const ProbeTimes& p : probes) probes_[p.name] = &p;
  }

  void set_all() {
    auto rate = [](double work, double unit) { return [=](double s) { return work / s / unit; }; };
    for (const char* dtype : {"f64", "f32", "f16", "bf16"}) {
      const ProbeTimes& p = *probes_[std::string("matmul_") + dtype];
      set(std::string("device.") + dtype + "_tflops", p, rate(p.flops, 1e12));
    }
    set("device.memory_gbps", *probes_["memory"], rate(probes_["memory"]->bytes, 1e9));
    set("device.copy_gbps", *probes_["copy"], rate(probes_["copy"]->bytes / 2, 1e9));
    set("device.vector_tflops", *probes_["vector"], rate(probes_["vector"]->flops, 1e12));
    set("device.kernel_us", *probes_["kernel"], [n = probes_["kernel"]->nodes](double s) { return s / n * 1e6; });
    set_efficiencies();
    if (probes_.contains("all_reduce")) set_network();
    set_constants();
  }

  Machine& machine() { return machine_; }
  const std::string& table() const { return table_; }

 private:
  template <class Fn>
  void set(const std::string& key, const ProbeTimes& probe, const Fn& value_of) {
    Samples samples;
    for (double s : probe.seconds) samples.push_back(value_of(s));
    Figure f = figure_of(samples);
    give(key, f.value);
    char line[128];
    std::snprintf(line, sizeof line, "#   %-32s %-10.3g %9s %9s\n", key.c_str(), f.value,
                  percent(f.lowest, f.value).c_str(), percent(f.highest, f.value).c_str());
    table_ += line;
  }

  void give(std::string_view key, double value) {
    for (const MachineKey& k : machine_keys())
      if (k.path == key) k.field(machine_) = three_digits(value);
  }

  // The rate of large products is the peak; other ops get their share of it.
  void set_efficiencies() {
    give("efficiency.matmul", 1);
    give("efficiency.memory", 1);
    auto share = [&](const char* name, double peak_tflops) {
      const ProbeTimes& p = *probes_[name];
      set(std::string("efficiency.") + name, p, [&](double s) { return p.flops / s / (peak_tflops * 1e12); });
    };
    share("grouped_matmul", machine_.device.bf16_tflops);
    for (const char* name : {"convolution", "attention", "attention_backward"}) share(name, machine_.device.f32_tflops);
    const ProbeTimes& p = *probes_["irregular"];
    set("efficiency.irregular", p, [&](double s) { return p.bytes / s / (machine_.device.memory_gbps * 1e9); });
  }

  // Parameters of comm_time.cc: base time and ring bandwidth for large messages; all to all is measured directly.
  void set_network() {
    const ProbeTimes &ring = *probes_["all_reduce"], &direct = *probes_["all_to_all"];
    auto each_us = [](const ProbeTimes& p) { return [n = p.nodes](double s) { return s / n * 1e6; }; };
    auto rate = [](const ProbeTimes& p, double bytes, double base_us) {
      return [=, n = p.nodes](double s) { return bytes / std::max(s / n * 1e6 - base_us, 1e-3) * 1e-3; };
    };
    auto& n = machine_.network;
    set("network.simple.base_us", *probes_["all_reduce_small"], each_us(*probes_["all_reduce_small"]));
    set("network.simple.one_node_gbps", ring,
        rate(ring, ring.payload_bytes * 2 * (ranks_ - 1) / ranks_, n.simple.base_us));
    set("network.exchange.base_us", *probes_["all_to_all_small"], each_us(*probes_["all_to_all_small"]));
    set("network.exchange.within_gbps", direct,
        rate(direct, direct.payload_bytes * (ranks_ - 1) / ranks_, n.exchange.base_us));
    n.simple.more_nodes_gbps = n.simple.one_node_gbps;
    n.exchange.between_gbps = n.exchange.within_gbps;
  }

  void set_constants() {
    auto& n = machine_.network;
    n.ranks_per_node = std::max(ranks_, n.ranks_per_node);
    n.simple.hop_us = n.ll.hop_one_node_us = n.ll.hop_within_us = n.ll.hop_between_us = 0;
    n.ll.base_us = n.simple.base_us;
    n.ll.within_gbps = n.ll.between_gbps = n.ll.cap_one_node_gbps = n.ll.cap_two_nodes_gbps = n.ll.cap_more_nodes_gbps =
        kNever;
    machine_.device.multiprocessors = 0;                  // nor tiles
    machine_.device.f8_tflops = 0;                        // computed as bf16
    machine_.host.launch_us = machine_.host.sync_us = 0;  // the host computes
    double bytes = static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
    give("device.memory_gib", bytes / 0x1p30 / ranks_);
  }

  Machine machine_;
  double ranks_;
  std::map<std::string, const ProbeTimes*> probes_;
  std::string table_;
};

Result<uint32_t> count_of(const Args& args, std::string_view option, int64_t otherwise, int64_t most) {
  const int64_t count = args.number(option, otherwise);
  if (count < 1 || count > most) return option_error(option, " takes 1 to " + std::to_string(most));
  return static_cast<uint32_t>(count);
}

}  // namespace

Result<std::string> calibrate_here(const Args& args, const Machine& base) {
  RateOptions options;
  SG_ASSIGN(options.ranks, count_of(args, "ranks", 2, 256));
  SG_ASSIGN(options.repeats, count_of(args, "repeats", 9, 1000));
  options.threads = std::max(1, static_cast<int>(std::max(1u, std::thread::hardware_concurrency()) / options.ranks));
  SG_ASSIGN(std::vector<ProbeTimes> probes, measure_rates(options));
  Calibration calibration(base, probes, options.ranks);
  calibration.set_all();
  Machine& machine = calibration.machine();
  std::string what = std::to_string(options.ranks) + (options.ranks == 1 ? " rank of " : " ranks of ") +
                     std::to_string(options.threads) + (options.threads == 1 ? " thread" : " threads");
  machine.name = "cpu-here";
  machine.about = "this machine, measured by sg-sim --calibrate with " + what;
  std::string spread = "# The middle one of " + std::to_string(options.repeats) +
                       " runs, the lowest and the highest:\n" + calibration.table();
  args.report().line(spread);
  return spread + machine_yaml(machine);
}

}  // namespace sg::cli
