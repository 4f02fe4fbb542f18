#include <atomic>
#include <chrono>
#include <sstream>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fake_server.h"

namespace snug::client {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

v1::Job Job(v1::Job::State state, int64_t step = 0) {
  v1::Job job;
  job.set_id("abc-in-full");
  job.set_state(state);
  job.mutable_progress()->set_global_step(step);
  job.mutable_progress()->set_max_steps(step > 0 ? 10 : 0);
  return job;
}

class WatchTest : public ::testing::Test {
 protected:
  // Every watch gets these jobs, then the stream ends.
  void Answer(std::vector<v1::Job> jobs) {
    server_.watch = [this, jobs](const v1::WatchJobRequest& request,
                                 grpc::ServerWriter<v1::Job>* writer) {
      asked_for_.push_back(request.id());
      for (const v1::Job& job : jobs) writer->Write(job);
      return grpc::Status::OK;
    };
  }

  FakeServer server_;
  std::vector<std::string> asked_for_;
};

TEST_F(WatchTest, ExitCodesTellHowTheJobEnded) {
  Answer({Job(v1::Job::STATE_RUNNING, 5), Job(v1::Job::STATE_SUCCEEDED, 10)});
  EXPECT_EQ(server_.Run({"watch", "abc"}).code, 0);
  Answer({Job(v1::Job::STATE_FAILED)});
  EXPECT_EQ(server_.Run({"watch", "abc"}).code, 1);
  Answer({Job(v1::Job::STATE_CANCELLED)});
  EXPECT_EQ(server_.Run({"watch", "abc"}).code, 2);
}

TEST_F(WatchTest, LinesFollowTheJob) {
  v1::Job queued = Job(v1::Job::STATE_QUEUED);
  queued.set_reason("waits for cpu:0");
  Answer({queued, Job(v1::Job::STATE_STARTING), Job(v1::Job::STATE_RUNNING, 1),
          Job(v1::Job::STATE_SUCCEEDED, 10)});
  EXPECT_EQ(server_.Run({"watch", "abc"}).out,
            "QUEUED: waits for cpu:0\nSTARTING\nRUNNING\nstep 1/10  loss 0.0000\n"
            "step 10/10  loss 0.0000\nSUCCEEDED at step 10 of 10\n"
            "fetch it with: snug download abc-in-full DIR\n");
}

// The last step is reported, then evaluated: its line is written again with what is new, and no
// third time.
TEST_F(WatchTest, TheLastStepIsToldWithAllThatIsKnown) {
  v1::Job trained = Job(v1::Job::STATE_RUNNING, 10);
  trained.mutable_progress()->set_loss(6.16);
  v1::Job evaluated = trained;
  evaluated.mutable_progress()->set_eval_loss(5.9);
  auto& metrics = *evaluated.mutable_progress()->mutable_eval_metrics();
  metrics["eval_f1_macro"] = 0.87654;
  metrics["eval_accuracy"] = 0.9;
  v1::Job ended = evaluated;
  ended.set_state(v1::Job::STATE_SUCCEEDED);
  Answer({trained, trained, evaluated, ended});
  EXPECT_EQ(server_.Run({"watch", "abc"}).out,
            "RUNNING\nstep 10/10  loss 6.1600\nstep 10/10  loss 6.1600  eval loss 5.9000  "
            "accuracy 0.9000, f1_macro 0.8765\n"
            "SUCCEEDED at step 10 of 10\nfetch it with: snug download abc-in-full DIR\n");
}

TEST_F(WatchTest, JsonIsALinePerChange) {
  Answer({Job(v1::Job::STATE_RUNNING, 1), Job(v1::Job::STATE_RUNNING, 2),
          Job(v1::Job::STATE_SUCCEEDED, 10)});
  std::istringstream out(server_.Run({"watch", "abc", "--output", "json"}).out);
  std::vector<std::string> states;
  for (std::string line; std::getline(out, line);) {
    states.push_back(nlohmann::json::parse(line)["state"]);
  }
  EXPECT_THAT(states, ElementsAre("RUNNING", "RUNNING", "SUCCEEDED"));
}

TEST_F(WatchTest, AJobThatDoesNotExistIsAnError) {
  server_.watch = [](const v1::WatchJobRequest&, grpc::ServerWriter<v1::Job>*) {
    return grpc::Status(grpc::StatusCode::NOT_FOUND, "no job abc");
  };
  const Ran ran = server_.Run({"watch", "abc"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(ran.err, "snug: no job abc\n");
  const Ran json = server_.Run({"watch", "abc", "--output", "json"});
  EXPECT_EQ(json.code, 1);
  EXPECT_EQ(json.out, "");
  EXPECT_EQ(nlohmann::json::parse(json.err)["error"]["message"], "no job abc");
}

// A stream that ends before the job does is opened again, by the id in full.
TEST_F(WatchTest, AStreamThatEndsEarlyIsOpenedAgain) {
  server_.watch = [this](const v1::WatchJobRequest& request, grpc::ServerWriter<v1::Job>* writer) {
    asked_for_.push_back(request.id());
    writer->Write(
        Job(asked_for_.size() < 2 ? v1::Job::STATE_RUNNING : v1::Job::STATE_SUCCEEDED, 3));
    return grpc::Status::OK;
  };
  EXPECT_EQ(server_.Run({"watch", "abc"}).code, 0);
  EXPECT_THAT(asked_for_, ElementsAre("abc", "abc-in-full"));
}

// What gRPC may make of a daemon that is being stopped.
TEST_F(WatchTest, AStreamThatIsCancelledWithoutADaemonsWordIsOpenedAgain) {
  server_.watch = [this](const v1::WatchJobRequest& request, grpc::ServerWriter<v1::Job>* writer) {
    asked_for_.push_back(request.id());
    writer->Write(
        Job(asked_for_.size() < 2 ? v1::Job::STATE_RUNNING : v1::Job::STATE_SUCCEEDED, 3));
    return grpc::Status(grpc::StatusCode::CANCELLED, "CANCELLED");
  };
  const Ran ran = server_.Run({"watch", "abc"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(asked_for_.size(), 2u);
}

// The daemon goes while the job runs, and another one comes on the same socket.
TEST_F(WatchTest, OutlivesARestartOfTheDaemon) {
  std::atomic<bool> is_watched = false;
  std::atomic<bool> is_stopped = false;
  server_.watch = [&](const v1::WatchJobRequest&, grpc::ServerWriter<v1::Job>* writer) {
    if (is_stopped) {
      writer->Write(Job(v1::Job::STATE_SUCCEEDED, 10));
      return grpc::Status::OK;
    }
    writer->Write(Job(v1::Job::STATE_RUNNING, 1));
    is_watched = true;
    while (!is_stopped) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return grpc::Status(grpc::StatusCode::UNAVAILABLE, "draining");
  };
  Ran ran;
  std::thread watcher([&] { ran = server_.Run({"watch", "abc"}); });
  while (!is_watched) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  is_stopped = true;
  server_.Stop();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  server_.Start();
  watcher.join();
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.err, "snug: the daemon is away; the job goes on, waiting for the daemon\n");
  EXPECT_THAT(ran.out, HasSubstr("SUCCEEDED at step 10 of 10"));
}

}  // namespace
}  // namespace snug::client
