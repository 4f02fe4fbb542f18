#include "server/metrics/examinations.h"

namespace snug::server {

Examinations::Examinations(prometheus::Registry& registry)
    : findings(prometheus::BuildGauge()
                   .Name("snug_store_findings")
                   .Help("What is wrong in the store and its files, by check, when last examined.")
                   .Register(registry)),
      examined(prometheus::BuildGauge()
                   .Name("snug_store_examined_timestamp_seconds")
                   .Help("When the store and its files were last looked through.")
                   .Register(registry)
                   .Add({})) {}

}  // namespace snug::server
