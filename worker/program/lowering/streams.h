// Copies between the device and the host beside computing, on a stream of their own.
//
// A script has each copy where its value has been made, or where it is first read. Copies that
// stand side by side are a group, of which one is on its way at a time:
//   to the host    it begins where it stood, and is waited for when the next one begins or forward
//                  ends;
//   from the host  it begins when the one before it has been waited for (the first when forward has
//                  ended), and is waited for where it stood.
// What it reads and what it writes are there from its beginning until it is waited for: beside the
// value that is read in backward lies the one that is on its way.
#ifndef WORKER_PROGRAM_LOWERING_STREAMS_H_
#define WORKER_PROGRAM_LOWERING_STREAMS_H_

#include "worker/program/lowering/script.h"

namespace snug::program {

// No copy may stand in a loop.
Script OverlapCopies(Script script);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_LOWERING_STREAMS_H_
