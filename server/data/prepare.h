// Datasets made ready for training: runs snug-prepare, once per content.
//
// A prepared dataset lies in <state>/datasets/<hash>; the hash covers everything that its content
// depends on, so a folder that exists is right. A run writes in a folder of its own, out of which
// the result is renamed into place: a killed daemon or a killed run leaves nothing that is found
// later.
#ifndef SERVER_DATA_PREPARE_H_
#define SERVER_DATA_PREPARE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/data/contents.h"
#include "server/data/file_server.h"
#include "server/data/held_files.h"
#include "server/data/memory_shares.h"
#include "server/data/prepare_run.h"
#include "server/data/sources.h"
#include "server/node/process.h"
#include "server/plan/planner.h"
#include "snug/v1/job.pb.h"
#include "snug/v1/service.pb.h"

namespace snug::server {

struct PreparedFolders {
  std::string train;
  std::string eval;          // Empty: no evaluation set.
  std::string prompts = {};  // A file; empty: none.
  bool ready = false;        // All are there.
};

// What planning reads of prepared data.
struct PreparedFacts {
  v1::DatasetSummary summary;
  RowLengths lengths;
};

// Somebody waits for his answer meanwhile.
inline constexpr absl::Duration kWaitToLook = absl::Seconds(10);

class Preparer {
 public:
  explicit Preparer(PrepareSettings settings) : settings_(std::move(settings)) {}

  using Progress = PrepareProgress;

  // How many datasets are prepared at a time: each has memory_bytes.
  void AllowAtATime(int datasets) { datasets_.SetCount(datasets); }

  // Where the job's prepared data lies or will lie. `spec` has its defaults filled in. Reads the
  // dataset's files whole when they are new: CANCELLED, DEADLINE_EXCEEDED by `progress`.
  absl::StatusOr<PreparedFolders> Locate(const v1::JobSpec& spec, const std::string& model_dir,
                                         const Progress& progress);

  // Runs what is missing. Errors of the dataset carry its file, line and reason.
  absl::StatusOr<PreparedFolders> Prepare(const v1::JobSpec& spec, const std::string& model_dir,
                                          const Progress& progress);

  // Of folders that are ready; read once, however many jobs train on them.
  absl::StatusOr<std::shared_ptr<const PreparedFacts>> FactsOf(const PreparedFolders& folders)
      ABSL_LOCKS_EXCLUDED(mutex_);

  struct Look {
    const std::string& model_dir;
    int rows = 0;          // That are shown,
    int scanned_rows = 0;  // that are checked; 0: as many as a few seconds allow.
    absl::Duration wait = kWaitToLook;  // Then it is RESOURCE_EXHAUSTED.
  };
  // The first rows as they would be trained, and what the checks find. Of the spec, model, dataset,
  // the options of data and max_seq_length are read (0 = the default). Nothing is kept.
  absl::StatusOr<v1::PreviewDatasetResponse> Preview(const v1::JobSpec& spec, const Look& look,
                                                     const Progress& progress);

  // Prompts that somebody asks a model, as a worker needs them, into `file`.
  struct AskedPrompts {
    const v1::JobSpec& spec;       // Whose added tokens the tokenizer gets.
    const std::string& model_dir;  // Whose tokenizer.
    std::string chat_template;     // A text or a name; empty: the model's.
    const google::protobuf::RepeatedPtrField<v1::SamplePrompt>& prompts;
    int64_t max_tokens = 0;  // Of each.
  };
  absl::Status Tokenise(const AskedPrompts& asked, const std::string& file,
                        const Progress& progress);

  // What has to be there for any dataset to be prepared and is not, in words; empty: all is there.
  std::string Missing() const;

  // Of folders that a run left unfinished. Call before the first Prepare.
  void RemoveLeftovers();

 private:
  struct Job {
    std::vector<Source> sources;
    std::string output;
    double eval_split = 0.0;
    std::string eval_output;
  };
  // The files that a job's prepared data is made of.
  struct Inputs {
    HeldFiles model;
    HeldFiles rows = {};     // Of the dataset and the evaluation set.
    Contents contents = {};  // Of all that were looked at.
    // One that is held is that file, whatever lies under its path.
    int Open(const std::string& path, const Reach& reach) const;
  };
  absl::StatusOr<PreparedFolders> LocateBy(const v1::JobSpec& spec, Inputs& inputs,
                                           const Progress& progress);
  absl::Status RunPrepare(const Job& job, const v1::JobSpec& spec, const std::string& model_dir,
                          Inputs& inputs, const Progress& progress);
  absl::Status CheckUnchanged(const Job& job, const v1::JobSpec& spec, Inputs& inputs,
                              const Progress& progress);
  absl::Status RunPrompts(const v1::JobSpec& spec, const std::string& model_dir,
                          const HeldFiles& model, const std::string& file,
                          const Progress& progress);
  // RunScript, once there is memory for it.
  static absl::Status RunInShare(MemoryShares& shares, RunOptions run, const std::string& field,
                                 const Progress& progress,
                                 absl::Duration wait = absl::InfiniteDuration());
  RunOptions PromptsCommand(const v1::JobSpec& spec, const std::string& model_dir,
                            const FileServer& files, const std::string& output,
                            const Progress& progress) const;
  absl::StatusOr<std::string> ContentHash(const std::string& path, Inputs& inputs,
                                          const Progress& progress);
  absl::StatusOr<std::string> FolderOf(std::vector<Source> sources, const v1::JobSpec& spec,
                                       bool split, Inputs& inputs, const Progress& progress);
  absl::StatusOr<std::string> SourceHash(Source& source, Inputs& inputs, const Progress& progress);
  // Below 0 with kIsAnother where it holds something else by now.
  int OpenAsItWas(const std::string& path, const Inputs& inputs, const Progress& progress);

  const PrepareSettings settings_;
  MemoryShares datasets_{2};  // A large one and a small one.
  MemoryShares looks_{2};
  ContentMemo contents_;
  absl::Mutex mutex_;
  std::map<std::string, std::shared_ptr<const PreparedFacts>> facts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace snug::server

#endif  // SERVER_DATA_PREPARE_H_
