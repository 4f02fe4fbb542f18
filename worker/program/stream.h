// The streams and events of a tape, by number.
#ifndef WORKER_PROGRAM_STREAM_H_
#define WORKER_PROGRAM_STREAM_H_

#include <cstddef>
#include <cstdint>

namespace snug::program {

// What runs on one stream runs in the tape's order; streams run beside one another, and one that
// waits for an event runs behind what the other had been given when it recorded it. Only copies run
// on the second, which needs no workspace. On the third run recoveries that begin ahead, each with
// a workspace of its own (lowering/recovery.h).
inline constexpr uint8_t kComputeStream = 0, kCopyStream = 1, kRecoverStream = 2;
inline constexpr size_t kStreams = 3;

// Each is recorded again and again: one copy, and one recovery, is on its way at a time.
inline constexpr int16_t kMayCopy = 0, kIsCopied = 1, kMayRecover = 2, kIsRecovered = 3;

}  // namespace snug::program

#endif  // WORKER_PROGRAM_STREAM_H_
