#include "client/screen.h"

#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "client/picture.h"

namespace snug::client {
namespace {

constexpr const char* kEnter = "\033[?1049h\033[?25l";  // The other screen; no cursor.
constexpr const char* kLeave = "\033[?25h\033[?1049l";
constexpr const char* kHome = "\033[H";
constexpr const char* kRestOfLine = "\033[K";  // Is cleared.
constexpr const char* kRestOfScreen = "\033[J";
constexpr char kCtrlC = 3;
constexpr int kDefaultRows = 24;

sigset_t Signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGWINCH}) sigaddset(&set, signal);
  return set;
}

}  // namespace

ScreenSize TerminalSize(const Terminal& terminal) {
  const TextOptions options = TextOptionsFor(terminal);
  ScreenSize size{.columns = options.columns, .rows = kDefaultRows, .colour = options.colour};
  winsize window{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_row > 0)
    size.rows = window.ws_row;
  return size;
}

Screen::Screen(Terminal& terminal)
    : terminal_(terminal), keyboard_(tcgetattr(STDIN_FILENO, &before_) == 0) {
  const sigset_t set = Signals();
  pthread_sigmask(SIG_BLOCK, &set, &mask_before_);
  signals_ = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
  if (keyboard_) {
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO | ISIG);  // Ctrl-C comes as a character.
    tcsetattr(STDIN_FILENO, TCSANOW, &raw);
  }
  terminal_.out << kEnter << std::flush;
}

Screen::~Screen() {
  terminal_.out << kLeave << std::flush;
  if (keyboard_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  close(signals_);
  pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
}

Screen::Event Screen::Wait(absl::Duration time) {
  pollfd ready[] = {{signals_, POLLIN, 0}, {keyboard_ ? STDIN_FILENO : -1, POLLIN, 0}};
  const int found =
      poll(ready, std::size(ready), static_cast<int>(absl::ToInt64Milliseconds(time)));
  if (found <= 0) return Event::kTime;
  if (ready[0].revents != 0) return Signalled();
  char key = 0;
  if (read(STDIN_FILENO, &key, 1) <= 0) return Event::kLeave;  // The terminal is gone.
  return key == 'q' || key == kCtrlC ? Event::kLeave : Event::kTime;
}

Screen::Event Screen::Signalled() {
  signalfd_siginfo signal{};
  if (read(signals_, &signal, sizeof signal) != sizeof signal) return Event::kTime;
  return signal.ssi_signo == SIGWINCH ? Event::kResized : Event::kLeave;
}

// Line by line over what was there: a screen that is cleared first flickers.
void Screen::Draw(const std::vector<std::string>& lines) {
  std::string text = kHome;
  for (size_t i = 0; i < lines.size(); ++i) text += (i == 0 ? "" : "\n") + lines[i] + kRestOfLine;
  terminal_.out << text << kRestOfScreen << std::flush;
}

}  // namespace snug::client
