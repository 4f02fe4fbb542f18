// Names of resources, and jobs that are named where a path could be.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/job/job_ref.h"
#include "server/job/names.h"

namespace {

// The name, from what was read of it.
std::string Written(const snug::server::ResourceName& name) {
  using namespace snug::server;
  if (name.kind == ResourceName::kDataset) return DatasetName(name.tenant, name.id);
  if (name.kind == ResourceName::kToken) return TokenName(name.tenant, name.id);
  std::string text = JobName(name.tenant, name.id);
  if (name.checkpoint_step) absl::StrAppend(&text, "/checkpoints/", *name.checkpoint_step);
  if (!name.artifact.empty()) absl::StrAppend(&text, "/artifacts/", name.artifact);
  return text;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace snug::server;
  const std::string text(reinterpret_cast<const char*>(bytes), size);
  const auto name = ParseName(text);
  if (name && (name->tenant.empty() || name->id.empty() || !IsName(text))) abort();
  if (name && Written(*name) != text) abort();
  const auto ref = ParseJobRef(text);
  // A path that may be opened is no job's.
  if (ref && (text.front() == '/' || text.front() == '.')) abort();
  if (ref && ParseJobRef(TextOf(*ref)) != ref) abort();
  return 0;
}
