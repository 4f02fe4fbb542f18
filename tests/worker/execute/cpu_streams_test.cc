#include "worker/execute/cpu_streams.h"

#include <chrono>
#include <random>
#include <stdexcept>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace snug::execute {
namespace {

// Of a thread of its own, for its own use.
void WaitAWhile() {
  thread_local std::mt19937 random(std::random_device{}());
  std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
}

TEST(CpuStreamsTest, StreamZeroIsTheCaller) {
  CpuStreams streams;
  std::thread::id ran;
  streams.Issue(0, [&] { ran = std::this_thread::get_id(); });
  EXPECT_EQ(ran, std::this_thread::get_id());
  streams.Record(0, 0);
  streams.Wait(0, 1);
  streams.Wait(0, 0);
}

TEST(CpuStreamsTest, AStreamRunsInOrderAndBesideTheCaller) {
  CpuStreams streams(&WaitAWhile);
  std::vector<int> order;
  std::thread::id ran;
  for (int i = 0; i < 20; ++i) streams.Issue(1, [&order, i] { order.push_back(i); });
  streams.Issue(1, [&] { ran = std::this_thread::get_id(); });
  streams.Synchronize();
  EXPECT_NE(ran, std::this_thread::get_id());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

// Nothing else orders the two streams' numbers: ThreadSanitizer says so where an event does not.
TEST(CpuStreamsTest, EventsOrderStreams) {
  CpuStreams streams(&WaitAWhile);
  int copied = 0, read = 0;
  for (int i = 1; i <= 50; ++i) {
    int value = i;
    streams.Record(0, 0);
    streams.Wait(0, 1);
    streams.Issue(1, [&] { copied = value; });
    streams.Record(1, 1);
    streams.Wait(1, 2);
    streams.Issue(2, [&] { read = copied; });
    streams.Record(2, 2);
    streams.Wait(2, 0);
    ASSERT_EQ(read, i);
  }
}

// What waited for it before waits for what it stood for then: otherwise streams 1 and 2 would wait
// for one another.
TEST(CpuStreamsTest, AnEventIsRecordedAgain) {
  CpuStreams streams(&WaitAWhile);
  int first = 0, between = 0, second = 0;
  streams.Issue(1, [&] { first = 1; });
  streams.Record(0, 1);
  streams.Wait(0, 2);
  streams.Issue(2, [&] { between = first + 1; });
  streams.Record(1, 2);
  streams.Wait(1, 1);
  streams.Issue(1, [&] { second = between + 1; });
  streams.Record(0, 1);
  streams.Wait(0, 0);
  EXPECT_EQ(second, 3);
}

TEST(CpuStreamsTest, NobodyWaitsForAnEventThatNothingRecorded) {
  CpuStreams streams;
  EXPECT_THROW(streams.Wait(3, 0), std::out_of_range);
  streams.Record(3, 1);
  streams.Wait(3, 0);
  streams.Synchronize();  // Here one tape ends, and the next one has events of its own.
  EXPECT_THROW(streams.Wait(3, 0), std::out_of_range);
}

TEST(CpuStreamsTest, WhatWasIssuedRunsBeforeTheEnd) {
  int runs = 0;
  {
    CpuStreams streams(&WaitAWhile);
    for (int i = 0; i < 10; ++i) streams.Issue(1, [&] { ++runs; });
  }
  EXPECT_EQ(runs, 10);
}

}  // namespace
}  // namespace snug::execute
