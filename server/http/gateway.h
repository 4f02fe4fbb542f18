// Calls of the daemon's own API for who came over HTTP: with what he showed, so that one table says
// who may do what, whichever way he came.
#ifndef SERVER_HTTP_GATEWAY_H_
#define SERVER_HTTP_GATEWAY_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "snug/v1/service.grpc.pb.h"

namespace snug::server {

using Api = v1::FineTuning::Stub;

class Gateway {
 public:
  // Until then every call is UNAVAILABLE.
  void Connect(const std::shared_ptr<grpc::Channel>& channel) ABSL_LOCKS_EXCLUDED(mutex_);

  // `secret`: of a session or a token. UNAUTHENTICATED also for what cannot be one.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Call(grpc::Status (Api::*method)(grpc::ClientContext*, const Request&,
                                                            Response*),
                                const std::string& secret, const Request& request) const {
    grpc::ClientContext context;
    const absl::StatusOr<std::shared_ptr<Api>> api = Prepare(secret, context);
    if (!api.ok()) return api.status();
    Response response;
    const grpc::Status status = (**api.*method)(&context, request, &response);
    if (!status.ok()) return FromGrpc(status);
    return response;
  }

  // An upload under way: chunks, and then the end. Dropped before that, it has broken off.
  class Sending;
  absl::StatusOr<std::unique_ptr<Sending>> Send(const std::string& secret,
                                                const std::string& filename) const;

  // All lines of a job's metrics.jsonl.
  absl::StatusOr<std::string> MetricsOf(const std::string& secret, const std::string& job) const;

 private:
  absl::StatusOr<std::shared_ptr<Api>> Prepare(const std::string& secret,
                                               grpc::ClientContext& context) const
      ABSL_LOCKS_EXCLUDED(mutex_);
  static absl::Status FromGrpc(const grpc::Status& status);

  mutable absl::Mutex mutex_;
  std::shared_ptr<Api> api_ ABSL_GUARDED_BY(mutex_);
};

class Gateway::Sending {
 public:
  ~Sending();

  // False: the daemon takes no more, and the end says why.
  bool Write(absl::string_view content);
  absl::StatusOr<v1::File> End();

 private:
  friend class Gateway;
  grpc::ClientContext context_;
  std::shared_ptr<Api> api_;
  v1::File file_;
  std::unique_ptr<grpc::ClientWriter<v1::UploadFileRequest>> writer_;
};

}  // namespace snug::server

#endif  // SERVER_HTTP_GATEWAY_H_
