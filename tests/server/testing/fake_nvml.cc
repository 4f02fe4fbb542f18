// A driver's library for tests: the functions of NVML that the daemon uses, in a real .so. What it
// tells stands in the file that $FAKE_NVML names, read anew at every call, one thing a line:
//   driver 580.65.06
//   gpu UUID TOTAL FREE MODEL...       the next index
//   process INDEX PID BYTES            -1 bytes: the driver does not say
//   fail FUNCTION CODE                 that function gives this code
//   mig INDEX                          cut into instances
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kInsufficientSize = 7;

struct Process {
  unsigned pid;
  unsigned long long bytes;
};

struct Gpu {
  std::string uuid, model;
  unsigned long long total = 0, free = 0;
  bool mig = false;
  std::vector<Process> processes = {};
};

struct World {
  std::string driver;
  std::vector<Gpu> gpus;
};

World Read() {
  World world;
  const char* path = getenv("FAKE_NVML");
  std::ifstream file(path == nullptr ? "" : path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string what;
    words >> what;
    size_t index = 0;
    if (what == "driver") {
      words >> world.driver;
    } else if (what == "gpu") {
      Gpu gpu;
      words >> gpu.uuid >> gpu.total >> gpu.free >> std::ws;
      std::getline(words, gpu.model);
      world.gpus.push_back(gpu);
    } else if (what == "process") {
      long long bytes = 0;
      Process process{};
      words >> index >> process.pid >> bytes;
      process.bytes = static_cast<unsigned long long>(bytes);
      world.gpus.at(index).processes.push_back(process);
    } else if (what == "mig") {
      words >> index;
      world.gpus.at(index).mig = true;
    }
  }
  return world;
}

// What a "fail" line says of the function; success without one.
int CodeOf(const char* function) {
  const char* path = getenv("FAKE_NVML");
  std::ifstream file(path == nullptr ? "" : path);
  std::string what, name;
  for (std::string line; std::getline(file, line);) {
    int code = kSuccess;
    std::istringstream words(line);
    words >> what >> name >> code;
    if (what == "fail" && name == function) return code;
  }
  return kSuccess;
}

int PutText(const std::string& text, char* out, unsigned size) {
  if (text.size() + 1 > size) return kInsufficientSize;
  std::strcpy(out, text.c_str());
  return kSuccess;
}

// A handle is the index and one.
const Gpu* Find(const World& world, void* handle) {
  const auto number = reinterpret_cast<size_t>(handle);
  return number == 0 || number > world.gpus.size() ? nullptr : &world.gpus[number - 1];
}

}  // namespace

extern "C" {

struct Memory {
  unsigned long long total, free, used;
};

struct ProcessInfo {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

int nvmlInit_v2() { return CodeOf("nvmlInit_v2"); }
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int code) {
  return code == 18 ? "Driver/library version mismatch" : "?";
}
int nvmlSystemGetDriverVersion(char* out, unsigned size) {
  return PutText(Read().driver, out, size);
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(Read().gpus.size());
  return CodeOf("nvmlDeviceGetCount_v2");
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  if (index >= Read().gpus.size()) return kInvalidArgument;
  *handle = reinterpret_cast<void*>(size_t{index} + 1);
  return CodeOf("nvmlDeviceGetHandleByIndex_v2");
}

int nvmlDeviceGetName(void* handle, char* out, unsigned size) {
  const World world = Read();
  return PutText(Find(world, handle)->model, out, size);
}

int nvmlDeviceGetUUID(void* handle, char* out, unsigned size) {
  const World world = Read();
  return PutText(Find(world, handle)->uuid, out, size);
}

int nvmlDeviceGetMemoryInfo(void* handle, Memory* memory) {
  const World world = Read();
  const Gpu& gpu = *Find(world, handle);
  *memory = {gpu.total, gpu.free, gpu.total - gpu.free};
  return CodeOf("nvmlDeviceGetMemoryInfo");
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* count, ProcessInfo* out) {
  const World world = Read();
  const Gpu& gpu = *Find(world, handle);
  const unsigned room = *count;
  *count = static_cast<unsigned>(gpu.processes.size());
  if (*count > room) return kInsufficientSize;
  for (const Process& process : gpu.processes) *out++ = {process.pid, process.bytes, ~0U, ~0U};
  return CodeOf("nvmlDeviceGetComputeRunningProcesses_v3");
}

int nvmlDeviceGetMigMode(void* handle, unsigned* current, unsigned* pending) {
  const World world = Read();
  if (!Find(world, handle)->mig) return kNotSupported;
  *current = *pending = 1;
  return kSuccess;
}

}  // extern "C"
