#include "client/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/connection.h"
#include "client/job_file.h"
#include "client/json.h"
#include "proto/snug/bytes.h"
#include "proto/snug/duration.h"
#include "proto/snug/key_hint.h"
#include "proto/snug/version.h"

namespace snug::client {
namespace {

constexpr const char* kFooter =
    "Exit codes: 0 done, 1 an error, 64 a mistake in the command line.\n"
    "`watch` and `submit --watch`: 0 the job succeeded, 1 it failed, 2 it was cancelled.\n"
    "JOB is a job's id or an unambiguous beginning of it.\n";

void AddFile(CLI::App* command, CommandLine* line) {
  command
      ->add_option("FILE", line->file,
                   "The job, in YAML or JSON; paths in it are relative to it; - is standard input")
      ->required();
  command->add_option(
      "OVERRIDE", line->overrides,
      "key=value instead of what the file says: training.max_steps=5 'memory.stash={\"*\": keep}'");
}

void AddServer(CLI::App* app, CommandLine* line) {
  Server& server = line->server;
  server.name = DefaultServer();
  app->add_option("--server", server.name, "The daemon: unix:PATH of its socket, https://HOST:PORT")
      ->envname("SNUG_SERVER")
      ->take_last()  // An alias may name one already.
      ->capture_default_str();
  app->add_option("--token-file", server.token_file,
                  "With https: a file with the token; else SNUG_TOKEN holds it")
      ->take_last();
  app->add_option("--tls-ca", server.tls_ca,
                  "With https: whose certificates the server may have, in PEM; else the system's")
      ->envname("SNUG_TLS_CA")
      ->take_last();
  app->add_option("--tls-cert", server.tls_cert, "With https: your own certificate, in PEM")
      ->take_last();
  app->add_option("--tls-key", server.tls_key, "With https: its key, in PEM")->take_last();
}

void AddJob(CLI::App* command, CommandLine* line) {
  command->add_option("JOB", line->job, "The job's id, or an unambiguous beginning of it")
      ->required();
}

void AddJobs(CLI::App* command, CommandLine* line) {
  command->add_option("JOB", line->jobs, "Ids of jobs, or unambiguous beginnings of them")
      ->required();
}

void AddList(CLI::App* list, CommandLine* line) {
  list->add_flag("--all", line->all, "Ended ones as well");
  list->add_option("--state", line->states, "Jobs in this state, ended or not; again for more")
      ->allow_extra_args(false)
      ->transform(CLI::IsMember({"PREPARING", "QUEUED", "STARTING", "RUNNING", "PAUSING", "PAUSED",
                                 "CANCELLING", "SUCCEEDED", "FAILED", "CANCELLED"},
                                CLI::ignore_case));
  list->add_option("--label", line->labels, "Jobs with this label, KEY=VALUE; again for more")
      ->allow_extra_args(false);
  list->add_option("--name", line->name, "Jobs of this name");
  list->add_option("--limit", line->limit, "So many, the first of the order")
      ->check(CLI::Range(1, 1'000'000));
  list->add_option("--sort", line->sort,
                   "created (default: newest first), name, state or priority; -FIELD: the other "
                   "way round")
      ->check(CLI::IsMember(
          {"created", "-created", "name", "-name", "state", "-state", "priority", "-priority"}));
}

// What changes jobs that there are, and the store they are in.
void AddChanges(CLI::App* app, CommandLine* line) {
  CLI::App* update = app->add_subcommand("update", "Change the priority or labels of a job");
  AddJob(update, line);
  update
      ->add_option("CHANGE", line->overrides,
                   "priority=N, labels.KEY=VALUE, or labels.KEY= to take the label away")
      ->required();
  AddJobs(app->add_subcommand("rerun", "Submit what a job was asked for once more; prints the ids"),
          line);
  CLI::App* extend = app->add_subcommand(
      "extend",
      "Submit a job that goes on from the last checkpoint of an ended one; prints its id");
  AddJob(extend, line);
  extend->add_option("--steps", line->steps, "How many it trains")
      ->required()
      ->check(CLI::Range(int64_t{1}, int64_t{1'000'000'000}));
  AddJobs(app->add_subcommand("delete", "Remove ended jobs: logs, checkpoints, output"), line);
  CLI::App* drain = app->add_subcommand("drain", "Place no more jobs on a device");
  drain->add_option("DEVICE", line->device, "gpu:0")->required();
  drain->add_flag("--move", line->move,
                  "Have jobs that run there save a checkpoint and go back to the queue");
  app->add_subcommand("undrain", "Place jobs on a device again")
      ->add_option("DEVICE", line->device, "gpu:0")
      ->required();
  app->add_subcommand("doctor", "Look through the daemon's whole store for damage");
  app->add_subcommand("backup", "Copy the daemon's store into a new file")
      ->add_option("FILE", line->file, "What `snugd --restore FILE` takes")
      ->required();
}

// 30d, 12h, 90m or 45s, as seconds.
CLI::Validator SomeTime() {
  return CLI::Validator(
      [](std::string& text) {
        const absl::StatusOr<int64_t> seconds = ParseSeconds(text);
        if (!seconds.ok()) return std::string(seconds.status().message());
        text = absl::StrCat(*seconds);
        return std::string();
      },
      "TIME");
}

void AddTokens(CLI::App* app, CommandLine* line) {
  CLI::App* token = app->add_subcommand(
      "token", "Give out, list and revoke tokens for clients over TLS; on the daemon's own socket");
  token->require_subcommand(1);
  CLI::App* create = token->add_subcommand("create", "Print a new token, this once");
  create->add_option("--tenant", line->tenant, "Whose, of the daemon's configuration")->required();
  create->add_option("--role", line->role, "user, viewer (sees), auditor (sees all) or operator")
      ->required()
      ->check(CLI::IsMember({"user", "viewer", "auditor", "operator"}));
  create->add_option("--expires", line->valid_seconds, "After this time, 90d at most: 30d, 12h")
      ->transform(SomeTime());
  token->add_subcommand("list", "List all tokens; none of what they are");
  token->add_subcommand("revoke", "Let tokens in no more")
      ->add_option("ID", line->tokens, "Ids of tokens")
      ->required();
}

void AddFiles(CLI::App* app, CommandLine* line) {
  CLI::App* files = app->add_subcommand(
      "files", "Send datasets to the daemon, for jobs that name their ids; list and delete them");
  files->require_subcommand(1);
  files->add_subcommand("upload", "Send files, and print their ids; goes on where it broke off")
      ->add_option("FILE", line->files, "What a job file's dataset may be")
      ->required();
  files->add_subcommand("list", "List what you have sent");
  files->add_subcommand("delete", "Have them kept no more")
      ->add_option("ID", line->files, "Ids of files")
      ->required();
}

CLI::Validator SomeBytes() {
  return CLI::Validator(
      [](std::string& text) {
        const absl::StatusOr<int64_t> size = ParseBytes(text);
        if (!size.ok()) return std::string(size.status().message());
        return *size > 0 ? std::string() : "0 bytes are too few";
      },
      "SIZE");
}

// A machine to plan for, which need not be here.
void AddMachine(CLI::App* plan, CommandLine* line) {
  const CLI::Validator bytes = SomeBytes();
  plan->add_option("--device-kind", line->device_kind,
                   "For a device that need not be here: h200, h100, a100, ..., cpu");
  plan->add_option("--device-memory", line->device_memory, "That the job may have of it: 24GiB")
      ->check(bytes);
  plan->add_option("--host-memory", line->host_memory,
                   "For what a plan keeps outside of the device: 64GiB")
      ->check(bytes);
}

void AddDownload(CLI::App* app, CommandLine* line) {
  CLI::App* download =
      app->add_subcommand("download", "Copy what a job made (adapter or model, metrics.jsonl)");
  AddJob(download, line);
  download->add_option("DIR", line->directory, "A folder that is empty or does not exist yet")
      ->required();
  CLI::Option* checkpoint =
      download->add_option("--checkpoint", line->checkpoint,
                           "The checkpoint of this step instead, also of a job that runs");
  download
      ->add_option(
          "--push", line->push,
          "ORG/NAME on the Hugging Face hub: makes README.md its model card and prints the "
          "command that uploads")
      ->excludes(checkpoint);
}

void AddCommands(CLI::App* app, CommandLine* line) {
  CLI::App* plan = app->add_subcommand(
      "plan", "Show what each plan for a job needs, and which one fits; runs nothing");
  AddFile(plan, line);
  plan->add_option("--device", line->device,
                   "Whose plans (gpu:0); else of the device that the job would be given");
  CLI::Option* sites = plan->add_flag(
      "--sites", line->sites, "List the values that memory.stash can name, with their bytes");
  plan->add_flag("--max", line->max,
                 "Also the largest batch, max_seq_length and gradient_accumulation_steps that fit, "
                 "for each memory.fidelity");
  CLI::Option* tape = plan->add_flag("--tape", line->tape, "Print the chosen plan's instructions");
  plan->add_flag("--explain", line->explain, "Draw the chosen plan's live bytes over a step");
  plan->add_option("--svg", line->svg,
                   "A file for a picture: the table and the live bytes, with --explain these alone")
      ->excludes(sites)
      ->excludes(tape);
  AddMachine(plan, line);

  CLI::App* submit = app->add_subcommand("submit", "Hand a job to the daemon; prints its id");
  AddFile(submit, line);
  submit->add_flag("--watch", line->watch, "Then watch it to its end");
  submit->add_flag("--no-check", line->no_check,
                   "Do not wait for the model's files to be checked; what is wrong fails the job");

  CLI::App* list = app->add_subcommand("list", "List the jobs that have not ended");
  AddList(list, line);

  AddJob(app->add_subcommand("get", "Show one job: its state, why it waits, progress, memory"),
         line);
  AddJob(app->add_subcommand("watch", "Follow a job to its end"), line);
  CLI::App* logs = app->add_subcommand("logs", "Print the log of a job's worker");
  AddJob(logs, line);
  logs->add_flag("-f,--follow", line->follow, "Go on until the job has ended");
  CLI::App* cancel = app->add_subcommand("cancel", "Stop jobs");
  AddJobs(cancel, line);
  cancel->add_flag("--keep", line->keep,
                   "Have those that have trained export what there is first; download has it then");
  AddJobs(app->add_subcommand("pause", "Stop jobs for now: a running one saves a checkpoint first"),
          line);
  AddJobs(app->add_subcommand("resume", "Let paused jobs go on from where they were"), line);

  CLI::App* squeeze =
      app->add_subcommand("squeeze", "Let a running job go on with less of its device's memory");
  AddJob(squeeze, line);
  squeeze->add_option("BYTES", line->bytes, "That it may have at most: 3GiB")
      ->required()
      ->check(SomeBytes());
  AddJob(app->add_subcommand("relax", "Let a running job go on with what its device has free"),
         line);

  app->add_subcommand("devices",
                      "List the daemon's devices: memory that they have, give, promised");

  app->add_subcommand("open", "Print a link to the daemon's status page, for a browser");
  app->add_subcommand("top", "Watch devices, their jobs and the queue; q leaves")
      ->add_flag("--once", line->once, "Print it once, as it is where output is no terminal");

  AddDownload(app, line);
  AddJob(app->add_subcommand("checkpoints", "List the checkpoints of a job that are there"), line);
  CLI::App* artifacts =
      app->add_subcommand("artifacts", "List the files that download copies, with their hashes");
  AddJob(artifacts, line);
  artifacts->add_option("--checkpoint", line->checkpoint,
                        "Those of the checkpoint of this step instead, also of a job that runs");
}

// What is asked of a job's model, and how tokens are picked.
void AddAnswering(CLI::App* command, CommandLine* line) {
  AddJob(command, line);
  command->add_option("--checkpoint", line->checkpoint,
                      "The checkpoint of this step instead of the output, also of a job that runs");
  command->add_option("--max-new-tokens", line->max_new_tokens, "Per answer; 256 when not given")
      ->check(CLI::Range(1, 32'768));
  command->add_option("--temperature", line->temperature, "0, the default: the likeliest token")
      ->check(CLI::Range(0.0, 10.0));
  command->add_option("--top-p", line->top_p, "Draw from the likeliest tokens of so much together")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--seed", line->seed, "Of what is drawn; 0 when not given");
}

void AddQuestions(CLI::App* app, CommandLine* line) {
  CLI::App* sample = app->add_subcommand("sample", "Answer prompts with a job's model");
  AddAnswering(sample, line);
  sample
      ->add_option("--prompts", line->file,
                   "A prompt per line; of FILE.jsonl {\"prompt\"} or {\"messages\"} per line; - is "
                   "standard input")
      ->required();
  sample->add_flag("--base", line->base, "The model that the job began with, instead");
  CLI::App* chat = app->add_subcommand(
      "chat", "Talk with a job's model, a line per turn; /reset begins anew, /quit ends");
  AddAnswering(chat, line);
  chat->add_flag("--base", line->base, "The model that the job began with answers as well");
  chat->add_option("--system", line->system, "What the system's message says");
}

void AddOthers(CLI::App* app, CommandLine* line) {
  CLI::App* import = app->add_subcommand(
      "import", "Print a job file of axolotl, LLaMA-Factory, TRL or OpenAI as one of ours");
  import->add_option("FILE", line->file, "YAML or JSON")->required();

  CLI::App* exported =
      app->add_subcommand("export-metrics", "Write jobs' metrics in the format of another tool");
  AddJobs(exported, line);
  exported->add_option("--to", line->to, "tensorboard, wandb or mlflow, and where to")
      ->type_name("FORMAT DIR")
      ->expected(2)
      ->required();
  exported->final_callback([line] {
    if (line->to.front() != "tensorboard" && line->to.front() != "wandb" &&
        line->to.front() != "mlflow")
      throw CLI::ValidationError(
          absl::StrCat("--to is tensorboard, wandb or mlflow, and no \"", line->to.front(), "\""));
  });
  CLI::App* plot = app->add_subcommand(
      "plot", "Draw jobs' loss, evaluations, learning rate and memory, over their steps");
  AddJobs(plot, line);
  plot->add_option("--svg", line->svg, "A file for the picture, instead of the terminal");
  plot->add_option("--png", line->png, "The same as PNG, which rsvg-convert draws");

  CLI::App* shell = app->add_subcommand("shell", "Print completions and manual pages");
  shell->require_subcommand(1);
  for (const char* name : {"bash", "zsh", "fish"})
    shell->add_subcommand(name, absl::StrCat("Completions for ", name));
  shell->add_subcommand("man", "The manual page, as roff");
}

void AddDatasets(CLI::App* app, CommandLine* line) {
  CLI::App* datasets = app->add_subcommand("datasets", "Look at a dataset as a job would see it");
  datasets->require_subcommand(1);
  CLI::App* preview = datasets->add_subcommand(
      "preview", "Show the first rows with what is trained in them, counts and warnings");
  preview
      ->add_option("FILE", line->file,
                   "JSONL, JSON, CSV, TSV, parquet, arrow, plain text, or a job file")
      ->required();
  preview->add_option("--model", line->model,
                      "Whose tokenizer and chat template: a folder or id; a job file names it");
  preview->add_option("--format", line->format, "What the rows are; else the first row tells")
      ->check(CLI::IsMember(
          {"messages", "prompt_completion", "text", "alpaca", "sharegpt", "pretokenized"}));
  preview->add_option("--chat-template", line->chat_template, "A file, instead of the model's own");
  preview
      ->add_option("--added-token", line->added_tokens,
                   "A token that the tokenizer gets; again for more")
      ->allow_extra_args(false);
  preview->add_option("--rows", line->rows, "How many; 5 when not given")
      ->check(CLI::Range(1, 100));
  preview->add_option("--max-seq-length", line->max_seq_length, "Tokens, as training has it")
      ->check(CLI::Range(2, 4194304));
  preview->final_callback([line] {
    if (line->model.empty() && !IsJobFile(line->file))
      throw CLI::ValidationError(
          "--model is missing: a dataset is read with a model's tokenizer; or name a job file");
  });
}

CommandHelp HelpOf(const CLI::App& app) {
  CommandHelp help{.name = app.get_name(), .about = app.get_description()};
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional())
      help.words.push_back({option->get_name(true), option->get_description()});
    else
      help.options.push_back({option->get_name(false, true), option->get_description(),
                              /*takes_value=*/option->get_items_expected_max() > 0});
  }
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    help.commands.push_back(HelpOf(*command));
  return help;
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::string NoCommand(const CLI::App& app) {
  return absl::StrCat("no command is given; there are ", absl::StrJoin(CommandNames(app), ", "));
}

// Words that nothing takes: an unknown command, or too many of them after one.
std::string Unexpected(const CLI::App& app) {
  const std::string word = app.remaining(/*recurse=*/true).front();
  const bool has_command = !app.get_subcommands().empty();
  std::string text = has_command ? "snug: not expected: " : "snug: no such command: ";
  absl::StrAppend(&text, word);
  const std::string near = has_command ? "" : Nearest(word, CommandNames(app));
  if (!near.empty()) absl::StrAppend(&text, "; did you mean ", near, "?");
  return text + "\nRun snug --help for what there is.\n";
}

// Asked of the words alone: a line that cannot be parsed says its mistake as JSON, too.
bool WantsJson(const std::vector<std::string>& arguments) {
  std::string wanted;
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view word = arguments[i];
    const bool is_name = word == "--output" || word == "-o";
    if (is_name && i + 1 < arguments.size()) wanted = arguments[i + 1];
    if (!is_name && (absl::ConsumePrefix(&word, "--output=") || absl::ConsumePrefix(&word, "-o")))
      wanted = std::string(absl::StripPrefix(word, "="));
  }
  return wanted == "json";
}

int Mistake(absl::string_view text, bool json, Terminal& terminal) {
  if (!json) {
    terminal.err << text << std::flush;
    return kExitUsage;
  }
  absl::ConsumePrefix(&text, "snug: ");
  const std::string message(absl::StripTrailingAsciiWhitespace(text));
  const Json error = {{"reason", "USAGE"}, {"message", message}, {"field", ""}};
  terminal.err << JsonText(Json::object({{"error", error}})) << std::flush;
  return kExitUsage;
}

}  // namespace

std::optional<int> ParseCommandLine(std::vector<std::string> arguments, Terminal& terminal,
                                    CommandLine* line) {
  CLI::App app("snug submits fine-tuning jobs to the Snug daemon, plans, watches and fetches them.",
               "snug");
  app.footer(kFooter);
  app.set_version_flag("--version", std::string("snug ") + kVersion);
  app.require_subcommand(0, 1);  // That there is none is said below, in better words.
  app.fallthrough();             // What is said below may also stand behind the command.
  AddServer(&app, line);
  std::string output = "table";
  app.add_option("-o,--output", output, "table (for people) or json (for scripts)")
      ->take_last()
      ->check(CLI::IsMember({"table", "json"}))
      ->capture_default_str();
  AddCommands(&app, line);
  AddDatasets(&app, line);
  AddQuestions(&app, line);
  AddOthers(&app, line);
  AddChanges(&app, line);
  AddTokens(&app, line);
  AddFiles(&app, line);
  const bool json = WantsJson(arguments);
  try {
    std::reverse(arguments.begin(), arguments.end());  // CLI11 takes them from the end.
    app.parse(arguments);
  } catch (const CLI::ExtrasError& e) {
    return Mistake(Unexpected(app), json, terminal);
  } catch (const CLI::ParseError& e) {
    std::ostringstream text;
    const int code = app.exit(e, terminal.out, text);
    return code == 0 ? kExitOk : Mistake(text.str(), json, terminal);
  }
  if (app.get_subcommands().empty())
    return Mistake(json ? NoCommand(app) : app.help(), json, terminal);
  line->output = output == "json" ? Output::kJson : Output::kTable;
  const CLI::App* command = app.get_subcommands().front();
  line->command = command->get_name();
  if (line->command == "token" || line->command == "files")
    line->action = command->get_subcommands().front()->get_name();
  if (line->command == "shell") {
    line->shell = command->get_subcommands().front()->get_name();
    line->help = HelpOf(app);
  }
  return std::nullopt;
}

}  // namespace snug::client
