// Recovery of a layer beside the backward that runs before it, on a stream of its own, by events
// alone (PaReprop: Zhu et al. 2023, section 3).
//
// A script has what backward makes again right before the backward that first reads it: the
// streams of a reversible layer, by inverses, and what of its forward runs again. Such lines, where
// they stand side by side and the layer's plan says so, are a recovery. It begins as soon as what
// it reads is there and the recovery before it has been waited for, at the earliest with the pass
// before its own, and it is waited for where it stood. So one is ahead at a time: there are two
// slots of intermediates, that of the backward at hand and that of the one to come. As a layer's
// halves are recovered one by one, a slot has half a layer.
//
// A recovery stays where it stood if nothing computes between its beginning and there, as where it
// needs a gradient's line; ops that run again in a loop stay.
//
// What a recovery reads and writes is held until it has been waited for (HeldUntil): it and what
// runs beside it have no memory in common that either writes.
#ifndef WORKER_PROGRAM_LOWERING_RECOVERY_H_
#define WORKER_PROGRAM_LOWERING_RECOVERY_H_

#include "worker/program/lowering/script.h"

namespace snug::program {

// Before OverlapCopies: the script's lines run on one stream yet.
Script RecoverAhead(Script script);

}  // namespace snug::program

#endif  // WORKER_PROGRAM_LOWERING_RECOVERY_H_
