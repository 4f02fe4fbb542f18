// The files that a job's rows come from, by their names alone: what a pattern matches, what lies in
// a folder. Which of a folder's files are the dataset, snug-prepare decides, who reads them.
//
// A reach says for whom they are looked for. For one with roots all is looked at as he may see it
// himself, so that nothing depends on what lies where he may not look.
#ifndef SERVER_DATA_SOURCES_H_
#define SERVER_DATA_SOURCES_H_

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/data/held_files.h"
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

// Fills in `paths`. An error says what is not there or cannot be read. INVALID_ARGUMENT: a pattern
// of one with roots has *, ? or [ before its last part, so that it would be looked for in folders
// that nobody has named.
absl::Status FindPaths(Source& source, const Reach& reach);

// The folder that a pattern's matches lie below, by its text alone; the path, where it is none.
std::string FixedFolder(const std::string& path);

// That all there is can be found and read; of one without roots nothing is opened.
absl::Status CheckSource(Source source, const Reach& reach);

// The same of what it names: the file, the folder, the folder that a pattern's matches lie below.
absl::Status CheckNamed(Source source, const Reach& reach);

// A file that the rows depend on. Its name decides how it is read, and its order.
struct SourceFile {
  std::string path;
  std::string name;  // Within its folder, or what a pattern's folder is.
};
// Of one with roots also links that cannot be opened for him: that is said where they are opened.
absl::StatusOr<std::vector<SourceFile>> FilesOf(const Source& source, const Reach& reach);

// Of all its datasets; of one that is not there none.
std::vector<SourceFile> DatasetFiles(const v1::JobSpec& spec, const Reach& reach);

// What is said of a source beside its files, for a hash.
std::string OptionsKey(const Source& source);

// Which rows a job names, by its words alone: two specs with one key name the same.
std::string SourcesKey(const v1::JobSpec& spec);

// For snug_prepare.py --sources.
absl::Status WriteSources(const std::vector<Source>& sources, const std::string& path);

}  // namespace snug::server

#endif  // SERVER_DATA_SOURCES_H_
