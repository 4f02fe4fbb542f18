// Types and codes as in nvml.h of the CUDA toolkit; a version in a symbol's name fixes its
// structures for good.
#include "server/node/nvml.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"

namespace snug::server {
namespace {

constexpr int kSuccess = 0;
constexpr int kNotSupported = 3;                     // NVML_ERROR_NOT_SUPPORTED
constexpr int kNoPermission = 4;                     // NVML_ERROR_NO_PERMISSION
constexpr int kInsufficientSize = 7;                 // NVML_ERROR_INSUFFICIENT_SIZE
constexpr int kComputeModeDefault = 0;               // NVML_COMPUTEMODE_DEFAULT
constexpr int kComputeModeProhibited = 2;            // NVML_COMPUTEMODE_PROHIBITED
constexpr int kComputeModeExclusive = 3;             // NVML_COMPUTEMODE_EXCLUSIVE_PROCESS
constexpr unsigned kRecoveryAction = 230;            // NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
constexpr unsigned long long kNotAvailable = ~0ULL;  // NVML_VALUE_NOT_AVAILABLE
// Of names and ids; NVML_DEVICE_UUID_V2_BUFFER_SIZE and NVML_DEVICE_NAME_V2_BUFFER_SIZE are 96.
constexpr unsigned kTextBytes = 96;
constexpr unsigned kFirstProcesses = 64;
constexpr unsigned kMaxProcesses = 4096;

struct MemoryV2 {  // nvmlMemory_v2_t; `used` is without `reserved`
  unsigned version;
  unsigned long long total, reserved, free, used;
};
constexpr unsigned kMemoryVersion = sizeof(MemoryV2) | 2U << 24;
static_assert(sizeof(MemoryV2) == 40);

struct FieldValue {  // nvmlFieldValue_t
  unsigned field, scope;
  long long timestamp, latency_us;
  int type, code;
  unsigned value, value_high;  // Of its union what is an unsigned int.
};
static_assert(sizeof(FieldValue) == 40);

struct ProcessV2 {  // nvmlProcessInfo_v2_t, which _v3 of the call fills
  unsigned pid;
  unsigned long long used_gpu_memory;
  unsigned gpu_instance, compute_instance;
};
static_assert(sizeof(ProcessV2) == 24);

using Handle = void*;  // nvmlDevice_t

// Nobody is told that here: an older model, a vGPU, some containers.
bool Untold(int code) { return code == kNotSupported || code == kNoPermission; }

std::string NameOfComputeMode(int mode) {
  if (mode == kComputeModeProhibited) return "PROHIBITED";
  if (mode == kComputeModeExclusive) return "EXCLUSIVE_PROCESS";
  return absl::StrCat(mode);
}

// As nvmlDeviceGpuRecoveryAction_t.
std::string NameOfRecovery(unsigned action) {
  constexpr const char* kNames[] = {"NONE", "GPU_RESET", "NODE_REBOOT", "DRAIN_P2P",
                                    "DRAIN_AND_RESET"};
  return action < std::size(kNames) ? kNames[action] : absl::StrCat(action);
}

}  // namespace

struct GpuDriver::Functions {
  int (*init)() = nullptr;
  int (*shutdown)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*driver_version)(char*, unsigned) = nullptr;
  int (*count)(unsigned*) = nullptr;
  int (*by_index)(unsigned, Handle*) = nullptr;
  int (*name)(Handle, char*, unsigned) = nullptr;
  int (*uuid)(Handle, char*, unsigned) = nullptr;
  int (*memory)(Handle, MemoryV2*) = nullptr;
  int (*processes)(Handle, unsigned*, ProcessV2*) = nullptr;
  int (*mig_mode)(Handle, unsigned*, unsigned*) = nullptr;
  int (*compute_mode)(Handle, int*) = nullptr;
  int (*remapped_rows)(Handle, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
  int (*fields)(Handle, int, FieldValue*) = nullptr;
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
      {"nvmlDeviceGetHandleByIndex_v2", &f.by_index},
      {"nvmlDeviceGetName", &f.name},
      {"nvmlDeviceGetUUID", &f.uuid},
      {"nvmlDeviceGetMemoryInfo_v2", &f.memory},
      {"nvmlDeviceGetComputeRunningProcesses_v3", &f.processes},
      {"nvmlDeviceGetMigMode", &f.mig_mode},
      {"nvmlDeviceGetComputeMode", &f.compute_mode},
      {"nvmlDeviceGetRemappedRows", &f.remapped_rows},
      {"nvmlDeviceGetFieldValues", &f.fields}};
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
  return absl::UnavailableError(absl::StrCat("the NVIDIA driver does not answer: ", call, " gave ",
                                             code, " (", text == nullptr ? "" : text, ")"));
}

GpuReadings GpuDriver::ReadGpus() const {
  char driver[kTextBytes] = "";
  if (const int code = functions_->driver_version(driver, sizeof driver); code != kSuccess)
    return Error("nvmlSystemGetDriverVersion", code);
  unsigned count = 0;
  if (const int code = functions_->count(&count); code != kSuccess)
    return Error("nvmlDeviceGetCount_v2", code);
  std::vector<GpuReading> readings(count);
  for (unsigned i = 0; i < count; ++i) {
    readings[i].gpu.index = static_cast<int>(i);
    readings[i].gpu.driver = driver;
    readings[i].gpu.trouble = Read(readings[i]);
  }
  return readings;
}

absl::Status GpuDriver::Read(GpuReading& reading) const {
  Gpu& gpu = reading.gpu;
  Handle handle = nullptr;
  if (const int code = functions_->by_index(static_cast<unsigned>(gpu.index), &handle);
      code != kSuccess)
    return Error("nvmlDeviceGetHandleByIndex_v2", code);
  char name[kTextBytes] = "", uuid[kTextBytes] = "";
  if (const int code = functions_->uuid(handle, uuid, sizeof uuid); code != kSuccess)
    return Error("nvmlDeviceGetUUID", code);
  gpu.uuid = uuid;
  if (const int code = functions_->name(handle, name, sizeof name); code != kSuccess)
    return Error("nvmlDeviceGetName", code);
  gpu.model = name;
  RETURN_IF_ERROR(CheckSettings(handle, gpu.index));
  RETURN_IF_ERROR(CheckHealth(handle));
  RETURN_IF_ERROR(ReadMemory(handle, gpu));
  ASSIGN_OR_RETURN(reading.processes, ReadProcesses(handle));
  return absl::OkStatus();
}

// A GPU that is cut into instances (MIG) has its memory in them: what it says of itself as a whole
// is of no use, and a process that is given it lands on one of the instances. In an exclusive mode
// only one process may have a context: the second worker, or the measuring one, would fail.
absl::Status GpuDriver::CheckSettings(void* handle, int index) const {
  unsigned cut = 0, pending = 0;
  const int mig_code = functions_->mig_mode(handle, &cut, &pending);
  if (mig_code != kSuccess && !Untold(mig_code)) return Error("nvmlDeviceGetMigMode", mig_code);
  if (mig_code == kSuccess && cut != 0)
    return absl::FailedPreconditionError(absl::StrCat(
        "GPU ", index, " is cut into MIG instances; this version uses whole GPUs only"));
  int mode = kComputeModeDefault;
  const int mode_code = functions_->compute_mode(handle, &mode);
  if (mode_code != kSuccess && !Untold(mode_code))
    return Error("nvmlDeviceGetComputeMode", mode_code);
  if (mode_code != kSuccess || mode == kComputeModeDefault) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("GPU ", index, " is in compute mode ", NameOfComputeMode(mode),
                   ", and several processes must share it: nvidia-smi -i ", index, " -c DEFAULT"));
}

// After an Xid that a GPU does not get over by itself its driver asks for a reset or a reboot,
// until that has been done. An old driver does not know the question.
absl::Status GpuDriver::CheckHealth(void* handle) const {
  unsigned correctable = 0, uncorrectable = 0, pending = 0, failed = 0;
  const int code =
      functions_->remapped_rows(handle, &correctable, &uncorrectable, &pending, &failed);
  if (code != kSuccess && !Untold(code)) return Error("nvmlDeviceGetRemappedRows", code);
  if (code == kSuccess && failed != 0)
    return absl::FailedPreconditionError(
        "its memory is faulty: a row could not be remapped (nvidia-smi -q -d ROW_REMAPPER)");
  FieldValue recovery{};
  recovery.field = kRecoveryAction;
  const int asked = functions_->fields(handle, 1, &recovery);
  if (asked != kSuccess || recovery.code != kSuccess || recovery.value == 0)
    return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "its driver asks for recovery action ", NameOfRecovery(recovery.value), " (nvidia-smi -q)"));
}

absl::Status GpuDriver::ReadMemory(void* handle, Gpu& gpu) const {
  MemoryV2 bytes{};
  bytes.version = kMemoryVersion;
  if (const int code = functions_->memory(handle, &bytes); code != kSuccess)
    return Error("nvmlDeviceGetMemoryInfo_v2", code);
  gpu.total_bytes = static_cast<int64_t>(bytes.total - std::min(bytes.total, bytes.reserved));
  gpu.free_bytes = static_cast<int64_t>(bytes.free);
  return absl::OkStatus();
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
  if (Untold(code)) return std::nullopt;
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
