#include "client/top_screen.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "client/job_text.h"
#include "client/table.h"
#include "proto/snug/bytes.h"

namespace snug::client {
namespace {

constexpr int kBarLabel = 12;  // "  predicted "
constexpr int kBarBytes = 14;  // The brackets, and "] 1023.9 MiB" behind them.
constexpr int kMinBar = 10;
constexpr const char* kColours[] = {"\033[36m", "\033[33m", "\033[35m", "\033[32m", "\033[34m"};
constexpr const char* kPlain = "\033[0m";
constexpr absl::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";

// One job's stretch of a bar.
struct Share {
  size_t index;  // Of the job on its device.
  int64_t bytes;
};

char LetterOf(size_t index) { return index < kLetters.size() ? kLetters[index] : '*'; }

std::string Bar(const std::vector<Share>& shares, int64_t capacity, int width, bool colour) {
  std::string cells;
  int64_t bytes = 0;
  int filled = 0;
  for (const Share& share : shares) {
    bytes += share.bytes;
    const double part =
        capacity > 0 ? static_cast<double>(bytes) / static_cast<double>(capacity) : 0;
    const int end = std::clamp(static_cast<int>(std::lround(part * width)), filled, width);
    const std::string run(static_cast<size_t>(end - filled), LetterOf(share.index));
    const char* shade = kColours[share.index % std::size(kColours)];
    absl::StrAppend(&cells, colour ? absl::StrCat(shade, run, kPlain) : run);
    filled = end;
  }
  return absl::StrCat("[", cells, std::string(static_cast<size_t>(width - filled), ' '), "] ",
                      FormatBytes(bytes));
}

std::string Clipped(const std::string& line, const ScreenSize& size) {
  return size.rows == 0 ? line : snug::client::Clipped(line, static_cast<size_t>(size.columns));
}

void AddText(const std::ostringstream& text, const ScreenSize& size,
             std::vector<std::string>& lines) {
  for (absl::string_view line : absl::StrSplit(text.str(), '\n', absl::SkipEmpty()))
    lines.push_back(Clipped(std::string(line), size));
}

void AddJobs(const v1::Device& device, const std::map<std::string, const v1::Job*>& jobs,
             const ScreenSize& size, std::vector<std::string>& lines) {
  Table table({" ", "JOB", "STATE", ">STEP", ">LOSS", ">PREDICTED", ">ACTUAL", ">RESERVED"});
  for (int i = 0; i < device.reservations_size(); ++i) {
    const v1::Reservation& given = device.reservations(i);
    const auto found = jobs.find(given.job_name().empty() ? given.job() : given.job_name());
    const v1::Job* job = found == jobs.end() ? nullptr : found->second;
    const bool stepped = job != nullptr && job->progress().global_step() > 0;
    table.AddRow(
        {std::string(1, LetterOf(static_cast<size_t>(i))),
         given.job().empty() ? "(another user's)" : given.job(),
         job == nullptr ? "" : StateName(job->state()),
         stepped ? absl::StrCat(job->progress().global_step(), "/", job->progress().max_steps())
                 : "",
         stepped ? absl::StrFormat("%.4f", job->progress().loss()) : "",
         FormatBytes(given.predicted_bytes()), FormatBytes(given.counted_bytes()),
         FormatBytes(given.reserved_bytes())});
  }
  std::ostringstream text;
  if (device.reservations_size() > 0) table.Print(text);
  AddText(text, size, lines);
}

void AddDevice(const v1::Device& device, const std::map<std::string, const v1::Job*>& jobs,
               const ScreenSize& size, std::vector<std::string>& lines) {
  std::string about = absl::StrCat(device.name(), "  ", Printable(device.model()));
  absl::StrAppend(&about, "  ", FormatBytes(device.reserved_bytes()), " of ",
                  FormatBytes(device.capacity_bytes()), " reserved");
  if (!device.trouble().empty()) absl::StrAppend(&about, "; ", Printable(device.trouble()));
  if (device.drained()) absl::StrAppend(&about, "; drained");
  lines.push_back(Clipped(about, size));
  std::vector<Share> predicted, actual;
  for (const v1::Reservation& given : device.reservations()) {
    predicted.push_back({predicted.size(), given.predicted_bytes()});
    actual.push_back({actual.size(), given.counted_bytes()});
  }
  const int width = std::max(kMinBar, size.columns - kBarLabel - kBarBytes);
  const int64_t capacity = device.capacity_bytes();
  lines.push_back("  predicted " + Bar(predicted, capacity, width, size.colour));
  lines.push_back("  actual    " + Bar(actual, capacity, width, size.colour));
  AddJobs(device, jobs, size, lines);
  lines.emplace_back();
}

void AddQueue(const TopView& view, const ScreenSize& size, std::vector<std::string>& lines) {
  if (view.waiting.empty()) {
    lines.emplace_back("no job waits");
    return;
  }
  const char* wait = view.waiting.size() == 1 ? " job waits" : " jobs wait";
  lines.push_back(
      absl::StrCat(view.waiting.size(), view.more_waiting ? " jobs and more wait" : wait));
  Table table({">PRIORITY", "JOB", "STATE", "WHY"});
  for (const v1::Job& job : view.waiting)
    table.AddRow({absl::StrCat(job.priority()), job.id(), StateName(job.state()), job.reason()});
  std::ostringstream text;
  table.Print(text);
  AddText(text, size, lines);
}

// The last line says how much is missing.
void Fit(int rows, std::vector<std::string>& lines) {
  const size_t room = static_cast<size_t>(std::max(1, rows));
  if (rows == 0 || lines.size() <= room) return;
  const size_t hidden = lines.size() - room + 1;
  lines.resize(room - 1);
  lines.push_back(absl::StrCat("... and ", hidden, " lines more"));
}

}  // namespace

std::vector<std::string> TopLines(const TopView& view, const ScreenSize& size) {
  std::map<std::string, const v1::Job*> jobs;
  for (const v1::Job& job : view.running) jobs[NameOf(job)] = &job;
  std::vector<std::string> lines;
  for (const v1::Device& device : view.server.devices()) AddDevice(device, jobs, size, lines);
  AddQueue(view, size, lines);
  Fit(size.rows, lines);
  return lines;
}

}  // namespace snug::client
