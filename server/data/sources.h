// The files that a job's rows come from, by their names alone: what a pattern matches, what lies in
// a folder. Which of a folder's files are the dataset, snug-prepare decides, who reads them.
#ifndef SERVER_DATA_SOURCES_H_
#define SERVER_DATA_SOURCES_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

// A path as a job names it, and what it stands for.
struct Source {
  v1::DatasetSource spec;
  std::string field;                    // Of the job: "dataset", "datasets[1]", "eval_dataset".
  std::vector<std::string> paths = {};  // Files and folders, in the order of their names.
};

inline constexpr size_t kMaxSourceFiles = 100'000;  // Of a folder; more is no dataset's.

// Those of the job's training or evaluation set; their paths are not looked for yet.
std::vector<Source> TrainSources(const v1::JobSpec& spec);
std::vector<Source> EvalSources(const v1::JobSpec& spec);

// Fills in `paths`. An error says what is not there or cannot be read.
absl::Status FindPaths(Source& source);

// The folder that a pattern's matches lie below, by its text alone; the path, where it is none.
std::string FixedFolder(const std::string& path);

// That all there is can be found and read; nothing is opened.
absl::Status CheckSource(Source source);

// The same of what it names: the file, the folder, the folder that a pattern's matches lie below.
absl::Status CheckNamed(Source source);

// A file that the rows depend on. Its name decides how it is read, and its order.
struct SourceFile {
  std::string path;
  std::string name;  // Within its folder, or what a pattern's folder is.
};
absl::StatusOr<std::vector<SourceFile>> FilesOf(const Source& source);

// What is said of a source beside its files, for a hash.
std::string OptionsKey(const Source& source);

// Which rows a job names, by its words alone: two specs with one key name the same.
std::string SourcesKey(const v1::JobSpec& spec);

// For snug_prepare.py --sources.
absl::Status WriteSources(const std::vector<Source>& sources, const std::string& path);

}  // namespace snug::server

#endif  // SERVER_DATA_SOURCES_H_
