// Lines of metrics.jsonl as events of OpenAI's API, where they are not as a worker writes them.
#include "server/http/openai_objects.h"

#include <gtest/gtest.h>

namespace snug::server {
namespace {

TEST(OpenAiObjectsTest, NumbersThatNoStepHasAreNoStep) {
  v1::Job job;
  job.set_id("job");
  job.mutable_progress()->set_max_steps(3);
  const auto events = EventObjects(job,
                                   "{\"global_step\": 1, \"loss\": 2.5, \"time\": 1700000000.5}\n"
                                   "{\"global_step\": 2111111111111111111111.25, \"time\": 1e300}\n"
                                   "{\"global_step\": -1e19}\n"
                                   "{\"global_step\": \"2\"}\n");
  ASSERT_EQ(events.size(), 5u);  // The first is that the job was created.
  EXPECT_EQ(events[3]["message"], "Step 1/3: train_loss=2.5");
  EXPECT_EQ(events[3]["created_at"], 1700000000);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(events[i]["data"]["step"], 0) << events[i];
    EXPECT_EQ(events[i]["created_at"], 0) << events[i];
  }
}

}  // namespace
}  // namespace snug::server
