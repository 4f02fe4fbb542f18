// submit_load SERVER CONNECTIONS JOBS MODEL DATASET: submits jobs through so many connections at
// once, each of which waits for its answer before it submits again. Prints one line of JSON.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
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

double Seconds(Clock::duration duration) { return std::chrono::duration<double>(duration).count(); }

// Seconds that each submit took; a refusal ends the program.
std::vector<double> Submit(const Load& load, std::atomic<int>& left) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // A connection of its own.
  const auto stub = snug::v1::FineTuning::NewStub(
      grpc::CreateCustomChannel(load.server, grpc::InsecureChannelCredentials(), arguments));
  snug::v1::CreateJobRequest request;
  request.mutable_spec()->set_display_name("load");
  request.mutable_spec()->set_model(load.model);
  request.mutable_spec()->set_dataset(load.dataset);
  request.mutable_spec()->set_method(snug::v1::JobSpec::METHOD_LORA);
  std::vector<double> took;
  while (left.fetch_sub(1) > 0) {
    grpc::ClientContext context;
    snug::v1::Job job;
    const Clock::time_point begin = Clock::now();
    const grpc::Status status = stub->CreateJob(&context, request, &job);
    took.push_back(Seconds(Clock::now() - begin));
    if (status.ok()) continue;
    fprintf(stderr, "submit_load: %s\n", status.error_message().c_str());
    exit(1);
  }
  return took;
}

double Share(const std::vector<double>& sorted, double share) {
  return sorted[static_cast<size_t>(share * static_cast<double>(sorted.size() - 1))];
}

int Run(const Load& load) {
  std::atomic<int> left = load.jobs;
  std::vector<std::vector<double>> parts(static_cast<size_t>(load.connections));
  std::vector<std::thread> threads;
  const Clock::time_point begin = Clock::now();
  for (std::vector<double>& part : parts)
    threads.emplace_back([&load, &left, &part] { part = Submit(load, left); });
  for (std::thread& thread : threads) thread.join();
  const double seconds = Seconds(Clock::now() - begin);
  std::vector<double> all;
  for (const std::vector<double>& part : parts) all.insert(all.end(), part.begin(), part.end());
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
