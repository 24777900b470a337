#include "libgraph/sim/machine.h"

#include <catch2/catch.hpp>
#include <fstream>

#include "libgraph/sim/comm_time.h"
#include "tests/support/temp_folder.h"

using namespace sg;

namespace {

Machine h100() {
  Result<Machine> m = find_machine("h100-8");
  REQUIRE(m.ok());
  return std::move(*m);
}

std::string said(const Result<Machine>& m) {
  REQUIRE(!m.ok());
  return print_location(m.error().where) + ": " + m.error().message + " (" + m.error().hint + ")";
}

}  // namespace

// autochunker-and-inductor.md, part G: PyTorch's estimates for Hopper with its default links.
TEST_CASE("the low-latency model gives PyTorch's estimates") {
  using K = CollectivePattern;
  struct Case {
    K kind;
    double bytes, ranks, ms;
  };
  constexpr double kGiB = 1073741824.0;
  const Case cases[] = {
      {K::all_gather, kGiB, 8, 6.2165},       {K::all_reduce, kGiB, 8, 12.4263},
      {K::all_gather, kGiB, 16, 75.0233},     {K::all_reduce, kGiB, 16, 150.0434},
      {K::reduce_scatter, kGiB, 64, 78.8315}, {K::all_reduce, 1048576, 8, 0.027120},
      {K::all_gather, 0, 8, 0.0108},          {K::all_to_all, kGiB, 8, 12.4263},
      {K::point_to_point, kGiB, 2, 3.5533},   {K::all_gather, kGiB, 1, 0},
  };
  Machine m = h100();
  for (const Case& c : cases) {
    double nodes = std::max(1.0, c.ranks / 8);
    CHECK(ll_time_us(m.network, c.kind, c.bytes, c.ranks, nodes) * 1e-3 == Approx(c.ms).epsilon(1e-4));
    CHECK(collective_time_us(m.network, c.kind, c.bytes, c.ranks, nodes) <=
          ll_time_us(m.network, c.kind, c.bytes, c.ranks, nodes));
  }
}

TEST_CASE("a broadcast takes what one link takes for all of it") {
  Machine m = h100();
  CHECK(collective_time_us(m.network, CollectivePattern::broadcast, 350e6, 8, 1) >= 1000);
  CHECK(collective_time_us(m.network, CollectivePattern::broadcast, 350e6, 8, 1) <= 1100);
  CHECK(collective_time_us(m.network, CollectivePattern::point_to_point, 1e9, 8, 1) ==
        collective_time_us(m.network, CollectivePattern::point_to_point, 1e9, 2, 1));
}

TEST_CASE("more bytes, more ranks and more nodes never take less time") {
  Machine m = h100();
  for (auto kind : {CollectivePattern::all_gather, CollectivePattern::reduce_scatter, CollectivePattern::all_reduce,
                    CollectivePattern::all_to_all}) {
    double before = 0;
    for (double bytes = 0; bytes < 1e10; bytes = bytes * 2 + 1024) {
      double now = collective_time_us(m.network, kind, bytes, 8, 1);
      CHECK(now >= before);
      before = now;
    }
    CHECK(collective_time_us(m.network, kind, 1e9, 16, 2) > collective_time_us(m.network, kind, 1e9, 8, 1));
    CHECK(collective_time_us(m.network, kind, 1e9, 8, 1) > collective_time_us(m.network, kind, 1e9, 4, 1));
  }
}

TEST_CASE("every built-in machine reads, and comes back from its printed form") {
  REQUIRE(built_in_machines().size() >= 4);
  for (std::string_view name : built_in_machines()) {
    Result<Machine> m = find_machine(std::string(name));
    REQUIRE(m.ok());
    CHECK(m->name == name);
    Result<Machine> again = parse_machine(machine_yaml(*m), "printed");
    REQUIRE(again.ok());
    for (const MachineKey& key : machine_keys()) CHECK(key.field(*m) == key.field(*again));
  }
  Machine named = *find_machine("h100-8");
  for (const char* about : {"H100: 8 GPUs # fast", "- a list", "'quoted' \"twice\"", "", " blank ", "{a}", "1"}) {
    named.about = about;
    const Result<Machine> again = parse_machine(machine_yaml(named), "printed");
    REQUIRE(again.ok());
    CHECK(again->about == about);
  }
}

TEST_CASE("a machine's mistakes are told with their place") {
  CHECK(said(parse_machine("name: x\nbase: h100-8\n---\nname: y\n", "m.yaml")) ==
        "m.yaml:4:1: not valid YAML: a second document begins here, and a file holds one ()");
  CHECK(parse_machine("---\nname: x\nbase: h100-8\n...\n", "m.yaml").ok());
  CHECK(said(parse_machine("name: x\nbase: h100-8\ndevice:\n  memory_gbs: 3\n", "m.yaml")) ==
        "m.yaml:4:3: a machine has no `device.memory_gbs` (did you mean `device.memory_gbps`?)");
  CHECK(said(parse_machine("name: x\nbase: h100-8\ndevice:\n  memory_gbps: fast\n", "m.yaml")) ==
        "m.yaml:4:16: `device.memory_gbps` must be a number, 0 or more ()");
  CHECK(said(parse_machine("name: x\nbase: h100-9\n", "m.yaml")) ==
        "m.yaml:2:7: there is no machine `h100-9` (did you mean `h100-8`?)");
  test::TempFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.file(name)) << text;
    return folder.file(name);
  };
  const std::string loop = write("loop.yaml", "name: x\nbase: loop.yaml\n");
  CHECK(said(find_machine(loop)).find("loop.yaml:2:7: more than eight machines") != std::string::npos);
  write("wrong.yaml", "name: w\nbase: h100-8\nfoo: 1\n");
  const std::string over = write("over.yaml", "name: x\nbase: wrong.yaml\n");  // found next to it from any folder
  CHECK(said(find_machine(over)).find("wrong.yaml:3:1: a machine has no `foo`") != std::string::npos);
  CHECK(said(parse_machine("name: x\ndevice: {memory_gbps: 1\n", "m.yaml")).find("not valid YAML") !=
        std::string::npos);
  CHECK(said(parse_machine("base: h100-8\nname: 'x\ndevice: {}\n", "m.yaml")) ==
        "m.yaml:2:7: the quotes that begin here are never closed ()");
  CHECK(said(parse_machine("name: x\nbse: h100-8\n", "m.yaml")) ==
        "m.yaml:2:1: a machine has no `bse` (did you mean `base`?)");
  CHECK(said(parse_machine("name: x\n", "m.yaml")).find("`device.memory_gib` and ") != std::string::npos);
  std::string laughs = "name: x\nbase: h100-8\na: &a {x: 1, y: 1, z: 1, u: 1, v: 1, w: 1}\n";
  for (char c = 'b'; c < 'z'; ++c) {
    const std::string last(1, static_cast<char>(c - 1)), now(1, c);
    laughs += now + ": &" + now + " {x: *" + last + ", y: *" + last + ", z: *" + last + ", u: *" + last + ", v: *" +
              last + ", w: *" + last + "}\n";
  }
  CHECK(said(parse_machine(laughs, "m.yaml")).find("m.yaml:3:8: a machine has no `a.x`") == 0);
  CHECK(said(parse_machine("- 1\n", "m.yaml")) == "m.yaml:1:1: a machine is a map of names and numbers ()");
  CHECK(said(parse_machine("base: h100-8\n", "m.yaml")).find("`name` is missing") != std::string::npos);
}

TEST_CASE("--set sets, multiplies, and refuses what it does not know") {
  Machine m = h100();
  double before = m.network.simple.one_node_gbps;
  REQUIRE(set_machine(&m, "nvlink=2x").ok());
  CHECK(m.network.simple.one_node_gbps == 2 * before);
  REQUIRE(set_machine(&m, "device.kernel_us=0").ok());
  CHECK(m.device.kernel_us == 0);
  for (const char* bad : {"nvlink=3", "nvlink", "device.kernel_us=", "device.kernel_us=x", "device.kernel_us=-1",
                          "device.kernl_us=1", "a=nanx", "=2", "device.copy_gbps=0", "flops=0x"}) {
    Status s = set_machine(&m, bad);
    REQUIRE(!s.ok());
    CHECK(s.error().kind == ErrorKind::usage);
  }
}
