// How the training of a job goes: its losses, and its gradients where they are not exact.
#ifndef SERVER_METRICS_LEARNING_H_
#define SERVER_METRICS_LEARNING_H_

#include <prometheus/registry.h>

#include "server/metrics/series.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

struct Learning {
  explicit Learning(prometheus::Registry& registry);

  // Sets the job's series.
  void Show(const v1::Job& job, Series& gauges);

  GaugeFamily& loss;
  GaugeFamily& evaluation;  // By metric.
  GaugeFamily& cosine;      // By kind of stash.
  GaugeFamily& error;       // Likewise.
};

}  // namespace snug::server

#endif  // SERVER_METRICS_LEARNING_H_
