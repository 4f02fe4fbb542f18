#include "client/plan_json.h"

#include <utility>

#include "client/plan_text.h"
#include "proto/snug/enum_words.h"

namespace snug::client {
namespace {

Json PlanToJson(const v1::Plan& plan) {
  Json all = ToJson(plan), json = Json::object();
  for (const char* field : {"name", "peak_bytes", "host_bytes", "relative_work", "step_seconds",
                            "tokens_per_second", "fidelity", "memory"}) {
    if (all.contains(field)) json[field] = std::move(all[field]);
  }
  json["fidelity"] = LowerEnumWord(plan.fidelity());
  if (!json.contains("memory")) json["memory"] = Json::object();
  json["kinds"] = Json::object();
  for (const v1::KindShare& kind : plan.kinds()) json["kinds"][kind.kind()] = kind.share();
  for (const v1::SitesOfKind& kind : KindsWithOptions(plan))
    json["options"][kind.kind()].push_back(ToJson(kind.options()));
  return json;
}

// Small enough to be numbers.
Json LargestToJson(const v1::LargestSettings& largest) {
  return Json::object({{"per_device_train_batch_size", largest.per_device_train_batch_size()},
                       {"max_seq_length", largest.max_seq_length()},
                       {"gradient_accumulation_steps", largest.gradient_accumulation_steps()}});
}

}  // namespace

Json PlansToJson(const v1::PlanJobResponse& reply) {
  Json json = Json::object({{"plans", Json::array()}});
  for (const v1::Plan& plan : reply.plans()) json["plans"].push_back(PlanToJson(plan));
  v1::PlanJobResponse rest = reply;
  rest.clear_plans();
  Json others = ToJson(rest);
  others.erase("plans");
  if (reply.has_max()) others["max"] = LargestToJson(reply.max());
  for (const v1::LargestSettings& each : reply.max_by_fidelity())
    others["max"]["by_fidelity"][LowerEnumWord(each.fidelity())] = LargestToJson(each);
  others.erase("max_by_fidelity");
  others.erase("gradients");
  others.erase("optimizer");
  if (reply.gradients() != v1::MemorySpec::GRADIENTS_UNSPECIFIED)
    others["gradients"] = LowerEnumWord(reply.gradients());
  if (reply.optimizer() != v1::MemorySpec::OPTIMIZER_STATE_UNSPECIFIED)
    others["optimizer"] = LowerEnumWord(reply.optimizer());
  if (reply.tape().empty()) others.erase("tape");
  if (reply.timeline().empty()) others.erase("timeline");
  json.update(others);
  return json;
}

}  // namespace snug::client
