// Tells ThreadSanitizer of the order that gRPC gives: what ends runs after what asked for it. Its
// library hands ends over by queues that the sanitizer sees nothing of, so that whatever a call
// touches on two threads looks like a race. This definition takes the place of the library's, as
// those of absl_locks.cc do; grpc_threads.cc has those of what runs on threads of its own.
//
// This file is compiled without the sanitizer: what it keeps for itself must order nothing.
#include <grpc/grpc.h>
#include <link.h>
#include <sanitizer/tsan_interface.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <thread>
#include <unordered_map>
#include <vector>

#include "tests/threads/library.h"

extern const bool snug_serves_by_grpc;
const bool snug_serves_by_grpc = true;  // For absl_status.cc.

namespace {

using snug::threads::Library;
using Functor = grpc_completion_queue_functor;
using RunFunctor = decltype(Functor::functor_run);

// What runs at the end of each batch that has been started, until it runs.
class Awaited {
 public:
  void Add(Functor* functor, RunFunctor run) {
    const Held held(lock_);
    runs_[functor].run = run;
  }
  RunFunctor Take(Functor* functor) {
    const Held held(lock_);
    const auto found = runs_.find(functor);
    if (found == runs_.end()) std::abort();
    const RunFunctor run = found->second.run;
    runs_.erase(found);
    return run;
  }

 private:
  struct Run {  // Of this file alone, so that no other's map is compiled as this one.
    RunFunctor run = nullptr;
  };
  struct Held {
    explicit Held(std::atomic_flag& lock) : lock(lock) {
      while (lock.test_and_set(std::memory_order_acquire)) std::this_thread::yield();
      AnnotateIgnoreWritesBegin(__FILE__, __LINE__);  // The sanitizer sees what is allocated.
    }
    ~Held() {
      AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
      lock.clear(std::memory_order_release);
    }
    std::atomic_flag& lock;
  };
  std::atomic_flag lock_;
  std::unordered_map<Functor*, Run> runs_;
};

Awaited& TheAwaited() {
  static auto* const awaited = new Awaited;  // Also of use while statics are destroyed.
  return *awaited;
}

void RunInOrder(Functor* functor, int ok) {
  functor->functor_run = TheAwaited().Take(functor);
  __tsan_acquire(functor);
  functor->functor_run(functor, ok);
}

// Where there are instructions in this process.
class Code {
 public:
  Code() { dl_iterate_phdr(&Code::AddModule, this); }
  bool Has(const void* place) const {
    const auto at = reinterpret_cast<uintptr_t>(place);
    for (const Part& part : parts_)
      if (part.begin <= at && at < part.end) return true;
    return false;
  }

 private:
  static int AddModule(dl_phdr_info* module, size_t, void* code) {
    for (int i = 0; i < module->dlpi_phnum; ++i) {
      const ElfW(Phdr)& part = module->dlpi_phdr[i];
      const uintptr_t begin = module->dlpi_addr + part.p_vaddr;
      if (part.p_type == PT_LOAD && (part.p_flags & PF_X) != 0)
        static_cast<Code*>(code)->parts_.push_back({begin, begin + part.p_memsz});
    }
    return 0;
  }
  struct Part {
    uintptr_t begin, end;
  };
  std::vector<Part> parts_;
};

// The tag as what a queue of callbacks runs; null: it is an object that somebody waits for, which
// begins with the address of a table.
Functor* FunctorOf(void* tag) {
  static const auto* const code = new Code;
  if (tag == nullptr || !code->Has(*static_cast<void**>(tag))) return nullptr;
  return static_cast<Functor*>(tag);
}

}  // namespace

extern "C" grpc_call_error grpc_call_start_batch(grpc_call* call, const grpc_op* ops, size_t count,
                                                 void* tag, void* reserved) {
  static const auto next =
      Library<grpc_call_error(grpc_call*, const grpc_op*, size_t, void*, void*)>(
          "grpc_call_start_batch");
  Functor* const functor = FunctorOf(tag);
  if (functor == nullptr) return next(call, ops, count, tag, reserved);
  const RunFunctor run = functor->functor_run;
  TheAwaited().Add(functor, run);
  functor->functor_run = &RunInOrder;
  __tsan_release(functor);
  const grpc_call_error error = next(call, ops, count, tag, reserved);
  if (error != GRPC_CALL_OK) functor->functor_run = TheAwaited().Take(functor);
  return error;
}
