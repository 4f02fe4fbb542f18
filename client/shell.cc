// shell: completions for bash, zsh and fish, and the manual page, all made of the commands' help.
#include <string>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/commands.h"
#include "proto/snug/version.h"

namespace snug::client {
namespace {

std::vector<std::string> Names(const CommandHelp::Option& option) {
  return absl::StrSplit(option.names, ',');
}

std::vector<std::string> OptionNames(const CommandHelp& help) {
  std::vector<std::string> names;
  for (const CommandHelp::Option& option : help.options)
    for (const std::string& name : Names(option)) names.push_back(name);
  return names;
}

std::vector<std::string> CommandNames(const CommandHelp& help) {
  std::vector<std::string> names;
  for (const CommandHelp& command : help.commands) names.push_back(command.name);
  return names;
}

// Whether a word of the command is a job's id, which the daemon knows.
bool TakesJob(const CommandHelp& help) {
  for (const CommandHelp::Option& word : help.words)
    if (word.names == "JOB") return true;
  return false;
}

// In bash: the commands in the first place, then options, jobs' ids, or files.
std::string Bash(const CommandHelp& help) {
  std::string cases, jobs;
  for (const CommandHelp& command : help.commands) {
    std::vector<std::string> words = OptionNames(command);
    for (const std::string& name : CommandNames(command)) words.push_back(name);
    absl::StrAppend(&cases, "    ", command.name, ") words=\"", absl::StrJoin(words, " "),
                    "\" ;;\n");
    if (TakesJob(command)) absl::StrAppend(&jobs, jobs.empty() ? "" : "|", command.name);
  }
  const std::string common = absl::StrJoin(OptionNames(help), " ");
  return absl::StrCat(
      "# Completions of snug for bash, made by: snug shell bash\n"
      "_snug() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=\"\"\n"
      "  if [ \"$COMP_CWORD\" = 1 ]; then\n"
      "    COMPREPLY=($(compgen -W \"",
      absl::StrJoin(CommandNames(help), " "), " ", common,
      "\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case $command in\n",
      cases,
      "  esac\n"
      "  if [[ $word == -* ]]; then\n"
      "    COMPREPLY=($(compgen -W \"$words ",
      common,
      "\" -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case $command in\n"
      "    ",
      jobs,
      ") words+=\" $(snug list --all 2>/dev/null | awk 'NR > 1 {print $1}')\" ;;\n"
      "  esac\n"
      "  COMPREPLY=($(compgen -W \"$words\" -- \"$word\") $(compgen -f -- \"$word\"))\n"
      "}\n"
      "complete -o filenames -F _snug snug\n");
}

// zsh runs bash's completions by its bashcompinit.
std::string Zsh(const CommandHelp& help) {
  return absl::StrCat("#compdef snug\n# Completions of snug for zsh, made by: snug shell zsh\n",
                      "autoload -U +X bashcompinit && bashcompinit\n", Bash(help));
}

std::string FishQuoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

void AddFishOptions(const CommandHelp& help, const std::string& condition, std::string& script) {
  for (const CommandHelp::Option& option : help.options) {
    absl::StrAppend(&script, "complete -c snug", condition);
    for (const std::string& name : Names(option))
      absl::StrAppend(&script, absl::StartsWith(name, "--") ? " -l " : " -s ",
                      name.substr(name.find_first_not_of('-')));
    absl::StrAppend(&script, option.takes_value ? " -r" : "", " -d ", FishQuoted(option.about),
                    "\n");
  }
}

std::string Fish(const CommandHelp& help) {
  std::string script = "# Completions of snug for fish, made by: snug shell fish\n";
  AddFishOptions(help, "", script);
  for (const CommandHelp& command : help.commands) {
    absl::StrAppend(&script, "complete -c snug -n __fish_use_subcommand -a ", command.name, " -d ",
                    FishQuoted(command.about), "\n");
    const std::string seen = absl::StrCat("__fish_seen_subcommand_from ", command.name);
    const std::string condition = absl::StrCat(" -n '", seen, "'");
    AddFishOptions(command, condition, script);
    for (const CommandHelp& below : command.commands)
      absl::StrAppend(&script, "complete -c snug", condition, " -f -a ", below.name, " -d ",
                      FishQuoted(below.about), "\n");
    if (TakesJob(command))
      absl::StrAppend(&script, "complete -c snug", condition,
                      " -f -a \"(snug list --all 2>/dev/null | awk 'NR > 1 {print \\$1}')\"\n");
  }
  return script;
}

// Text of roff: no line may begin with a dot or a quote, and a dash is a dash.
std::string Roff(const std::string& text) {
  std::string safe = absl::StrReplaceAll(text, {{"\\", "\\e"}, {"-", "\\-"}, {"\n", " "}});
  return absl::StartsWith(safe, ".") || absl::StartsWith(safe, "'") ? "\\&" + safe : safe;
}

void AddManOptions(const std::vector<CommandHelp::Option>& options, std::string& page) {
  for (const CommandHelp::Option& option : options)
    absl::StrAppend(&page, ".TP\n.B ", Roff(absl::StrJoin(Names(option), ", ")), "\n",
                    Roff(option.about), "\n");
}

void AddManCommand(const CommandHelp& command, const std::string& before, std::string& page) {
  std::string synopsis = absl::StrCat(before, command.name);
  for (const CommandHelp::Option& word : command.words) absl::StrAppend(&synopsis, " ", word.names);
  absl::StrAppend(&page, ".SS ", Roff(synopsis), "\n", Roff(command.about), ".\n");
  AddManOptions(command.words, page);
  AddManOptions(command.options, page);
  for (const CommandHelp& below : command.commands)
    AddManCommand(below, absl::StrCat(before, command.name, " "), page);
}

std::string Man(const CommandHelp& help) {
  std::string page =
      absl::StrCat(".TH SNUG 1 \"\" \"snug ", kVersion, "\"\n.SH NAME\nsnug \\- ", Roff(help.about),
                   "\n.SH SYNOPSIS\n.B snug\n[OPTION]... COMMAND ", "[ARGUMENT]...\n.SH OPTIONS\n");
  AddManOptions(help.options, page);
  absl::StrAppend(&page, ".SH COMMANDS\n");
  for (const CommandHelp& command : help.commands) AddManCommand(command, "", page);
  absl::StrAppend(&page, ".SH EXIT STATUS\n",
                  Roff("0 done, 1 an error, 64 a mistake in the command "
                       "line. watch and submit --watch: 0 the job "
                       "succeeded, 1 it failed, 2 it was cancelled."),
                  "\n");
  return page;
}

}  // namespace

absl::StatusOr<int> PrintShellHelp(const CommandLine& line, Terminal& terminal) {
  if (line.shell == "bash") terminal.out << Bash(line.help);
  if (line.shell == "zsh") terminal.out << Zsh(line.help);
  if (line.shell == "fish") terminal.out << Fish(line.help);
  if (line.shell == "man") terminal.out << Man(line.help);
  return kExitOk;
}

}  // namespace snug::client
