#include "server/http/connection.h"

#include <openssl/err.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "server/node/clock.h"

namespace snug::server {
namespace {

constexpr absl::Duration kPatience = absl::Seconds(10);
constexpr absl::Duration kPatienceInACrowd = absl::Seconds(1);
constexpr absl::Duration kMostWriteSilence = absl::Seconds(10);  // Of who takes no answer.
constexpr int64_t kLeastBytesPerSecond = 4 << 10;  // As of a stranger at the other door.
constexpr int64_t kMostHeadBytes = 64 << 10;       // httplib would put together any number of them.
constexpr int64_t kMostAheadBytes = 4 << 20;
constexpr absl::Duration kLinger = absl::Seconds(1);
constexpr int64_t kMostDropped = 1 << 20;
constexpr int kLookMs = 100;              // Whether there is a crowd by now.
constexpr size_t kPieceBytes = 16 << 10;  // Of an answer: what TLS sends at a time.

thread_local int64_t* ahead_of_this_thread = nullptr;

bool IsReady(int fd, short events) {
  pollfd asked = {.fd = fd, .events = events, .revents = 0};
  return poll(&asked, 1, 0) > 0;
}

// It sends no more, and has therefore gone: a browser's page, closed.
bool HasEnded(int fd) {
  char byte = 0;
  return recv(fd, &byte, 1, MSG_PEEK) == 0;
}

}  // namespace

Connection::Connection(int fd, SSL_CTX* tls, std::function<bool()> is_crowded)
    : fd_(fd),
      is_plain_(tls == nullptr),
      ssl_(is_plain_ ? nullptr : SSL_new(tls)),
      is_crowded_(std::move(is_crowded)) {}

Connection::~Connection() {
  ahead_of_this_thread = nullptr;
  if (ssl_ != nullptr && !is_broken_ && SSL_is_init_finished(ssl_.get())) SSL_shutdown(ssl_.get());
  shutdown(fd_, SHUT_WR);
  if (has_body_ && !is_broken_) DropUnread();
  close(fd_);
}

// Closed with bytes unread the kernel would reset it, and its client not hear why it was refused.
void Connection::DropUnread() {
  int64_t dropped = 0;
  const absl::Duration end = SinceBoot() + kLinger;
  while (dropped < kMostDropped && SinceBoot() < end) {
    pollfd asked = {.fd = fd_, .events = POLLIN, .revents = 0};
    if (poll(&asked, 1, kLookMs) <= 0) return;
    const ssize_t got = recv(fd_, buffer_.data(), buffer_.size(), MSG_DONTWAIT);
    if (got <= 0) return;
    dropped += got;
  }
}

bool Connection::ShakeHands() {
  is_open_ =
      is_plain_ || (ssl_ != nullptr && SSL_set_fd(ssl_.get(), fd_) == 1 &&
                    Try(POLLIN, kMostSilence, [this] { return SSL_accept(ssl_.get()); }) > 0);
  return is_open_;
}

bool Connection::AwaitRequest() {
  if (!is_open_) return false;
  in_head_ = true;
  moved_bytes_ = 0;
  waited_ = absl::ZeroDuration();
  return at_ < end_ || Fill() > 0;
}

void Connection::HeadHasCome(bool has_body) {
  in_head_ = false;
  has_body_ = has_body;
  ahead_bytes_ = 0;
  ahead_of_this_thread = &ahead_bytes_;
}

void Connection::NoteTaken() {
  if (ahead_of_this_thread != nullptr) *ahead_of_this_thread = 0;
}

bool Connection::is_readable() const { return at_ < end_ || IsReady(fd_, POLLIN); }
bool Connection::is_writable() const { return IsReady(fd_, POLLOUT) && !HasEnded(fd_); }

ssize_t Connection::read(char* to, size_t size) {
  if (at_ == end_)
    if (const ssize_t got = Fill(); got <= 0) return got;
  const size_t given = std::min(size, end_ - at_);
  std::copy_n(buffer_.begin() + at_, given, to);
  at_ += given;
  return static_cast<ssize_t>(given);
}

ssize_t Connection::write(const char* from, size_t size) {
  if (size == 0) return 0;
  if (HasEnded(fd_)) return -1;
  const int piece = static_cast<int>(std::min(size, kPieceBytes));
  const ssize_t sent = Try(POLLOUT, kMostWriteSilence, [&]() -> ssize_t {
    return is_plain_ ? send(fd_, from, piece, MSG_NOSIGNAL) : SSL_write(ssl_.get(), from, piece);
  });
  if (sent <= 0) return -1;
  moved_bytes_ += sent;
  return sent;
}

absl::Duration Connection::MostWaiting() const {
  const absl::Duration patience = is_crowded_() ? kPatienceInACrowd : kPatience;
  return in_head_ ? patience : patience + absl::Seconds(moved_bytes_) / kLeastBytesPerSecond;
}

// False: the client has had its time.
bool Connection::Wait(short events, absl::Duration silence) {
  while (silence > absl::ZeroDuration() && waited_ < MostWaiting()) {
    const absl::Duration begin = SinceBoot();
    pollfd asked = {.fd = fd_, .events = events, .revents = 0};
    const int found = poll(&asked, 1, kLookMs);
    if (found < 0 && errno != EINTR) return false;
    const absl::Duration took = SinceBoot() - begin;
    waited_ += took;
    silence -= took;
    if (found > 0) return true;
  }
  return false;
}

// What the client has to be ready for before the attempt is made again; 0: it would not help.
short Connection::AwaitedBy(ssize_t result, short events) const {
  if (is_plain_) return result < 0 && (errno == EAGAIN || errno == EINTR) ? events : 0;
  switch (SSL_get_error(ssl_.get(), static_cast<int>(result))) {
    case SSL_ERROR_WANT_READ:
      return POLLIN;
    case SSL_ERROR_WANT_WRITE:
      return POLLOUT;
    default:
      return 0;
  }
}

ssize_t Connection::Try(short events, absl::Duration silence,
                        const std::function<ssize_t()>& attempt) {
  for (;;) {
    ERR_clear_error();  // SSL_get_error would take an older one for this attempt's.
    const ssize_t result = attempt();
    if (result > 0) return result;
    const short awaited = AwaitedBy(result, events);
    is_broken_ = awaited == 0;
    if (is_broken_) return result;
    if (!Wait(awaited, silence)) return -1;
  }
}

// Reads ahead, once all that was read before is taken.
ssize_t Connection::Fill() {
  ssize_t got = Try(POLLIN, kMostSilence, [this]() -> ssize_t {
    const int most = static_cast<int>(buffer_.size());
    return is_plain_ ? recv(fd_, buffer_.data(), most, 0)
                     : SSL_read(ssl_.get(), buffer_.data(), most);
  });
  if (got > 0) moved_bytes_ += got;
  if (got > 0 && !in_head_) ahead_bytes_ += got;
  if (in_head_ ? moved_bytes_ > kMostHeadBytes : ahead_bytes_ > kMostAheadBytes) got = -1;
  is_open_ = got > 0;
  at_ = 0;
  end_ = is_open_ ? static_cast<size_t>(got) : 0;
  return got;
}

}  // namespace snug::server
