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

bool InHand::IsSuspect(const std::string& job) const {
  const auto found = ends_.find(job);
  return found != ends_.end() && found->second >= kMaxEndsInHand;
}

void InHand::Forget(const std::string& job) const { unlink(PathOf(job).c_str()); }

InHand::Hold::Hold(const InHand& in_hand, const std::string& job) : path_(in_hand.PathOf(job)) {
  const auto found = in_hand.ends_.find(job);
  Write(path_, found == in_hand.ends_.end() ? 0 : found->second, kWorking);
}

InHand::Hold::~Hold() { unlink(path_.c_str()); }

}  // namespace snug::server
