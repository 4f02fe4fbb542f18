// What a spec says of its data, by itself: no file is looked at.
#ifndef SERVER_JOB_CHECK_DATA_H_
#define SERVER_JOB_CHECK_DATA_H_

#include <cstdint>

#include "server/job/spec_checker.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

// A mix is written by hand.
inline constexpr int kMaxDatasets = 100;
// More columns than all formats have fields.
inline constexpr int64_t kMaxColumns = 64;
inline constexpr int64_t kMaxColumnBytes = 1024;
inline constexpr int64_t kMaxSamples = int64_t{1} << 40;
// How often a row may be taken in an epoch; more is several epochs.
inline constexpr double kMaxWeight = 1000.0;

void CheckData(const v1::JobSpec& spec, Checker& check);

}  // namespace snug::server

#endif  // SERVER_JOB_CHECK_DATA_H_
