#include "tests/fault/crash/clients.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "server/job/random_id.h"
#include "tests/fault/crash/failing_daemon.h"
#include "tests/server/testing/tiny_model.h"

namespace snug::crash {
namespace {

constexpr std::chrono::seconds kPatience{20};
constexpr size_t kRoom = 7;        // Live jobs with which nobody pauses between two submits.
constexpr size_t kMuchRoom = 200;  // A queue that the harness itself would be slowed by.
constexpr size_t kManyFiles = 5;
constexpr int kSpecial = 2;  // Jobs with a fresh dataset, or a loud worker, cost a second each.
constexpr int kStepMs = 300, kLoudStepMs = 5, kSteadyStepMs = 2000;
constexpr absl::Duration kPause = absl::Milliseconds(2);

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + kPatience);
}

// The life needs a job of its own kind.
bool IsOfJob(Needs needs) { return needs == Needs::kLoudWorker || needs == Needs::kFreshDataset; }

template <typename Request>
Request Of(const std::string& id) {
  Request request;
  request.set_id(id);
  return request;
}

// The daemon is gone, or about to be: what was asked has been done, or has not.
bool IsLost(const grpc::Status& status) {
  return status.error_code() == grpc::StatusCode::UNAVAILABLE ||
         status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
         status.error_code() == grpc::StatusCode::CANCELLED ||
         status.error_code() == grpc::StatusCode::INTERNAL;
}

}  // namespace

Clients::Clients(v1::FineTuning::Stub& stub, KnownJobs& jobs, KeptFiles& files, std::string folder)
    : stub_(stub), jobs_(jobs), files_(files), folder_(std::move(folder)) {}

void Clients::Start(Needs needs, bool calm, uint32_t seed) {
  needs_ = needs;
  slower_ = calm ? 10 : 1;
  special_ = kSpecial;
  const auto submit = [this](std::mt19937& random) {
    const bool awaited = special_ > 0 && IsOfJob(needs_);
    const bool full = !awaited && jobs_.Live() >= static_cast<int64_t>(kRoom);
    if (full && !pressed_ && random() % 64 != 0) return absl::SleepFor(slower_ * kPause);
    pressed_ = false;
    Submit(kMuchRoom);
  };
  const auto change = [this](std::mt19937& random) { Change(random); };
  const auto operate = [this](std::mt19937& random) { Operate(random); };
  threads_.emplace_back([=, this] { Repeat(submit, seed + 1); });
  threads_.emplace_back([=, this] { Repeat(submit, seed + 2); });
  threads_.emplace_back([=, this] { Repeat(change, seed + 3); });
  threads_.emplace_back([=, this] { Repeat(operate, seed + 4); });
}

void Clients::Repeat(const std::function<void(std::mt19937&)>& act, uint32_t seed) {
  std::mt19937 random(seed);
  while (!over_) act(random);
}

void Clients::Press(absl::Duration patience) {
  pressed_ = true;
  const absl::Time end = absl::Now() + patience;
  while (jobs_.OnTheirWay() == 0 && absl::Now() < end) absl::SleepFor(absl::Microseconds(200));
}

void Clients::Join() {
  over_ = true;
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

v1::CreateJobRequest Clients::Request(int64_t token, bool steady) {
  v1::CreateJobRequest request;
  request.set_request_id(server::RandomUuid());
  v1::JobSpec& spec = *request.mutable_spec();
  spec.set_model(folder_ + "/model");
  spec.set_dataset(folder_ + "/train.jsonl");
  spec.set_method(v1::JobSpec::METHOD_LORA);
  spec.mutable_training()->set_save_steps(3);
  // A plan by hand: the search for one is most of what a start would cost.
  (*spec.mutable_memory()->mutable_stash())["*"] = v1::STASH_KIND_KEEP;
  spec.set_webhook(absl::StrCat("https://", kHook, "/"));
  const bool special = !steady && special_-- > 0;
  const bool loud = special && needs_ == Needs::kLoudWorker;
  const int step_ms = steady ? kSteadyStepMs : loud ? kLoudStepMs : kStepMs;
  spec.set_display_name(absl::StrCat("steps=", kSteps, " step_ms=", step_ms,
                                     loud ? " print_mb=4" : "", " token=", token));
  if (loud || steady) spec.set_priority(9);
  if (!special || needs_ != Needs::kFreshDataset) return request;
  spec.set_dataset(absl::StrCat(folder_, "/train-", token, ".jsonl"));
  server::WriteTinyDataset(spec.dataset(), static_cast<int>(1 + token % 17),
                           static_cast<int>(5 + token / 17 % 100));
  return request;
}

void Clients::Submit(size_t most_live) {
  const auto submit =
      jobs_.Next(most_live, [this](int64_t token, bool steady) { return Request(token, steady); });
  if (!submit) return absl::SleepFor(kPause);
  grpc::ClientContext context;
  SetDeadline(context);
  v1::Job made;
  const grpc::Status status = stub_.CreateJob(&context, submit->request, &made);
  jobs_.Answered(submit->token, status.ok() ? &made : nullptr, IsLost(status));
  if (!status.ok()) absl::SleepFor(kPause);
}

grpc::Status Clients::Ask(const Wish& wish, v1::Job& shown) const {
  grpc::ClientContext context;
  SetDeadline(context);
  switch (wish.order) {
    case Order::kCancel:
      return stub_.CancelJob(&context, Of<v1::CancelJobRequest>(wish.id), &shown);
    case Order::kPause:
      return stub_.PauseJob(&context, Of<v1::PauseJobRequest>(wish.id), &shown);
    case Order::kResume:
      return stub_.ResumeJob(&context, Of<v1::ResumeJobRequest>(wish.id), &shown);
    case Order::kUpdate: {
      auto request = Of<v1::UpdateJobRequest>(wish.id);
      request.set_priority(static_cast<int>(wish.token % 3));
      return stub_.UpdateJob(&context, request, &shown);
    }
    case Order::kDelete:
      return stub_.DeleteJob(&context, Of<v1::DeleteJobRequest>(wish.id), &shown);
  }
  return grpc::Status::OK;
}

void Clients::Change(std::mt19937& random) {
  const std::optional<Wish> wish = jobs_.Change(random);
  if (!wish) return absl::SleepFor(kPause);
  v1::Job shown;
  const grpc::Status status = Ask(*wish, shown);
  jobs_.Changed(*wish, status.ok() ? &shown : nullptr, IsLost(status));
  absl::SleepFor(slower_ * absl::Milliseconds(random() % 8));
}

void Clients::Operate(std::mt19937& random) {
  grpc::Status status;
  if (needs_ == Needs::kBackup)
    status = files_.BackUp(stub_);
  else if (needs_ == Needs::kUpload)
    status = files_.size() < kManyFiles ? files_.Upload(stub_) : files_.Delete(stub_);
  else if (needs_ == Needs::kFileDeletion)
    status = files_.size() > 0 ? files_.Delete(stub_) : files_.Upload(stub_);
  else if (random() % 200 == 0)
    status = files_.Upload(stub_);
  else
    absl::SleepFor(absl::Milliseconds(5));
  if (status.error_code() == grpc::StatusCode::DATA_LOSS && wrong_.empty())
    wrong_ = status.error_message();
}

}  // namespace snug::crash
