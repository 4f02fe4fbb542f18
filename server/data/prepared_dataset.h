// A prepared dataset as the daemon reads it: how long each row is, and what snug-prepare said about
// it. Never the tokens.
#ifndef SERVER_DATA_PREPARED_DATASET_H_
#define SERVER_DATA_PREPARED_DATASET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/data/prepare.h"
#include "server/plan/planner.h"
#include "snug/v1/job.pb.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

// Of the rows, from row_offsets of <dir>/dataset.safetensors.
absl::StatusOr<program::LengthCounts> ReadLengths(const std::string& dir);
// Of what they are made of, from source_offsets; empty where they have no sources.
absl::StatusOr<program::LengthCounts> ReadSourceLengths(const std::string& dir);

// Of the rows and prompts of a job's data, which is there.
absl::StatusOr<PreparedFacts> ReadFacts(const PreparedFolders& folders);

// <dir>/summary.json
absl::StatusOr<v1::DatasetSummary> ReadSummary(const std::string& dir);

// What snug-prepare wrote as a preview.
absl::StatusOr<v1::PreviewDatasetResponse> ReadPreview(const std::string& path);

}  // namespace snug::server

#endif  // SERVER_DATA_PREPARED_DATASET_H_
