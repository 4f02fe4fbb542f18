// submit_load SERVER CONNECTIONS JOBS MODEL DATASET: submits jobs through so many connections at
// once, each of which waits for its answer before it submits again. Prints one line of JSON.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "snug/v1/service.grpc.pb.h"

namespace {

using Clock = std::chrono::steady_clock;

struct Load {
  std::string server;
  int connections = 1;
  int jobs = 0;
  std::string model;
  std::string dataset;
};

// As every client sends one with a submit, so that it may be sent again.
std::string RandomUuid() {
  static std::mt19937_64 generator(std::random_device{}());
  const uint64_t high = generator(), low = generator();
  char text[37];
  snprintf(text, sizeof text, "%08x-%04x-4%03x-a%03x-%012llx", static_cast<uint32_t>(high >> 32),
           static_cast<uint32_t>(high >> 16 & 0xFFFF), static_cast<uint32_t>(high & 0xFFF),
           static_cast<uint32_t>(low >> 52), static_cast<unsigned long long>(low & 0xFFFFFFFFFFFF));
  return text;
}

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// A connection of its own, which submits again when it has its answer.
class Connection {
 public:
  Connection(const Load& load, int& left, grpc::CompletionQueue& answers)
      : left_(left), answers_(answers) {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    stub_ = snug::v1::FineTuning::NewStub(
        grpc::CreateCustomChannel(load.server, grpc::InsecureChannelCredentials(), arguments));
    snug::v1::JobSpec& spec = *request_.mutable_spec();
    spec.set_display_name("load");
    spec.set_model(load.model);
    spec.set_dataset(load.dataset);
    spec.set_method(snug::v1::JobSpec::METHOD_LORA);
  }

  // False: nothing is left to submit.
  bool Submit() {
    if (left_-- <= 0) return false;
    request_.set_request_id(RandomUuid());
    context_.emplace();
    began_ = Clock::now();
    call_ = stub_->AsyncCreateJob(&*context_, request_, &answers_);
    call_->Finish(&job_, &status_, this);
    return true;
  }
  // Seconds that it took; a refusal ends the program.
  double Answered() {
    const double took = Seconds(Clock::now() - began_);
    if (status_.ok()) return took;
    fprintf(stderr, "submit_load: %s\n", status_.error_message().c_str());
    exit(1);
  }

 private:
  int& left_;
  grpc::CompletionQueue& answers_;
  std::unique_ptr<snug::v1::FineTuning::Stub> stub_;
  snug::v1::CreateJobRequest request_;
  std::optional<grpc::ClientContext> context_;
  Clock::time_point began_;
  std::unique_ptr<grpc::ClientAsyncResponseReader<snug::v1::Job>> call_;
  snug::v1::Job job_;
  grpc::Status status_;
};

// Seconds that each submit took. All connections are one thread's: 64 threads would take twice the
// CPU, from a daemon on the same machine.
std::vector<double> SubmitAll(const Load& load) {
  int left = load.jobs;
  grpc::CompletionQueue answers;
  std::vector<std::unique_ptr<Connection>> connections;
  int waiting = 0;
  for (int i = 0; i < load.connections; ++i) {
    connections.push_back(std::make_unique<Connection>(load, left, answers));
    waiting += connections.back()->Submit() ? 1 : 0;
  }
  std::vector<double> took;
  void* tag = nullptr;
  for (bool ok = false; waiting > 0 && answers.Next(&tag, &ok);) {
    auto* connection = static_cast<Connection*>(tag);
    took.push_back(connection->Answered());
    if (!connection->Submit()) --waiting;
  }
  answers.Shutdown();
  return took;
}

double Share(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

int Run(const Load& load) {
  const Clock::time_point begin = Clock::now();
  std::vector<double> all = SubmitAll(load);
  const double seconds = Seconds(Clock::now() - begin);
  std::sort(all.begin(), all.end());
  printf("{\"jobs\": %zu, \"per_s\": %.1f, \"p50_ms\": %.2f, \"p99_ms\": %.2f}\n", all.size(),
         static_cast<double>(all.size()) / seconds, Share(all, 0.5) * 1e3, Share(all, 0.99) * 1e3);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 6) {
    fprintf(stderr, "submit_load SERVER CONNECTIONS JOBS MODEL DATASET\n");
    return 64;
  }
  return Run({argv[1], atoi(argv[2]), atoi(argv[3]), argv[4], argv[5]});
}
