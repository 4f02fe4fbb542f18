#include "server/node/launcher.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"
#include "proto/snug/status_macros.h"
#include "server/node/attempt_files.h"
#include "server/node/process.h"

namespace snug::server {
namespace {

constexpr absl::Duration kMeasureTimeout =
    absl::Seconds(60);  // LibTorch starts in 0.5-1 s; a cold disk takes longer.

absl::Status MakeFolder(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) return absl::InternalError(absl::StrCat("cannot make ", dir, ": ", error.message()));
  return absl::OkStatus();
}

absl::Status WriteFile(const std::string& path, const std::string& bytes) {
  std::ofstream file(path + ".tmp", std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file || rename((path + ".tmp").c_str(), path.c_str()) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write ", path));
  return absl::OkStatus();
}

// As the kernel names the first one.
std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, "model name")) return line;
  }
  return "";
}

// Changes whenever the worker is built or installed anew, with the processor, and with what of it
// is to be used.
absl::StatusOr<std::string> IdentityOf(const std::string& binary) {
  struct stat status {};
  if (stat(binary.c_str(), &status) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot find the worker ", binary));
  const char* isa = getenv("SNUG_CPU_ISA");
  return absl::StrCat(binary, "|", status.st_size, "|", status.st_mtim.tv_sec, ".",
                      status.st_mtim.tv_nsec, "|", ProcessorName(), "|", isa == nullptr ? "" : isa);
}

// Nothing where the text says nothing, or says it of another worker.
NodeFacts FactsIn(const std::string& text, const std::string* identity) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return {};
  if (identity != nullptr && (!json.contains("worker") || json["worker"] != *identity)) return {};
  NodeFacts facts;
  const auto bytes = json.find("context_bytes"), products = json.find("products");
  if (bytes != json.end() && bytes->is_number_integer()) bytes->get_to(facts.context_bytes);
  if (products != json.end() && products->is_string()) products->get_to(facts.products);
  return facts;
}

}  // namespace

absl::StatusOr<pid_t> LaunchAttempt(const LauncherSettings& settings,
                                    const v1::Assignment& assignment) {
  const std::string& dir = assignment.attempt_dir();
  RETURN_IF_ERROR(MakeFolder(dir));
  RETURN_IF_ERROR(MakeFolder(assignment.checkpoints_dir()));
  RETURN_IF_ERROR(WriteFile(dir + "/assignment.binpb", assignment.SerializeAsString()));
  ASSIGN_OR_RETURN(const int lock, TakeAttemptLock(dir));
  absl::Cleanup forget_lock = [lock] { close(lock); };  // The shim has it; ours would outlive it.
  return Spawn({.argv = {settings.shim, dir, settings.worker}, .passed_fd = lock});
}

absl::StatusOr<NodeFacts> MeasureNode(const LauncherSettings& settings) {
  ASSIGN_OR_RETURN(const std::string identity, IdentityOf(settings.worker));
  const std::string path = settings.state_dir + "/context.json";
  constexpr int64_t kMaxFileBytes = 64 << 10;
  if (absl::StatusOr<std::string> text = ReadSmallFile(path, kMaxFileBytes); text.ok())
    if (NodeFacts known = FactsIn(*text, &identity); known.context_bytes > 0) return known;
  ASSIGN_OR_RETURN(const RunResult run, Run({.argv = {settings.worker, "--measure-context"},
                                             .timeout = kMeasureTimeout}));
  const std::vector<std::string> lines = absl::StrSplit(absl::StripAsciiWhitespace(run.out), '\n');
  NodeFacts facts = FactsIn(lines.back(), nullptr);
  if (run.exit_code != 0 || facts.context_bytes <= 0)
    return absl::InternalError(absl::StrCat(settings.worker, " --measure-context failed (exit ",
                                            run.exit_code, ", signal ", run.signal,
                                            "): ", run.err));
  const nlohmann::json json = {
      {"worker", identity}, {"context_bytes", facts.context_bytes}, {"products", facts.products}};
  RETURN_IF_ERROR(WriteFile(path, json.dump() + "\n"));
  return facts;
}

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

void ReapShim(pid_t shim) {
  if (shim > 0) waitpid(shim, nullptr, WNOHANG);
}

}  // namespace snug::server
