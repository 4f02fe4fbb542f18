// What the API is made of.
#ifndef SERVER_API_API_PARTS_H_
#define SERVER_API_API_PARTS_H_

#include <string>

#include "server/answer/answering.h"
#include "server/api/audit.h"
#include "server/api/sessions.h"
#include "server/examine/examination.h"
#include "server/job/tokens.h"
#include "server/scheduler/advice.h"
#include "server/scheduler/fair_pool.h"
#include "server/scheduler/scheduler.h"
#include "server/scheduler/task_pool.h"
#include "server/upload/uploads.h"

namespace snug::server {

// Work for the pool of checks, as FairWork has it.
struct CheckKind {
  std::string key = "";
  bool small = false;
};

// All outlive the API.
struct ApiParts {
  JobStore& store;
  JobIndex& index;
  Scheduler& scheduler;
  Advisor& advisor;
  Answering& answering;
  TaskPool& pool;    // Quick: submits, lists, files of a job.
  FairPool& checks;  // Reads models and datasets: validate_only, plans, previews.
  const Tenants& tenants;
  Tokens& tokens;
  Sessions& sessions;
  AuditLog& audit;
  const Uploads& uploads;
  std::string state_dir;
  Premises premises;    // Of an examination.
  v1::ServerInfo info;  // Less what changes.
};

}  // namespace snug::server

#endif  // SERVER_API_API_PARTS_H_
