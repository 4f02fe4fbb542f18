#include "server/job/job_ref.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/job/names.h"
#include "server/job/principal.h"
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

// Of the job that one of the tenant calls so.
std::string NameOf(const std::string& ref, absl::string_view tenant) {
  return IsName(ref) ? ref : JobName(tenant, ref);
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

std::string RefTo(const v1::Job& job, absl::string_view tenant) {
  return TenantOf(job.owner()) == tenant ? job.id() : JobName(job);
}

std::string ForAll(absl::string_view text, absl::string_view tenant) {
  const std::optional<JobRef> ref = ParseJobRef(text);
  if (!ref) return std::string(text);
  return TextOf({.job = NameOf(ref->job, tenant), .step = ref->step});
}

v1::JobSpec SpecFor(absl::string_view tenant, const v1::Job& job) {
  v1::JobSpec spec = job.spec();
  const std::string own = TenantOf(job.owner());
  if (own == tenant) return spec;
  spec.set_model(ForAll(spec.model(), own));
  if (spec.has_lora())
    spec.mutable_lora()->set_init_adapter(ForAll(spec.lora().init_adapter(), own));
  return spec;
}

bool BeginsWith(const v1::Job& other, const v1::Job& job) {
  return absl::c_linear_search(NamesOfOrigins(other), JobName(job));
}

std::string ParentOf(const v1::Job& job) {
  return job.parent_job().empty() ? "" : NameOf(job.parent_job(), TenantOf(job.owner()));
}

std::vector<std::string> NamesOfOrigins(const v1::Job& job) {
  std::vector<std::string> names;
  for (const std::string& text : {job.spec().model(), job.spec().lora().init_adapter()})
    if (const std::optional<JobRef> ref = ParseJobRef(text))
      names.push_back(NameOf(ref->job, TenantOf(job.owner())));
  return names;
}

std::vector<std::string> NamesOfReferred(const v1::Job& job) {
  std::vector<std::string> names = NamesOfOrigins(job);
  if (std::string parent = ParentOf(job); !parent.empty()) names.push_back(std::move(parent));
  return names;
}

}  // namespace snug::server
