// Calls of ended jobs' webhooks, by what came of them.
#ifndef SERVER_METRICS_WEBHOOK_CALLS_H_
#define SERVER_METRICS_WEBHOOK_CALLS_H_

#include <prometheus/counter.h>
#include <prometheus/registry.h>

#include <map>
#include <string>

namespace snug::server {

struct WebhookCalls {
  explicit WebhookCalls(prometheus::Registry& registry);

  std::map<std::string, prometheus::Counter*> by_outcome;  // heard, failed, given_up.
};

}  // namespace snug::server

#endif  // SERVER_METRICS_WEBHOOK_CALLS_H_
