#include "server/metrics/webhook_calls.h"

namespace snug::server {

WebhookCalls::WebhookCalls(prometheus::Registry& registry) {
  auto& family = prometheus::BuildCounter()
                     .Name("snug_webhook_calls_total")
                     .Help("Calls of ended jobs' webhooks, by what came of them.")
                     .Register(registry);
  for (const char* outcome : {"heard", "failed", "given_up"})
    by_outcome[outcome] = &family.Add({{"outcome", outcome}});
}

}  // namespace snug::server
