#include "server/scheduler/in_hand.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/node/attempt_files.h"

namespace snug::server {
namespace {

constexpr size_t kLineBytes = 160;                // A job's key has 127 at most.
constexpr int64_t kMostBytes = int64_t{1} << 20;  // Far more lines than threads that work.
constexpr const char* kWorking = "working";

}  // namespace

InHand::InHand(const std::string& path) {
  absl::MutexLock lock(&mutex_);
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))  // Of a version that kept a file for each job.
    std::filesystem::remove_all(path, ignored);
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  const std::string text = ReadSmallFile(path, kMostBytes).value_or("");
  Lines told;  // Anew, as a version before had shorter lines.
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    std::istringstream words{std::string(line)};
    int ends = 0;
    std::string what, job;
    if (!(words >> ends >> what >> job)) continue;
    if (what == kWorking) ++ends;
    const auto [at, is_new] = jobs_.try_emplace(job);
    if (is_new) at->second.line = lines_++;
    at->second.ends = ends;
    Tell(at, told);
  }
  Write(told);
  const int ignored_too = ftruncate(fd_, static_cast<off_t>(lines_ * kLineBytes));
  (void)ignored_too;
}

InHand::~InHand() {
  if (fd_ >= 0) close(fd_);
}

bool InHand::IsSuspect(const std::string& job) const {
  absl::MutexLock lock(&mutex_);
  const auto found = jobs_.find(job);
  return found != jobs_.end() && found->second.ends >= kMaxEndsInHand;
}

void InHand::Forget(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  found->second.ends = 0;
  Lines lines;
  Tell(found, lines);
  Write(lines);
}

void InHand::Take(const std::vector<std::string>& jobs) {
  absl::MutexLock lock(&mutex_);
  Lines lines;
  for (const std::string& job : jobs) {
    const auto at = Enter(job);
    ++at->second.holds;
    Tell(at, lines);
  }
  Write(lines);
}

void InHand::Free(const std::vector<std::string>& jobs) {
  absl::MutexLock lock(&mutex_);
  Lines lines;
  for (const std::string& job : jobs) {
    const auto found = jobs_.find(job);
    --found->second.holds;
    Tell(found, lines);
  }
  Write(lines);
}

InHand::Jobs::iterator InHand::Enter(const std::string& job) {
  const auto [at, is_new] = jobs_.try_emplace(job);
  if (is_new && free_.empty()) {
    at->second.line = lines_++;
  } else if (is_new) {
    at->second.line = free_.back();
    free_.pop_back();
  }
  return at;
}

void InHand::Tell(Jobs::iterator job, Lines& lines) {
  const auto& [ends, holds, line] = job->second;
  std::string& text = lines[line];
  if (holds > 0 || ends > 0) {
    text = absl::StrCat(ends, " ", holds > 0 ? kWorking : "waiting", " ", job->first);
    return;
  }
  text.clear();
  free_.push_back(line);
  jobs_.erase(job);
}

// Lines that lie side by side are written at once. Best effort: without it the next life has
// nothing to suspect.
void InHand::Write(const Lines& lines) const {
  for (auto at = lines.begin(); at != lines.end();) {
    const size_t first = at->first;
    std::string block;
    for (; at != lines.end() && at->first == first + block.size() / kLineBytes; ++at) {
      std::string line = at->second.substr(0, kLineBytes - 1);
      line.resize(kLineBytes - 1, ' ');
      absl::StrAppend(&block, line, "\n");
    }
    const ssize_t ignored = TEMP_FAILURE_RETRY(
        pwrite(fd_, block.data(), block.size(), static_cast<off_t>(first * kLineBytes)));
    (void)ignored;
  }
}

InHand::Hold::Hold(InHand& in_hand, std::vector<std::string> jobs)
    : in_hand_(in_hand), jobs_(std::move(jobs)) {
  in_hand_.Take(jobs_);
}

InHand::Hold::~Hold() { in_hand_.Free(jobs_); }

}  // namespace snug::server
