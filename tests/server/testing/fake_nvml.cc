// A driver's library for tests: the functions of NVML that the daemon uses, in a real .so. What it
// tells stands in the file that $FAKE_NVML names, read anew at every call, one thing a line:
//   driver 580.65.06
//   gpu UUID TOTAL FREE MODEL...       the next index
//   process INDEX PID BYTES            -1 bytes: the driver does not say
//   fail FUNCTION CODE                 that function gives this code
//   mig INDEX                          cut into instances
//   reserved INDEX BYTES               of TOTAL, kept by the driver
//   mode INDEX MODE                    its compute mode
//   faulty INDEX                       a row could not be remapped
//   recovery INDEX ACTION              what the driver asks for
//   lost INDEX                         off the bus
//   life N                             the driver was loaded anew: who has not opened it since
//                                      then gets an error
//   hang                               it keeps whoever asks for its version, until that is gone
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

namespace {

constexpr int kSuccess = 0, kInvalidArgument = 2, kNotSupported = 3, kInsufficientSize = 7,
              kGpuIsLost = 15, kUnknown = 999;

struct Process {
  unsigned pid;
  unsigned long long bytes;
};

struct Gpu {
  std::string uuid, model;
  unsigned long long total = 0, free = 0, reserved = 0;
  bool mig = false, faulty = false, lost = false;
  int mode = 0;
  unsigned recovery = 0;
  std::vector<Process> processes = {};
};

struct World {
  std::string driver;
  std::vector<Gpu> gpus;
  int life = 0;
  bool hangs = false;
};

void ReadTrouble(const std::string& what, std::istringstream& words, Gpu& gpu) {
  if (what == "reserved") words >> gpu.reserved;
  if (what == "mode") words >> gpu.mode;
  if (what == "recovery") words >> gpu.recovery;
  gpu.mig |= what == "mig";
  gpu.faulty |= what == "faulty";
  gpu.lost |= what == "lost";
}

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
    } else if (what == "life") {
      words >> world.life;
    } else if (what == "hang") {
      world.hangs = true;
    } else if (what != "fail") {
      words >> index;
      ReadTrouble(what, words, world.gpus.at(index));
    }
  }
  return world;
}

int opened_in = -1;  // The life of the driver in which nvmlInit_v2 was called.

// An error where the library is of another life of the driver.
int Answer() { return Read().life == opened_in ? kSuccess : kUnknown; }

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
  unsigned version;
  unsigned long long total, reserved, free, used;
};

struct ProcessInfo {
  unsigned pid;
  unsigned long long used;
  unsigned gpu_instance, compute_instance;
};

struct Field {
  unsigned id, scope;
  long long timestamp, latency;
  int type, code;
  unsigned value, high;
};

int nvmlInit_v2() {
  opened_in = Read().life;
  return CodeOf("nvmlInit_v2");
}
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int code) {
  return code == kGpuIsLost ? "GPU is lost" : code == 18 ? "Driver/library version mismatch" : "?";
}
int nvmlSystemGetDriverVersion(char* out, unsigned size) {
  while (Read().hangs) usleep(10'000);
  if (Answer() != kSuccess) return Answer();
  return PutText(Read().driver, out, size);
}

int nvmlDeviceGetCount_v2(unsigned* count) {
  *count = static_cast<unsigned>(Read().gpus.size());
  return CodeOf("nvmlDeviceGetCount_v2");
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
  const World world = Read();
  if (index >= world.gpus.size()) return kInvalidArgument;
  if (world.gpus[index].lost) return kGpuIsLost;
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

int nvmlDeviceGetMemoryInfo_v2(void* handle, Memory* memory) {
  if (memory->version != (sizeof(Memory) | 2U << 24)) return kInvalidArgument;
  const World world = Read();
  const Gpu& gpu = *Find(world, handle);
  memory->total = gpu.total;
  memory->reserved = gpu.reserved;
  memory->free = gpu.free;
  memory->used = gpu.total - gpu.reserved - gpu.free;
  return CodeOf("nvmlDeviceGetMemoryInfo_v2");
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

int nvmlDeviceGetComputeMode(void* handle, int* mode) {
  const World world = Read();
  *mode = Find(world, handle)->mode;
  return CodeOf("nvmlDeviceGetComputeMode");
}

int nvmlDeviceGetRemappedRows(void* handle, unsigned* correctable, unsigned* uncorrectable,
                              unsigned* pending, unsigned* failed) {
  const World world = Read();
  *correctable = *uncorrectable = *pending = 0;
  *failed = Find(world, handle)->faulty ? 1 : 0;
  return CodeOf("nvmlDeviceGetRemappedRows");
}

// 230 is NVML_FI_DEV_GET_GPU_RECOVERY_ACTION.
int nvmlDeviceGetFieldValues(void* handle, int count, Field* fields) {
  const World world = Read();
  for (Field* field = fields; field < fields + count; ++field) {
    field->code = field->id == 230 ? kSuccess : kNotSupported;
    field->value = Find(world, handle)->recovery;
  }
  return CodeOf("nvmlDeviceGetFieldValues");
}

}  // extern "C"
