#include "tests/cuda_on_cpu/emulator.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "tests/cuda_on_cpu/launch_bounds.h"
#include "tests/cuda_on_cpu/memory_watch.h"

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

namespace snug::cuda_on_cpu {
namespace {

constexpr size_t kStackBytes = 128 << 10;
constexpr unsigned kWarp = 32;

enum class State : uint8_t { kReady, kAtBarrier, kInWarpOperation, kEnded };

struct Fibre {
  ucontext_t context = {};
  void* stack = nullptr;
  State state = State::kReady;
  ThreadPlace place;
  Moment moment;
  // What it waits for.
  Site site = {};
  const char* kind = nullptr;
  unsigned mask = 0;
  uint64_t given = 0;
  bool vote = false;
  // What it got.
  std::array<uint64_t, kWarp> received = {};
  int votes = 0;
};

// AddressSanitizer has to know on which stack the program is.
void SwitchTo([[maybe_unused]] const void* stack, [[maybe_unused]] size_t bytes, ucontext_t* from,
              ucontext_t* to) {
#ifdef __SANITIZE_ADDRESS__
  void* fake = nullptr;
  __sanitizer_start_switch_fiber(&fake, stack, bytes);
  swapcontext(from, to);
  __sanitizer_finish_switch_fiber(fake, nullptr, nullptr);
#else
  swapcontext(from, to);
#endif
}

class Machine {
 public:
  static Machine& Get() {
    static Machine machine;
    return machine;
  }

  // A block of more threads than the kernel was compiled for.
  bool Allows(const GridLaunch& launch) {
    const uint64_t most = MostThreadsOf(launch.kernel), threads = launch.block.count();
    if (threads <= most) return true;
    return Refuse("a launch of blocks of %llu threads: the kernel's launch bounds allow %llu",
                  static_cast<unsigned long long>(threads), static_cast<unsigned long long>(most));
  }

  bool Run(Index3 grid, Index3 block, void (*thread)(const void*), const void* call) {
    failed_ = false;
    thread_ = thread;
    call_ = call;
    if (block.count() == 0 || block.count() > kMaxThreads || grid.count() == 0 || block.z > 64) {
      return Refuse("a launch of (%u, %u, %u) blocks of (%u, %u, %u) threads", grid.x, grid.y,
                    grid.z, block.x, block.y, block.z);
    }
    if (grid.y > 65535 || grid.z > 65535) return Refuse("a grid of y or z above 65535");
    Prepare(static_cast<size_t>(block.count()));
    Index3 at;
    uint32_t number = 0;
    for (at.z = 0; at.z < grid.z; ++at.z) {
      for (at.y = 0; at.y < grid.y; ++at.y) {
        for (at.x = 0; at.x < grid.x; ++at.x) {
          if (!RunBlock({{}, at, block, grid}, number++)) return false;
        }
      }
    }
    return true;
  }

  [[noreturn]] void Abandon(const char* format, va_list arguments) {
    if (running_ == nullptr) {
      std::vfprintf(stderr, format, arguments);
      std::abort();
    }
    SetReport(format, arguments);
    failed_ = true;
    Leave();
    std::abort();  // Nobody switches back to it.
  }

  Fibre& running() { return *running_; }
  bool on_fibre() const { return running_ != nullptr; }

  // The running fibre waits until the scheduler makes it ready.
  void Wait(State state, Site site) {
    running_->state = state;
    running_->site = site;
    Leave();
  }

  std::string TakeReport() {
    std::string report(report_.data());
    report_[0] = '\0';
    return report;
  }
  void set_order(uint64_t seed) { order_seed_ = seed; }

 private:
  bool Refuse(const char* format, ...) __attribute__((format(printf, 2, 3))) {
    va_list arguments;
    va_start(arguments, format);
    SetReport(format, arguments);
    va_end(arguments);
    failed_ = true;
    return false;
  }
  void SetReport(const char* format, va_list arguments) {
    std::vsnprintf(report_.data(), report_.size(), format, arguments);
  }

  void Prepare(size_t threads) {
    while (fibres_.size() < threads) {
      void* stack = mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
      if (stack == MAP_FAILED) std::abort();
      fibres_.emplace_back().stack = stack;
    }
    order_.resize(threads);
    std::iota(order_.begin(), order_.end(), size_t{0});
    if (order_seed_ != 0) std::shuffle(order_.begin(), order_.end(), std::mt19937_64(order_seed_));
  }

  bool RunBlock(ThreadPlace place, uint32_t number) {
    WatchBlock();
    for (size_t i = 0; i < order_.size(); ++i) {
      Fibre& fibre = fibres_[i];
      fibre.state = State::kReady;
      const auto x = static_cast<unsigned>(i);
      place.thread = {x % place.block_size.x, x / place.block_size.x % place.block_size.y,
                      x / (place.block_size.x * place.block_size.y)};
      fibre.place = place;
      fibre.moment = {.block = number, .thread = x};
      getcontext(&fibre.context);
      fibre.context.uc_stack.ss_sp = fibre.stack;
      fibre.context.uc_stack.ss_size = kStackBytes;
      fibre.context.uc_link = nullptr;
      makecontext(&fibre.context, &Machine::Entry, 0);
    }
    while (!failed_) {
      bool any = false;
      for (size_t i : order_) {
        if (fibres_[i].state != State::kReady || failed_) continue;
        any = true;
        Enter(fibres_[i]);
      }
      if (failed_) break;
      if (!any) return AllEnded(number);
      ReleaseWarps();
      ReleaseBarrier();
    }
    return false;
  }

  static void Entry() {
    Machine& machine = Get();
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(nullptr, &machine.scheduler_stack_,
                                    &machine.scheduler_stack_bytes_);
#endif
    machine.thread_(machine.call_);
    machine.running_->state = State::kEnded;
    machine.Leave();
  }

  void Enter(Fibre& fibre) {
    running_ = &fibre;
    here = fibre.place;
    WatchThread(&fibre.moment, fibre.stack, kStackBytes);
    SwitchTo(fibre.stack, kStackBytes, &scheduler_, &fibre.context);
    WatchThread(nullptr, nullptr, 0);
    running_ = nullptr;
  }
  void Leave() {
    WatchThread(nullptr, nullptr, 0);
    SwitchTo(scheduler_stack_, scheduler_stack_bytes_, &running_->context, &scheduler_);
  }

  void ReleaseBarrier() {
    int votes = 0;
    for (size_t i = 0; i < order_.size(); ++i) {
      if (fibres_[i].state != State::kAtBarrier) return;
      votes += fibres_[i].vote ? 1 : 0;
    }
    for (size_t i = 0; i < order_.size(); ++i) {
      fibres_[i].state = State::kReady;
      fibres_[i].votes = votes;
      ++fibres_[i].moment.block_phase;
      ++fibres_[i].moment.warp_phase;
    }
  }

  void ReleaseWarps() {
    for (size_t first = 0; first < order_.size(); first += kWarp) {
      const size_t lanes = std::min<size_t>(kWarp, order_.size() - first);
      for (size_t lane = 0; lane < lanes && !failed_; ++lane) ReleaseLanes(first, lanes, lane);
    }
  }

  // The operation in which `lane` waits, once all lanes of its mask do.
  void ReleaseLanes(size_t first, size_t lanes, size_t lane) {
    const Fibre& asker = fibres_[first + lane];
    if (asker.state != State::kInWarpOperation) return;
    const unsigned mask = asker.mask;
    const unsigned there = lanes == kWarp ? ~0u : (1u << lanes) - 1;
    if ((mask & 1u << lane) == 0 || (mask & ~there) != 0) {
      Refuse("%s:%d: %s: lane %zu names the mask 0x%08x", asker.site.file, asker.site.line,
             asker.kind, lane, mask);
      return;
    }
    std::array<uint64_t, kWarp> given = {};
    for (size_t i = 0; i < lanes; ++i) {
      if ((mask >> i & 1) == 0) continue;
      const Fibre& other = fibres_[first + i];
      if (other.state != State::kInWarpOperation) return;  // Still on its way, or never comes.
      if (other.mask != mask || other.site.line != asker.site.line ||
          std::strcmp(other.site.file, asker.site.file) != 0 ||
          std::strcmp(other.kind, asker.kind) != 0) {
        Refuse("%s:%d: %s: lane %zu stands in %s of line %d with mask 0x%08x, not 0x%08x",
               asker.site.file, asker.site.line, asker.kind, i, other.kind, other.site.line,
               other.mask, mask);
        return;
      }
      given[i] = other.given;
    }
    for (size_t i = 0; i < lanes; ++i) {
      if ((mask >> i & 1) == 0) continue;
      fibres_[first + i].received = given;
      fibres_[first + i].state = State::kReady;
    }
    // Phases order all lanes or none, so what some of them do together orders nothing here.
    if (std::strcmp(asker.kind, kWarpBarrier) != 0 || mask != there) return;
    for (size_t i = 0; i < lanes; ++i) ++fibres_[first + i].moment.warp_phase;
  }

  // Nobody can go on: all have ended, or some wait for what does not come.
  bool AllEnded(uint32_t block) {
    size_t waiting = 0, ended = 0;
    const Fibre* first = nullptr;
    for (size_t i = 0; i < order_.size(); ++i) {
      if (fibres_[i].state == State::kEnded) {
        ++ended;
        continue;
      }
      ++waiting;
      if (first == nullptr) first = &fibres_[i];
    }
    if (first == nullptr) return true;
    const bool barrier = first->state == State::kAtBarrier;
    return Refuse(
        "%s:%d: %s: thread %u of block %u waits with %zu more; %zu have ended and the "
        "others wait elsewhere",
        first->site.file, first->site.line, barrier ? "barrier" : first->kind, first->moment.thread,
        block, waiting - 1, ended);
  }

  std::vector<Fibre> fibres_;
  std::vector<size_t> order_;
  uint64_t order_seed_ = 0;
  ucontext_t scheduler_ = {};
  const void* scheduler_stack_ = nullptr;
  size_t scheduler_stack_bytes_ = 0;
  Fibre* running_ = nullptr;
  void (*thread_)(const void*) = nullptr;
  const void* call_ = nullptr;
  bool failed_ = false;
  std::array<char, 512> report_ = {};
};

struct LaunchQueue {
  void (*take)(void* self, const GridLaunch& launch) = nullptr;
  void* self = nullptr;
};

LaunchQueue& TheQueue() {
  static LaunchQueue queue;
  return queue;
}

}  // namespace

ThreadPlace here;

bool RunGrid(Index3 grid, Index3 block, void (*thread)(const void*), const void* call,
             size_t call_bytes) {
  WatchLaunch(call, call_bytes);
  return Machine::Get().Run(grid, block, thread, call);
}

bool Launch(const GridLaunch& launch) {
  if (!Machine::Get().Allows(launch)) return false;
  const LaunchQueue& queue = TheQueue();
  if (queue.take == nullptr) {
    return RunGrid(launch.grid, launch.block, launch.thread, launch.call, launch.call_bytes);
  }
  queue.take(queue.self, launch);
  return true;
}

void SetLaunchQueue(void (*take)(void* self, const GridLaunch& launch), void* self) {
  TheQueue() = {take, self};
}

std::string TakeLastReport() { return Machine::Get().TakeReport(); }
void SetThreadOrder(uint64_t seed) { Machine::Get().set_order(seed); }

int BlockBarrier(bool vote, Site site) {
  Machine& machine = Machine::Get();
  machine.running().vote = vote;
  machine.Wait(State::kAtBarrier, site);
  return machine.running().votes;
}

const uint64_t* WarpExchange(const char* kind, unsigned mask, uint64_t mine, Site site) {
  Machine& machine = Machine::Get();
  Fibre& fibre = machine.running();
  fibre.kind = kind;
  fibre.mask = mask;
  fibre.given = mine;
  machine.Wait(State::kInWarpOperation, site);
  return machine.running().received.data();
}

int Lane() { return static_cast<int>(Machine::Get().running().moment.thread % kWarp); }

void Fail(const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  Machine::Get().Abandon(format, arguments);
}

}  // namespace snug::cuda_on_cpu
