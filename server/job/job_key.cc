#include "server/job/job_key.h"

#include "absl/strings/str_cat.h"
#include "server/job/errors.h"
#include "server/job/names.h"
#include "server/job/principal.h"

namespace snug::server {

std::string KeyFor(absl::string_view tenant, absl::string_view id) {
  return tenant == kDefaultTenant ? std::string(id) : absl::StrCat(id, ".", tenant);
}

absl::string_view IdIn(absl::string_view key) { return key.substr(0, key.find('.')); }

std::string SpelledOut(const v1::Job& job) {
  return absl::StrCat(job.id(), ".", TenantOf(job.owner()));
}

std::string NameSpelled(absl::string_view text) {
  const size_t dot = text.find('.');
  if (dot == absl::string_view::npos) return "";
  return JobName(text.substr(dot + 1), text.substr(0, dot));
}

void JobSearch::Consider(absl::string_view key, absl::string_view tenant) {
  if (++matches_ == 1) first_ = std::string(key);
  if (IdIn(key) != text_) return;
  if (++wholes_ == 1) whole_ = std::string(key);
  if (tenant == tenant_) own_ = std::string(key);
}

absl::StatusOr<std::string> JobSearch::Found() const {
  if (!own_.empty()) return own_;
  if (wholes_ > 1) return JobOfManyTenants(text_, wholes_);
  if (wholes_ == 1) return whole_;
  if (matches_ > 1) return AmbiguousJob(text_, matches_);
  if (matches_ == 1) return first_;
  return JobNotFound(text_);
}

}  // namespace snug::server
