#include "client/interrupt.h"

#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace snug::client {
namespace {

constexpr size_t kMaxBytes = 1024;
// A signal's handler may read these and nothing that allocates.
char note[kMaxBytes];
size_t note_bytes = 0;

void Say(int signal) {
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, note, note_bytes);
  // Ends the program as the signal does by itself: a shell sees that it was interrupted.
  std::signal(signal, SIG_DFL);
  raise(signal);
}

}  // namespace

InterruptNote::InterruptNote(const std::string& text) {
  note_bytes = std::min(text.size(), kMaxBytes);
  std::memcpy(note, text.data(), note_bytes);
  struct sigaction action {};
  action.sa_handler = Say;
  sigaction(SIGINT, &action, &before_);
}

InterruptNote::~InterruptNote() { sigaction(SIGINT, &before_, nullptr); }

}  // namespace snug::client
