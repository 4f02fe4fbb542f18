#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "tests/client/fake_server.h"

namespace snug::client {
namespace {

constexpr const char* kReply = R"(
  version: "0.1.0"
  devices {
    name: "cpu:0" model: "AMD EPYC" total_bytes: 68719476736 capacity_bytes: 4294967296
    reserved_bytes: 1073741824 context_bytes: 174063616 threads: 8
    shared_weights { digest: "abc" bytes: 536870912 jobs: 3 }
  }
  devices {
    name: "gpu:0" model: "NVIDIA\033 H200" total_bytes: 150323855360 capacity_bytes: 42949672960
    uuid: "GPU-aa" measured_bytes: 0 others_bytes: 536870912 trouble: "it is\033 lost"
  })";

class DevicesTest : public ::testing::Test {
 protected:
  DevicesTest() {
    server_.info = [](const v1::GetServerInfoRequest&, v1::ServerInfo* reply) {
      EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(kReply, reply));
      return grpc::Status::OK;
    };
  }
  FakeServer server_;
};

// Of a CPU nobody measures anything; a GPU that nothing runs on has 0 bytes of ours.
TEST_F(DevicesTest, ATableOfWhatThereIsAndWhoseItIs) {
  const Ran ran = server_.Run({"devices"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out,
            "DEVICE  MODEL           TOTAL  CAPACITY  RESERVED  MEASURED   OTHERS\n"
            "cpu:0   AMD EPYC       64 GiB     4 GiB     1 GiB         -        -\n"
            "gpu:0   NVIDIA? H200  140 GiB    40 GiB       0 B       0 B  512 MiB\n"
            "cpu:0: of what is reserved, 512 MiB are weights that 3 jobs share\n"
            "gpu:0: no job is placed there: it is? lost\n");
}

TEST_F(DevicesTest, JsonHasEveryField) {
  const auto json = nlohmann::json::parse(server_.Run({"devices", "--output", "json"}).out);
  ASSERT_EQ(json["devices"].size(), 2u);
  EXPECT_EQ(json["devices"][0]["context_bytes"], "174063616");
  EXPECT_FALSE(json["devices"][0].contains("measured_bytes"));
  EXPECT_EQ(json["devices"][1]["measured_bytes"], "0");
  EXPECT_EQ(json["devices"][1]["uuid"], "GPU-aa");
}

TEST_F(DevicesTest, ADrainedDeviceIsSaidToBeOne) {
  server_.info = [](const v1::GetServerInfoRequest&, v1::ServerInfo* reply) {
    v1::Device& device = *reply->add_devices();
    device.set_name("cpu:0");
    device.set_drained(true);
    return grpc::Status::OK;
  };
  EXPECT_THAT(
      server_.Run({"devices"}).out,
      testing::HasSubstr("cpu:0: no job is placed there: it is drained (snug undrain cpu:0)\n"));
}

TEST_F(DevicesTest, DrainAndUndrainSayWhatRunsThere) {
  bool moves = false;
  server_.drain = [&](const v1::DrainDeviceRequest& request, v1::Device* reply) {
    moves = request.move();
    reply->set_name(request.device());
    reply->set_drained(true);
    reply->add_reservations();
    return grpc::Status::OK;
  };
  server_.undrain = [](const v1::UndrainDeviceRequest& request, v1::Device* reply) {
    reply->set_name(request.device());
    return grpc::Status::OK;
  };
  EXPECT_EQ(server_.Run({"drain", "gpu:1"}).out, "gpu:1 drained, 1 job runs there\n");
  EXPECT_FALSE(moves);
  EXPECT_EQ(server_.Run({"drain", "gpu:1", "--move"}).out, "gpu:1 drained, 1 job runs there\n");
  EXPECT_TRUE(moves);
  EXPECT_EQ(server_.Run({"undrain", "gpu:1"}).out, "gpu:1 in use, 0 jobs run there\n");
  EXPECT_EQ(server_.Run({"drain"}).code, 64);
}

}  // namespace
}  // namespace snug::client
