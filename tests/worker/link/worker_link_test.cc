// The worker's end against a node made of a listening socket.
#include "worker/link/worker_link.h"

#include <google/protobuf/util/delimited_message_util.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <filesystem>
#include <future>
#include <optional>
#include <thread>

#include "google/protobuf/io/zero_copy_stream_impl.h"
#include "gtest/gtest.h"
#include "snug/v1/worker.pb.h"
#include "worker/link/command_frames.h"

namespace snug::link {
namespace {

// Listens, takes one connection at a time, reads events and sends commands.
class Node {
 public:
  explicit Node(const std::string& path) {
    signal(SIGPIPE, SIG_IGN);  // The link may hang up while a frame is being sent.
    unlink(path.c_str());
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    strncpy(address.sun_path, path.c_str(), sizeof(address.sun_path) - 1);
    listener_ = socket(AF_UNIX, SOCK_STREAM, 0);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 4), 0);
  }
  ~Node() { Close(); }

  void Accept() {
    connection_ = accept(listener_, nullptr, nullptr);
    ASSERT_GE(connection_, 0);
    input_ = std::make_unique<google::protobuf::io::FileInputStream>(connection_);
  }
  v1::WorkerEvent Read() {
    v1::WorkerEvent event;
    bool end = false;
    EXPECT_TRUE(
        google::protobuf::util::ParseDelimitedFromZeroCopyStream(&event, input_.get(), &end));
    return event;
  }
  // False: the link hung up before it had taken all of it.
  bool Send(const v1::WorkerCommand& command) {
    return google::protobuf::util::SerializeDelimitedToFileDescriptor(command, connection_);
  }
  void Close() {
    input_.reset();
    if (connection_ >= 0) close(connection_);
    if (listener_ >= 0) close(listener_);
    connection_ = listener_ = -1;
  }

 private:
  int listener_ = -1;
  int connection_ = -1;
  std::unique_ptr<google::protobuf::io::FileInputStream> input_;
};

class WorkerLinkTest : public ::testing::Test {
 protected:
  WorkerLinkTest() {
    attempt_.job_id = "ft-1";
    attempt_.epoch = 3;
    attempt_.nonce = "n";
    attempt_.link_socket = path_;
  }
  ~WorkerLinkTest() override { unlink(path_.c_str()); }

  static train::TrainingProgress At(int64_t step) {
    train::TrainingProgress progress;
    progress.global_step = step;
    progress.max_steps = 10;
    progress.loss = 0.5;
    progress.resumed_from_step = 2;
    return progress;
  }
  // Of a link that has just dialled, whatever it knows by then.
  void ExpectHello(const v1::WorkerEvent& event) {
    ASSERT_TRUE(event.has_hello()) << event.ShortDebugString();
    EXPECT_EQ(event.hello().job_id(), "ft-1");
    EXPECT_EQ(event.hello().epoch(), 3);
    EXPECT_EQ(event.hello().nonce(), "n");
    EXPECT_EQ(event.hello().pid(), getpid());
  }
  void AwaitCommand(const WorkerLink& link, Command command) {
    for (int i = 0; i < 1000 && link.command() != command; ++i) usleep(10'000);
    EXPECT_EQ(link.command(), command);
  }

  const std::string path_ = "/tmp/snug_link_test." + std::to_string(getpid());
  train::AttemptOptions attempt_;
};

// A length is one of 32 bits or none, whether it comes at once or byte by byte.
TEST(TakeCommandTest, ALongLengthIsNone) {
  const std::string frame("\x82\x80\x80\x80\x80\x80\x00\x0a\x00", 9);
  for (const size_t came : {size_t{5}, frame.size()}) {
    std::string buffer = frame.substr(0, came);
    v1::WorkerCommand command;
    bool healthy = true;
    EXPECT_FALSE(TakeCommand(buffer, command, healthy)) << came;
    EXPECT_FALSE(healthy) << came;
  }
}

// Before the first report: a worker that loads its model for minutes is known to be alive.
TEST_F(WorkerLinkTest, SaysHelloAtOnceThenReports) {
  Node node(path_);
  auto link = WorkerLink::Dial(attempt_);
  node.Accept();
  const v1::WorkerEvent hello = node.Read();
  ExpectHello(hello);
  EXPECT_FALSE(hello.hello().has_last());
  link->ReportProgress(At(2), {.measured_peak_bytes = 77,
                               .current_bytes = 5,
                               .looks = {{.steps = 1, .counted_bytes = 70, .seen_bytes = 80}}});
  const v1::WorkerEvent step = node.Read();
  EXPECT_EQ(step.step().progress().global_step(), 2);
  EXPECT_EQ(step.step().measured_peak_bytes(), 77);
  ASSERT_EQ(step.step().looks_size(), 1);
  EXPECT_EQ(step.step().looks(0).steps(), 1);
  EXPECT_EQ(step.step().looks(0).counted_bytes(), 70);
  EXPECT_EQ(step.step().looks(0).seen_bytes(), 80);
  link->ReportCheckpoint({.global_step = 4, .path = "/c/step-000004.e3"});
  EXPECT_EQ(node.Read().checkpoint().path(), "/c/step-000004.e3");
}

// The newest of each kind is in every report.
TEST_F(WorkerLinkTest, ReportsWhatWasMeasuredOfGradients) {
  Node node(path_);
  auto link = WorkerLink::Dial(attempt_);
  node.Accept();
  node.Read();
  train::TrainingProgress progress = At(2);
  progress.drift["int8"] = {.cosine = 0.75, .relative_error = 0.5, .global_step = 2, .tokens = 64};
  progress.drift_not_measured = "because";
  link->ReportProgress(progress, {});
  const v1::WorkerEvent step = node.Read();
  ASSERT_EQ(step.step().drift_size(), 1);
  const v1::Drift& drift = step.step().drift().at("int8");
  EXPECT_EQ(drift.cosine(), 0.75);
  EXPECT_EQ(drift.relative_error(), 0.5);
  EXPECT_EQ(drift.global_step(), 2);
  EXPECT_EQ(drift.tokens(), 64);
  EXPECT_EQ(step.step().drift_not_measured(), "because");
}

TEST_F(WorkerLinkTest, ObeysTheFirstCommand) {
  Node node(path_);
  auto link = WorkerLink::Dial(attempt_);
  link->ReportProgress(At(0), {});
  node.Accept();
  node.Read();
  v1::WorkerCommand command;
  command.mutable_welcome();
  node.Send(command);
  command.mutable_stop()->set_checkpoint(true);
  node.Send(command);
  AwaitCommand(*link, Command::kCheckpointAndStop);
  command.mutable_stop()->set_checkpoint(false);
  node.Send(command);
  usleep(50'000);
  EXPECT_EQ(link->command(), Command::kCheckpointAndStop);
}

TEST_F(WorkerLinkTest, AStopThatKeepsIsACommandOfItsOwn) {
  Node node(path_);
  auto link = WorkerLink::Dial(attempt_);
  node.Accept();
  node.Read();
  v1::WorkerCommand command;
  command.mutable_stop()->set_keep(true);
  node.Send(command);
  AwaitCommand(*link, Command::kExportAndStop);
}

// The daemon dies and another takes its socket: the worker says where it is by then, and loses no
// checkpoint report.
TEST_F(WorkerLinkTest, DialsAgainWhenTheNodeIsBack) {
  auto first = std::make_unique<Node>(path_);
  auto link = WorkerLink::Dial(attempt_);
  link->ReportProgress(At(1), {});
  first->Accept();
  ExpectHello(first->Read());
  first.reset();
  usleep(100'000);
  link->ReportCheckpoint({.global_step = 5, .path = "five"});
  link->ReportProgress(At(6), {.measured_peak_bytes = 99, .current_bytes = 5});
  Node second(path_);
  second.Accept();
  v1::WorkerEvent event = second.Read();
  ExpectHello(event);
  EXPECT_EQ(event.hello().last().progress().global_step(), 6);
  EXPECT_EQ(event.hello().last().progress().loss(), 0.5);
  EXPECT_EQ(event.hello().last().measured_peak_bytes(), 99);
  bool checkpoint = false;
  for (int i = 0; i < 2; ++i) {
    event = second.Read();
    if (event.has_checkpoint()) checkpoint = event.checkpoint().path() == "five";
  }
  EXPECT_TRUE(checkpoint);
}

TEST_F(WorkerLinkTest, AFrameThatIsNoneBreaksTheConnectionOnly) {
  Node node(path_);
  auto link = WorkerLink::Dial(attempt_);
  link->ReportProgress(At(1), {});
  node.Accept();
  node.Read();
  v1::WorkerCommand huge;
  huge.mutable_refused()->set_reason(std::string(2'000'000, 'x'));
  node.Send(huge);
  node.Accept();
  const v1::WorkerEvent again = node.Read();
  ExpectHello(again);
  EXPECT_EQ(again.hello().last().progress().global_step(), 1);
  EXPECT_EQ(link->command(), Command::kNone);
}

// One that comes once more, since its answer may have been lost, is not obeyed again.
TEST_F(WorkerLinkTest, AnOrderIsTakenOnceAndAnsweredAlsoWithHello) {
  auto node = std::make_unique<Node>(path_);
  auto link = WorkerLink::Dial(attempt_);
  node->Accept();
  const v1::WorkerEvent hello = node->Read();
  EXPECT_TRUE(hello.hello().has_plan());
  EXPECT_EQ(hello.hello().plan().number(), 0);
  v1::WorkerCommand command;
  command.mutable_change_plan()->set_number(3);
  command.mutable_change_plan()->set_bytes(77);
  command.mutable_change_plan()->mutable_plan()->set_name("keep");
  command.mutable_change_plan()->mutable_plan()->set_head_rows(512);
  node->Send(command);
  std::optional<train::PlanOrder> order;
  while (!order.has_value()) order = link->TakePlanOrder();
  EXPECT_EQ(order->number, 3);
  EXPECT_EQ(order->cap_bytes, 77);
  EXPECT_EQ(order->plan.name, "keep");
  EXPECT_EQ(order->head_rows, 512);
  link->AnswerPlanOrder({.number = 3, .global_step = 5, .current_bytes = 70});
  EXPECT_EQ(node->Read().plan_changed().current_bytes(), 70);
  node->Send(command);
  usleep(50'000);
  EXPECT_FALSE(link->TakePlanOrder().has_value());
  node.reset();
  node = std::make_unique<Node>(path_);
  node->Accept();
  EXPECT_EQ(node->Read().hello().plan().number(), 3);
  command.mutable_change_plan()->set_number(4);
  v1::SitesOfKind& kinds =
      *command.mutable_change_plan()->mutable_plan()->add_recipes()->add_kinds();
  kinds.set_kind("magic");
  kinds.add_sites("mlp.gate");
  node->Send(command);
  const v1::WorkerEvent refused = node->Read();
  EXPECT_EQ(refused.plan_changed().number(), 4);
  EXPECT_NE(refused.plan_changed().refusal().find("magic"), std::string::npos);
}

// A step that does not fit waits for its order, also over a daemon that is started anew.
TEST_F(WorkerLinkTest, AShortageWaitsForAnAnswer) {
  auto node = std::make_unique<Node>(path_);
  auto link = WorkerLink::Dial(attempt_);
  node->Accept();
  EXPECT_FALSE(node->Read().hello().has_shortage());
  const train::Shortage shortage = {.global_step = 7, .message = "the cap is hit"};
  auto asked = std::async([&] { return link->AskForSmallerPlan(shortage); });
  EXPECT_EQ(node->Read().shortage().message(), "the cap is hit");
  node.reset();
  node = std::make_unique<Node>(path_);
  node->Accept();
  EXPECT_EQ(node->Read().hello().shortage().global_step(), 7);
  v1::WorkerCommand command;
  command.mutable_change_plan()->set_number(1);
  command.mutable_change_plan()->mutable_plan()->set_name("recompute 100.00 %");
  node->Send(command);
  const std::optional<train::PlanOrder> order = asked.get();
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->number, 1);
  link->AnswerPlanOrder({.number = 1, .global_step = 7});
  EXPECT_EQ(node->Read().plan_changed().number(), 1);
  // There is none, or the attempt is to stop.
  for (const bool stops : {false, true}) {
    asked = std::async([&] { return link->AskForSmallerPlan(shortage); });
    EXPECT_TRUE(node->Read().has_shortage());
    v1::WorkerCommand none;
    if (stops)
      none.mutable_stop();
    else
      none.mutable_no_smaller_plan();
    node->Send(none);
    EXPECT_FALSE(asked.get().has_value());
  }
  EXPECT_EQ(link->command(), Command::kStop);
}

TEST_F(WorkerLinkTest, TheResultIsSentBeforeTheLinkCloses) {
  Node node(path_);
  {
    auto link = WorkerLink::Dial(attempt_);
    train::AttemptResult result;
    result.outcome = train::AttemptResult::Outcome::kSucceeded;
    std::thread reader([&] {
      node.Accept();
      node.Read();
      EXPECT_EQ(node.Read().finished().result().outcome(), v1::WorkerResult::OUTCOME_SUCCEEDED);
    });
    link->ReportResult(result);
    reader.join();
  }
}

TEST_F(WorkerLinkTest, WithoutANodeNothingBlocks) {
  auto link = WorkerLink::Dial(attempt_);
  link->ReportProgress(At(1), {});
  link->ReportResult({});
  EXPECT_EQ(link->command(), Command::kNone);
}

}  // namespace
}  // namespace snug::link
