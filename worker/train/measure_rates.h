// How fast this CPU is at what a step is made of: what the daemon reckons a plan's time by.
#ifndef WORKER_TRAIN_MEASURE_RATES_H_
#define WORKER_TRAIN_MEASURE_RATES_H_

#include "worker/program/rates.h"

namespace snug::train {

// Of products on the paths in use (execute/gemm.h), of attention and of a pass over memory, on this
// process's threads. Takes a second and 250 MB.
program::MachineRates MeasureRates();

}  // namespace snug::train

#endif  // WORKER_TRAIN_MEASURE_RATES_H_
