#include "server/node/framing.h"

#include <gtest/gtest.h>

namespace snug::server {
namespace {

// Bytes arrive one by one: no message before its last byte.
TEST(FramingTest, MessagesSurviveAnySplit) {
  const std::string stream = Frame("") + Frame("a") + Frame(std::string(300, 'b'));
  FrameReader reader;
  std::vector<std::string> messages;
  for (char byte : stream) {
    reader.Add({&byte, 1});
    std::string message;
    while (reader.Next(message).value()) messages.push_back(message);
  }
  EXPECT_EQ(messages, (std::vector<std::string>{"", "a", std::string(300, 'b')}));
}

TEST(FramingTest, LengthBeyondTheLimitIsRefusedBeforeItsBytesCome) {
  FrameReader reader;
  reader.Add(Frame(std::string(kMaxFrameBytes + 1, 'x')).substr(0, 4));
  std::string message;
  EXPECT_TRUE(absl::IsInvalidArgument(reader.Next(message).status()));
}

// Of a stranger less is taken than of a worker.
TEST(FramingTest, TheLimitCanBeRaised) {
  const std::string frame = Frame(std::string(kMaxFirstFrameBytes + 1, 'x'));
  FrameReader reader(kMaxFirstFrameBytes);
  reader.Add(frame);
  EXPECT_TRUE(reader.HasPart());
  std::string message;
  EXPECT_FALSE(reader.Next(message).ok());
  reader.AllowFrames(kMaxFrameBytes);
  EXPECT_TRUE(reader.Next(message).value());
  EXPECT_FALSE(reader.HasPart());
}

TEST(FramingTest, EndlessLengthIsRefused) {
  FrameReader reader;
  reader.Add("\xff\xff\xff\xff\xff\xff");
  std::string message;
  EXPECT_FALSE(reader.Next(message).ok());
}

}  // namespace
}  // namespace snug::server
