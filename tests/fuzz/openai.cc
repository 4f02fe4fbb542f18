// The body of OpenAI's POST /v1/fine_tuning/jobs, and the metrics of a job as its events.
#include <cstdint>
#include <cstdlib>

#include "server/http/openai_objects.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  using namespace snug::server;
  const absl::string_view text(reinterpret_cast<const char*>(bytes), size);
  const auto spec = SpecOf(text);
  if (spec.ok() && (spec->model().empty() || spec->dataset().empty())) abort();
  if (!spec.ok() && nlohmann::json::parse(ErrorBody(spec.status()))["error"].empty()) abort();
  snug::v1::Job job;
  job.set_id("job");
  const std::vector<nlohmann::json> events = EventObjects(job, text);
  for (const nlohmann::json& event : events)
    if (!event.contains("id")) abort();
  const auto list = ListObject(events, "", 10);
  if (!list.ok() || (*list)["data"].size() > 10) abort();
  return 0;
}
