#include "server/retention/file_sweep.h"

#include "server/retention/tally.h"

namespace snug::server {

void NamedFiles::Note(const v1::Job& job) {
  const v1::JobSpec& spec = job.spec();
  for (const std::string& path : {spec.dataset(), spec.eval_dataset()})
    if (!path.empty()) paths_.insert(path);
  for (const v1::DatasetSource& source : spec.datasets()) paths_.insert(source.path());
}

std::vector<std::string> FilesToGo(const KeepLimits& limits,
                                   const std::vector<SentFile>& newest_first) {
  Tally tally(limits);
  std::vector<std::string> go;
  for (const SentFile& file : newest_first) {
    if (file.named || tally.Fits(file.age, file.bytes))
      tally.Add(file.bytes);
    else
      go.push_back(file.id);
  }
  return go;
}

}  // namespace snug::server
