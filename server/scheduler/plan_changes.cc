#include "server/scheduler/plan_changes.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/snug/bytes.h"
#include "proto/snug/status_macros.h"
#include "server/job/errors.h"
#include "server/job/job_key.h"
#include "server/job/log.h"
#include "server/place/rebalance.h"
#include "server/place/room.h"
#include "server/plan/planner.h"
#include "server/scheduler/device_plans.h"

namespace snug::server {
namespace {

constexpr size_t kMaxToldBytes = 500;  // Of a worker's message, in the log.

bool IsUnderWay(const JobRecord& record) { return record.job.plan_changes().has_pending(); }

// Of one step; a plan that was stored by a version without seconds has its relative work.
PlanOption OptionOf(const v1::Plan& plan, int64_t bytes) {
  const double seconds = plan.step_seconds() > 0.0 ? plan.step_seconds() : plan.relative_work();
  return {.bytes = bytes, .seconds = seconds > 0.0 ? seconds : 1.0};
}

absl::Status NotNow(const Entry& entry, const char* what, absl::string_view why) {
  return WithReason(absl::FailedPreconditionError(absl::StrCat(
                        "cannot ", what, " job \"", entry.record.job.id(), "\" now: ", why)),
                    "NOT_NOW");
}

// Why the plan of `entry` changes; nobody learns the ids of others' jobs by it.
std::string ReasonOf(const Entry& entry, const Entry* newcomer) {
  if (newcomer == nullptr) return "its device has room";
  const v1::Job& job = newcomer->record.job;
  const bool same = job.owner() == entry.record.job.owner();
  return absl::StrCat("makes room for ", same ? job.id() : "a job of another user");
}

}  // namespace

absl::StatusOr<Entry*> PlanChanger::Find(const std::string& key, const char* what) const {
  ASSIGN_OR_RETURN(const JobPtr job, core_.index.Find(key));
  Entry* entry = core_.Find(KeyOf(*job));
  if (entry == nullptr || entry->state() != v1::Job::STATE_RUNNING || entry->attempt == nullptr)
    return WrongState(job->id(), what, NameOf(job->state()));
  RETURN_IF_ERROR(CheckChangeable(*entry, what));
  return entry;
}

absl::Status PlanChanger::CheckChangeable(const Entry& entry, const char* what) const {
  const LiveAttempt& attempt = *entry.attempt;
  if (attempt.end.begun()) return NotNow(entry, what, "its worker ends");
  if (attempt.link == 0) return NotNow(entry, what, "its worker is not heard of");
  if (!attempt.changes_plans) return NotNow(entry, what, "its worker keeps its plan");
  if (!attempt.reported) return NotNow(entry, what, "its worker is loading the model");
  if (IsUnderWay(entry.record)) return NotNow(entry, what, "its plan is being changed");
  if (entry.ready() == nullptr)
    return NotNow(entry, what, "its plans were made by another version");
  return absl::OkStatus();
}

// What the job may grow to: as all jobs of its owner there may grow at once, each by as much.
int64_t PlanChanger::MostOfShare(const Entry& entry) const {
  const std::string& owner = entry.record.job.owner();
  const int64_t share = core_.tenant_use.ShareOf(owner);
  if (share == INT64_MAX) return share;
  int64_t taken = 0, jobs = 0;
  core_.EachAttended([&](const Entry& other) {
    if (other.record.job.owner() != owner) return;
    if (other.attempt->record.device != entry.attempt->record.device) return;
    taken += core_.ledger.PromisedTo(other.key()).bytes;
    ++jobs;
  });
  return entry.attempt->record.cap_bytes + std::max<int64_t>(0, share - taken) / jobs;
}

PlanChanger::Choice PlanChanger::ChoiceOf(const Entry& entry, const JobRecord& record) const {
  const AttemptRecord& attempt = entry.attempt->record;
  Choice choice;
  choice.job = {.job = entry.key(), .priority = record.job.priority()};
  const auto add = [&](const v1::Plan& plan, int64_t bytes) {
    choice.job.plans.push_back(OptionOf(plan, bytes));
    choice.plans.push_back(plan);
  };
  add(attempt.plan, attempt.cap_bytes);
  const auto plans = entry.ready()->plans->find(record.job.device());
  if (plans == entry.ready()->plans->end()) return choice;
  const auto given = [](int64_t bytes) { return bytes > 0 ? bytes : INT64_MAX; };
  const v1::PlanChanges& changes = record.job.plan_changes();
  const int64_t most = std::min({BudgetBytes(record.job.spec()), given(changes.limit_bytes()),
                                 given(changes.most_bytes()), MostOfShare(entry)});
  for (const v1::Plan& plan : plans->second) {
    const int64_t bytes = CapOf(plan, record.oom_failures, core_.settings.limits.oom_margin);
    if (CouldGoTo(attempt.plan, plan) && bytes <= most) add(plan, bytes);
  }
  return choice;
}

// Of the jobs whose plans can be changed now. None while one of them is being changed: what comes
// of that is awaited.
std::vector<PlanChanger::Choice> PlanChanger::ChoicesOn(const DeviceState& device) const {
  std::vector<Choice> choices;
  for (const std::string& key : core_.attended) {
    const Entry* entry = core_.Find(key);
    if (entry == nullptr || entry->attempt == nullptr) continue;
    const Ledger& ledger = core_.ledger;
    if (ledger.Find(entry->attempt->record.device) != ledger.Find(device.name)) continue;
    if (IsUnderWay(entry->record)) return {};
    if (entry->state() == v1::Job::STATE_RUNNING && CheckChangeable(*entry, "").ok())
      choices.push_back(ChoiceOf(*entry, entry->record));
  }
  return choices;
}

std::vector<SqueezableJob> PlanChanger::JobsOf(const std::vector<Choice>& choices) {
  std::vector<SqueezableJob> jobs;
  for (const Choice& choice : choices) jobs.push_back(choice.job);
  return jobs;
}

// The job stays below so many bytes until it is relaxed or its attempt ends.
absl::StatusOr<v1::Job> PlanChanger::Squeeze(const v1::SqueezeJobRequest& request) {
  if (request.bytes() <= 0)
    return InvalidRequest({{"bytes", "must be a number of bytes above 0", "BAD_FIELD"}});
  ASSIGN_OR_RETURN(Entry* const entry, Find(request.id(), "squeeze"));
  const Choice choice = ChoiceOf(*entry, entry->record);
  const int64_t held = choice.job.plans.front().bytes;
  if (held <= request.bytes()) {
    RETURN_IF_ERROR(core_.Apply(*entry, LimitAsked{request.bytes()}).status());
    return entry->record.job;
  }
  const int plan = FastestPlanWithin(choice.job.plans, request.bytes());
  if (plan < 0) {
    const auto smallest = std::min_element(
        choice.job.plans.begin(), choice.job.plans.end(),
        [](const PlanOption& a, const PlanOption& b) { return a.bytes < b.bytes; });
    const auto& smallest_plan =
        choice.plans[static_cast<size_t>(smallest - choice.job.plans.begin())];
    return PlanInfeasible(
        absl::StrCat("job \"", entry->record.job.id(), "\" fits no ", FormatBytes(request.bytes()),
                     " (", request.bytes(), " bytes): its smallest plan, \"", smallest_plan.name(),
                     "\", needs ", FormatBytes(smallest->bytes), " (", smallest->bytes, " bytes)"),
        smallest->bytes);
  }
  PlanOrdered order = OrderOf(choice, plan, "squeezed by an operator");
  order.limit_bytes = request.bytes();
  RETURN_IF_ERROR(Order(*entry, order));
  return entry->record.job;
}

absl::StatusOr<v1::Job> PlanChanger::Relax(const v1::RelaxJobRequest& request) {
  ASSIGN_OR_RETURN(Entry* const entry, Find(request.id(), "relax"));
  RETURN_IF_ERROR(core_.Apply(*entry, LimitAsked{}).status());
  const Choice choice = ChoiceOf(*entry, entry->record);
  int64_t free = 0;
  for (const DeviceState& device : core_.board.States())
    if (device.name == entry->record.job.device()) free = FreeBytesOf(device);
  const std::vector<PlanOption>& plans = choice.job.plans;
  const int best = FastestPlanWithin(plans, plans.front().bytes + std::max<int64_t>(free, 0));
  if (plans[static_cast<size_t>(best)].seconds < plans.front().seconds)
    RETURN_IF_ERROR(Order(*entry, OrderOf(choice, best, "relaxed by an operator")));
  return entry->record.job;
}

void PlanChanger::AfterRound(const std::string& head) {
  Entry* const newcomer = head.empty() ? nullptr : core_.Find(head);
  if (head.empty())
    RelaxAll();
  else if (newcomer != nullptr && newcomer->ready() != nullptr)
    MakeRoomFor(*newcomer);
}

// The plans that the job may have there, were there room. What it shares with the jobs there takes
// none.
SqueezableJob PlanChanger::AsNewcomer(const Entry& newcomer, const DeviceState& device) const {
  SqueezableJob wanted{.job = newcomer.key(), .priority = newcomer.record.job.priority()};
  QueuedJob queued{.budget_bytes = BudgetBytes(newcomer.record.job.spec())};
  core_.tenant_use.LimitToShare(newcomer.record.job.owner(), queued);
  const int64_t most = std::min(queued.budget_bytes, Room(device).ShareLeft(queued));
  const int threads = Room(device).Threads();
  for (const v1::Plan& plan : newcomer.ready()->plans->at(device.name)) {
    const int64_t bytes =
        CapOf(plan, newcomer.record.oom_failures, core_.settings.limits.oom_margin);
    const bool fits = bytes <= most && plan.host_bytes() <= device.host_free_bytes;
    if (plan.threads() <= threads && fits)
      wanted.plans.push_back(OptionOf(plan, device.shared.Beside(bytes, SharedBy(plan))));
  }
  return wanted;
}

// On the device where most is gained by it.
void PlanChanger::MakeRoomFor(const Entry& newcomer) {
  std::vector<Neighbourhood> neighbourhoods;
  std::vector<std::vector<Choice>> choices;
  for (DeviceState& device : core_.board.States()) {
    if (!TakesAnother(device) || IsKeptOff(PlaceInLine(newcomer.record), device)) continue;
    if (!newcomer.ready()->plans->contains(device.name)) continue;
    SqueezableJob wanted = AsNewcomer(newcomer, device);
    if (wanted.plans.empty()) continue;
    choices.push_back(ChoicesOn(device));
    neighbourhoods.push_back({std::move(device), std::move(wanted), JobsOf(choices.back())});
  }
  const std::optional<SqueezeThere> best = BestSqueeze(neighbourhoods);
  if (best) OrderAll(best->made.moves, choices[best->where], &newcomer);
}

void PlanChanger::RelaxAll() {
  for (const DeviceState& device : core_.board.States()) {
    const std::vector<Choice> choices = ChoicesOn(device);
    OrderAll(Relaxations(device, JobsOf(choices)), choices, nullptr);
  }
}

void PlanChanger::OrderAll(const std::vector<PlanMove>& moves, const std::vector<Choice>& choices,
                           const Entry* newcomer) {
  for (const PlanMove& move : moves) {
    const auto choice = std::find_if(choices.begin(), choices.end(),
                                     [&](const Choice& each) { return each.job.job == move.job; });
    Entry& entry = *core_.Find(move.job);
    const absl::Status ordered =
        Order(entry, OrderOf(*choice, move.plan, ReasonOf(entry, newcomer)));
    // The next round decides anew.
    if (!ordered.ok()) spdlog::error("job {}: {}", entry.key(), ordered.message());
  }
}

PlanOrdered PlanChanger::OrderOf(const Choice& choice, int plan, std::string reason) {
  const auto index = static_cast<size_t>(plan);
  return {.plan = choice.plans[index],
          .bytes = choice.job.plans[index].bytes,
          .reason = std::move(reason)};
}

// Reserved before it is stored, stored before it is sent.
absl::Status PlanChanger::Order(Entry& entry, const PlanOrdered& order) {
  const AttemptRecord& attempt = entry.attempt->record;
  const int64_t before = attempt.cap_bytes, host = attempt.plan.host_bytes();
  RETURN_IF_ERROR(core_.ledger.Resize(entry.key(), order.BytesBeside(before), host));
  const absl::Status ordered = core_.Apply(entry, order).status();
  if (!ordered.ok()) {
    // Fewer bytes: never refused.
    core_.ledger.Resize(entry.key(), before, host).IgnoreError();
    return ordered;
  }
  spdlog::info("job {}: from plan \"{}\", {} bytes, to \"{}\", {} bytes: {}", entry.key(),
               attempt.plan.name(), before, order.plan.name(), order.bytes, order.reason);
  core_.board.Show();
  return absl::OkStatus();
}

void PlanChanger::OnShortage(Entry& entry, const v1::WorkerEvent::Shortage& shortage) {
  spdlog::warn("job {}: step {} does not fit: {}", entry.key(), shortage.global_step() + 1,
               absl::ClippedSubstr(shortage.message(), 0, kMaxToldBytes));
  if (IsUnderWay(entry.record)) return;  // If that plan does not fit either, it says so again.
  const absl::Status ordered = OrderSmaller(entry);
  if (ordered.ok()) return;
  v1::WorkerCommand command;
  command.mutable_no_smaller_plan()->set_reason(std::string(ordered.message()));
  core_.attempts.Send(entry, command);
}

// What was predicted was too little, so that from now on more is reserved for each of its plans.
// Within what the job holds: no neighbour gives anything. Until the attempt ends, or an operator
// relaxes the job, it is not led back to where it failed.
absl::Status PlanChanger::OrderSmaller(Entry& entry) {
  RETURN_IF_ERROR(CheckChangeable(entry, "squeeze"));
  JobRecord careful = entry.record;
  careful.oom_failures = std::max(careful.oom_failures, 1);
  const Choice choice = ChoiceOf(entry, careful);
  const std::vector<PlanOption>& plans = choice.job.plans;
  const int plan = FastestPlanWithin(plans, plans.front().bytes - 1);
  if (plan < 0) return absl::ResourceExhaustedError("it has no smaller plan");
  PlanOrdered order = OrderOf(choice, plan, "a step did not fit");
  order.limit_bytes = order.bytes;
  order.step_did_not_fit = true;
  return Order(entry, order);
}

void PlanChanger::OnAnswer(Entry& entry, const v1::WorkerEvent::PlanChanged& answer) {
  if (!IsUnderWay(entry.record)) return;
  const v1::PlanOrder& order = entry.record.job.plan_changes().pending();
  if (answer.number() < order.number())
    return core_.attempts.TellOfPlan(entry);  // It may have been lost.
  const bool fits = answer.current_bytes() >= 0 && answer.current_bytes() <= order.bytes();
  if (answer.number() > order.number() || (answer.refusal().empty() && !fits))
    return core_.attempts.OnBadMessage(
        entry,
        absl::StrCat("an answer to order ", answer.number(), " with ", answer.current_bytes(),
                     " bytes; order ", order.number(), " has ", order.bytes()));
  if (!answer.refusal().empty())
    spdlog::warn("job {}: keeps plan \"{}\": {}", entry.key(), entry.attempt->record.plan.name(),
                 answer.refusal());
  const absl::Status settled = core_.Apply(entry, PlanAnswered{answer}).status();
  if (settled.ok()) return;
  // Not stored: the worker dials again and repeats it.
  spdlog::error("job {}: {}", entry.key(), settled.message());
  core_.attempts.CloseLink(entry);
}

}  // namespace snug::server
