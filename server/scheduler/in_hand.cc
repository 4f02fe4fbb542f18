#include "server/scheduler/in_hand.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace snug::server {
namespace {

constexpr size_t kLineBytes = 96;  // A job's id has 63 at most.
constexpr const char* kWorking = "working";

std::string ReadAll(int fd) {
  std::string text;
  char piece[4096];
  for (ssize_t got; (got = read(fd, piece, sizeof piece)) > 0;)
    text.append(piece, static_cast<size_t>(got));
  return text;
}

}  // namespace

InHand::InHand(const std::string& path) {
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))  // Of a version that kept a file for each job.
    std::filesystem::remove_all(path, ignored);
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  const std::string text = ReadAll(fd_);
  lines_ = text.size() / kLineBytes;
  for (size_t line = 0; line < lines_; ++line) {
    std::istringstream words(text.substr(line * kLineBytes, kLineBytes));
    int ends = 0;
    std::string what, job;
    if (!(words >> ends >> what >> job)) {
      free_.push_back(line);
      continue;
    }
    if (what == kWorking) ++ends;
    left_[job] = {.ends = ends, .line = line};
    Write(line, absl::StrCat(ends, " waiting ", job));
  }
}

InHand::~InHand() {
  if (fd_ >= 0) close(fd_);
}

bool InHand::IsSuspect(const std::string& job) const {
  absl::MutexLock lock(&mutex_);
  const auto found = left_.find(job);
  return found != left_.end() && found->second.ends >= kMaxEndsInHand;
}

void InHand::Forget(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  const auto found = left_.find(job);
  if (found == left_.end()) return;
  Write(found->second.line, "");
  free_.push_back(found->second.line);
  left_.erase(found);
}

size_t InHand::Take(const std::string& job) {
  absl::MutexLock lock(&mutex_);
  Left mine;
  if (const auto found = left_.find(job); found != left_.end()) {
    mine = found->second;
    left_.erase(found);
  } else if (!free_.empty()) {
    mine.line = free_.back();
    free_.pop_back();
  } else {
    mine.line = lines_++;
  }
  Write(mine.line, absl::StrCat(mine.ends, " ", kWorking, " ", job));
  return mine.line;
}

void InHand::Free(size_t line) {
  absl::MutexLock lock(&mutex_);
  Write(line, "");
  free_.push_back(line);
}

// Best effort: without it the next life has nothing to suspect.
void InHand::Write(size_t line, absl::string_view text) const {
  std::string padded(text.substr(0, kLineBytes - 1));
  padded.resize(kLineBytes - 1, ' ');
  padded += '\n';
  const ssize_t ignored =
      pwrite(fd_, padded.data(), padded.size(), static_cast<off_t>(line * kLineBytes));
  (void)ignored;
}

InHand::Hold::Hold(InHand& in_hand, const std::string& job)
    : in_hand_(in_hand), line_(in_hand.Take(job)) {}

InHand::Hold::~Hold() { in_hand_.Free(line_); }

}  // namespace snug::server
