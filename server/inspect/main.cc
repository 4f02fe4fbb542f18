// snug-inspect: reads what a user names in the daemon's stead, and answers with facts.
//
// On descriptor 3 it gets one InspectRequest and the open files that it is about, and gives one
// InspectReply; then it ends. It opens nothing: before the first byte of a file is read it is in
// its sandbox, so that a file which makes the reader fail costs this one answer.
#include <signal.h>

#include <cstdio>
#include <vector>

#include "proto/snug/status_macros.h"
#include "server/inspect/facts.h"
#include "server/inspect/sandbox.h"
#include "server/inspect/wire.h"
#include "server/job/check_job.h"
#include "worker/program/files/regular_file.h"

namespace snug::server {
namespace {

constexpr int kSocket = 3;

absl::StatusOr<program::HandedFiles> TakeFiles(const v1::InspectRequest& request) {
  size_t opened = 0;
  for (const v1::InspectFile& file : request.files()) opened += !file.unopened() && !file.error();
  ASSIGN_OR_RETURN(const std::vector<int> fds, ReceiveDescriptors(kSocket, opened));
  program::HandedFiles files;
  size_t next = 0;
  for (const v1::InspectFile& file : request.files()) {
    program::HandedFile& handed = files[file.path()];
    handed.error = file.error();
    if (!file.unopened() && !file.error()) handed.fd = fds[next++];
  }
  return files;
}

absl::StatusOr<v1::InspectReply> Inspect(const v1::InspectRequest& request) {
  absl::StatusOr<std::string> model_dir = request.model_dir();
  if (request.has_model_error()) model_dir = StatusOf(request.model_error());
  ASSIGN_OR_RETURN(const CheckedJob checked,
                   CheckJob(request.spec(), model_dir,
                            request.inputs_done() ? InputFiles::kDone : InputFiles::kNeeded));
  v1::InspectReply reply;
  *reply.mutable_spec() = checked.spec;
  *reply.mutable_model() = FactsOf(checked.program->config);
  // A field that the message lacked would make another program of the facts.
  ASSIGN_OR_RETURN(const program::ModelConfig again, ConfigOf(reply.model()));
  if (again == checked.program->config) return reply;
  return absl::InternalError("the facts of a model lost something on their way");
}

absl::Status Serve() {
  v1::InspectRequest request;
  RETURN_IF_ERROR(ReceiveMessage(kSocket, request));
  ASSIGN_OR_RETURN(const program::HandedFiles files, TakeFiles(request));
  RETURN_IF_ERROR(EnterSandbox({}));
  program::ReadHandedFiles(&files);
  const absl::StatusOr<v1::InspectReply> reply = Inspect(request);
  if (reply.ok()) return SendMessage(kSocket, *reply);
  v1::InspectReply refusal;
  *refusal.mutable_error() = ErrorOf(reply.status());
  return SendMessage(kSocket, refusal);
}

}  // namespace
}  // namespace snug::server

int main() {
  signal(SIGPIPE, SIG_IGN);
  const absl::Status served = snug::server::Serve();
  if (served.ok()) return 0;
  fprintf(stderr, "snug-inspect: %s\n", std::string(served.message()).c_str());
  return 1;
}
