#include "server/answer/answering.h"

#include <unistd.h>

#include <future>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "proto/snug/status_macros.h"
#include "server/answer/answer_worker.h"
#include "server/data/prompts.h"
#include "server/job/errors.h"
#include "server/job/log.h"
#include "server/job/random_id.h"
#include "server/plan/planner.h"

namespace snug::server {
namespace {

v1::Assignment AssignmentOf(const AskedModel& asked, const v1::SampleSettings& settings,
                            const std::string& prompts) {
  v1::Assignment assignment;
  *assignment.mutable_spec() = asked.checked.spec;
  assignment.mutable_spec()->set_model(asked.checked.model_dir);
  assignment.set_base_model_name(asked.checked.model_dir);
  if (asked.checked.opened != nullptr) *assignment.mutable_opened() = *asked.checked.opened;
  assignment.set_prompts(prompts);
  v1::SampleOrder& order = *assignment.mutable_sample();
  *order.mutable_settings() = settings;
  order.set_adapter(asked.adapter);
  order.set_checkpoint(asked.checkpoint);
  return assignment;
}

}  // namespace

absl::StatusOr<std::shared_ptr<AnswerStream>> Answering::Start(v1::SampleRequest request) {
  absl::MutexLock lock(&mutex_);
  if (stopped_) return Draining();
  JoinOver();
  if (running_.size() >= kMaxAnswering) return QueueFull("requests for answers", kMaxAnswering);
  Running& running = running_.emplace_back();
  running.stream = std::make_shared<AnswerStream>();
  running.thread = std::thread([this, &running, request = std::move(request)] {
    Answer(request, *running.stream);
    running.over = true;
  });
  return running.stream;
}

void Answering::JoinOver() {
  running_.remove_if([](Running& running) {
    if (!running.over) return false;
    running.thread.join();
    return true;
  });
}

void Answering::Stop() {
  std::list<Running> running;
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
    running.swap(running_);
  }
  for (Running& one : running) one.stream->Cancel();
  for (Running& one : running) one.thread.join();
}

void Answering::Answer(const v1::SampleRequest& request, AnswerStream& stream) {
  stream.End(Run(request, stream));
}

absl::Status Answering::Run(const v1::SampleRequest& request, AnswerStream& stream) {
  const std::string& state_dir = parts_.launcher.state_dir;
  const std::string id = RandomHex(8);
  ASSIGN_OR_RETURN(const AskedModel asked,
                   FindModel(request, parts_.index, parts_.inspector, state_dir));
  const std::string prompts = absl::StrCat(AnsweringDir(state_dir), "/", id, ".prompts");
  const absl::Cleanup remove = [&] { unlink(prompts.c_str()); };
  RETURN_IF_ERROR(
      parts_.preparer.Tokenise({.spec = asked.checked.spec,
                                .model_dir = asked.checked.model_dir,
                                .chat_template = asked.chat_template,
                                .prompts = request.prompts(),
                                .max_tokens = asked.max_prompt_tokens},
                               prompts, {.reach = parts_.inspector.access().ReachOf(asked.owner)}));
  ASSIGN_OR_RETURN(const int64_t longest, LongestPrompt(prompts));
  if (stream.Cancelled()) return absl::CancelledError("the client has gone");
  ASSIGN_OR_RETURN(const Lent lent, Borrow(id, asked, longest, asked.settings.max_new_tokens()));
  return RunWorker(id, lent, AssignmentOf(asked, asked.settings, prompts), stream);
}

absl::StatusOr<Lent> Answering::Borrow(const std::string& id, const AskedModel& asked,
                                       int64_t prompt_tokens, int64_t new_tokens) {
  DevicePlans plans;
  for (const Device& device : parts_.devices)
    for (const int threads : ThreadShares(device)) {
      ASSIGN_OR_RETURN(v1::Plan plan, AnsweringPlan(*asked.checked.program, prompt_tokens,
                                                    new_tokens, MachineOf(device, threads)));
      plans[device.name].push_back(std::move(plan));
    }
  auto lent = std::make_shared<std::promise<absl::StatusOr<Lent>>>();
  Lender(parts_.scheduler.core()).Lend(id, std::move(plans), [lent](absl::StatusOr<Lent> reply) {
    lent->set_value(std::move(reply));
  });
  return lent->get_future().get();
}

// What is lent goes back when nothing of the worker is left, and not before.
absl::Status Answering::RunWorker(const std::string& id, const Lent& lent,
                                  v1::Assignment assignment, AnswerStream& stream) {
  *assignment.mutable_plan() = lent.plan;
  assignment.set_cap_bytes(lent.plan.peak_bytes());
  assignment.set_most_bytes(lent.plan.peak_bytes());
  assignment.set_device(lent.device.name);
  assignment.set_context_bytes(lent.device.context_bytes);
  assignment.set_products(lent.device.products);
  auto worker = AnswerWorker::Start(parts_.launcher, lent.device, id, std::move(assignment));
  if (!worker.ok()) {
    Lender(parts_.scheduler.core()).GiveBack(id);
    return worker.status();
  }
  v1::SampleChunk begun;
  begun.mutable_begun()->set_device(lent.device.name);
  begun.mutable_begun()->set_reserved_bytes(lent.plan.peak_bytes());
  stream.Put(std::move(begun));
  const absl::Status status =
      (*worker)->Pump([&](v1::SampleChunk chunk) { return stream.Put(std::move(chunk)); },
                      [&] { return stream.Cancelled(); });
  if ((*worker)->End())
    Lender(parts_.scheduler.core()).GiveBack(id);
  else
    spdlog::error("a worker that answers, {}, cannot be killed: {} bytes of {} stay promised", id,
                  lent.plan.peak_bytes(), lent.device.name);
  return status;
}

}  // namespace snug::server
