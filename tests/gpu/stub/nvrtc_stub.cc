// libnvrtc.so.13 for tests: generated text is compiled by the host's compiler, with the headers that NVRTC would get.
//
//   SG_STUB_NVRTC=1       it works; otherwise it reports no version, and chains are interpreted
//   SG_STUB_NVRTC_KEEP=D  texts and headers stay in folders of D, for the real NVRTC and nvcc
//   SG_STUB_NVRTC_FAIL=1  no text compiles; D has each one that was tried
#include <nvrtc.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace fs = std::filesystem;

struct _nvrtcProgram {
  std::string text, code, log;
  std::vector<std::pair<std::string, std::string>> headers;
};

namespace {

bool is_set(const char* name) {
  const char* value = std::getenv(name);
  return value && *value && *value != '0';
}

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path, std::ios::binary) << text;
}

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

fs::path new_folder() {
  const char* keep = std::getenv("SG_STUB_NVRTC_KEEP");
  std::string name = (keep ? std::string(keep) : fs::temp_directory_path().string()) + "/chain-XXXXXX";
  return mkdtemp(name.data()) ? fs::path(name) : fs::path();
}

}  // namespace

#define STUB extern "C" __attribute__((visibility("default"))) nvrtcResult

extern "C" __attribute__((visibility("default"))) const char* nvrtcGetErrorString(nvrtcResult code) {
  return code == NVRTC_SUCCESS ? "NVRTC_SUCCESS" : "NVRTC_ERROR_COMPILATION";
}
STUB nvrtcVersion(int* major, int* minor) {
  *major = 13;
  *minor = 0;
  return is_set("SG_STUB_NVRTC") ? NVRTC_SUCCESS : NVRTC_ERROR_INVALID_INPUT;
}
STUB nvrtcCreateProgram(nvrtcProgram* out, const char* text, const char*, int count, const char* const* headers,
                        const char* const* names) {
  auto* p = new _nvrtcProgram;
  p->text = text;
  for (int i = 0; i < count; ++i) p->headers.emplace_back(names[i], headers[i]);
  *out = p;
  return NVRTC_SUCCESS;
}
STUB nvrtcDestroyProgram(nvrtcProgram* p) {
  delete *p;
  *p = nullptr;
  return NVRTC_SUCCESS;
}
STUB nvrtcCompileProgram(nvrtcProgram p, int count, const char* const* options) {
  bool is_exact = false;
  for (int i = 0; i < count; ++i) is_exact |= std::strcmp(options[i], "--fmad=false") == 0;
  const bool fails = !is_exact || is_set("SG_STUB_NVRTC_FAIL");
  if (fails && !std::getenv("SG_STUB_NVRTC_KEEP")) return p->log = "on purpose", NVRTC_ERROR_COMPILATION;
  const fs::path folder = new_folder();
  write(folder / "chain.cc", p->text);
  if (fails) return p->log = "on purpose", NVRTC_ERROR_COMPILATION;
  for (const auto& [name, text] : p->headers)  // those of the C++ library are the host's own
    write(folder / (name.find('/') == std::string::npos ? fs::path("device") / name : fs::path(name)), text);
  const std::string library = (folder / "chain.so").string(), log = (folder / "log").string();
  const std::string command = std::string(SG_STUB_CXX) + " -std=c++20 -O1 -fPIC -shared -ffp-contract=off -w " +
                              "-fsanitize=alignment,float-cast-overflow -fsanitize-undefined-trap-on-error " +
                              "-fvisibility=hidden -DSG_HOST_KERNELS -I" + folder.string() + " -o " + library + " " +
                              (folder / "chain.cc").string() + " >" + log + " 2>&1";
  const bool done = std::system(command.c_str()) == 0;
  p->log = read(log);
  const std::string code = read(library);
  const uint64_t size = code.size();
  p->code = "SG_STUB_" + std::string(reinterpret_cast<const char*>(&size), sizeof size) + code;
  if (!is_set("SG_STUB_NVRTC_KEEP")) fs::remove_all(folder);
  return done ? NVRTC_SUCCESS : NVRTC_ERROR_COMPILATION;
}
STUB nvrtcGetCUBINSize(nvrtcProgram p, size_t* size) {
  *size = p->code.size();
  return NVRTC_SUCCESS;
}
STUB nvrtcGetCUBIN(nvrtcProgram p, char* to) {
  std::memcpy(to, p->code.data(), p->code.size());
  return NVRTC_SUCCESS;
}
STUB nvrtcGetProgramLogSize(nvrtcProgram p, size_t* size) {
  *size = p->log.size() + 1;
  return NVRTC_SUCCESS;
}
STUB nvrtcGetProgramLog(nvrtcProgram p, char* to) {
  std::memcpy(to, p->log.c_str(), p->log.size() + 1);
  return NVRTC_SUCCESS;
}
