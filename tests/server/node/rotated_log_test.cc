// A worker's log as its shim writes it and as the daemon reads it.
#include "server/node/rotated_log.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "server/shim/worker_log.h"
#include "tests/server/testing/test_folder.h"

namespace snug::server {
namespace {

namespace fs = std::filesystem;

constexpr size_t kChunk = 1 << 20;

class RotatedLogTest : public testing::Test {
 protected:
  RotatedLogTest() { EXPECT_EQ(pipe2(ends_, O_NONBLOCK), 0); }
  ~RotatedLogTest() override {
    close(ends_[0]);
    close(ends_[1]);
  }
  void Print(const std::string& text, shim::WorkerLog& log) {
    EXPECT_EQ(write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
    EXPECT_TRUE(log.Copy(ends_[0]));
  }
  std::string ReadAll(RotatedLog& log) {
    std::string text;
    for (std::string more = log.Read(kChunk).value(); !more.empty();
         more = log.Read(kChunk).value())
      text += more;
    return text;
  }

  const TestFolder folder_{"rotated-log"};
  const std::string path_ = folder_.path() + "/worker.log";
  int ends_[2];
};

TEST_F(RotatedLogTest, IsReadAcrossTheChangeOfFiles) {
  shim::WorkerLog log(path_, {.file_bytes = 10, .burst_bytes = 1000});
  RotatedLog reader(path_);
  EXPECT_EQ(ReadAll(reader), "");
  Print("one two ", log);
  EXPECT_EQ(ReadAll(reader), "one two ");
  Print("three ", log);
  Print("four", log);
  EXPECT_EQ(ReadAll(reader), "three four");
  EXPECT_EQ(ReadAll(reader), "");
  RotatedLog late(path_);  // Whoever comes late begins with the older one.
  EXPECT_EQ(ReadAll(late), "one two three four");
}

// Two files came and went while nobody read.
TEST_F(RotatedLogTest, WhatWasDroppedUnreadIsPassedOver) {
  shim::WorkerLog log(path_, {.file_bytes = 10, .burst_bytes = 1000});
  RotatedLog reader(path_);
  Print("one......", log);
  EXPECT_EQ(ReadAll(reader), "one......");
  for (const char* text : {"two......", "three....", "four....."}) Print(text, log);
  EXPECT_EQ(ReadAll(reader), "three....four.....");
  EXPECT_EQ(fs::file_size(path_) + fs::file_size(path_ + ".1"), 18u);
}

TEST_F(RotatedLogTest, WhatComesTooFastIsLeftOutAndCounted) {
  RotatedLog reader(path_);
  {
    shim::WorkerLog log(path_, {.file_bytes = 1000, .burst_bytes = 10, .bytes_per_second = 0});
    Print("first....", log);
    Print("too much", log);
    Print("and more", log);
  }
  EXPECT_EQ(ReadAll(reader), "first....\n[snug-shim: 16 bytes of output are left out]\n");
}

TEST_F(RotatedLogTest, TheEndOfThePipeIsTold) {
  shim::WorkerLog log(path_);
  Print("all", log);
  close(ends_[1]);
  EXPECT_FALSE(log.Copy(ends_[0]));
  ends_[1] = dup(ends_[0]);
}

}  // namespace
}  // namespace snug::server
