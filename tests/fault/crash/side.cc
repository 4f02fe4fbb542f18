#include "tests/fault/crash/side.h"

#include <signal.h>

#include <chrono>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "server/data/sha256.h"
#include "server/job/database.h"

namespace snug::crash {
namespace {

// Each commit takes as long as on a slow disk, so that submits are under way most of the time
// without work for the processors.
constexpr const char* kSlowDisk = "store.commit=delay:20@*";
constexpr absl::Duration kPressPatience = absl::Milliseconds(100);
constexpr absl::Duration kUntilSeen = absl::Milliseconds(5);
constexpr absl::Duration kEndPatience = absl::Seconds(20);   // Of jobs, by themselves.
constexpr absl::Duration kLastPatience = absl::Seconds(60);  // When others have been cancelled.
constexpr absl::Duration kDeathPatience = absl::Seconds(5);  // Of a daemon that has hung up.
constexpr std::chrono::seconds kCallPatience{30};
constexpr int kExitStoreLost = 74;  // What the daemon does when a commit fails.

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + kCallPatience);
}

std::string ReadAll(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

// What a worker that has made each step once has for weights.
std::string WeightsAfter(int steps) {
  std::string weights = "step 0";
  for (int step = 1; step <= steps; ++step)
    weights = absl::StrCat("step ", step, " ", server::Sha256Hex(weights));
  return weights;
}

}  // namespace

Side::Side(Programs programs, Totals& totals, int number, uint32_t seed)
    : totals_(totals),
      number_(number),
      random_(seed),
      daemon_(std::move(programs)),
      files_(daemon_.folder()) {}

void Side::Run() {
  bool good = Begin();
  totals_.Begin();
  while (good && !totals_.Enough()) good = Cycle();
  if (good) Finish();
  totals_.SetHits(number_, daemon_.Hits());
  totals_.AddJobs(jobs_.tokens());
}

void Side::Blame(Violation violation) {
  daemon_.Keep();
  totals_.Blame(violation, daemon_.folder());
}

bool Side::Begin() {
  daemon_.Start("");
  if (daemon_.Serves()) Clients(daemon_.stub(), jobs_, files_, daemon_.folder()).Submit(1);
  const absl::Time end = absl::Now() + kLastPatience;
  std::vector<v1::Job> jobs;
  while (absl::Now() < end && (jobs.empty() || !server::IsTerminal(jobs.front().state()))) {
    absl::SleepFor(absl::Milliseconds(50));
    jobs.clear();
    if (!ListJobs(jobs)) break;
  }
  daemon_.process().Kill();
  if (!jobs.empty() && jobs.front().state() == v1::Job::STATE_SUCCEEDED) return true;
  Blame({.what = "the first job does not succeed"});
  return false;
}

bool Side::Cycle() {
  const Point* point = random_() % 10 < 3 ? nullptr : &Choose(totals_.Hits(), random_);
  std::string setting = point == nullptr ? "" : Setting(*point, random_);
  if (point != nullptr && !Arrange(*point, setting)) point = nullptr;
  if (point != nullptr && point->where == Where::kRestore) point = nullptr;
  if (point == nullptr) setting.clear();
  const Needs needs = point == nullptr ? Needs::kNothing : point->needs;
  daemon_.Start(setting.empty() ? kSlowDisk : absl::StrCat(setting, ",", kSlowDisk),
                needs == Needs::kLauncher);
  bool serves = daemon_.Serves();
  if (serves) serves = Compare();
  if (serves && random_() % 4 == 0) serves = CheckStore();  // It reads every file.
  Life life;
  if (serves) {
    Clients clients(daemon_.stub(), jobs_, files_, daemon_.folder());
    clients.Start(needs, point != nullptr && IsSlow(*point), random_());
    Watch(point);
    if (!daemon_.process().EndsWithin(absl::ZeroDuration())) {
      clients.Press(kPressPatience);
      absl::SleepFor(absl::Microseconds(random_() % 6000));
    }
    life.running = daemon_.RunningWorkers() > 0;
    if (!daemon_.process().EndsWithin(absl::ZeroDuration()) && point == nullptr)
      life.killed = KillSomebody();
    daemon_.process().Signal(SIGKILL);
    clients.Join();
    if (!clients.wrong().empty()) Blame({.what = clients.wrong()});
  } else {
    life.running = daemon_.RunningWorkers() > 0;
    if (!daemon_.process().EndsWithin(kDeathPatience))
      Blame({.what = absl::StrCat("it lives, and does not answer, at ", setting)});
  }
  life.unacknowledged = jobs_.Unacknowledged() > 0;
  daemon_.process().Kill();
  LookAtExit(serves, setting);
  totals_.Add(life);
  totals_.SetHits(number_, daemon_.Hits());
  std::vector<Violation> violations = jobs_.TakeViolations();
  for (Violation& violation : violations) Blame(std::move(violation));
  return violations.empty();
}

bool Side::Arrange(const Point& point, const std::string& setting) {
  if (jobs_.tokens() == 0)  // There is no store yet.
    return point.where != Where::kRestore && point.needs == Needs::kNothing;
  if (point.where == Where::kRestore) {
    const absl::Status restored = daemon_.Restore(setting);
    if (!restored.ok()) Blame({.what = std::string(restored.message())});
    return true;
  }
  switch (point.needs) {
    case Needs::kStaleFolder:
      daemon_.PlantStaleFolders();
      [[fallthrough]];
    case Needs::kLaunch:
    case Needs::kLauncher:
    case Needs::kLoudWorker:
      daemon_.KillProcesses(FailingDaemon::Whom::kOne);
      return true;
    case Needs::kMovedFolder: {
      const std::vector<std::string> ended = jobs_.Ended();
      if (ended.empty()) return false;
      daemon_.MoveToTrash(ended[random_() % ended.size()]);
      return true;
    }
    case Needs::kFullAuditLog:
      daemon_.FillAuditLog();
      return true;
    default:
      return true;
  }
}

void Side::Watch(const Point* point) {
  const bool random_moment = point == nullptr;
  const bool of_daemon = !random_moment && point->where == Where::kDaemon;
  absl::Duration patience = absl::Milliseconds(10 + random_() % 140);
  if (of_daemon || (!random_moment && point->needs == Needs::kLoudWorker))
    patience = point->patience;
  if (!random_moment && !of_daemon && point->needs != Needs::kLoudWorker)
    patience = absl::Milliseconds(100 + random_() % 200);
  const int64_t before = daemon_.hits_bytes();
  const absl::Time end = absl::Now() + patience;
  while (absl::Now() < end && !daemon_.process().EndsWithin(kUntilSeen))
    if (!random_moment && daemon_.hits_bytes() > before)
      return absl::SleepFor(absl::Milliseconds(random_() % 20));  // What follows from it begins.
}

std::string Side::KillSomebody() {
  using Whom = FailingDaemon::Whom;
  switch (random_() % 8) {
    case 0:
      daemon_.KillProcesses(Whom::kShims);
      return "shims";
    case 1:
      daemon_.KillProcesses(Whom::kWorkers);
      return "workers";
    case 2:
      daemon_.process().Signal(SIGKILL);
      daemon_.KillProcesses(Whom::kBoth);
      return "all";
    default:
      return "daemon";
  }
}

void Side::LookAtExit(bool served, const std::string& setting) {
  const Child& process = daemon_.process();
  if (process.signal() == SIGKILL || process.exit_code() == kExitStoreLost) return;
  if (!served && absl::StrContains(setting, "=error")) return;  // Of what a start needs.
  Blame({.what = absl::StrCat("snugd ends with code ", process.exit_code(), ", signal ",
                              process.signal(), " at ", setting)});
}

bool Side::Compare() {
  std::vector<v1::Job> jobs;
  if (!ListJobs(jobs)) return false;
  jobs_.Compare(jobs);
  for (const v1::Job& job : jobs) CheckOutput(job);
  if (const std::string wrong = files_.Compare(daemon_.stub(), daemon_.state()); !wrong.empty())
    Blame({.what = wrong});
  if (const std::string doubled = ReadAll(daemon_.state() + "/doubled"); !doubled.empty())
    Blame({Wrong::kDoubled, "two workers of one job: " + doubled});
  return true;
}

bool Side::ListJobs(std::vector<v1::Job>& jobs) {
  v1::ListJobsRequest request;
  request.set_all(true);
  request.set_page_size(1000);
  v1::ListJobsResponse page;
  do {
    grpc::ClientContext context;
    SetDeadline(context);
    if (!daemon_.stub().ListJobs(&context, request, &page).ok()) return false;
    jobs.insert(jobs.end(), page.jobs().begin(), page.jobs().end());
    request.set_page_token(page.next_page_token());
  } while (!page.next_page_token().empty());
  return true;
}

bool Side::CheckStore() {
  grpc::ClientContext context;
  SetDeadline(context);
  v1::CheckStoreResponse checked;
  if (!daemon_.stub().CheckStore(&context, {}, &checked).ok()) return false;
  for (const auto& finding : checked.findings())
    Blame({.what = absl::StrCat("the store: ", finding.check(), ": ", finding.subject(), ": ",
                                finding.message())});
  return true;
}

// Every step is there once, and the weights are those of all steps.
void Side::CheckOutput(const v1::Job& job) {
  if (job.state() != v1::Job::STATE_SUCCEEDED || !compared_.insert(job.id()).second) return;
  const std::string output =
      absl::StrCat(daemon_.JobDir(job.id()), "/attempts/", job.epoch(), "/output");
  const auto config =
      nlohmann::json::parse(ReadAll(output + "/adapter_config.json"), nullptr, false);
  if (!config.is_object() || config.value("trained", "") != WeightsAfter(kSteps))
    return Blame({.what = absl::StrCat("the weights of ", job.id(), " are of other steps")});
  std::istringstream metrics(ReadAll(output + "/metrics.jsonl"));
  int step = 0;
  for (std::string line; std::getline(metrics, line);) {
    const auto written = nlohmann::json::parse(line, nullptr, false);
    if (!written.is_object() || written.value("global_step", 0) != ++step)
      return Blame({.what = absl::StrCat(job.id(), " has not each step once: ", line)});
  }
  if (step != kSteps) Blame({.what = absl::StrCat(job.id(), " has ", step, " steps")});
  totals_.AddOutput();
}

void Side::Finish() {
  daemon_.Start("");
  if (!daemon_.Serves() || !Compare() || !CheckStore())
    return Blame({.what = "it does not start at the end"});
  const absl::Time begin = absl::Now();
  while (!AllEnded(absl::Now() > begin + kEndPatience)) {
    if (absl::Now() > begin + kEndPatience + kLastPatience)
      return Blame({.what = "jobs do not come to their ends"});
    absl::SleepFor(absl::Milliseconds(100));
  }
  for (int i = 0; i < 600 && daemon_.RunningWorkers() > 0; ++i)
    absl::SleepFor(absl::Milliseconds(100));
  if (daemon_.RunningWorkers() > 0) Blame({.what = "workers outlive their jobs"});
  std::vector<v1::Job> jobs;
  if (!Compare() || !CheckStore() || !ListJobs(jobs))
    Blame({.what = "it does not answer at the end"});
  for (const v1::Job& job : jobs) {
    totals_.AddEnd(server::NameOf(job.state()));
    if (job.state() == v1::Job::STATE_FAILED &&
        !absl::StrContains(job.reason(), "no retries are left"))
      Blame({.what = absl::StrCat(job.id(), " has failed: ", job.reason())});
  }
  for (Violation& violation : jobs_.TakeViolations()) Blame(std::move(violation));
  daemon_.process().Signal(SIGTERM);
  if (!daemon_.process().EndsWithin(absl::Seconds(60)) || daemon_.process().exit_code() != 0)
    Blame({.what = "it does not end in good order"});
  LookAtWebhooks();
}

// Resumes what is paused, and cancels at last what waits to be tried again.
bool Side::AllEnded(bool cancel_others) {
  Clients clients(daemon_.stub(), jobs_, files_, daemon_.folder());
  while (jobs_.Unacknowledged() > 0) clients.Submit(0);
  std::vector<v1::Job> jobs;
  if (!ListJobs(jobs)) return false;
  bool all = true;
  for (const v1::Job& job : jobs) {
    if (server::IsTerminal(job.state())) continue;
    all = false;
    grpc::ClientContext context;
    SetDeadline(context);
    v1::Job shown;
    v1::ResumeJobRequest resume;
    resume.set_id(job.id());
    v1::CancelJobRequest cancel;
    cancel.set_id(job.id());
    if (cancel_others)
      daemon_.stub().CancelJob(&context, cancel, &shown);
    else if (job.state() == v1::Job::STATE_PAUSED)
      daemon_.stub().ResumeJob(&context, resume, &shown);
  }
  return all;
}

// Nobody has heard of any end: each is still to be told of.
void Side::LookAtWebhooks() {
  const auto database = server::Database::Open(daemon_.state() + "/snug.db");
  if (!database.ok()) return Blame({.what = "the store cannot be opened at the end"});
  const absl::Status read = (*database)->Query(
      "SELECT id FROM jobs WHERE state IN (8, 9, 10) AND id NOT IN (SELECT job FROM webhooks)",
      [&](const server::Row& row) {
        Blame({.what = absl::StrCat("the end of ", row.Text(0), " is forgotten: nobody is told")});
        return absl::OkStatus();
      });
  if (!read.ok()) Blame({.what = std::string(read.message())});
}

}  // namespace snug::crash
