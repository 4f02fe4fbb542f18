#include "server/metrics/metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "proto/snug/enum_words.h"
#include "server/job/job_key.h"
#include "server/metrics/families.h"

namespace snug::server {
namespace {

using prometheus::Gauge;

constexpr size_t kMaxLabelBytes = 128;        // A job's key has 127 at most: none is another's.
constexpr int64_t kMaxObservations = 10'000;  // Of one report: a daemon that was away for a day.

Labels LabelsOf(const v1::Job& job) {
  return {{"job", SanitizeLabel(KeyOf(job))}, {"device", SanitizeLabel(job.device())}};
}

// A gauge that is there as long as there is something to say: a stale value would be believed.
void SetOrRemove(GaugeFamily& family, const Labels& labels, std::optional<int64_t> value,
                 Gauge*& gauge) {
  if (value.has_value()) {
    if (gauge == nullptr) gauge = &family.Add(labels);
    gauge->Set(static_cast<double>(*value));
  } else if (gauge != nullptr) {
    family.Remove(gauge);
    gauge = nullptr;
  }
}

// By the names of the plan's fields, whatever fields it has: weights, stash, ...
std::map<Labels, double> ComponentsOf(const v1::MemoryComponents& memory) {
  std::map<Labels, double> components;
  const google::protobuf::Reflection& fields = *memory.GetReflection();
  for (int i = 0; i < memory.GetDescriptor()->field_count(); ++i) {
    const google::protobuf::FieldDescriptor& field = *memory.GetDescriptor()->field(i);
    if (field.cpp_type() != google::protobuf::FieldDescriptor::CPPTYPE_INT64) continue;
    const int64_t bytes = fields.GetInt64(memory, &field);
    if (bytes == 0) continue;
    components[{{"component", std::string(absl::StripSuffix(field.name(), "_bytes"))}}] =
        static_cast<double>(bytes);
  }
  return components;
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

Metrics::Metrics() : families_(std::make_unique<Families>()) {}

Metrics::~Metrics() = default;

void Metrics::WatchDisk(const std::string& folder) {
  families_->disk = std::make_shared<Disk>(folder);
}

void Metrics::CountJobs(v1::Job::State state, int change) {
  const auto found = families_->by_state.find(state);
  if (found != families_->by_state.end()) found->second->Increment(change);
}

void Metrics::Attempt(absl::string_view outcome) {
  const auto found = families_->by_outcome.find(std::string(outcome));
  if (found != families_->by_outcome.end()) found->second->Increment();
}

void Metrics::Steps(const std::string& device, int64_t new_steps, int64_t new_tokens,
                    double step_seconds) {
  if (new_tokens > 0) families_->tokens.Increment(static_cast<double>(new_tokens));
  if (new_steps <= 0) return;
  families_->steps.Increment(static_cast<double>(new_steps));
  if (!std::isfinite(step_seconds)) return families_->dropped.Increment();
  const int64_t observed = std::min(new_steps, kMaxObservations);
  prometheus::Histogram& seconds = families_->step_times.SecondsOn(device);
  for (int64_t i = 0; i < observed; ++i) seconds.Observe(step_seconds);
}

void Metrics::LinkError() { families_->link_errors.Increment(); }

void Metrics::WorkerEnded(absl::string_view reason) {
  const auto found = families_->by_reason.find(std::string(reason));
  if (found != families_->by_reason.end()) found->second->Increment();
}

void Metrics::Prediction(int64_t predicted_bytes, int64_t measured_bytes) {
  if (predicted_bytes <= 0 || measured_bytes <= 0) return;
  families_->prediction_ratio.Observe(static_cast<double>(measured_bytes) /
                                      static_cast<double>(predicted_bytes));
}

void Metrics::StepPrediction(const std::string& device, double ratio) {
  if (ratio > 0.0) families_->step_times.RatiosOn(device).Observe(ratio);
}

void Metrics::Displaced(const std::string& device) {
  families_->step_times.DisplacedFrom(device).Increment();
}

void Metrics::Round(absl::Duration took) {
  families_->round_seconds.Observe(absl::ToDoubleSeconds(took));
}

void Metrics::Queued(const std::string& id, absl::Time since) {
  Unqueued(id);
  families_->queued[id] = since;
  families_->by_age.emplace(since, id);
  families_->ShowOldest();
}

void Metrics::Placed(const std::string& id, absl::Time now) {
  const auto found = families_->queued.find(id);
  if (found == families_->queued.end()) return;
  // The wall clock may have been set back meanwhile.
  const absl::Duration waited = std::max(absl::ZeroDuration(), now - found->second);
  families_->queue_wait.Observe(absl::ToDoubleSeconds(waited));
  Unqueued(id);
}

void Metrics::Unqueued(const std::string& id) {
  const auto found = families_->queued.find(id);
  if (found == families_->queued.end()) return;
  families_->by_age.erase({found->second, id});
  families_->queued.erase(found);
  families_->ShowOldest();
}

void Metrics::Job(const v1::Job& job) {
  Families& all = *families_;
  auto found = all.by_job.find(KeyOf(job));
  if (found == all.by_job.end()) {
    if (all.by_job.size() >= kMaxJobSeries) return all.dropped.Increment();
    found = all.by_job.try_emplace(KeyOf(job), LabelsOf(job)).first;
  }
  Series& gauges = found->second.gauges;
  const v1::JobMemory& memory = job.memory();
  gauges.Set(all.job_step, static_cast<double>(job.progress().global_step()));
  all.learning.Show(job, gauges);
  gauges.Set(all.job_predicted, static_cast<double>(memory.predicted_peak_bytes()));
  gauges.Set(all.job_peak, static_cast<double>(memory.measured_peak_bytes()));
  gauges.Set(all.job_budget, static_cast<double>(memory.budget_bytes()));
  if (memory.process_peak_bytes() > 0)  // Once it was looked at.
    gauges.Set(all.job_process, static_cast<double>(memory.process_peak_bytes()));
  if (!memory.looks().empty())  // Under the plan in force.
    gauges.Set(all.job_uncounted, static_cast<double>(memory.uncounted_bytes()));
  const std::string plan =
      absl::StrCat(job.plan().name(), " ", job.plan().peak_bytes(), " ", job.plan().fidelity());
  if (found->second.plan == plan) return;
  found->second.plan = plan;
  const v1::Fidelity fidelity = std::max(v1::FIDELITY_EXACT, job.plan().fidelity());
  gauges.Replace(all.job_component, ComponentsOf(job.plan().memory()));
  gauges.Replace(
      all.job_plan,
      {{{{"plan", SanitizeLabel(job.plan().name())}, {"fidelity", EnumWord(fidelity)}}, 1.0}});
}

void Metrics::Heard(const std::string& id, absl::Time when) {
  const auto found = families_->by_job.find(id);
  if (found == families_->by_job.end()) return;
  found->second.gauges.Set(families_->job_heard, absl::ToDoubleSeconds(when - absl::UnixEpoch()));
}

void Metrics::ForgetJob(const std::string& id) { families_->by_job.erase(id); }

void Metrics::Host(int64_t capacity_bytes, int64_t reserved_bytes) {
  families_->host_capacity.Set(static_cast<double>(capacity_bytes));
  families_->host_reserved.Set(static_cast<double>(reserved_bytes));
}

void Metrics::Devices(const std::vector<v1::Device>& devices, const std::vector<v1::Job>& running) {
  for (const v1::Device& device : devices) {
    int64_t shared = 0;
    for (const v1::WeightsInUse& weights : device.shared_weights()) shared += weights.bytes();
    int64_t predicted = shared, peak = shared;  // Once, and of each job what is its own.
    for (const v1::Job& job : running) {
      if (job.device() != device.name()) continue;
      const v1::JobMemory& memory = job.memory();
      predicted += memory.predicted_peak_bytes() - memory.shared_bytes();
      peak += std::max<int64_t>(0, memory.measured_peak_bytes() - memory.shared_bytes());
    }
    DeviceSeries& series = families_->SeriesOf(device);
    series.total->Set(static_cast<double>(device.total_bytes()));
    series.capacity->Set(static_cast<double>(device.capacity_bytes()));
    series.reserved->Set(static_cast<double>(device.reserved_bytes()));
    series.shared->Set(static_cast<double>(shared));
    series.predicted->Set(static_cast<double>(predicted));
    series.peak->Set(static_cast<double>(peak));
    series.drained->Set(device.drained() ? 1 : 0);
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

void Metrics::WebhookCalled(const std::string& outcome) {
  families_->webhook_calls.by_outcome.at(outcome)->Increment();
}

void Metrics::Removed(const std::string& what, int64_t bytes) {
  families_->removals.removed.at(what)->Increment();
  families_->removals.bytes.Increment(static_cast<double>(bytes));
}

void Metrics::Swept(absl::Time when, int64_t held_jobs) {
  families_->removals.held.Set(static_cast<double>(held_jobs));
  families_->removals.swept.Set(absl::ToDoubleSeconds(when - absl::UnixEpoch()));
}

void Metrics::Examined(absl::Time when, const std::map<std::string, int64_t>& findings) {
  for (const auto& [check, found] : findings)
    families_->examinations.findings.Add({{"check", check}}).Set(static_cast<double>(found));
  families_->examinations.examined.Set(absl::ToDoubleSeconds(when - absl::UnixEpoch()));
}

std::string Metrics::Text() const {
  std::vector<prometheus::MetricFamily> families = families_->registry->Collect();
  if (families_->disk != nullptr)
    for (prometheus::MetricFamily& family : families_->disk->Collect())
      families.push_back(std::move(family));
  return prometheus::TextSerializer().Serialize(families);
}

}  // namespace snug::server
