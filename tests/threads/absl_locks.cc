// Tells ThreadSanitizer of Abseil's locks. Debian's Abseil is compiled without it and waits by
// futex, so that what a lock orders looks like a race. These definitions take the place of the
// library's in every program that they are linked into, also for gRPC's calls, and call the
// library's.
#include <sanitizer/tsan_interface.h>

#include "absl/synchronization/mutex.h"
#include "tests/threads/library.h"

namespace {

// Of a function of Abseil's, in the namespace that Debian gives it.
#define SNUG_MANGLED(name) "_ZN4absl7debian3" name

using snug::threads::Library;

using OfMutex = void(absl::Mutex*);
using TryOfMutex = bool(absl::Mutex*);
using UntilTrue = void(absl::Mutex*, const absl::Condition&);

// A condition is evaluated by whoever holds the mutex, within the library's wait.
struct Watched {
  absl::Mutex* mutex;
  const absl::Condition* condition;

  static bool Eval(Watched* watched) {
    __tsan_acquire(watched->mutex);
    const bool met = watched->condition->Eval();
    __tsan_release(watched->mutex);
    return met;
  }
};

// `wait` gives up the mutex, where it has it, and has it when it returns.
template <typename Wait>
auto Waiting(absl::Mutex* mutex, const absl::Condition& condition, const Wait& wait) {
  Watched watched = {mutex, &condition};
  __tsan_release(mutex);
  if constexpr (std::is_void_v<decltype(wait(absl::Condition(&Watched::Eval, &watched)))>) {
    wait(absl::Condition(&Watched::Eval, &watched));
    __tsan_acquire(mutex);
  } else {
    const auto met = wait(absl::Condition(&Watched::Eval, &watched));
    __tsan_acquire(mutex);
    return met;
  }
}

bool Acquired(bool locked, absl::Mutex* mutex) {
  if (locked) __tsan_acquire(mutex);
  return locked;
}

}  // namespace

namespace absl {

void Mutex::Lock() {
  static const auto next = Library<OfMutex>(SNUG_MANGLED("5Mutex4LockEv"));
  next(this);
  __tsan_acquire(this);
}

void Mutex::Unlock() {
  static const auto next = Library<OfMutex>(SNUG_MANGLED("5Mutex6UnlockEv"));
  __tsan_release(this);
  next(this);
}

bool Mutex::TryLock() {
  static const auto next = Library<TryOfMutex>(SNUG_MANGLED("5Mutex7TryLockEv"));
  return Acquired(next(this), this);
}

void Mutex::ReaderLock() {
  static const auto next = Library<OfMutex>(SNUG_MANGLED("5Mutex10ReaderLockEv"));
  next(this);
  __tsan_acquire(this);
}

void Mutex::ReaderUnlock() {
  static const auto next = Library<OfMutex>(SNUG_MANGLED("5Mutex12ReaderUnlockEv"));
  __tsan_release(this);
  next(this);
}

bool Mutex::ReaderTryLock() {
  static const auto next = Library<TryOfMutex>(SNUG_MANGLED("5Mutex13ReaderTryLockEv"));
  return Acquired(next(this), this);
}

void Mutex::Await(const Condition& condition) {
  static const auto next = Library<UntilTrue>(SNUG_MANGLED("5Mutex5AwaitERKNS0_9ConditionE"));
  Waiting(this, condition, [&](const Condition& watched) { next(this, watched); });
}

bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  static const auto next = Library<bool(Mutex*, const Condition&, Duration)>(
      SNUG_MANGLED("5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE"));
  return Waiting(this, condition,
                 [&](const Condition& watched) { return next(this, watched, timeout); });
}

bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  static const auto next = Library<bool(Mutex*, const Condition&, Time)>(
      SNUG_MANGLED("5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE"));
  return Waiting(this, condition,
                 [&](const Condition& watched) { return next(this, watched, deadline); });
}

void Mutex::LockWhen(const Condition& condition) {
  static const auto next = Library<UntilTrue>(SNUG_MANGLED("5Mutex8LockWhenERKNS0_9ConditionE"));
  Waiting(this, condition, [&](const Condition& watched) { next(this, watched); });
}

bool Mutex::LockWhenWithTimeout(const Condition& condition, Duration timeout) {
  static const auto next = Library<bool(Mutex*, const Condition&, Duration)>(
      SNUG_MANGLED("5Mutex19LockWhenWithTimeoutERKNS0_9ConditionENS0_8DurationE"));
  return Waiting(this, condition,
                 [&](const Condition& watched) { return next(this, watched, timeout); });
}

bool Mutex::LockWhenWithDeadline(const Condition& condition, Time deadline) {
  static const auto next = Library<bool(Mutex*, const Condition&, Time)>(
      SNUG_MANGLED("5Mutex20LockWhenWithDeadlineERKNS0_9ConditionENS0_4TimeE"));
  return Waiting(this, condition,
                 [&](const Condition& watched) { return next(this, watched, deadline); });
}

void CondVar::Wait(Mutex* mutex) {
  static const auto next =
      Library<void(CondVar*, Mutex*)>(SNUG_MANGLED("7CondVar4WaitEPNS0_5MutexE"));
  __tsan_release(mutex);
  next(this, mutex);
  __tsan_acquire(mutex);
}

bool CondVar::WaitWithTimeout(Mutex* mutex, Duration timeout) {
  static const auto next = Library<bool(CondVar*, Mutex*, Duration)>(
      SNUG_MANGLED("7CondVar15WaitWithTimeoutEPNS0_5MutexENS0_8DurationE"));
  __tsan_release(mutex);
  const bool expired = next(this, mutex, timeout);
  __tsan_acquire(mutex);
  return expired;
}

bool CondVar::WaitWithDeadline(Mutex* mutex, Time deadline) {
  static const auto next = Library<bool(CondVar*, Mutex*, Time)>(
      SNUG_MANGLED("7CondVar16WaitWithDeadlineEPNS0_5MutexENS0_4TimeE"));
  __tsan_release(mutex);
  const bool expired = next(this, mutex, deadline);
  __tsan_acquire(mutex);
  return expired;
}

}  // namespace absl
