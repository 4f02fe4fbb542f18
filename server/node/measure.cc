// context.json: {"facts": [{"of": "<identity>", "context_bytes": n, "unseen_bytes": n,
//                           "products": "...",
//                           "rates": {"fp32": {"products": x, ...}, "bf16": {...},
//                                     "head_rows": n}}]}
// without "rates" where none were measured, and in these without those that were not.
#include "server/node/measure.h"

#include <sys/stat.h>

#include <cstdlib>
#include <map>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "nlohmann/json.hpp"
#include "proto/snug/status_macros.h"
#include "server/node/attempt_files.h"
#include "server/node/json_file.h"
#include "server/node/process.h"
#include "server/place/host_memory.h"
#include "worker/program/head_rows.h"

namespace snug::server {
namespace {

// LibTorch starts in 0.5-1 s; from a cold disk it takes longer, and with CUDA's libraries (2 GB of
// them) longer still.
constexpr absl::Duration kMeasureTimeout = absl::Seconds(60);
constexpr absl::Duration kMeasureGpuTimeout = absl::Seconds(180);
constexpr program::JsonLimits kLimits = {.bytes = 64 << 10, .values = 10'000, .depth = 8};
constexpr const char *kFp32 = "fp32", *kBf16 = "bf16", *kHeadRows = "head_rows";
constexpr size_t kMaxFacts = 32;  // Remembered: of more, those that are of use now.

struct Facts {
  int64_t context_bytes = 0, unseen_bytes = 0;
  std::string products;
  std::optional<program::MachineRates> rates;
};

// Whether each that is there is above 0. One that is not there was not measured: it becomes 0.
bool ReadRates(const nlohmann::json& json, const char* of, program::Rates& rates) {
  if (!json.is_object() || !json.contains(of) || !json[of].is_object()) return false;
  rates.per_second = {};
  for (size_t i = 0; i < program::kLimits; ++i) {
    const auto found = json[of].find(program::kLimitNames[i]);
    if (found == json[of].end()) continue;
    if (!found->is_number()) return false;
    rates.per_second[i] = found->get<double>();
    if (!(rates.per_second[i] > 0.0)) return false;
  }
  return true;
}

// Whether they are some that a worker may choose, where they are there.
bool ReadHeadRows(const nlohmann::json& json, int32_t& rows) {
  const auto found = json.find(kHeadRows);
  if (found == json.end()) return true;
  if (!found->is_number_integer() || !program::IsHeadRowChoice(found->get<int64_t>())) return false;
  rows = found->get<int32_t>();
  return true;
}

// None at all where one is no rate.
std::optional<program::MachineRates> RatesIn(const nlohmann::json& json) {
  program::MachineRates rates;
  if (!ReadRates(json, kFp32, rates.f32) || !ReadRates(json, kBf16, rates.bf16) ||
      !ReadHeadRows(json, rates.head_rows))
    return std::nullopt;
  return rates;
}

nlohmann::json ToJson(const program::Rates& rates) {
  nlohmann::json json = nlohmann::json::object();
  for (size_t i = 0; i < program::kLimits; ++i)
    if (rates.per_second[i] > 0.0) json[program::kLimitNames[i]] = rates.per_second[i];
  return json;
}

nlohmann::json ToJson(const std::string& of, const Facts& facts) {
  nlohmann::json json = {{"of", of},
                         {"context_bytes", facts.context_bytes},
                         {"unseen_bytes", facts.unseen_bytes},
                         {"products", facts.products}};
  if (!facts.rates.has_value()) return json;
  json["rates"] = {{kFp32, ToJson(facts.rates->f32)}, {kBf16, ToJson(facts.rates->bf16)}};
  if (facts.rates->head_rows > 0) json["rates"][kHeadRows] = facts.rates->head_rows;
  return json;
}

// Changes whenever the worker is built or installed anew, with the processor, with what of it is to
// be used, and with the GPU's model and driver.
absl::StatusOr<std::string> IdentityOf(const std::string& binary, const Device& device) {
  struct stat status {};
  if (stat(binary.c_str(), &status) != 0 && device.is_gpu())
    return absl::FailedPreconditionError(absl::StrCat("worker_cuda: ", device.name,
                                                      " needs a worker that is built with CUDA "
                                                      "(SNUG_CUDA=ON), and there is no ",
                                                      binary));
  if (stat(binary.c_str(), &status) != 0)
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot find the worker ", binary));
  const char* isa = getenv("SNUG_CPU_ISA");
  return absl::StrCat(binary, "|", status.st_size, "|", status.st_mtim.tv_sec, ".",
                      status.st_mtim.tv_nsec, "|", ProcessorModel(), "|", isa == nullptr ? "" : isa,
                      "|", device.gpu.model, "|", device.gpu.driver);
}

// No bytes where it says none.
Facts FactsIn(const nlohmann::json& json) {
  Facts facts;
  if (!json.is_object()) return facts;
  const auto bytes = json.find("context_bytes"), unseen = json.find("unseen_bytes"),
             products = json.find("products");
  if (bytes != json.end() && bytes->is_number_integer()) bytes->get_to(facts.context_bytes);
  if (unseen != json.end() && unseen->is_number_integer()) unseen->get_to(facts.unseen_bytes);
  if (products != json.end() && products->is_string()) products->get_to(facts.products);
  const auto rates = json.find("rates");
  if (rates != json.end()) facts.rates = RatesIn(*rates);
  return facts;
}

using KnownFacts = std::map<std::string, Facts>;  // By identity.

KnownFacts ReadFacts(const std::string& path) {
  const nlohmann::json json = ReadJson(path, kLimits).value_or(nullptr);
  KnownFacts known;
  if (!json.is_object() || !json.contains("facts")) return known;
  for (const nlohmann::json& entry : json["facts"])
    if (entry.is_object() && entry.contains("of") && entry["of"].is_string())
      known[entry["of"]] = FactsIn(entry);
  return known;
}

absl::Status WriteFacts(const std::string& path, const KnownFacts& known) {
  nlohmann::json list = nlohmann::json::array();
  for (const auto& [of, facts] : known) list.push_back(ToJson(of, facts));
  return WriteFile(path, nlohmann::json{{"facts", list}}.dump(2) + "\n");
}

absl::StatusOr<Facts> Measure(const std::string& worker, const Device& device) {
  std::vector<std::string> argv = {worker, "--measure-context"};
  if (device.is_gpu()) argv.push_back(device.name);
  ASSIGN_OR_RETURN(const RunResult run,
                   Run({.argv = argv,
                        .environment = WorkerEnvironment(device),
                        .timeout = device.is_gpu() ? kMeasureGpuTimeout : kMeasureTimeout}));
  const std::vector<std::string> lines = absl::StrSplit(absl::StripAsciiWhitespace(run.out), '\n');
  const Facts facts = FactsIn(JsonOfText(lines.back(), worker, kLimits).value_or(nullptr));
  if (run.exit_code == 0 && facts.context_bytes > 0) return facts;
  return absl::InternalError(absl::StrCat(device.name, ": ", worker,
                                          " --measure-context failed (exit ", run.exit_code,
                                          ", signal ", run.signal, "): ", run.err));
}

}  // namespace

absl::Status MeasureDevices(const LauncherSettings& settings, std::vector<Device>& devices) {
  const std::string path = settings.state_dir + "/context.json";
  const KnownFacts before = ReadFacts(path);
  KnownFacts now;  // Of these devices alone.
  bool measured = false;
  for (Device& device : devices) {
    const std::string& worker = WorkerOf(settings, device);
    ASSIGN_OR_RETURN(const std::string identity, IdentityOf(worker, device));
    const auto known = before.find(identity);
    if (!now.contains(identity) && known != before.end() && known->second.context_bytes > 0)
      now[identity] = known->second;
    if (!now.contains(identity) && !device.gpu.trouble.ok()) continue;
    if (!now.contains(identity)) {
      ASSIGN_OR_RETURN(now[identity], Measure(worker, device));
      measured = true;
    }
    device.context_bytes = now[identity].context_bytes;
    device.unseen_bytes = now[identity].unseen_bytes;
    device.products = now[identity].products;
    device.rates = now[identity].rates;
  }
  if (!measured) return absl::OkStatus();
  KnownFacts all = now;
  all.insert(before.begin(), before.end());
  return WriteFacts(path, all.size() > kMaxFacts ? now : all);
}

}  // namespace snug::server
