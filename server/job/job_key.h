// What the daemon calls a job: in its store, folders, logs, metrics and control groups, and on the
// workers' links. Ids are each tenant's own; keys are one set.
#ifndef SERVER_JOB_JOB_KEY_H_
#define SERVER_JOB_JOB_KEY_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "snug/v1/job.pb.h"

namespace snug::server {

// Of a new job: its id where it is the unix socket's users', else ID.TENANT, which is no id, as no
// id has a dot.
std::string KeyFor(absl::string_view tenant, absl::string_view id);

// Of a job that there is. Those of a version before keys are called by their ids, whoever's they
// are.
inline const std::string& KeyOf(const v1::Job& job) {
  return job.key().empty() ? job.id() : job.key();
}

// The id of the job of that key.
absl::string_view IdIn(absl::string_view key);

// ID.TENANT, which is the key of most: whoever writes it means that job.
std::string SpelledOut(const v1::Job& job);
// The name of the job that is spelled out so; empty: it is no such text.
std::string NameSpelled(absl::string_view text);

// Which job somebody means by an id or a beginning of one: his own tenant's of that id, else the
// only one of that id, else the only one that begins so.
class JobSearch {
 public:
  // `tenant`: of who asks.
  JobSearch(absl::string_view text, absl::string_view tenant) : text_(text), tenant_(tenant) {}

  // A job of `tenant` that he may see, whose id is the text or begins with it. Once each.
  void Consider(absl::string_view key, absl::string_view tenant);

  // Whether there is one of that very id: then no others need to be looked at.
  bool any_whole() const { return wholes_ > 0; }
  // Its key. NOT_FOUND, or INVALID_ARGUMENT: it is several.
  absl::StatusOr<std::string> Found() const;

 private:
  const std::string text_, tenant_;
  std::string own_, whole_, first_;  // Keys.
  int matches_ = 0, wholes_ = 0;
};

}  // namespace snug::server

#endif  // SERVER_JOB_JOB_KEY_H_
