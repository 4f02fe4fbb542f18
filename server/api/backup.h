// A copy of the store as chunks: written beside the store, read, and removed.
#ifndef SERVER_API_BACKUP_H_
#define SERVER_API_BACKUP_H_

#include <string>

#include "server/api/message_source.h"
#include "server/job/job_store.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

// What daemons that were killed meanwhile have left. No other may run.
void RemoveLeftBackups(const std::string& state_dir);

MessageSource<v1::FileChunk> BackupSource(JobStore& store, const std::string& state_dir);

}  // namespace snug::server

#endif  // SERVER_API_BACKUP_H_
