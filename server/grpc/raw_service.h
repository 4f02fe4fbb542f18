// The service whose methods get bytes: gRPC's own parsing answers UNIMPLEMENTED to those that do
// not parse.
#ifndef SERVER_GRPC_RAW_SERVICE_H_
#define SERVER_GRPC_RAW_SERVICE_H_

#include "snug/v1/service.grpc.pb.h"

namespace snug::server {

// WithRawCallbackMethod_A<WithRawCallbackMethod_B<...Service>>, without the nesting.
template <template <typename> typename... Methods>
struct Raw {
  using Service = v1::FineTuning::Service;
};
template <template <typename> typename Method, template <typename> typename... Rest>
struct Raw<Method, Rest...> {
  using Service = Method<typename Raw<Rest...>::Service>;
};

using RawService = Raw<
    v1::FineTuning::WithRawCallbackMethod_CreateJob, v1::FineTuning::WithRawCallbackMethod_PlanJob,
    v1::FineTuning::WithRawCallbackMethod_GetJob, v1::FineTuning::WithRawCallbackMethod_ListJobs,
    v1::FineTuning::WithRawCallbackMethod_CancelJob, v1::FineTuning::WithRawCallbackMethod_PauseJob,
    v1::FineTuning::WithRawCallbackMethod_ResumeJob,
    v1::FineTuning::WithRawCallbackMethod_SqueezeJob,
    v1::FineTuning::WithRawCallbackMethod_RelaxJob, v1::FineTuning::WithRawCallbackMethod_UpdateJob,
    v1::FineTuning::WithRawCallbackMethod_RerunJob, v1::FineTuning::WithRawCallbackMethod_ExtendJob,
    v1::FineTuning::WithRawCallbackMethod_DeleteJob,
    v1::FineTuning::WithRawCallbackMethod_GetServerInfo,
    v1::FineTuning::WithRawCallbackMethod_WatchJob,
    v1::FineTuning::WithRawCallbackMethod_GetJobLogs,
    v1::FineTuning::WithRawCallbackMethod_GetMetricHistory,
    v1::FineTuning::WithRawCallbackMethod_DownloadJob,
    v1::FineTuning::WithRawCallbackMethod_ListArtifacts,
    v1::FineTuning::WithRawCallbackMethod_ListCheckpoints,
    v1::FineTuning::WithRawCallbackMethod_PreviewDataset,
    v1::FineTuning::WithRawCallbackMethod_Sample, v1::FineTuning::WithRawCallbackMethod_BackupStore,
    v1::FineTuning::WithRawCallbackMethod_CheckStore,
    v1::FineTuning::WithRawCallbackMethod_UploadFile,
    v1::FineTuning::WithRawCallbackMethod_GetUpload,
    v1::FineTuning::WithRawCallbackMethod_ListFiles, v1::FineTuning::WithRawCallbackMethod_GetFile,
    v1::FineTuning::WithRawCallbackMethod_DeleteFile,
    v1::FineTuning::WithRawCallbackMethod_CreateSession,
    v1::FineTuning::WithRawCallbackMethod_DrainDevice,
    v1::FineTuning::WithRawCallbackMethod_UndrainDevice,
    v1::FineTuning::WithRawCallbackMethod_CreateToken,
    v1::FineTuning::WithRawCallbackMethod_ListTokens,
    v1::FineTuning::WithRawCallbackMethod_RevokeToken>::Service;

}  // namespace snug::server

#endif  // SERVER_GRPC_RAW_SERVICE_H_
