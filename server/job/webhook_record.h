// A row of the store's webhooks: a call that an ended job's webhook waits for.
#ifndef SERVER_JOB_WEBHOOK_RECORD_H_
#define SERVER_JOB_WEBHOOK_RECORD_H_

#include <cstdint>
#include <string>

namespace snug::server {

struct WebhookRecord {
  std::string job;
  int64_t due_us = 0;  // Wall time before which it is not called.
  int64_t tries = 0;   // That have failed.
  bool done = false;   // It is called no more.
};

}  // namespace snug::server

#endif  // SERVER_JOB_WEBHOOK_RECORD_H_
