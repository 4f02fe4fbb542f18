// A client's connection, over TLS or plain, as httplib reads and writes it. httplib's own gives
// each read new time, so that who sends a byte a second holds a thread for ever. This one counts
// the time that it waits for its client: a handshake or the head of a request may take 10 s of it,
// or 1 s where other connections wait for the thread; a body and its answer may take more, while 4
// KiB/s of them move.
#ifndef SERVER_HTTP_CONNECTION_H_
#define SERVER_HTTP_CONNECTION_H_

#include <httplib.h>
#include <openssl/ssl.h>

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/time/time.h"

namespace snug::server {

// A client that is silent for so long is waited for no more, between two requests as within one.
inline constexpr absl::Duration kMostSilence = absl::Seconds(2);

class Connection : public httplib::Stream {
 public:
  // Takes the descriptor, which must not block. `tls`: nullptr for a plain one. `is_crowded`:
  // whether others wait for the thread that serves this one.
  Connection(int fd, SSL_CTX* tls, std::function<bool()> is_crowded);
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Of TLS. False: the client has not done its part in time.
  bool ShakeHands();
  // Whether another request begins.
  bool AwaitRequest();
  // What comes from now on is the request's body. No more than 4 MiB of it are read without
  // anything being taken of it: httplib's parser of forms keeps whatever it finds between two
  // parts.
  void HeadHasCome(bool has_body);
  // That something was taken of the body that this thread reads.
  static void NoteTaken();
  const SSL* ssl() const { return ssl_.get(); }

  bool is_readable() const override;
  bool is_writable() const override;
  // As recv and send: 0 at the end of what the client sends, -1 where it failed or was too slow.
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  // Nobody asks.
  void get_remote_ip_and_port(std::string&, int&) const override {}
  void get_local_ip_and_port(std::string&, int&) const override {}
  int socket() const override { return fd_; }

 private:
  struct FreeSsl {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
  };

  absl::Duration MostWaiting() const;
  bool Wait(short events, absl::Duration silence);
  short AwaitedBy(ssize_t result, short events) const;
  // Calls `attempt` until the client was ready for it; gives what it gave then.
  ssize_t Try(short events, absl::Duration silence, const std::function<ssize_t()>& attempt);
  ssize_t Fill();
  void DropUnread();

  const int fd_;
  const bool is_plain_;
  const std::unique_ptr<SSL, FreeSsl> ssl_;
  const std::function<bool()> is_crowded_;

  std::array<char, 16 << 10> buffer_;  // What was read ahead, from at_ to end_.
  size_t at_ = 0, end_ = 0;

  bool is_open_ = false;     // Hands are shaken, and reading has not failed.
  bool is_broken_ = false;   // The socket or TLS has failed, or the client has ended it.
  bool in_head_ = true;      // Of a request; a handshake is like one.
  bool has_body_ = false;    // That request.
  int64_t moved_bytes_ = 0;  // Of this request and its answer.
  int64_t ahead_bytes_ = 0;  // Of its body: read since something was last taken.
  absl::Duration waited_;    // For the client, in this request.
};

}  // namespace snug::server

#endif  // SERVER_HTTP_CONNECTION_H_
