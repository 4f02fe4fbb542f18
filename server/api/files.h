// Sources of what users read of a job's logs.
#ifndef SERVER_API_FILES_H_
#define SERVER_API_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/api/message_source.h"
#include "server/job/job_index.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

// worker.log of every attempt, one after another; with `follow` until the job has ended.
absl::StatusOr<MessageSource<v1::LogChunk>> LogSource(const JobIndex& index,
                                                      const std::string& state_dir,
                                                      const v1::GetJobLogsRequest& request);

}  // namespace snug::server

#endif  // SERVER_API_FILES_H_
