#include "server/job/job_ref.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/job/names.h"
#include "server/job/random_id.h"

namespace snug::server {
namespace {

constexpr absl::string_view kCheckpoints = "/checkpoints/";

// A step is spelled in one way, as in names.
std::optional<int64_t> StepIn(absl::string_view text) {
  int64_t step = 0;
  const bool is_one = absl::SimpleAtoi(text, &step) && step > 0 && absl::StrCat(step) == text;
  return is_one ? std::optional(step) : std::nullopt;
}

bool IsOf(absl::string_view text, absl::string_view id) {
  const std::optional<JobRef> ref = ParseJobRef(text);
  return ref && ref->job == id;
}

}  // namespace

std::optional<JobRef> ParseJobRef(absl::string_view text) {
  if (const std::optional<ResourceName> name = ParseName(text)) {
    if (name->kind != ResourceName::kJob || !name->artifact.empty()) return std::nullopt;
    return JobRef{.job = JobName(name->tenant, name->id), .step = name->checkpoint_step};
  }
  const size_t at = text.find(kCheckpoints);
  JobRef ref{.job = std::string(text.substr(0, at)), .step = std::nullopt};
  if (!IsJobId(ref.job)) return std::nullopt;
  if (at == absl::string_view::npos) return ref;
  ref.step = StepIn(text.substr(at + kCheckpoints.size()));
  return ref.step ? std::optional(ref) : std::nullopt;
}

std::string TextOf(const JobRef& ref) {
  return ref.step ? absl::StrCat(ref.job, kCheckpoints, *ref.step) : ref.job;
}

bool BeginsWith(const v1::JobSpec& spec, absl::string_view id) {
  return IsOf(spec.model(), id) || IsOf(spec.lora().init_adapter(), id);
}

}  // namespace snug::server
