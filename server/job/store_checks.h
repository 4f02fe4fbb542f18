// The whole store, looked through: what `snug doctor` asks for.
//
// Check by check on the store's thread, and the specs in pieces: submits wait for one check at a
// time. The whole is of no one moment; each check compares what was committed together.
#ifndef SERVER_JOB_STORE_CHECKS_H_
#define SERVER_JOB_STORE_CHECKS_H_

#include "absl/status/statusor.h"
#include "server/job/job_store.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

absl::StatusOr<v1::CheckStoreResponse> Examine(JobStore& store);

}  // namespace snug::server

#endif  // SERVER_JOB_STORE_CHECKS_H_
