#include "libgraph/sim/machine.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "libgraph/base/chars.h"
#include "libgraph/base/human.h"
#include "libgraph/base/joined.h"
#include "libgraph/base/json.h"
#include "libgraph/base/nearest.h"
#include "libgraph/base/output_file.h"
#include "libgraph/base/whole_file.h"
#include "libgraph/sim/machine_file.h"
#include "libgraph/sim/machine_texts.h"

namespace sg {
namespace {

#define SG_KEY(path, about)                                            \
  {                                                                    \
#path, [](Machine & m) -> double& { return m.path; }, about, false \
  }
#define SG_KEY_OR_ZERO(path, about)                                   \
  {                                                                   \
#path, [](Machine & m) -> double& { return m.path; }, about, true \
  }
// For keys that older machine descriptions lack.
#define SG_KEY_OR_NONE(path, about)                                         \
  {                                                                         \
#path, [](Machine & m) -> double& { return m.path; }, about, true, true \
  }
constexpr MachineKey kKeys[] = {
    SG_KEY(device.memory_gib, "memory of a device"),
    SG_KEY(device.memory_gbps, "its bandwidth"),
    SG_KEY(device.f64_tflops, "peak of matrix products in f64"),
    SG_KEY(device.f32_tflops, "the same in f32"),
    SG_KEY(device.f16_tflops, "the same in f16"),
    SG_KEY(device.bf16_tflops, "the same in bf16"),
    SG_KEY_OR_NONE(device.f8_tflops, "the same in float8, and in 8-bit integers; 0, or left out = as in bf16"),
    SG_KEY(device.vector_tflops, "peak of everything else"),
    SG_KEY_OR_ZERO(device.multiprocessors, "tiles of a product that run at once; 0 = products have no tiles"),
    SG_KEY_OR_ZERO(device.kernel_us, "the least that a kernel takes"),
    SG_KEY(device.copy_gbps, "to the host and back, each way"),
    SG_KEY_OR_ZERO(host.launch_us, "the host's time to launch a kernel, a collective or a copy"),
    SG_KEY_OR_ZERO(host.sync_us, "from the end of the device's work to a number in the host's hands"),
    SG_KEY(efficiency.matmul, "share of the peak that large matrix products reach"),
    SG_KEY(efficiency.grouped_matmul, "the same, grouped"),
    SG_KEY(efficiency.convolution, "the same of convolutions"),
    SG_KEY(efficiency.attention, "the same of fused attention"),
    SG_KEY(efficiency.attention_backward, "and of its backward"),
    SG_KEY(efficiency.memory, "share of the bandwidth, read and written in order"),
    SG_KEY(efficiency.irregular, "the same by index"),
    SG_KEY(network.ranks_per_node, "ranks of one host"),
    SG_KEY(network.ll.within_gbps, "low-latency protocol: a link within a node"),
    SG_KEY(network.ll.between_gbps, "a link between nodes"),
    SG_KEY(network.ll.cap_one_node_gbps, "the most that the protocol reaches in one node"),
    SG_KEY(network.ll.cap_two_nodes_gbps, "on two nodes"),
    SG_KEY(network.ll.cap_more_nodes_gbps, "on more"),
    SG_KEY_OR_ZERO(network.ll.base_us, "to start"),
    SG_KEY_OR_ZERO(network.ll.hop_one_node_us, "a step of the ring in one node"),
    SG_KEY_OR_ZERO(network.ll.hop_within_us, "a step within a node of several"),
    SG_KEY_OR_ZERO(network.ll.hop_between_us, "a step between nodes"),
    SG_KEY_OR_ZERO(network.simple.one_node_gbps, "large messages: the ring in one node; 0 = no such protocol"),
    SG_KEY_OR_ZERO(network.simple.more_nodes_gbps, "the ring over several nodes"),
    SG_KEY_OR_ZERO(network.simple.base_us, "to start"),
    SG_KEY_OR_ZERO(network.simple.hop_us, "a step of the ring"),
    SG_KEY_OR_ZERO(network.exchange.within_gbps, "all to all: what a rank sends within its node; 0 = as the ring"),
    SG_KEY_OR_ZERO(network.exchange.between_gbps, "and beyond"),
    SG_KEY_OR_ZERO(network.exchange.base_us, "to start"),
};
#undef SG_KEY
#undef SG_KEY_OR_ZERO
#undef SG_KEY_OR_NONE

const MachineKey* find_key(std::string_view path) {
  for (const MachineKey& k : kKeys)
    if (k.path == path) return &k;
  return nullptr;
}

std::string number_text(double value) {
  char buffer[32];
  auto end = std::to_chars(buffer, buffer + sizeof buffer, value);
  return {buffer, end.ptr};
}

std::vector<std::string_view> parts_of(std::string_view path) {
  std::vector<std::string_view> parts;
  for (size_t dot = path.find('.'); dot != std::string_view::npos; dot = path.find('.')) {
    parts.push_back(path.substr(0, dot));
    path.remove_prefix(dot + 1);
  }
  parts.push_back(path);
  return parts;
}

Error no_such_key(std::string_view word) {
  Nearest nearest(word);
  for (const MachineKey& k : kKeys) nearest.offer(k.path);
  for (const MachineWord& w : machine_words()) nearest.offer(w.word);
  std::string hint = nearest.hint();
  if (hint.empty()) hint = "sg-sim --show-machine prints all that a machine has";
  return {ErrorKind::usage, "a machine has no `" + std::string(word) + "`", {}, std::move(hint)};
}

}  // namespace

double Machine::matmul_tflops(DType t) const {
  switch (t) {
    case DType::f64:
    case DType::c128: return device.f64_tflops;
    case DType::f16: return device.f16_tflops;
    case DType::bf16: return device.bf16_tflops;
    case DType::i8:
    case DType::u8:
    case DType::f8e4m3fn:
    case DType::f8e5m2:
    case DType::f8e4m3fnuz:
    case DType::f8e5m2fnuz: return device.f8_tflops > 0 ? device.f8_tflops : device.bf16_tflops;
    default: return device.f32_tflops;
  }
}

std::span<const MachineKey> machine_keys() { return kKeys; }

std::span<const MachineWord> machine_words() {
  static const std::vector<MachineWord> words = {
      {"flops",
       {"device.f64_tflops", "device.f32_tflops", "device.f16_tflops", "device.bf16_tflops", "device.f8_tflops",
        "device.vector_tflops"}},
      {"memory", {"device.memory_gbps"}},
      {"nvlink",
       {"network.ll.within_gbps", "network.ll.cap_one_node_gbps", "network.simple.one_node_gbps",
        "network.exchange.within_gbps"}},
      {"network",
       {"network.ll.between_gbps", "network.ll.cap_two_nodes_gbps", "network.ll.cap_more_nodes_gbps",
        "network.simple.more_nodes_gbps", "network.exchange.between_gbps"}},
      {"pcie", {"device.copy_gbps"}},
      {"host", {"host.launch_us", "host.sync_us"}},
  };
  return words;
}

std::vector<std::string_view> built_in_machines() {
  std::vector<std::string_view> names;
  for (const MachineText& t : machine_texts()) names.push_back(t.name);
  return names;
}

std::string list_machines() {
  std::string out;
  for (std::string_view name : built_in_machines()) {
    Result<Machine> machine = find_machine(std::string(name));
    out += left_cell(name, 18) + (machine.ok() ? machine->about : "") + "\n";
  }
  return out;
}

Result<Machine> find_machine(const std::string& name, size_t above) {
  for (const MachineText& t : machine_texts())
    if (t.name == name) return parse_machine(t.text, name + ".yaml");
  if (!is_machine_file(name)) {
    std::string hint = nearest_hint(name, built_in_machines());
    return Error{ErrorKind::usage,
                 "there is no machine `" + name + "`",
                 {},
                 hint.empty() ? "known are " + joined(built_in_machines(), ", ") + "; a file ends in .yaml" : hint};
  }
  constexpr size_t kMostBytes = 1 << 20;
  SG_ASSIGN(const std::string text, read_whole_file(name, kMostBytes));
  keep_file(name, "describes the machine");
  return parse_machine(text, name, above);
}

namespace {

// In quotes where YAML would read something else: a comment, a key, a list.
std::string yaml_text(const std::string& text) {
  auto is_plain = [](char c) {
    return is_word(c) || std::string_view(" ,.;()/+=%-").find(c) != std::string_view::npos;
  };
  const bool begins_well = !text.empty() && is_plain(text.front()) && text.front() > '/' && text.back() != ' ';
  return begins_well && std::ranges::all_of(text, is_plain) ? text : json_string(text);
}

}  // namespace

std::string machine_yaml(const Machine& machine) {
  Machine copy = machine;
  std::string out = "name: " + yaml_text(machine.name) + "\nabout: " + yaml_text(machine.about) + "\n";
  std::vector<std::string_view> open;
  for (const MachineKey& k : kKeys) {
    std::vector<std::string_view> parts = parts_of(k.path);
    size_t common = 0;
    while (common < open.size() && common + 1 < parts.size() && open[common] == parts[common]) ++common;
    open.assign(parts.begin(), parts.end() - 1);
    for (size_t i = common; i + 1 < parts.size(); ++i) out += std::string(2 * i, ' ') + std::string(parts[i]) + ":\n";
    std::string line =
        std::string(2 * (parts.size() - 1), ' ') + std::string(parts.back()) + ": " + number_text(k.field(copy));
    line.resize(std::max<size_t>(line.size() + 1, 36), ' ');
    out += line + "# " + std::string(k.about) + "\n";
  }
  return out;
}

std::string MachineKey::refusal(double number) const {
  if (number == 0) return may_be_zero ? std::string() : "`" + std::string(path) + "` must be greater than 0";
  if (number >= kLeast && number <= kMost) return {};
  return "`" + std::string(path) + "` must be a number from 1e-9 to 1e15";
}

Status set_machine(Machine* machine, std::string_view assignment) {
  size_t equals = assignment.find('=');
  std::string_view word = assignment.substr(0, equals);
  std::string_view text = equals == std::string_view::npos ? std::string_view() : assignment.substr(equals + 1);
  bool is_factor = !text.empty() && text.back() == 'x';
  double value = 0;
  const char* end = text.data() + text.size() - (is_factor ? 1 : 0);
  auto parsed = std::from_chars(text.data(), end, value);
  if (text.empty() || parsed.ec != std::errc() || parsed.ptr != end || !(value >= 0) || !std::isfinite(value))
    return Error{ErrorKind::usage,
                 "`--set " + std::string(assignment) + "` is not KEY=NUMBER or KEY=NUMBERx",
                 {},
                 "such as nvlink=2x or device.memory_gbps=4000"};
  if (const MachineKey* key = find_key(word)) {
    double& field = key->field(*machine);
    const double number = is_factor ? field * value : value;
    if (std::string why = key->refusal(number); !why.empty()) return Error{ErrorKind::usage, std::move(why), {}, {}};
    field = number;
    return ok_status();
  }
  auto words = machine_words();
  auto found = std::find_if(words.begin(), words.end(), [&](const MachineWord& w) { return w.word == word; });
  if (found == words.end()) return no_such_key(word);
  if (!is_factor)
    return Error{ErrorKind::usage,
                 "`" + std::string(word) + "` stands for several numbers",
                 {},
                 "give a factor, as in " + std::string(word) + "=2x"};
  for (std::string_view path : found->keys) {
    double& field = find_key(path)->field(*machine);
    std::string why =
        value == 0 ? "a factor of 0 makes `" + std::string(word) + "` 0" : find_key(path)->refusal(field * value);
    if (!why.empty()) return Error{ErrorKind::usage, std::move(why), {}, {}};
    field *= value;
  }
  return ok_status();
}

Result<Machine> machine_with(const std::string& name_or_file, std::span<const std::string> assignments) {
  SG_ASSIGN(Machine machine, find_machine(name_or_file));
  for (const std::string& assignment : assignments) SG_TRY(set_machine(&machine, assignment));
  return machine;
}

}  // namespace sg
