#include "server/metrics/removals.h"

#include "server/metrics/series.h"

namespace snug::server {

Removals::Removals(prometheus::Registry& registry)
    : bytes(prometheus::BuildCounter()
                .Name("snug_retention_removed_bytes_total")
                .Help("Bytes on the disk that retention has removed.")
                .Register(registry)
                .Add({})),
      held(Gauges(registry, "snug_retention_held_jobs",
                  "Jobs over a limit of retention that others refer to, at the last sweep.")
               .Add({})),
      swept(Gauges(registry, "snug_retention_swept_timestamp_seconds",
                   "When all ended jobs were last held to the limits of retention.")
                .Add({})) {
  auto& family =
      prometheus::BuildCounter()
          .Name("snug_retention_removed_total")
          .Help("Ended jobs that retention has removed something of, and files, by what.")
          .Register(registry);
  for (const char* what : {"job", "checkpoints", "logs", "file", "dataset"})
    removed[what] = &family.Add({{"what", what}});
}

}  // namespace snug::server
