// What the user typed, as a struct. The one place that knows CLI11 (and catches what it throws).
#ifndef CLIENT_COMMAND_LINE_H_
#define CLIENT_COMMAND_LINE_H_

#include <cstdint>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "client/server.h"

namespace snug::client {

inline constexpr int kExitOk = 0;         // For `watch`: the job succeeded.
inline constexpr int kExitError = 1;      // For `watch`: the job failed.
inline constexpr int kExitCancelled = 2;  // `watch` alone.
inline constexpr int kExitUsage = 64;     // As sysexits.h has it.

// Where a command writes: results to `out`, what is wrong and notes to `err`.
struct Terminal {
  std::ostream& out;
  std::ostream& err;
  bool is_tty = false;  // `out` is a terminal: progress bars instead of lines.
};

// What a command's --help says, as data: completions and the manual page are made of it.
struct CommandHelp {
  struct Option {
    std::string names;  // "-o,--output"
    std::string about;
    bool takes_value = false;
  };
  std::string name;
  std::string about;
  std::vector<Option> words;  // By their names: FILE, JOB.
  std::vector<Option> options;
  std::vector<CommandHelp> commands;
};

enum class Output { kTable, kJson };

struct CommandLine {
  Server server;
  Output output = Output::kTable;
  std::string command;  // plan, submit, ...
  std::string file;
  std::string job_text;                // What FILE holds, where it is a job file.
  std::vector<std::string> overrides;  // key=value
  std::string job;                     // The id or an unambiguous beginning of it.
  std::vector<std::string> jobs;       // Where a command takes several.
  std::string shell;                   // bash, zsh, fish, man
  CommandHelp help;                    // shell: of the whole program.
  std::string bytes;                   // squeeze: 3GiB
  std::string directory;
  std::optional<int64_t> checkpoint;  // download: the step of one.
  std::string push;                   // download: org/name on the hub
  std::string device;                 // plan, drain, undrain
  std::string device_kind;
  std::string device_memory, host_memory;  // Of a machine that need not be here: 24GiB
  std::string svg;                         // A file for the picture.
  std::string png;                         // plot: another one.
  std::string model;                       // datasets preview
  std::string format;
  std::string chat_template;
  std::vector<std::string> added_tokens;
  int rows = 0;
  std::optional<int> max_seq_length;
  std::vector<std::string> states;  // list
  std::vector<std::string> labels;  // key=value
  std::string name;
  std::string sort;
  int limit = 0;       // 0: all.
  bool sites = false;  // plan
  bool max = false;
  bool tape = false;
  bool explain = false;
  bool watch = false;
  bool no_check = false;  // submit
  bool all = false;
  bool follow = false;
  std::vector<std::string> to;  // export-metrics: a tool's format, and a folder
  bool once = false;            // top
  bool keep = false;            // cancel
  bool move = false;            // drain
  int64_t steps = 0;            // extend
  bool base = false;            // chat, sample: the model that the job began with.
  std::string system;           // chat: the first message.
  int max_new_tokens = 0;       // 0: the daemon's default.
  double temperature = 0.0;
  double top_p = 0.0;  // 0: all tokens.
  int64_t seed = 0;
  std::string action;               // token: create, list, revoke; files: upload, list, delete
  std::string tenant, role;         // token create
  int64_t valid_seconds = 0;        // 0: as long as the daemon gives it.
  std::vector<std::string> tokens;  // token revoke: their ids
  std::vector<std::string> files;   // files upload: paths; files delete: ids
};

// Fills `line`. An exit code when there is nothing left to do: after --help, and for a mistake,
// which is then explained.
std::optional<int> ParseCommandLine(std::vector<std::string> arguments, Terminal& terminal,
                                    CommandLine* line);

}  // namespace snug::client

#endif  // CLIENT_COMMAND_LINE_H_
