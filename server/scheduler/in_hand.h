// Which jobs the daemon is at work on in its own process, kept in files so that its next life knows
// what it was doing when it ended. A job that was in hand at two ends is not taken in hand again:
// it may be what ends the daemon.
//
// <dir>/<job> holds "N working" while it is in hand: N ends so far. What ends without ending the
// daemon leaves no file. Nothing is flushed to the disk: this is about the process, not the
// machine.
#ifndef SERVER_SCHEDULER_IN_HAND_H_
#define SERVER_SCHEDULER_IN_HAND_H_

#include <map>
#include <memory>
#include <string>

namespace snug::server {

inline constexpr int kMaxEndsInHand = 2;

class InHand {
 public:
  // Reads what the daemon's earlier lives left, and counts their ends.
  explicit InHand(std::string dir);

  // The job has been in hand at kMaxEndsInHand ends.
  bool IsSuspect(const std::string& job) const;

  // The job is in hand while this lives.
  class Hold {
   public:
    Hold(const InHand& in_hand, const std::string& job);
    Hold(const Hold&) = delete;
    Hold& operator=(const Hold&) = delete;
    ~Hold();

   private:
    const std::string path_;
  };

  // The job has been parked: what was counted of it is forgotten.
  void Forget(const std::string& job) const;

 private:
  std::string PathOf(const std::string& job) const { return dir_ + "/" + job; }
  int EndsOf(const std::string& job) const;

  const std::string dir_;
  std::map<std::string, int> ends_;  // Jobs of earlier lives alone; not changed after that.
};

}  // namespace snug::server

#endif  // SERVER_SCHEDULER_IN_HAND_H_
