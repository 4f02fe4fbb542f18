#include "server/metrics/learning.h"

#include <map>

#include "server/metrics/metrics.h"

namespace snug::server {
namespace {

// The last evaluation's loss and its other figures; nothing before the first.
std::map<Labels, double> EvaluationOf(const v1::Progress& progress) {
  std::map<Labels, double> figures;
  if (progress.has_eval_loss()) figures[{{"metric", "eval_loss"}}] = progress.eval_loss();
  for (const auto& [name, value] : progress.eval_metrics())
    figures[{{"metric", SanitizeLabel(name)}}] = value;
  return figures;
}

// By kind of stash, a number of its newest measurement.
std::map<Labels, double> DriftOf(const v1::Job& job, double (v1::Drift::*number)() const) {
  std::map<Labels, double> by_kind;
  for (const auto& [kind, drift] : job.drift())
    by_kind[{{"kind", SanitizeLabel(kind)}}] = (drift.*number)();
  return by_kind;
}

}  // namespace

Learning::Learning(prometheus::Registry& registry)
    : loss(Gauges(registry, "snug_job_loss", "Last training loss of a job.")),
      evaluation(
          Gauges(registry, "snug_job_eval_metric", "Metrics of the last evaluation of a job.")),
      cosine(Gauges(registry, "snug_job_gradient_cosine",
                    "Cosine of a job's inexact gradient to the exact one, by kind of stash.")),
      error(Gauges(registry, "snug_job_gradient_relative_error",
                   "Relative error of a job's inexact gradient, by kind of stash.")) {}

void Learning::Show(const v1::Job& job, Series& gauges) {
  gauges.Set(loss, job.progress().loss());
  gauges.Replace(evaluation, EvaluationOf(job.progress()));
  gauges.Replace(cosine, DriftOf(job, &v1::Drift::cosine));
  gauges.Replace(error, DriftOf(job, &v1::Drift::relative_error));
}

}  // namespace snug::server
