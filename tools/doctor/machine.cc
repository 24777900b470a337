// The machine: processor, memory, disk space.
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <optional>
#include <thread>

#include "libgraph/base/human.h"
#include "librun/cpu/instruction_set.h"
#include "tools/doctor/findings.h"
#include "tools/recipe/cache.h"

namespace sg::doctor {
namespace {

// The text after `key` and a colon in a file of such lines; empty if there is none.
std::string field_of(const char* path, std::string_view key) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(key)) continue;
    size_t begin = line.find(':');
    if (begin == line.npos) continue;
    begin = line.find_first_not_of(" \t", begin + 1);
    return begin == line.npos ? "" : line.substr(begin);
  }
  return {};
}

std::string first_word_in(const char* path) {
  std::ifstream file(path);
  std::string word;
  file >> word;
  return word;
}

// Limits of this process's control group (version 2): the number of cores it may use, and the memory.
std::optional<double> cores_allowed() {
  std::ifstream file("/sys/fs/cgroup/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) return {};
  return std::atof(quota.c_str()) / period;
}

std::optional<double> bytes_allowed() {
  std::string limit = first_word_in("/sys/fs/cgroup/memory.max");
  if (limit.empty() || limit == "max") return {};
  return std::atof(limit.c_str());
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.4g", value);
  return text;
}

double kilobytes(const std::string& text) { return std::atof(text.c_str()) * 1024; }

}  // namespace

Finding look_at_processor() {
  Finding out{"processor", State::ok, {}, {}, {}};
  std::string model = field_of("/proc/cpuinfo", "model name");
  if (model.empty()) model = "processor";
  const size_t threads = std::max(1u, std::thread::hardware_concurrency());
  out.text = model + ", " + plural(threads, "thread");
  out.facts = {{"model", model}, {"threads", std::to_string(threads)}};
  if (std::optional<double> cores = cores_allowed()) {
    out.text += " (the time of " + number(*cores) + " allowed)";
    out.facts.emplace_back("allowed", number(*cores));
  }
  const cpu::Isa best = cpu::best_isa();
  const std::string isa = best == cpu::Isa::avx512 ? "avx512" : best == cpu::Isa::avx2 ? "avx2" : "plain";
  out.text += ", kernels for " + isa;
  out.facts.emplace_back("isa", isa);
  if (best == cpu::Isa::plain) out.text += ": the same results, slowly";
  return out;
}

Finding look_at_memory() {
  const double total = kilobytes(field_of("/proc/meminfo", "MemTotal"));
  const double free = kilobytes(field_of("/proc/meminfo", "MemAvailable"));
  Finding out{"memory", State::ok, human_bytes(total) + ", " + human_bytes(free) + " free", {}, {}};
  out.facts = {{"total_bytes", number(total)}, {"free_bytes", number(free)}};
  if (std::optional<double> limit = bytes_allowed(); limit && *limit < total) {
    out.text += " (" + human_bytes(*limit) + " allowed)";
    out.facts.emplace_back("allowed_bytes", number(*limit));
  }
  return out;
}

Finding look_at_cache() {
  const std::string folder = recipe::Cache::usual_folder();
  Finding out{"cache", State::ok, folder, {}, {{"folder", folder}}};
  if (folder.empty()) {
    out.state = State::absent;
    out.text = "there is no place for sg-recipe's cache";
    out.remedy = "set HOME, or STEPGRAPH_CACHE to a folder";
    return out;
  }
  std::string at = folder;  // the part of the path that exists
  while (at.size() > 1 && ::access(at.c_str(), F_OK) != 0) {
    const size_t slash = at.rfind('/');
    at = slash == at.npos ? "." : at.substr(0, std::max<size_t>(slash, 1));
    if (at == ".") break;
  }
  if (::access(at.c_str(), W_OK) != 0) {
    out.state = State::broken;
    out.text = folder + " cannot be written: recipes do all of their work each time";
    out.remedy = "STEPGRAPH_CACHE names another folder";
    return out;
  }
  struct statvfs room {};
  if (::statvfs(at.c_str(), &room) == 0)
    out.text +=
        ", " + human_bytes(static_cast<double>(room.f_bavail) * static_cast<double>(room.f_frsize)) + " free there";
  return out;
}

}  // namespace sg::doctor
