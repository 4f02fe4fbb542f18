// What can be said of a JobSpec without opening a file: every violation at once, and the defaults.
#ifndef SERVER_JOB_CHECK_SPEC_H_
#define SERVER_JOB_CHECK_SPEC_H_

#include <cstdint>
#include <vector>

#include "server/job/errors.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

// Bounds of a job's numbers. Beyond them lies a typing error, or a size whose products would not
// fit 64 bits.
inline constexpr int64_t kMaxBatchRows = 1 << 20;
// Of per_device_train_batch_size and max_seq_length: left to the daemon, `auto` in a job file.
inline constexpr int32_t kAuto = -1;
inline constexpr int64_t kMaxSteps = 1'000'000'000;
inline constexpr int64_t kMaxSequenceTokens = 4'194'304;
inline constexpr int64_t kMaxPriority = 1000;
inline constexpr double kDefaultMaxSlowdown = 1.5;
inline constexpr double kHighestMaxSlowdown = 1e6;
inline constexpr int64_t kMaxPathBytes = 1024;
inline constexpr int64_t kMaxDisplayNameBytes = 128;
// Each is an argument of snug-prepare: far below what Linux passes on in all (2 MB).
inline constexpr int64_t kMaxAddedTokens = 1000;
inline constexpr int64_t kMaxAddedTokenBytes = 128;
// As are these.
inline constexpr int64_t kMaxLabelNames = 1000;
inline constexpr int64_t kMaxLabelNameBytes = 128;
// The longest template of a model seen has 20 kB; an argument of a process has 128 KiB at most.
inline constexpr int64_t kMaxChatTemplateBytes = 100'000;
// A pattern for every layer of the largest models and some more; each is tried on every site.
inline constexpr int64_t kMaxStashPatterns = 256;
inline constexpr int64_t kMaxStashPatternBytes = 128;

// Why a job whose base is in codes, by its spec or by the model's files, has no `merge`.
inline constexpr char kNoMergeWithCodes[] =
    "the adapter is trained beside quantised weights, and would be merged into others: leave it "
    "out and take the adapter";

std::vector<Violation> CheckSpec(const v1::JobSpec& spec);

// Of what a preview reads alone: model, dataset and how it is read, max_seq_length.
std::vector<Violation> CheckDatasetSpec(const v1::JobSpec& spec);

// Whether memory.gradients could be released: nothing is clipped, nor accumulated.
bool MayReleaseGradients(const v1::TrainingSpec& training);

// The job's max_slowdown, also of one that an older version has stored; 0: there is no bound.
double MaxSlowdown(const v1::JobSpec& spec);

// Fills in what was not given, as job.proto says. `model_limit_tokens` caps the default of
// max_seq_length.
void FillDefaults(v1::JobSpec& spec, int64_t model_limit_tokens);

}  // namespace snug::server

#endif  // SERVER_JOB_CHECK_SPEC_H_
