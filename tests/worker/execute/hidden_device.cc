#include "tests/worker/execute/hidden_device.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <utility>

#include "kernels/adamw.h"
#include "kernels/cuda/entries.h"
#include "kernels/grad_norm.h"
#include "kernels/rope.h"
#include "kernels/rows.h"
#include "worker/execute/host_copy.h"
#include "worker/program/tape.h"

namespace snug {
namespace execute {
namespace {

constexpr int kThreads = 2;

// One range of addresses, given out from its beginning until all of it is given back.
class Pages {
 public:
  static constexpr int64_t kBytes = int64_t{4} << 30;

  Pages()
      : base_(static_cast<char*>(mmap(nullptr, kBytes, PROT_NONE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0))) {}

  void Open() {
    if (opened_++ == 0) Protect(PROT_READ | PROT_WRITE);
  }
  void Close() {
    if (--opened_ == 0) Protect(PROT_NONE);
  }
  static void* Take(void* self, int64_t bytes) { return static_cast<Pages*>(self)->Next(bytes); }
  static void GiveBack(void* self, void* /*address*/) {
    auto* pages = static_cast<Pages*>(self);
    if (--pages->pieces_ == 0) pages->used_ = 0;
  }

 private:
  void* Next(int64_t bytes) {
    if (used_ + bytes > kBytes) return nullptr;
    ++pieces_;
    return base_ + std::exchange(used_, used_ + bytes);
  }
  void Protect(int access) { EXPECT_EQ(mprotect(base_, kBytes, access), 0); }

  char* const base_;
  int64_t used_ = 0, pieces_ = 0;
  int opened_ = 0;
};

Pages& ThePages() {
  static Pages& pages = *new Pages;
  return pages;
}

class Opened {
 public:
  Opened() { ThePages().Open(); }
  ~Opened() { ThePages().Close(); }
  Opened(const Opened&) = delete;
  Opened& operator=(const Opened&) = delete;
};

// What ops see: a CPU, with its memory open.
class Inside : public Device {
 public:
  Inside()
      : allocator_({.take = &Pages::Take, .give_back = &Pages::GiveBack, .self = &ThePages()}) {}

  const std::string& name() const override { return name_; }
  program::Machine machine() const override { return {.threads = kThreads}; }
  TrackingAllocator& allocator() override { return allocator_; }
  const OpFunctionTable& ops() const override { return OpFunctionsOfKernels(); }
  bool host_reads_memory() const override { return true; }
  kernels::Stream stream(int /*number*/) override { return nullptr; }
  void Copy(void* to, const void* from, int64_t bytes, int /*stream*/) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
  }
  void CopyAsync(void* to, const void* from, int64_t bytes, int stream) override {
    Copy(to, from, bytes, stream);
  }
  void Fill(void* to, int byte, int64_t bytes, int /*stream*/) override {
    std::memset(to, byte, static_cast<size_t>(bytes));
  }
  void Record(int /*event*/, int /*stream*/) override {}
  void Wait(int /*event*/, int /*stream*/) override {}
  void Multiply(const GemmCall& call, int /*stream*/) override { Gemm(call); }
  bool rounds_products() const override { return false; }
  absl::Status Synchronize() override { return absl::OkStatus(); }

 private:
  const std::string name_ = "hidden:0";
  TrackingAllocator allocator_;
};

Inside& TheInside() {
  static Inside& inside = *new Inside;
  return inside;
}

template <size_t kCode, bool kForward>
void RunOpened(const OpRun& run) {
  const Opened opened;
  OpRun inside = run;
  inside.device = &TheInside();
  const OpFunctions& functions = OpFunctionsOfKernels()[kCode];
  (kForward ? functions.forward : functions.backward)(inside);
}

template <size_t... kCodes>
OpFunctionTable OpenedOps(std::index_sequence<kCodes...> /*codes*/) {
  return {OpFunctions{&RunOpened<kCodes, true>, &RunOpened<kCodes, false>}...};
}

// What the worker sees.
class Outside final : public Inside {
 public:
  TrackingAllocator& allocator() override { return TheInside().allocator(); }
  const OpFunctionTable& ops() const override { return ops_; }
  bool host_reads_memory() const override { return false; }
  kernels::Stream stream(int /*number*/) override {
    return reinterpret_cast<kernels::Stream>(&ThePages());
  }
  void Copy(void* to, const void* from, int64_t bytes, int stream) override {
    const Opened opened;
    Inside::Copy(to, from, bytes, stream);
  }
  void Fill(void* to, int byte, int64_t bytes, int stream) override {
    const Opened opened;
    Inside::Fill(to, byte, bytes, stream);
  }
  void Multiply(const GemmCall& /*call*/, int /*stream*/) override {
    ADD_FAILURE() << "a product outside of the ops";
  }

 private:
  const OpFunctionTable ops_ = OpenedOps(std::make_index_sequence<program::kOpCodes>());
};

}  // namespace

Device& HiddenDevice() {
  static Outside& device = *new Outside;
  return device;
}

std::vector<char> BytesOf(Device& device, const void* from, int64_t bytes) {
  std::vector<char> copy(static_cast<size_t>(bytes));
  EXPECT_TRUE(CopyMemory(device, from, bytes, copy.data()).ok());
  return copy;
}

}  // namespace execute

// In the place of the CUDA side.
namespace kernels::cuda {

Error AdamW(const AdamWParams& p, Stream /*stream*/) {
  const execute::Opened opened;
  return kernels::AdamW(p, nullptr);
}
Error CastRows(const CastRowsParams& p, Stream /*stream*/) {
  const execute::Opened opened;
  return kernels::CastRows(p, nullptr);
}
Error RopeTable(const RopeTableParams& p, Stream /*stream*/) {
  const execute::Opened opened;
  return kernels::RopeTable(p, nullptr);
}
Error SumSquares(const SumSquaresParams& p, Stream /*stream*/) {
  if (p.workspace == nullptr) return {ErrorCode::kNullPointer, "workspace"};
  const execute::Opened opened;
  std::memset(p.workspace, 0xFF, static_cast<size_t>(SumSquaresWorkspace()));
  return kernels::SumSquares(p, nullptr);
}

}  // namespace kernels::cuda
}  // namespace snug
