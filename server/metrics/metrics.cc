#include "server/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/exposer.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <exception>
#include <map>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"

namespace snug::server {
namespace {

using prometheus::BuildCounter;
using prometheus::BuildGauge;
using prometheus::Counter;
using prometheus::Family;
using prometheus::Gauge;
using prometheus::Registry;

constexpr size_t kMaxLabelBytes = 64;
constexpr const char* kExposerThreads = "8";
constexpr const char* kRequestTimeoutMs = "1000";  // Of a client that holds one of them, silent.
constexpr int64_t kMaxObservations = 10'000;  // Of one report: a daemon that was away for a day.

Family<Gauge>& GaugeFamily(Registry& registry, const char* name, const char* help) {
  return BuildGauge().Name(name).Help(help).Register(registry);
}

Family<Counter>& CounterFamily(Registry& registry, const char* name, const char* help) {
  return BuildCounter().Name(name).Help(help).Register(registry);
}

// The gauges of one job with an attempt.
struct JobSeries {
  Gauge* step;
  Gauge* loss;
  Gauge* predicted;
  Gauge* peak;
  Gauge* budget;
  Gauge* process = nullptr;  // Once it was looked at.
};

struct DeviceSeries {
  Gauge* total;
  Gauge* capacity;
  Gauge* reserved;
  Gauge* predicted;
  Gauge* peak;
  Gauge* used = nullptr;  // Of a GPU, as long as its driver answers; up all the time.
  Gauge* unattributed = nullptr;
  Gauge* up = nullptr;
};

void SetFinite(Gauge* gauge, double value) {
  if (std::isfinite(value)) gauge->Set(value);
}

}  // namespace

std::string SanitizeLabel(absl::string_view value) {
  std::string label(value.substr(0, kMaxLabelBytes));
  for (char& c : label) {
    const bool plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '.' || c == '_' ||
                       c == ':' || c == '/' || c == '-';
    if (!plain) c = '_';
  }
  return label;
}

namespace {

using Labels = std::map<std::string, std::string>;

Labels LabelsOf(const v1::Job& job) {
  return {{"job", SanitizeLabel(job.id())}, {"device", SanitizeLabel(job.device())}};
}

// A gauge that is there as long as there is something to say: a stale value would be believed.
void SetOrRemove(Family<Gauge>& family, const Labels& labels, std::optional<int64_t> value,
                 Gauge*& gauge) {
  if (value.has_value()) {
    if (gauge == nullptr) gauge = &family.Add(labels);
    gauge->Set(static_cast<double>(*value));
  } else if (gauge != nullptr) {
    family.Remove(gauge);
    gauge = nullptr;
  }
}

}  // namespace

struct Metrics::Families {
  std::shared_ptr<Registry> registry = std::make_shared<Registry>();
  Family<Gauge>& jobs = GaugeFamily(*registry, "snug_jobs", "Jobs by state.");
  Family<Counter>& attempts =
      CounterFamily(*registry, "snug_attempts_total", "Attempts that have ended, by outcome.");
  Counter& steps = CounterFamily(*registry, "snug_steps_total", "Optimizer steps done.").Add({});
  Counter& tokens = CounterFamily(*registry, "snug_tokens_total", "Tokens trained on.").Add({});
  Counter& link_errors =
      CounterFamily(*registry, "snug_link_errors_total", "Worker links closed for bad messages.")
          .Add({});
  Counter& dropped =
      CounterFamily(*registry, "snug_metrics_dropped_total", "Values or series that were dropped.")
          .Add({});
  prometheus::Histogram& step_seconds =
      prometheus::BuildHistogram()
          .Name("snug_step_seconds")
          .Help("Time of an optimizer step.")
          .Register(*registry)
          .Add({}, prometheus::Histogram::BucketBoundaries{0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0,
                                                           3.0, 10.0, 30.0, 100.0});
  // UUID as NVIDIA's dcgm-exporter spells it, to join the two.
  Family<Gauge>& device_model =
      GaugeFamily(*registry, "snug_device_info", "1; its labels say which GPU or processor it is.");
  Family<Gauge>& up =
      GaugeFamily(*registry, "snug_device_up", "Whether nothing is wrong with the GPU.");
  Family<Gauge>& total =
      GaugeFamily(*registry, "snug_device_memory_total_bytes", "Bytes that the device has.");
  Family<Gauge>& used = GaugeFamily(*registry, "snug_device_memory_used_bytes",
                                    "By the GPU's driver: bytes of the workers' processes.");
  Family<Gauge>& unattributed =
      GaugeFamily(*registry, "snug_device_memory_unattributed_bytes",
                  "By the GPU's driver: bytes that are taken, and not by the workers' processes.");
  Family<Gauge>& capacity = GaugeFamily(*registry, "snug_device_memory_capacity_bytes",
                                        "Bytes that the device may give to jobs.");
  Family<Gauge>& reserved = GaugeFamily(*registry, "snug_device_memory_reserved_bytes",
                                        "Bytes promised to attempts on the device.");
  Family<Gauge>& device_predicted = GaugeFamily(*registry, "snug_device_memory_predicted_bytes",
                                                "Predicted peak of the attempts on the device.");
  Family<Gauge>& device_peak = GaugeFamily(*registry, "snug_device_memory_peak_bytes",
                                           "Measured peak of the attempts on the device.");
  Family<Gauge>& job_predicted = GaugeFamily(*registry, "snug_job_memory_predicted_bytes",
                                             "Predicted peak of a job with an attempt.");
  Family<Gauge>& job_peak = GaugeFamily(*registry, "snug_job_memory_peak_bytes",
                                        "Measured peak of a job with an attempt.");
  Family<Gauge>& job_process =
      GaugeFamily(*registry, "snug_job_memory_process_peak_bytes",
                  "The most that the kernel or the GPU's driver saw of a job's worker process.");
  Family<Gauge>& job_budget = GaugeFamily(*registry, "snug_job_memory_budget_bytes",
                                          "Bytes reserved for a job, the cap of its worker.");
  Family<Gauge>& job_step =
      GaugeFamily(*registry, "snug_job_step", "Optimizer steps of a job with an attempt.");
  Family<Gauge>& job_loss =
      GaugeFamily(*registry, "snug_job_loss", "Last training loss of a job with an attempt.");
  std::map<int, Gauge*> by_state;
  std::map<std::string, Counter*> by_outcome;
  std::map<std::string, JobSeries> by_job;
  std::map<std::string, DeviceSeries> by_device;
  std::unique_ptr<prometheus::Exposer> exposer;
  std::atomic<int> port = 0;

  DeviceSeries& SeriesOf(const v1::Device& device);
};

DeviceSeries& Metrics::Families::SeriesOf(const v1::Device& device) {
  const auto found = by_device.find(device.name());
  if (found != by_device.end()) return found->second;
  const Labels labels = {{"device", SanitizeLabel(device.name())}};
  device_model
      .Add({{"device", SanitizeLabel(device.name())},
            {"UUID", SanitizeLabel(device.uuid())},
            {"model_name", SanitizeLabel(device.model())}})
      .Set(1);
  return by_device
      .emplace(device.name(), DeviceSeries{.total = &total.Add(labels),
                                           .capacity = &capacity.Add(labels),
                                           .reserved = &reserved.Add(labels),
                                           .predicted = &device_predicted.Add(labels),
                                           .peak = &device_peak.Add(labels)})
      .first->second;
}

// Every series that is known beforehand exists from the start, at 0: rate() needs that.
Metrics::Metrics() : families_(std::make_unique<Families>()) {
  Families& all = *families_;
  for (int state = v1::Job::PREPARING; state <= v1::Job::CANCELLED; ++state) {
    const std::string name = v1::Job::State_Name(static_cast<v1::Job::State>(state));
    all.by_state[state] = &all.jobs.Add({{"state", name}});
  }
  for (const char* outcome :
       {"succeeded", "failed", "lost", "cancelled", "paused", "out_of_memory"})
    all.by_outcome[outcome] = &all.attempts.Add({{"outcome", outcome}});
}

Metrics::~Metrics() = default;

absl::Status Metrics::Serve(int port) {
  // prometheus-cpp throws from this constructor alone, e.g. when the port is taken.
  try {
    families_->exposer = std::make_unique<prometheus::Exposer>(
        std::vector<std::string>{"listening_ports", absl::StrCat("127.0.0.1:", port), "num_threads",
                                 kExposerThreads, "request_timeout_ms", kRequestTimeoutMs});
    families_->exposer->RegisterCollectable(families_->registry);
    const std::vector<int> ports = families_->exposer->GetListeningPorts();
    families_->port = ports.empty() ? 0 : ports.front();
  } catch (const std::exception& error) {
    return absl::UnavailableError(
        absl::StrCat("cannot serve metrics on 127.0.0.1:", port, ": ", error.what()));
  }
  return absl::OkStatus();
}

int Metrics::port() const { return families_->port; }

void Metrics::CountJobs(v1::Job::State state, int change) {
  const auto found = families_->by_state.find(state);
  if (found != families_->by_state.end()) found->second->Increment(change);
}

void Metrics::Attempt(absl::string_view outcome) {
  const auto found = families_->by_outcome.find(std::string(outcome));
  if (found != families_->by_outcome.end()) found->second->Increment();
}

void Metrics::Steps(int64_t new_steps, int64_t new_tokens, double step_seconds) {
  if (new_tokens > 0) families_->tokens.Increment(static_cast<double>(new_tokens));
  if (new_steps <= 0) return;
  families_->steps.Increment(static_cast<double>(new_steps));
  if (!std::isfinite(step_seconds)) return families_->dropped.Increment();
  const int64_t observed = std::min(new_steps, kMaxObservations);
  for (int64_t i = 0; i < observed; ++i) families_->step_seconds.Observe(step_seconds);
}

void Metrics::LinkError() { families_->link_errors.Increment(); }

void Metrics::Job(const v1::Job& job) {
  Families& all = *families_;
  auto found = all.by_job.find(job.id());
  if (found == all.by_job.end()) {
    if (all.by_job.size() >= kMaxJobSeries) return all.dropped.Increment();
    const Labels labels = LabelsOf(job);
    found =
        all.by_job
            .emplace(job.id(), JobSeries{&all.job_step.Add(labels), &all.job_loss.Add(labels),
                                         &all.job_predicted.Add(labels), &all.job_peak.Add(labels),
                                         &all.job_budget.Add(labels)})
            .first;
  }
  const JobSeries& series = found->second;
  if (job.memory().process_peak_bytes() > 0) {
    Gauge*& process = found->second.process;
    if (process == nullptr) process = &all.job_process.Add(LabelsOf(job));
    process->Set(static_cast<double>(job.memory().process_peak_bytes()));
  }
  SetFinite(series.step, static_cast<double>(job.progress().global_step()));
  SetFinite(series.loss, job.progress().loss());
  SetFinite(series.predicted, static_cast<double>(job.memory().predicted_peak_bytes()));
  SetFinite(series.peak, static_cast<double>(job.memory().measured_peak_bytes()));
  SetFinite(series.budget, static_cast<double>(job.memory().budget_bytes()));
}

void Metrics::ForgetJob(const std::string& id) {
  Families& all = *families_;
  const auto found = all.by_job.find(id);
  if (found == all.by_job.end()) return;
  all.job_step.Remove(found->second.step);
  all.job_loss.Remove(found->second.loss);
  all.job_predicted.Remove(found->second.predicted);
  all.job_peak.Remove(found->second.peak);
  all.job_budget.Remove(found->second.budget);
  if (found->second.process != nullptr) all.job_process.Remove(found->second.process);
  all.by_job.erase(found);
}

void Metrics::Devices(const std::vector<v1::Device>& devices, const std::vector<v1::Job>& running) {
  for (const v1::Device& device : devices) {
    int64_t predicted = 0, peak = 0;
    for (const v1::Job& job : running) {
      if (job.device() != device.name()) continue;
      predicted += job.memory().predicted_peak_bytes();
      peak += job.memory().measured_peak_bytes();
    }
    DeviceSeries& series = families_->SeriesOf(device);
    series.total->Set(static_cast<double>(device.total_bytes()));
    series.capacity->Set(static_cast<double>(device.capacity_bytes()));
    series.reserved->Set(static_cast<double>(device.reserved_bytes()));
    series.predicted->Set(static_cast<double>(predicted));
    series.peak->Set(static_cast<double>(peak));
    if (device.uuid().empty()) continue;
    const Labels labels = {{"device", SanitizeLabel(device.name())}};
    const auto if_known = [](bool known, int64_t bytes) {
      return known ? std::optional(bytes) : std::nullopt;
    };
    SetOrRemove(families_->up, labels, device.trouble().empty() ? 1 : 0, series.up);
    SetOrRemove(families_->used, labels,
                if_known(device.has_measured_bytes(), device.measured_bytes()), series.used);
    SetOrRemove(families_->unattributed, labels,
                if_known(device.has_others_bytes(), device.others_bytes()), series.unattributed);
  }
}

std::string Metrics::Text() const {
  return prometheus::TextSerializer().Serialize(families_->registry->Collect());
}

}  // namespace snug::server
