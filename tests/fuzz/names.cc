// Names of resources, jobs that are named where a path could be, and what the daemon calls a job.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "google/protobuf/util/message_differencer.h"
#include "server/api/take_name.h"
#include "server/job/job_key.h"
#include "server/job/job_ref.h"
#include "server/job/names.h"
#include "server/job/principal.h"
#include "server/job/random_id.h"
#include "snug/v1/artifact.pb.h"

namespace {

using namespace snug::server;
using snug::v1::Job;

constexpr size_t kMostKeyBytes = 63 + 1 + 63;    // Of an id, a dot and a tenant.
constexpr absl::string_view kOther = "other-1";  // A tenant.

void Check(bool holds) {
  if (!holds) abort();
}

// The name, from what was read of it.
std::string Written(const ResourceName& name) {
  if (name.kind == ResourceName::kDataset) return DatasetName(name.tenant, name.id);
  if (name.kind == ResourceName::kToken) return TokenName(name.tenant, name.id);
  std::string text = JobName(name.tenant, name.id);
  if (name.checkpoint_step) absl::StrAppend(&text, "/checkpoints/", *name.checkpoint_step);
  if (!name.artifact.empty()) absl::StrAppend(&text, "/artifacts/", name.artifact);
  return text;
}

// As the scheduler makes it of a submit.
Job NewJob(absl::string_view tenant, absl::string_view id) {
  Job job;
  job.set_id(std::string(id));
  job.set_owner(tenant == kDefaultTenant ? "uid:1000" : absl::StrCat("tenant:", tenant));
  if (std::string key = KeyFor(tenant, id); key != id) job.set_key(std::move(key));
  return job;
}

// Of all jobs whose ids and tenants are parts of the text, no two have one key.
void CheckKeysDiffer(absl::string_view text) {
  std::map<std::string, std::pair<std::string, std::string>> jobs;
  const auto add = [&](absl::string_view tenant, absl::string_view id) {
    if (!IsJobId(tenant) || !IsJobId(id)) return;
    const std::pair job = {std::string(tenant), std::string(id)};
    Check(jobs.try_emplace(KeyFor(tenant, id), job).first->second == job);
  };
  for (size_t i = 1; i <= text.size(); ++i) {
    add(kDefaultTenant, text.substr(0, i));
    add(text.substr(i), text.substr(0, i));
    if (i < text.size()) add(text.substr(i + 1), text.substr(0, i));
  }
}

// Whoever may see both jobs finds his own tenant's by the id, and who has none is told of several.
void CheckSearch(const Job& job, const Job& other) {
  const auto found = [&](absl::string_view tenant) {
    JobSearch search(job.id(), tenant);
    for (const Job* each : {&job, &other}) search.Consider(KeyOf(*each), TenantOf(each->owner()));
    return search.Found();
  };
  Check(found(TenantOf(job.owner())).value_or("") == KeyOf(job));
  Check(found(TenantOf(other.owner())).value_or("") == KeyOf(other));
  Check(absl::IsInvalidArgument(found("").status()));
}

// What one of another tenant writes of the job is about that job. His spec is about the same jobs
// when one of the job's tenant submits it, whose own job of the same id is another one.
void CheckRefs(const Job& job) {
  const Job other = NewJob(kOther, job.id());
  Job next = NewJob(kOther, "next");
  next.set_parent_job(RefTo(job, kOther));
  next.mutable_spec()->set_model(RefTo(other, kOther));
  next.mutable_spec()->mutable_lora()->set_init_adapter(TextOf({.job = other.id(), .step = 7}));
  Check(ParentOf(next) == JobName(job) && BeginsWith(next, other));
  Job again = NewJob(TenantOf(job.owner()), "again");
  *again.mutable_spec() = SpecFor(TenantOf(job.owner()), next);
  Check(NamesOfReferred(again) == std::vector(2, JobName(other)));
}

// ID.TENANT, of an id and a tenant.
void CheckJob(absl::string_view tenant, absl::string_view id) {
  const Job job = NewJob(tenant, id);
  const std::string& key = KeyOf(job);
  Check(TenantOf(job.owner()) == tenant && key == KeyFor(tenant, id) && IdIn(key) == id);
  // It is a folder's name, and a job's id only where it is that of this job.
  Check(key.size() <= kMostKeyBytes && !IsName(key) && key.front() != '.');
  Check(IsJobId(key) == (tenant == kDefaultTenant));
  const std::string spelled = SpelledOut(job);
  Check(IdIn(spelled) == id && NameSpelled(spelled) == JobName(job) && !NamesJob(spelled));
  Check((spelled == key) == (tenant != kDefaultTenant));
  const ResourceName name = {.tenant = std::string(tenant), .id = std::string(id)};
  Check(ParseName(NameSpelled(spelled)) == name);
  snug::v1::DownloadJobRequest request;
  request.set_id(spelled + "/checkpoints/7");
  Check(TakeName("", request).ok() && request.id() == spelled && request.checkpoint_step() == 7);
  // Of a version before keys.
  Job old = job;
  old.clear_key();
  Check(KeyOf(old) == id && JobName(old) == JobName(job));
  CheckRefs(job);
  if (tenant != kOther) CheckSearch(job, NewJob(kOther, id));
}

// What a request's id says of a step and of a file is taken from it, once.
void CheckTakeName(const std::string& text) {
  snug::v1::DownloadJobRequest request;
  request.set_id(text);
  if (!TakeName(std::string(kOther), request).ok()) return;
  const auto name = ParseName(text);
  if (name && name->kind == ResourceName::kJob) {
    Check(request.id() == JobName(name->tenant, name->id) && request.path() == name->artifact);
    Check(request.has_checkpoint_step() == name->checkpoint_step.has_value());
    Check(!name->checkpoint_step || *name->checkpoint_step == request.checkpoint_step());
  } else if (const auto ref = ParseJobRef(text); ref && ref->step) {
    Check(request.id() == ref->job && request.checkpoint_step() == *ref->step);
  }
  const snug::v1::DownloadJobRequest taken = request;
  Check(TakeName(std::string(kOther), request).ok());
  Check(google::protobuf::util::MessageDifferencer::Equals(request, taken));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const auto name = ParseName(text);
  if (name) Check(!name->tenant.empty() && !name->id.empty() && IsName(text));
  if (name) Check(Written(*name) == text);
  // A path that may be opened is no job's.
  const auto ref = ParseJobRef(text);
  if (ref) Check(text.front() != '/' && text.front() != '.' && ParseJobRef(TextOf(*ref)) == ref);
  const std::string for_all = ForAll(text, kOther);
  Check(ref.has_value() ? IsName(for_all) && NamesJob(for_all) : for_all == text);
  Check(ForAll(for_all, kDefaultTenant) == for_all);
  CheckTakeName(text);
  const absl::string_view whole = text;
  CheckKeysDiffer(whole.substr(0, kMostKeyBytes));
  const size_t dot = std::min(text.find('.'), size);
  Check(NameSpelled(text).empty() == (dot == size));
  if (dot == size) return 0;
  const absl::string_view id = whole.substr(0, dot), tenant = whole.substr(dot + 1);
  if (IsJobId(id) && IsJobId(tenant)) CheckJob(tenant, id);
  return 0;
}
