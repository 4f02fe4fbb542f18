// snug-gpu-probes: what later designs need to know of a GPU and its driver, one line of JSON a
// probe: memory shared between processes and mapped read-only, how long mapping takes, copies both
// ways at once, a captured graph. A probe that fails prints why and does not stop the others.
//
//   snug-gpu-probes [--version | --list | NAME ...]
//
// The driver's functions are looked up in the runtime, so that the program starts, and says that
// there is no GPU, where there is no driver.
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/gpu/pass_fd.h"

namespace snug::gpu {
namespace {

constexpr size_t kMiB = size_t{1} << 20;
constexpr int kDevice = 0;

void Must(cudaError_t error, const char* call) {
  if (error != cudaSuccess)
    throw std::runtime_error(std::string(call) + ": " + cudaGetErrorString(error));
}
#define SNUG_RUNTIME(function, ...) Must(function(__VA_ARGS__), #function)

// SNUG_DRIVER(cuMemCreate, &handle, size, &properties, 0)
template <typename Function>
Function DriverFunction(const char* name) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result{};
  SNUG_RUNTIME(cudaGetDriverEntryPointByVersion, name, &found, CUDART_VERSION, cudaEnableDefault,
               &result);
  if (result != cudaDriverEntryPointSuccess || found == nullptr)
    throw std::runtime_error(std::string(name) + ": the driver has no such function");
  return reinterpret_cast<Function>(found);
}
#define SNUG_DRIVER(function, ...)                                                            \
  do {                                                                                        \
    const CUresult result = DriverFunction<decltype(&function)>(#function)(__VA_ARGS__);      \
    if (result != CUDA_SUCCESS)                                                               \
      throw std::runtime_error(std::string(#function) + ": error " + std::to_string(result)); \
  } while (false)

double Now() {
  using Clock = std::chrono::steady_clock;
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

void Print(const std::string& name, const std::map<std::string, double>& figures) {
  std::printf("{\"probe\": \"%s\"", name.c_str());
  for (const auto& [key, value] : figures) std::printf(", \"%s\": %.9g", key.c_str(), value);
  std::printf("}\n");
  std::fflush(stdout);
}

// ---- memory as handles --------------------------------------------------------------------------

CUmemAllocationProp Properties() {
  CUmemAllocationProp properties = {};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location = {CU_MEM_LOCATION_TYPE_DEVICE, {kDevice}};
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return properties;
}

void Allow(CUdeviceptr address, size_t bytes, CUmemAccess_flags flags) {
  CUmemAccessDesc access = {};
  access.location = {CU_MEM_LOCATION_TYPE_DEVICE, {kDevice}};
  access.flags = flags;
  SNUG_DRIVER(cuMemSetAccess, address, bytes, &access, 1);
}

// A handle, mapped at an address of its own.
class Mapping {
 public:
  Mapping(CUmemGenericAllocationHandle handle, size_t bytes, CUmemAccess_flags flags)
      : bytes_(bytes) {
    SNUG_DRIVER(cuMemAddressReserve, &address_, bytes, 0, 0, 0);
    SNUG_DRIVER(cuMemMap, address_, bytes, 0, handle, 0);
    Allow(address_, bytes, flags);
  }
  ~Mapping() {
    try {
      SNUG_DRIVER(cuMemUnmap, address_, bytes_);
      SNUG_DRIVER(cuMemAddressFree, address_, bytes_);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  void* data() const { return reinterpret_cast<void*>(address_); }

 private:
  size_t bytes_;
  CUdeviceptr address_ = 0;
};

CUmemGenericAllocationHandle Create(size_t bytes) {
  CUmemGenericAllocationHandle handle = 0;
  const CUmemAllocationProp properties = Properties();
  SNUG_DRIVER(cuMemCreate, &handle, bytes, &properties, 0);
  return handle;
}

double FreeMiB() {
  size_t free = 0, total = 0;
  SNUG_RUNTIME(cudaMemGetInfo, &free, &total);
  return static_cast<double>(free) / static_cast<double>(kMiB);
}

// Another process maps the same memory, for reading alone, and finds what this one wrote; the GPU
// counts it once. The child runs this program anew: a process that forked cannot use CUDA.
void SharedRead() {
  constexpr size_t kBytes = 256 * kMiB;
  const CUmemGenericAllocationHandle handle = Create(kBytes);
  int fd = -1;
  SNUG_DRIVER(cuMemExportToShareableHandle, &fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
              0);
  const Mapping mapping(handle, kBytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
  SNUG_RUNTIME(cudaMemset, mapping.data(), 0x5a, kBytes);
  SNUG_RUNTIME(cudaDeviceSynchronize);
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) throw std::runtime_error("socketpair");
  const double before = FreeMiB();
  const pid_t child = fork();
  if (child == 0) {
    const std::string number = std::to_string(sockets[1]);
    execl("/proc/self/exe", "snug-gpu-probes", "--reader", number.c_str(), nullptr);
    _exit(127);
  }
  close(sockets[1]);
  SendFd(sockets[0], fd);
  double answer[4] =
      {};  // Whether it read what was written; whether a write failed; seconds; free.
  const bool whole = ReadWhole(sockets[0], answer, sizeof(answer));
  int status = 0;
  waitpid(child, &status, 0);
  close(sockets[0]);
  close(fd);
  SNUG_DRIVER(cuMemRelease, handle);
  if (!whole) throw std::runtime_error("the reader ended without an answer");
  Print("shared_read", {{"mib", kBytes / kMiB},
                        {"reader_sees_bytes", answer[0]},
                        {"reader_may_not_write", answer[1]},
                        {"import_and_map_seconds", answer[2]},
                        {"free_mib_before", before},
                        {"free_mib_while_mapped_twice", answer[3]}});
}

int Reader(int socket) {
  constexpr size_t kBytes = 256 * kMiB;
  SNUG_RUNTIME(cudaFree, nullptr);  // Opens the device.
  const int fd = ReceiveFd(socket);
  const double begin = Now();
  CUmemGenericAllocationHandle handle = 0;
  SNUG_DRIVER(cuMemImportFromShareableHandle, &handle,
              reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
              CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  const Mapping mapping(handle, kBytes, CU_MEM_ACCESS_FLAGS_PROT_READ);
  const double taken = Now() - begin;
  unsigned char last = 0;
  SNUG_RUNTIME(cudaMemcpy, &last, static_cast<char*>(mapping.data()) + kBytes - 1, 1,
               cudaMemcpyDeviceToHost);
  const double free = FreeMiB();
  // Last, because an access that is not allowed ends what the process may do on the GPU.
  cudaError_t write = cudaMemset(mapping.data(), 0, 1);
  if (write == cudaSuccess) write = cudaDeviceSynchronize();
  const double answer[4] = {last == 0x5a ? 1.0 : 0.0, write == cudaSuccess ? 0.0 : 1.0, taken,
                            free};
  if (::write(socket, answer, sizeof(answer)) != sizeof(answer)) return 1;
  _exit(0);  // What the failed write left cannot be taken down in order.
}

// How long memory takes to come and go at the end of a reserved range.
void MapTimes() {
  for (const size_t mib : {2, 8, 32, 128, 256}) {
    const size_t bytes = mib * kMiB;
    constexpr int kTimes = 20;
    double create = 0, map = 0, unmap = 0, release = 0;
    CUdeviceptr address = 0;
    SNUG_DRIVER(cuMemAddressReserve, &address, bytes, 0, 0, 0);
    for (int i = 0; i < kTimes; ++i) {
      const double a = Now();
      const CUmemGenericAllocationHandle handle = Create(bytes);
      const double b = Now();
      SNUG_DRIVER(cuMemMap, address, bytes, 0, handle, 0);
      Allow(address, bytes, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
      const double c = Now();
      SNUG_DRIVER(cuMemUnmap, address, bytes);
      const double d = Now();
      SNUG_DRIVER(cuMemRelease, handle);
      const double e = Now();
      create += b - a;
      map += c - b;
      unmap += d - c;
      release += e - d;
    }
    SNUG_DRIVER(cuMemAddressFree, address, bytes);
    Print("map_times", {{"mib", mib},
                        {"create_seconds", create / kTimes},
                        {"map_seconds", map / kTimes},
                        {"unmap_seconds", unmap / kTimes},
                        {"release_seconds", release / kTimes}});
  }
}

// ---- streams ------------------------------------------------------------------------------------

// 1 GiB each way by pinned memory: alone, and both at once.
void PinnedCopies() {
  constexpr size_t kBytes = 1024 * kMiB;
  void *device[2], *host[2];
  cudaStream_t streams[2];
  for (int i = 0; i < 2; ++i) {
    SNUG_RUNTIME(cudaMalloc, &device[i], kBytes);
    SNUG_RUNTIME(cudaMallocHost, &host[i], kBytes);
    SNUG_RUNTIME(cudaStreamCreateWithFlags, &streams[i], cudaStreamNonBlocking);
    std::memset(host[i], i, kBytes);
  }
  const auto up = [&] {
    SNUG_RUNTIME(cudaMemcpyAsync, device[0], host[0], kBytes, cudaMemcpyHostToDevice, streams[0]);
  };
  const auto down = [&] {
    SNUG_RUNTIME(cudaMemcpyAsync, host[1], device[1], kBytes, cudaMemcpyDeviceToHost, streams[1]);
  };
  const auto rate = [&](double bytes, const auto& copy) {
    copy();
    SNUG_RUNTIME(cudaDeviceSynchronize);
    const double begin = Now();
    for (int i = 0; i < 4; ++i) copy();
    SNUG_RUNTIME(cudaDeviceSynchronize);
    return 4 * bytes / (Now() - begin);
  };
  const double to = rate(kBytes, up), from = rate(kBytes, down);
  const double both = rate(2.0 * kBytes, [&] {
    up();
    down();
  });
  Print("pinned_copies", {{"to_device_bytes_per_second", to},
                          {"to_host_bytes_per_second", from},
                          {"both_bytes_per_second", both}});
  for (int i = 0; i < 2; ++i) {
    SNUG_RUNTIME(cudaFree, device[i]);
    SNUG_RUNTIME(cudaFreeHost, host[i]);
    SNUG_RUNTIME(cudaStreamDestroy, streams[i]);
  }
}

// 1,000 small fills: issued one by one, and as a graph.
void GraphCapture() {
  constexpr int kFills = 1000;
  void* memory = nullptr;
  SNUG_RUNTIME(cudaMalloc, &memory, kMiB);
  cudaStream_t stream = nullptr;
  SNUG_RUNTIME(cudaStreamCreateWithFlags, &stream, cudaStreamNonBlocking);
  const auto fills = [&] {
    for (int i = 0; i < kFills; ++i) SNUG_RUNTIME(cudaMemsetAsync, memory, i % 2, 4096, stream);
  };
  const auto seconds = [&](const auto& work, double& host) {
    work();
    SNUG_RUNTIME(cudaStreamSynchronize, stream);
    const double begin = Now();
    for (int i = 0; i < 10; ++i) work();
    host = (Now() - begin) / 10;
    SNUG_RUNTIME(cudaStreamSynchronize, stream);
    return (Now() - begin) / 10;
  };
  double host = 0, graph_host = 0;
  const double issued = seconds(fills, host);
  const double free_before = FreeMiB();
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  const double begin = Now();
  SNUG_RUNTIME(cudaStreamBeginCapture, stream, cudaStreamCaptureModeThreadLocal);
  fills();
  SNUG_RUNTIME(cudaStreamEndCapture, stream, &graph);
  SNUG_RUNTIME(cudaGraphInstantiate, &executable, graph, 0);
  const double made = Now() - begin;
  const double launched =
      seconds([&] { SNUG_RUNTIME(cudaGraphLaunch, executable, stream); }, graph_host);
  Print("graph_capture", {{"nodes", kFills},
                          {"issued_seconds", issued},
                          {"issued_host_seconds", host},
                          {"capture_and_instantiate_seconds", made},
                          {"graph_seconds", launched},
                          {"graph_host_seconds", graph_host},
                          {"graph_mib", free_before - FreeMiB()}});
  SNUG_RUNTIME(cudaGraphExecDestroy, executable);
  SNUG_RUNTIME(cudaGraphDestroy, graph);
  SNUG_RUNTIME(cudaStreamDestroy, stream);
  SNUG_RUNTIME(cudaFree, memory);
}

struct Probe {
  const char* name;
  void (*run)();
};
constexpr Probe kProbes[] = {{"shared_read", SharedRead},
                             {"map_times", MapTimes},
                             {"pinned_copies", PinnedCopies},
                             {"graph_capture", GraphCapture}};

int RunProbes(const std::vector<std::string>& wanted) {
  int failed = 0;
  for (const Probe& probe : kProbes) {
    bool run = wanted.empty();
    for (const std::string& name : wanted) run = run || name == probe.name;
    if (!run) continue;
    try {
      SNUG_RUNTIME(cudaSetDevice, kDevice);
      SNUG_RUNTIME(cudaFree, nullptr);  // Opens the device.
      probe.run();
    } catch (const std::exception& error) {
      std::printf("{\"probe\": \"%s\", \"error\": \"%s\"}\n", probe.name, error.what());
      ++failed;
    }
  }
  return failed == 0 ? 0 : 1;
}

}  // namespace
}  // namespace snug::gpu

int main(int argc, char** argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.size() == 1 && words[0] == "--version") return std::puts("snug-gpu-probes") < 0;
  if (words.size() == 1 && words[0] == "--list") {
    for (const auto& probe : snug::gpu::kProbes) std::puts(probe.name);
    return 0;
  }
  if (words.size() == 2 && words[0] == "--reader") return snug::gpu::Reader(std::stoi(words[1]));
  return snug::gpu::RunProbes(words);
}
