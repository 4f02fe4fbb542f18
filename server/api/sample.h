// The answers to a request, as a source of chunks for its stream.
#ifndef SERVER_API_SAMPLE_H_
#define SERVER_API_SAMPLE_H_

#include "absl/status/statusor.h"
#include "server/answer/answering.h"
#include "server/api/message_source.h"

namespace snug::server {

// `request` has the job's whole id. Dropping the source ends the answers.
absl::StatusOr<MessageSource<v1::SampleChunk>> AnswerSource(Answering& answering,
                                                            const v1::SampleRequest& request);

}  // namespace snug::server

#endif  // SERVER_API_SAMPLE_H_
