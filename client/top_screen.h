// What `snug top` shows, as lines of text: a pure function of what the daemon said.
#ifndef CLIENT_TOP_SCREEN_H_
#define CLIENT_TOP_SCREEN_H_

#include <string>
#include <vector>

#include "snug/v1/service.pb.h"

namespace snug::client {

struct TopView {
  v1::ServerInfo server;
  std::vector<v1::Job> running;  // Those with an attempt.
  std::vector<v1::Job> waiting;  // In the order in which they are asked.
  bool more_waiting = false;     // Than those.
};

struct ScreenSize {
  int columns = 80;
  int rows = 0;  // 0: no screen but text, with as many lines as it takes, however long.
  bool colour = false;
};

// Of each device a bar of predicted and one of actual bytes against its capacity, and its jobs;
// then the queue. No line is longer than `columns`, but for colours; what is beyond `rows` is
// counted.
std::vector<std::string> TopLines(const TopView& view, const ScreenSize& size);

}  // namespace snug::client

#endif  // CLIENT_TOP_SCREEN_H_
