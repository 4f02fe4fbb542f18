#include "server/scheduler/in_hand.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <utility>

namespace snug::server {
namespace {

constexpr const char* kWorking = "working";

void Write(const std::string& path, int ends, const char* what) {
  std::ofstream(path, std::ios::trunc) << ends << " " << what << "\n";
}

}  // namespace

InHand::InHand(std::string dir) : dir_(std::move(dir)) {
  mkdir(dir_.c_str(), 0700);
  std::error_code ignored;
  for (const auto& file : std::filesystem::directory_iterator(dir_, ignored)) {
    int ends = 0;
    std::string what;
    std::ifstream(file.path()) >> ends >> what;
    if (what == kWorking) ++ends;
    ends_[file.path().filename().string()] = ends;
    Write(file.path().string(), ends, "waiting");
  }
}

// The file is the word on it: it goes when the job is forgotten, or leaves the daemon's hands.
int InHand::EndsOf(const std::string& job) const {
  const auto found = ends_.find(job);
  return found == ends_.end() || access(PathOf(job).c_str(), F_OK) != 0 ? 0 : found->second;
}

bool InHand::IsSuspect(const std::string& job) const { return EndsOf(job) >= kMaxEndsInHand; }

void InHand::Forget(const std::string& job) const { unlink(PathOf(job).c_str()); }

InHand::Hold::Hold(const InHand& in_hand, const std::string& job) : path_(in_hand.PathOf(job)) {
  Write(path_, in_hand.EndsOf(job), kWorking);
}

InHand::Hold::~Hold() { unlink(path_.c_str()); }

}  // namespace snug::server
