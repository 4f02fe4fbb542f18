#include "client/advice.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace snug::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

v1::JobSpec Spec(v1::JobSpec::Method method, double rate) {
  v1::JobSpec spec;
  spec.set_method(method);
  spec.mutable_training()->set_learning_rate(rate);
  return spec;
}

TEST(AdviceTest, ALearningRateOfAHundredTimesTheUsualIsNoted) {
  EXPECT_THAT(NotesOf(Spec(v1::JobSpec::METHOD_LORA, 0.02)),
              ElementsAre(HasSubstr("learning_rate 0.02 is 100 times the usual 0.0002 of lora")));
  EXPECT_THAT(NotesOf(Spec(v1::JobSpec::METHOD_FULL, 1e-3)), ElementsAre(HasSubstr("of full")));
  EXPECT_THAT(NotesOf(Spec(v1::JobSpec::METHOD_LORA, 0.019)), IsEmpty());
  EXPECT_THAT(NotesOf(v1::JobSpec()), IsEmpty());
}

TEST(AdviceTest, NonFiniteSaysWhatToTry) {
  v1::Job job;
  *job.mutable_spec() = Spec(v1::JobSpec::METHOD_LORA, 0.01);
  EXPECT_EQ(WhatToTry(job), "");
  job.mutable_error()->set_reason("NON_FINITE");
  EXPECT_THAT(WhatToTry(job), HasSubstr("learning_rate=0.001 (it was 0.01), warmup_ratio=0.03"));
  EXPECT_THAT(WhatToTry(job), Not(HasSubstr("max_grad_norm")));
  job.mutable_spec()->mutable_training()->set_max_grad_norm(0.0);
  job.mutable_spec()->mutable_training()->set_precision(v1::TrainingSpec::PRECISION_BF16);
  job.mutable_spec()->mutable_training()->set_warmup_steps(3);
  EXPECT_THAT(WhatToTry(job), HasSubstr("max_grad_norm=1.0 (gradients were not clipped), "
                                        "precision=fp32"));
  EXPECT_THAT(WhatToTry(job), Not(HasSubstr("warmup")));
}

}  // namespace
}  // namespace snug::client
