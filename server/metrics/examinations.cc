#include "server/metrics/examinations.h"

#include "server/metrics/series.h"

namespace snug::server {

Examinations::Examinations(prometheus::Registry& registry)
    : findings(Gauges(registry, "snug_store_findings",
                      "What is wrong in the store and its files, by check, when last examined.")),
      examined(Gauges(registry, "snug_store_examined_timestamp_seconds",
                      "When the store and its files were last looked through.")
                   .Add({})) {}

}  // namespace snug::server
