// What a worker takes before it holds anything of a job: libraries, thread pool, what they set up
// at their first use.
#ifndef WORKER_TRAIN_MEASURE_CONTEXT_H_
#define WORKER_TRAIN_MEASURE_CONTEXT_H_

#include <string>

namespace snug::train {

// Its bytes, the highest resident size after products of every kind on every path, and the measured
// choice of products, as one line of JSON: what a node asks its worker for.
std::string NodeFactsText();

}  // namespace snug::train

#endif  // WORKER_TRAIN_MEASURE_CONTEXT_H_
