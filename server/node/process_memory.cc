#include "server/node/process_memory.h"

#include <cstdio>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"

namespace snug::server {

int64_t PeakResidentBytes(pid_t process) {
  std::ifstream status(absl::StrCat("/proc/", process, "/status"));
  for (std::string line; std::getline(status, line);) {
    int64_t kib = 0;
    if (std::sscanf(line.c_str(), "VmHWM: %ld kB", &kib) == 1) return kib * 1024;
  }
  return 0;
}

}  // namespace snug::server
