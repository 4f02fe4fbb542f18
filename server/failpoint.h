// Places at which a test lets the process die, an operation fail, or time pass. They are compiled
// in with SNUG_FAILPOINTS alone: what is installed has none of them, nor their names.
//
//   SNUG_FAILPOINT=store.commit=kill@3   at the third time that it comes there: kill, error, or
//                                        delay:MILLISECONDS; without @3 at the first, with @* at
//                                        each; several are set apart by commas
//   SNUG_FAILPOINT_LOG=FILE              gets a line with the name of each point that acts, those
//                                        with @* left out
//
//   FAILPOINT("store.committed");                  is killed there, or waits
//   if (FAILS_AT("store.commit")) return error;    likewise, or fails
#ifndef SERVER_FAILPOINT_H_
#define SERVER_FAILPOINT_H_

#ifndef SNUG_FAILPOINTS

#define FAILPOINT(name) static_cast<void>(0)
#define FAILS_AT(name) false

#else

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <list>
#include <string>

namespace snug::failpoint {

struct Setting {
  std::string name;
  std::string action;  // kill, error, delay:MILLISECONDS
  int hit = 1;         // At which it acts; 0: at each.
  std::atomic<int> hits{0};
};

// `text`: one setting, without a comma.
inline void Add(const std::string& text, std::list<Setting>& settings) {
  const size_t equals = text.find('='), at = text.find('@');
  if (equals == std::string::npos) return;
  Setting& setting = settings.emplace_back();
  setting.name = text.substr(0, equals);
  setting.action = text.substr(equals + 1, at == std::string::npos ? at : at - equals - 1);
  if (at != std::string::npos) setting.hit = std::atoi(text.c_str() + at + 1);  // Of "*" 0.
}

inline std::list<Setting> Read() {
  std::list<Setting> settings;
  const char* given = std::getenv("SNUG_FAILPOINT");
  const std::string text = given == nullptr ? "" : given;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    Add(text.substr(begin, end - begin), settings);
    begin = end + 1;
  }
  return settings;
}

// One write, so that lines of processes that die at once stay apart.
inline void Log(const std::string& name) {
  const char* path = std::getenv("SNUG_FAILPOINT_LOG");
  if (path == nullptr) return;
  const int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  const std::string line = name + "\n";
  if (fd < 0 || write(fd, line.data(), line.size()) < 0) return;
  close(fd);
}

// Whether what would be done now is to fail.
inline bool Act(Setting& setting) {
  if (setting.hit != 0 && ++setting.hits != setting.hit) return false;
  if (setting.hit != 0) Log(setting.name);
  if (setting.action == "kill") kill(getpid(), SIGKILL);
  if (setting.action.rfind("delay:", 0) == 0)
    usleep(static_cast<useconds_t>(std::atoi(setting.action.c_str() + 6)) * 1000);
  return setting.action == "error";
}

inline bool Reach(const char* name) {
  static std::list<Setting> settings = Read();
  bool fails = false;
  for (Setting& setting : settings)
    if (setting.name == name) fails |= Act(setting);
  return fails;
}

}  // namespace snug::failpoint

#define FAILPOINT(name) static_cast<void>(::snug::failpoint::Reach(name))
#define FAILS_AT(name) ::snug::failpoint::Reach(name)

#endif  // SNUG_FAILPOINTS

#endif  // SERVER_FAILPOINT_H_
