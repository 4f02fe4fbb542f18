#include "client/advice.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace snug::client {
namespace {

// The defaults, which are what these methods are usually trained at.
constexpr double kUsualLora = 2e-4;
constexpr double kUsualFull = 1e-5;
// A hundred times the usual diverges within a few steps; ten times may be meant.
constexpr double kTooLarge = 100.0;

double Usual(const v1::JobSpec& spec) {
  return spec.method() == v1::JobSpec::METHOD_FULL ? kUsualFull : kUsualLora;
}

double LearningRate(const v1::JobSpec& spec) {
  return spec.training().has_learning_rate() ? spec.training().learning_rate() : Usual(spec);
}

bool Warms(const v1::TrainingSpec& training) {
  return training.warmup_steps() > 0 || training.warmup_ratio() > 0.0;
}

}  // namespace

std::vector<std::string> NotesOf(const v1::JobSpec& spec) {
  std::vector<std::string> notes;
  const double rate = LearningRate(spec), usual = Usual(spec);
  // What the file spells as 100 times may be a hair less in binary.
  if (rate >= kTooLarge * usual * (1.0 - 1e-9))
    notes.push_back(absl::StrFormat(
        "learning_rate %g is %.0f times the usual %g of %s: the loss will likely grow, not shrink",
        rate, rate / usual, usual, spec.method() == v1::JobSpec::METHOD_FULL ? "full" : "lora"));
  return notes;
}

std::string WhatToTry(const v1::Job& job) {
  if (job.error().reason() != "NON_FINITE") return "";
  const v1::TrainingSpec& training = job.spec().training();
  std::vector<std::string> tries = {absl::StrFormat(
      "learning_rate=%g (it was %g)", LearningRate(job.spec()) / 10.0, LearningRate(job.spec()))};
  if (training.has_max_grad_norm() && training.max_grad_norm() == 0.0)
    tries.push_back("max_grad_norm=1.0 (gradients were not clipped)");
  if (!Warms(training)) tries.push_back("warmup_ratio=0.03 (there was no warm-up)");
  if (training.precision() == v1::TrainingSpec::PRECISION_BF16) tries.push_back("precision=fp32");
  return absl::StrCat(
      absl::StrJoin(tries, ", "),
      ", or look at the rows that are named: text that is broken or repeats itself");
}

}  // namespace snug::client
