// The families of the daemon, each with its name and what it means. docs/metrics.md has the same
// names; a test compares the two.
#ifndef SERVER_METRICS_FAMILIES_H_
#define SERVER_METRICS_FAMILIES_H_

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "server/metrics/disk.h"
#include "server/metrics/examinations.h"
#include "server/metrics/learning.h"
#include "server/metrics/metrics.h"
#include "server/metrics/removals.h"
#include "server/metrics/series.h"
#include "server/metrics/step_times.h"
#include "server/metrics/webhook_calls.h"

namespace snug::server {

struct DeviceSeries {
  prometheus::Gauge* total;
  prometheus::Gauge* capacity;
  prometheus::Gauge* reserved;
  prometheus::Gauge* shared;
  prometheus::Gauge* predicted;
  prometheus::Gauge* peak;
  prometheus::Gauge* drained;
  prometheus::Gauge* used = nullptr;  // Of a GPU, as long as its driver answers; up all the time.
  prometheus::Gauge* unattributed = nullptr;
  prometheus::Gauge* up = nullptr;
};

struct JobSeries {
  explicit JobSeries(Labels labels) : gauges(std::move(labels)) {}
  Series gauges;
  std::string plan;  // That its components are shown of.
};

struct Metrics::Families {
  using Registry = prometheus::Registry;
  using CounterFamily = prometheus::Family<prometheus::Counter>;
  using HistogramFamily = prometheus::Family<prometheus::Histogram>;

  Families();
  static CounterFamily& Counters(Registry& registry, const char* name, const char* help);
  static HistogramFamily& Histograms(Registry& registry, const char* name, const char* help);
  DeviceSeries& SeriesOf(const v1::Device& device);
  void ShowOldest();

  std::shared_ptr<Registry> registry = std::make_shared<Registry>();
  GaugeFamily& build =
      Gauges(*registry, "snug_build_info", "1; its label says which version of snugd runs.");
  GaugeFamily& jobs = Gauges(*registry, "snug_jobs", "Jobs by state.");
  CounterFamily& attempts =
      Counters(*registry, "snug_attempts_total", "Attempts that have ended, by outcome.");
  CounterFamily& ended_workers =
      Counters(*registry, "snug_workers_ended_total",
               "Workers that snugd has ended as not at work, by reason.");
  prometheus::Counter& steps =
      Counters(*registry, "snug_steps_total", "Optimizer steps done.").Add({});
  prometheus::Counter& tokens =
      Counters(*registry, "snug_tokens_total", "Tokens trained on.").Add({});
  prometheus::Counter& link_errors =
      Counters(*registry, "snug_link_errors_total", "Worker links closed for bad messages.")
          .Add({});
  prometheus::Counter& dropped =
      Counters(*registry, "snug_metrics_dropped_total", "Values or series that were dropped.")
          .Add({});
  StepTimes step_times{*registry};
  prometheus::Histogram& queue_wait;
  prometheus::Histogram& round_seconds;
  prometheus::Histogram& prediction_ratio;
  GaugeFamily& oldest = Gauges(*registry, "snug_queue_oldest_timestamp_seconds",
                               "When the job that has waited longest got into the queue.");
  prometheus::Gauge& host_capacity =
      Gauges(*registry, "snug_host_memory_capacity_bytes",
             "Bytes of the host's memory that plans may use beside devices.")
          .Add({});
  prometheus::Gauge& host_reserved =
      Gauges(*registry, "snug_host_memory_reserved_bytes", "Of these, promised to attempts.")
          .Add({});
  // UUID as NVIDIA's dcgm-exporter spells it, to join the two.
  GaugeFamily& device_model =
      Gauges(*registry, "snug_device_info", "1; its labels say which GPU or processor it is.");
  GaugeFamily& drained =
      Gauges(*registry, "snug_device_drained", "Whether an operator keeps jobs off the device.");
  GaugeFamily& up = Gauges(*registry, "snug_device_up", "Whether nothing is wrong with the GPU.");
  GaugeFamily& total =
      Gauges(*registry, "snug_device_memory_total_bytes", "Bytes that the device has.");
  GaugeFamily& used = Gauges(*registry, "snug_device_memory_used_bytes",
                             "By the GPU's driver: bytes of the workers' processes.");
  GaugeFamily& unattributed =
      Gauges(*registry, "snug_device_memory_unattributed_bytes",
             "By the GPU's driver: bytes that are taken, and not by the workers' processes.");
  GaugeFamily& capacity = Gauges(*registry, "snug_device_memory_capacity_bytes",
                                 "Bytes that the device may give to jobs.");
  GaugeFamily& reserved = Gauges(*registry, "snug_device_memory_reserved_bytes",
                                 "Bytes promised to attempts on the device.");
  GaugeFamily& shared = Gauges(*registry, "snug_device_memory_shared_weights_bytes",
                               "Of the promised bytes, frozen weights that attempts share.");
  GaugeFamily& device_predicted = Gauges(*registry, "snug_device_memory_predicted_bytes",
                                         "Predicted peak of the attempts on the device.");
  GaugeFamily& device_peak = Gauges(*registry, "snug_device_memory_peak_bytes",
                                    "Measured peak of the attempts on the device.");
  GaugeFamily& job_predicted = Gauges(*registry, "snug_job_memory_predicted_bytes",
                                      "Predicted peak of a job with an attempt.");
  GaugeFamily& job_component =
      Gauges(*registry, "snug_job_memory_predicted_component_bytes",
             "What the predicted peak of a job with an attempt is made of.");
  GaugeFamily& job_peak =
      Gauges(*registry, "snug_job_memory_peak_bytes", "Measured peak of a job with an attempt.");
  GaugeFamily& job_process =
      Gauges(*registry, "snug_job_memory_process_peak_bytes",
             "The most that the kernel or the GPU's driver saw of a job's worker process.");
  GaugeFamily& job_uncounted = Gauges(*registry, "snug_job_memory_uncounted_bytes",
                                      "Seen of a job's process beyond what was counted.");
  GaugeFamily& job_budget = Gauges(*registry, "snug_job_memory_budget_bytes",
                                   "Bytes reserved for a job, the cap of its worker.");
  GaugeFamily& job_plan = Gauges(*registry, "snug_job_plan_info",
                                 "1; its labels say which plan is in force, and its fidelity.");
  GaugeFamily& job_step = Gauges(*registry, "snug_job_step", "Optimizer steps of a job.");
  Learning learning{*registry};
  GaugeFamily& job_heard = Gauges(*registry, "snug_job_heard_timestamp_seconds",
                                  "When the job's worker last said anything.");
  Removals removals{*registry};
  WebhookCalls webhook_calls{*registry};
  Examinations examinations{*registry};
  std::shared_ptr<Disk> disk;  // Once it is watched.
  std::map<int, prometheus::Gauge*> by_state;
  std::map<std::string, prometheus::Counter*> by_outcome;
  std::map<std::string, prometheus::Counter*> by_reason;
  std::map<std::string, JobSeries> by_job;
  std::map<std::string, DeviceSeries> by_device;
  std::map<std::string, absl::Time> queued;  // Since when, by job.
  std::set<std::pair<absl::Time, std::string>> by_age;
  prometheus::Gauge* oldest_queued = nullptr;  // As long as there is one.
};

}  // namespace snug::server

#endif  // SERVER_METRICS_FAMILIES_H_
