#include "librun/cuda/code.h"

#include <dlfcn.h>
#include <nvrtc.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "librun/cuda/driver.h"

namespace sg::cuda {

// clang-format off
#define SG_NVRTC_FUNCTIONS(X)                                                                                     \
  X(nvrtcVersion)                                                                                                 \
  X(nvrtcGetErrorString) X(nvrtcCreateProgram) X(nvrtcDestroyProgram) X(nvrtcCompileProgram) X(nvrtcGetCUBINSize) \
      X(nvrtcGetCUBIN) X(nvrtcGetProgramLogSize) X(nvrtcGetProgramLog)
// clang-format on

struct CodeMaker::Functions {
#define SG_MEMBER(name) decltype(&::name) name = nullptr;
  SG_NVRTC_FUNCTIONS(SG_MEMBER)
#undef SG_MEMBER
  int major = 0, minor = 0;
};

namespace {

constexpr std::string_view kMagic = "stepgraph cuda code 1\n";

// 128-bit hashes in the style of FNV: for file names, and for file contents.
std::string hash_of(std::initializer_list<std::string_view> parts) {
  uint64_t a = 0xcbf29ce484222325u, b = 0x9e3779b97f4a7c15u;
  for (std::string_view part : parts) {
    for (char c : part) {
      a = (a ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
      b = (b ^ (a >> 29) ^ static_cast<unsigned char>(c)) * 0xff51afd7ed558ccdu;
    }
    a = (a ^ part.size()) * 0x100000001b3u;
  }
  char text[40];
  std::snprintf(text, sizeof text, "%016llx%016llx", static_cast<unsigned long long>(a),
                static_cast<unsigned long long>(b));
  return text;
}

std::filesystem::path cache_folder() {
  if (const char* given = std::getenv("SG_CUDA_CACHE")) return given;
  if (const char* xdg = std::getenv("XDG_CACHE_HOME"); xdg && *xdg)
    return std::filesystem::path(xdg) / "stepgraph/cuda";
  const char* home = std::getenv("HOME");
  return home && *home ? std::filesystem::path(home) / ".cache/stepgraph/cuda" : std::filesystem::path();
}

// Empty: there is no file, or it is damaged.
std::string read_code(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string all{std::istreambuf_iterator<char>(in), {}};
  if (all.size() < kMagic.size() + 33 || !all.starts_with(kMagic)) return {};
  const std::string head = all.substr(kMagic.size(), 32), code = all.substr(kMagic.size() + 33);
  return hash_of({code}) == head ? code : std::string();
}

// If code cannot be stored, it is compiled again the next time; this is not an error.
void write_code(const std::filesystem::path& path, const std::string& code) {
  std::error_code ignored;
  std::filesystem::create_directories(path.parent_path(), ignored);
  static std::atomic<uint64_t> writes{0};  // ranks that are threads may store the same code at once
  const std::filesystem::path part =
      path.string() + "." + std::to_string(::getpid()) + "-" + std::to_string(writes.fetch_add(1));
  {
    std::ofstream out(part, std::ios::binary);
    out << kMagic << hash_of({code}) << '\n' << code;
    if (!out.flush()) return void(std::filesystem::remove(part, ignored));
  }
  std::filesystem::rename(part, path, ignored);
}

Error failed(const std::string& what, std::string log) {
  while (!log.empty() && (log.back() == '\n' || log.back() == 0)) log.pop_back();
  return Error{ErrorKind::internal, "NVRTC: " + what + (log.empty() ? "" : ": " + log)};
}

}  // namespace

Result<const CodeMaker::Functions*> CodeMaker::load() {
  static const Result<Functions> functions = []() -> Result<Functions> {
    SG_ASSIGN(void* library,
              open_library({"libnvrtc.so.13", "libnvrtc.so.12"}, "the CUDA 13 runtime libraries on the library path"));
    Functions out;
#define SG_FIND(name)                                                    \
  out.name = reinterpret_cast<decltype(&::name)>(dlsym(library, #name)); \
  if (!out.name) return Error{ErrorKind::missing, "libnvrtc has no " #name};
    SG_NVRTC_FUNCTIONS(SG_FIND)
#undef SG_FIND
    if (out.nvrtcVersion(&out.major, &out.minor) != NVRTC_SUCCESS)
      return Error{ErrorKind::missing, "libnvrtc does not say its version"};
    return out;
  }();
  if (!functions.ok()) return functions.error();
  return &*functions;
}

const CodeMaker* CodeMaker::find(std::string* why) {
  auto functions = load();
  if (!functions.ok()) return *why = functions.error().message, nullptr;
  static const CodeMaker maker(**functions);
  return &maker;
}

std::string CodeMaker::version() const { return std::to_string(nvrtc_.major) + "." + std::to_string(nvrtc_.minor); }

Result<std::string> CodeMaker::compile(const std::string& text, int architecture) const {
  const std::string option = "--gpu-architecture=sm_" + std::to_string(architecture);
  std::string all_headers;
  for (const CodeHeader& h : code_headers()) all_headers += std::string(h.name) + "\n" + h.text;
  const std::filesystem::path folder = cache_folder();
  const std::filesystem::path path = folder / (hash_of({text, all_headers, option, version()}) + ".cubin");
  if (!folder.empty())
    if (std::string code = read_code(path); !code.empty()) return code;

  std::vector<const char*> names, texts;
  for (const CodeHeader& h : code_headers()) names.push_back(h.name), texts.push_back(h.text);
  nvrtcProgram program = nullptr;
  if (auto code = nvrtc_.nvrtcCreateProgram(&program, text.c_str(), "chain.cu", static_cast<int>(names.size()),
                                            texts.data(), names.data());
      code != NVRTC_SUCCESS)
    return failed(nvrtc_.nvrtcGetErrorString(code), {});
  // Arithmetic as on the CPU: no contraction; exact division and square roots are NVRTC's defaults.
  const char* options[] = {option.c_str(), "--std=c++20", "--fmad=false", "-default-device"};
  const nvrtcResult compiled = nvrtc_.nvrtcCompileProgram(program, 4, options);
  std::string code, log;
  size_t size = 0;
  if (compiled != NVRTC_SUCCESS && nvrtc_.nvrtcGetProgramLogSize(program, &size) == NVRTC_SUCCESS) {
    log.resize(size);
    nvrtc_.nvrtcGetProgramLog(program, log.data());
  }
  if (compiled == NVRTC_SUCCESS && nvrtc_.nvrtcGetCUBINSize(program, &size) == NVRTC_SUCCESS) {
    code.resize(size);
    if (nvrtc_.nvrtcGetCUBIN(program, code.data()) != NVRTC_SUCCESS) code.clear();
  }
  nvrtc_.nvrtcDestroyProgram(&program);
  if (compiled != NVRTC_SUCCESS || code.empty()) return failed(nvrtc_.nvrtcGetErrorString(compiled), log);
  if (!folder.empty()) write_code(path, code);
  return code;
}

}  // namespace sg::cuda
