#include "client/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "client/connection.h"
#include "proto/snug/key_hint.h"

namespace snug::client {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done, 1 an error, 64 a mistake in the command line.\n"
    "`watch` and `submit --watch`: 0 the job succeeded, 1 it failed, 2 it was cancelled.\n"
    "JOB is a job's id or an unambiguous beginning of it.\n";

void AddFile(CLI::App* command, CommandLine* line) {
  command->add_option("FILE", line->file, "The job, in YAML; paths in it are relative to it")
      ->required();
  command->add_option(
      "OVERRIDE", line->overrides,
      "key=value instead of what the file says: training.max_steps=5 'memory.stash={\"*\": keep}'");
}

void AddJob(CLI::App* command, CommandLine* line) {
  command->add_option("JOB", line->job, "The job's id, or an unambiguous beginning of it")
      ->required();
}

void AddCommands(CLI::App* app, CommandLine* line) {
  CLI::App* plan = app->add_subcommand(
      "plan", "Show what each plan for a job needs, and which one fits; runs nothing");
  AddFile(plan, line);
  plan->add_flag("--sites", line->sites,
                 "List the values that memory.stash can name, with their bytes");

  CLI::App* submit = app->add_subcommand("submit", "Hand a job to the daemon; prints its id");
  AddFile(submit, line);
  submit->add_flag("--watch", line->watch, "Then watch it to its end");

  CLI::App* list = app->add_subcommand("list", "List the jobs that have not ended");
  list->add_flag("--all", line->all, "Ended ones as well");

  AddJob(app->add_subcommand("get", "Show one job: its state, why it waits, progress, memory"),
         line);
  AddJob(app->add_subcommand("watch", "Follow a job to its end"), line);
  CLI::App* logs = app->add_subcommand("logs", "Print the log of a job's worker");
  AddJob(logs, line);
  logs->add_flag("--follow", line->follow, "Go on until the job has ended");
  AddJob(app->add_subcommand("cancel", "Stop a job"), line);

  CLI::App* download =
      app->add_subcommand("download", "Copy what a job made (adapter or model, metrics.jsonl)");
  AddJob(download, line);
  download->add_option("DIR", line->directory, "A folder that is empty or does not exist yet")
      ->required();
}

// Words that nothing takes: an unknown command, or too many of them after one.
int Unexpected(const CLI::App& app, Terminal& terminal) {
  const std::string word = app.remaining(/*recurse=*/true).front();
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(command->get_name());
  }
  const bool has_command = !app.get_subcommands().empty();
  terminal.err << "snug: " << (has_command ? "not expected: " : "no such command: ") << word;
  const std::string near = has_command ? "" : Nearest(word, names);
  if (!near.empty()) terminal.err << "; did you mean " << near << "?";
  terminal.err << "\nRun snug --help for what there is." << std::endl;
  return kExitUsage;
}

}  // namespace

std::optional<int> ParseCommandLine(std::vector<std::string> arguments, Terminal& terminal,
                                    CommandLine* line) {
  CLI::App app("snug submits fine-tuning jobs to the Snug daemon, plans, watches and fetches them.",
               "snug");
  app.footer(kFooter);
  app.set_version_flag("--version", "snug 0.1.0");
  app.require_subcommand(0, 1);  // That there is none is said below, in better words.
  app.fallthrough();             // What is said below may also stand behind the command.
  line->server = DefaultServer();
  app.add_option("--server", line->server, "The daemon: unix:PATH of its socket")
      ->envname("SNUG_SERVER")
      ->take_last()  // An alias may name one already.
      ->capture_default_str();
  std::string output = "table";
  app.add_option("-o,--output", output, "table (for people) or json (for scripts)")
      ->take_last()
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  AddCommands(&app, line);
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the end.
    app.parse(arguments);
  } catch (const CLI::ExtrasError& e) {
    return Unexpected(app, terminal);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e, terminal.out, terminal.err);
    return code == 0 ? kExitOk : kExitUsage;
  }
  if (app.get_subcommands().empty()) {
    terminal.err << app.help();
    return kExitUsage;
  }
  line->output = output == "json" ? Output::kJson : Output::kTable;
  line->command = app.get_subcommands().front()->get_name();
  return std::nullopt;
}

}  // namespace snug::client
