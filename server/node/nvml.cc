// Types and codes as in nvml.h of the CUDA toolkit; a version in a symbol's name fixes its
// structures for good.
#include "server/node/nvml.h"

#include <dlfcn.h>

#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"

namespace snug::server {
namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;                     // NVML_ERROR_NOT_SUPPORTED
constexpr int kNoPermission = 4;                     // NVML_ERROR_NO_PERMISSION
constexpr int kInsufficientSize = 7;                 // NVML_ERROR_INSUFFICIENT_SIZE
constexpr unsigned long long kNotAvailable = ~0ULL;  // NVML_VALUE_NOT_AVAILABLE
// Of names and ids; NVML_DEVICE_UUID_V2_BUFFER_SIZE and NVML_DEVICE_NAME_V2_BUFFER_SIZE are 96.
constexpr unsigned kTextBytes = 96;
constexpr unsigned kFirstProcesses = 64;
constexpr unsigned kMaxProcesses = 4096;

struct MemoryV1 {  // nvmlMemory_t
  unsigned long long total, free, used;
};

struct ProcessV2 {  // nvmlProcessInfo_v2_t, which _v3 of the call fills
  unsigned pid;
  unsigned long long used_gpu_memory;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(ProcessV2) == 24);

using Handle = void*;  // nvmlDevice_t

}  // namespace

struct GpuDriver::Functions {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*handle_by_index)(unsigned, Handle*) = nullptr;
  int (*name)(Handle, char*, unsigned) = nullptr;
  int (*uuid)(Handle, char*, unsigned) = nullptr;
  int (*memory)(Handle, MemoryV1*) = nullptr;
  int (*processes)(Handle, unsigned*, ProcessV2*) = nullptr;
  int (*mig_mode)(Handle, unsigned*, unsigned*) = nullptr;
};

absl::StatusOr<std::unique_ptr<GpuDriver>> GpuDriver::Open(const std::string& library) {
  void* loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (loaded == nullptr)
    return absl::FailedPreconditionError(absl::StrCat("no NVIDIA driver is there: ", dlerror()));
  std::unique_ptr<GpuDriver> driver(new GpuDriver(loaded));
  RETURN_IF_ERROR(driver->Load(library));
  if (const int code = driver->functions_->init(); code != kSuccess)
    return driver->Error("nvmlInit_v2", code);
  driver->started_ = true;
  return driver;
}

GpuDriver::GpuDriver(void* library)
    : library_(library), functions_(std::make_unique<Functions>()) {}

GpuDriver::~GpuDriver() {
  if (started_) functions_->shutdown();
  dlclose(library_);
}

absl::Status GpuDriver::Load(const std::string& library) {
  Functions& f = *functions_;
  const std::pair<const char*, void*> wanted[] = {
      {"nvmlInit_v2", &f.init},
      {"nvmlShutdown", &f.shutdown},
      {"nvmlErrorString", &f.error_string},
      {"nvmlSystemGetDriverVersion", &f.driver_version},
      {"nvmlDeviceGetCount_v2", &f.count},
      {"nvmlDeviceGetHandleByIndex_v2", &f.handle_by_index},
      {"nvmlDeviceGetName", &f.name},
      {"nvmlDeviceGetUUID", &f.uuid},
      {"nvmlDeviceGetMemoryInfo", &f.memory},
      {"nvmlDeviceGetComputeRunningProcesses_v3", &f.processes},
      {"nvmlDeviceGetMigMode", &f.mig_mode}};
  for (const auto& [name, place] : wanted) {
    void* symbol = dlsym(library_, name);
    if (symbol == nullptr)
      return absl::FailedPreconditionError(absl::StrCat(
          library, " has no ", name, ": not NVML, or of a driver that is older than 510"));
    std::memcpy(place, &symbol, sizeof symbol);  // POSIX: a function's address fits.
  }
  return absl::OkStatus();
}

absl::Status GpuDriver::Error(const std::string& call, int code) const {
  const char* text = functions_->error_string(code);
  return absl::FailedPreconditionError(absl::StrCat("the NVIDIA driver does not answer: ", call,
                                                    " gave ", code, " (",
                                                    text == nullptr ? "" : text, ")"));
}

absl::StatusOr<void*> GpuDriver::HandleOf(int index) const {
  Handle handle = nullptr;
  const int code = functions_->handle_by_index(static_cast<unsigned>(index), &handle);
  if (code != kSuccess) return Error("nvmlDeviceGetHandleByIndex_v2", code);
  return handle;
}

Gpus GpuDriver::ReadGpus() const {
  char driver[kTextBytes] = "";
  if (const int code = functions_->driver_version(driver, sizeof driver); code != kSuccess)
    return Error("nvmlSystemGetDriverVersion", code);
  unsigned count = 0;
  if (const int code = functions_->count(&count); code != kSuccess)
    return Error("nvmlDeviceGetCount_v2", code);
  std::vector<absl::StatusOr<Gpu>> gpus;
  for (unsigned i = 0; i < count; ++i) gpus.push_back(ReadGpu(static_cast<int>(i), driver));
  return gpus;
}

absl::StatusOr<Gpu> GpuDriver::ReadGpu(int index, const std::string& driver) const {
  ASSIGN_OR_RETURN(const Handle handle, HandleOf(index));
  char name[kTextBytes] = "", uuid[kTextBytes] = "";
  if (const int code = functions_->name(handle, name, sizeof name); code != kSuccess)
    return Error("nvmlDeviceGetName", code);
  if (const int code = functions_->uuid(handle, uuid, sizeof uuid); code != kSuccess)
    return Error("nvmlDeviceGetUUID", code);
  RETURN_IF_ERROR(CheckWhole(handle, index));
  ASSIGN_OR_RETURN(const GpuMemory memory, ReadMemory(index));
  return Gpu{.index = index,
             .uuid = uuid,
             .model = name,
             .driver = driver,
             .total_bytes = memory.total_bytes,
             .free_bytes = memory.free_bytes};
}

// A GPU that is cut into instances (MIG) has its memory in them: what it says of itself as a whole
// is of no use, and a process that is given it lands on one of the instances.
absl::Status GpuDriver::CheckWhole(void* handle, int index) const {
  unsigned current = 0, pending = 0;
  const int code = functions_->mig_mode(handle, &current, &pending);
  if (code != kSuccess || current == 0) return absl::OkStatus();  // Most models have no such mode.
  return absl::FailedPreconditionError(
      absl::StrCat("GPU ", index, " is cut into MIG instances; this version uses whole GPUs only"));
}

absl::StatusOr<GpuMemory> GpuDriver::ReadMemory(int index) const {
  ASSIGN_OR_RETURN(const Handle handle, HandleOf(index));
  MemoryV1 bytes{};
  if (const int code = functions_->memory(handle, &bytes); code != kSuccess)
    return Error("nvmlDeviceGetMemoryInfo", code);
  GpuMemory memory{.total_bytes = static_cast<int64_t>(bytes.total),
                   .free_bytes = static_cast<int64_t>(bytes.free)};
  ASSIGN_OR_RETURN(memory.processes, ReadProcesses(handle));
  return memory;
}

absl::StatusOr<std::optional<std::vector<GpuProcess>>> GpuDriver::ReadProcesses(
    void* handle) const {
  std::vector<ProcessV2> raw(kFirstProcesses);
  auto count = static_cast<unsigned>(raw.size());
  int code = functions_->processes(handle, &count, raw.data());
  while (code == kInsufficientSize && raw.size() < kMaxProcesses) {  // More came in between.
    raw.resize(raw.size() * 2);
    count = static_cast<unsigned>(raw.size());
    code = functions_->processes(handle, &count, raw.data());
  }
  if (code == kNotSupported || code == kNoPermission) return std::nullopt;
  if (code != kSuccess) return Error("nvmlDeviceGetComputeRunningProcesses_v3", code);
  std::vector<GpuProcess> processes;
  for (unsigned i = 0; i < count && i < raw.size(); ++i) {
    GpuProcess& process = processes.emplace_back();
    process.pid = static_cast<pid_t>(raw[i].pid);
    if (raw[i].used_gpu_memory != kNotAvailable)
      process.bytes = static_cast<int64_t>(raw[i].used_gpu_memory);
  }
  return processes;
}

}  // namespace snug::server
