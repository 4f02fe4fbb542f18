#include "client/job_text.h"

#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/advice.h"
#include "client/dataset_text.h"
#include "client/errors.h"
#include "client/serving.h"
#include "client/table.h"
#include "proto/snug/bytes.h"
#include "proto/snug/enum_words.h"

namespace snug::client {
namespace {

std::string TimeText(const google::protobuf::Timestamp& time, absl::TimeZone zone) {
  return absl::FormatTime("%Y-%m-%d %H:%M:%S", absl::FromUnixSeconds(time.seconds()), zone);
}

std::string ProgressText(const v1::Progress& progress) {
  if (progress.max_steps() == 0) return "";
  std::string text = absl::StrCat("step ", progress.global_step(), " of ", progress.max_steps());
  if (progress.global_step() > 0)
    absl::StrAppend(&text, absl::StrFormat(", loss %.4f", progress.loss()));
  if (progress.has_eval_loss())
    absl::StrAppend(&text, absl::StrFormat(", eval loss %.4f", progress.eval_loss()));
  const std::string evaluation = EvaluationText(progress);
  if (!evaluation.empty()) absl::StrAppend(&text, ", ", evaluation);
  if (progress.tokens_per_second() > 0) {
    absl::StrAppend(&text, absl::StrFormat(", %.0f tokens/s", progress.tokens_per_second()));
  }
  if (progress.resumed_from_step() > 0) {
    absl::StrAppend(&text, ", resumed from step ", progress.resumed_from_step());
  }
  return text;
}

std::string OutputText(const v1::JobOutput& output) {
  if (output.loss() == 0.0) return "";
  std::string text = absl::StrFormat("loss %.6f when read again", output.loss());
  if (output.has_merged_loss())
    absl::StrAppend(&text, absl::StrFormat(", %.6f merged", output.merged_loss()));
  if (!output.merge_error().empty()) absl::StrAppend(&text, ", not merged: ", output.merge_error());
  return text;
}

// "vLLM: 28 of 28 modules, start it with --max-lora-rank 32"
std::string ReaderText(const v1::ReaderReport& report) {
  std::string text = absl::StrCat(report.reader(), ": ");
  if (report.loads())
    absl::StrAppend(&text, report.modules(), " of ", report.of_modules(), " modules");
  else
    absl::StrAppend(&text, "no");
  if (!report.notes().empty()) absl::StrAppend(&text, ", ", report.notes());
  return text;
}

std::string MemoryInFull(const v1::JobMemory& memory) {
  if (memory.plan().empty() && memory.budget_bytes() == 0) return "";
  std::string text = absl::StrCat("plan \"", memory.plan(), "\", predicted peak ",
                                  FormatBytes(memory.predicted_peak_bytes()), ", reserved ",
                                  FormatBytes(memory.budget_bytes()));
  if (memory.measured_peak_bytes() > 0) {
    absl::StrAppend(&text, ", measured peak ", FormatBytes(memory.measured_peak_bytes()));
  }
  if (memory.process_peak_bytes() > 0) {
    absl::StrAppend(&text, " (of its process, from outside, ",
                    FormatBytes(memory.process_peak_bytes()), ")");
  } else if (!memory.looks().empty() && memory.looks().rbegin()->seen_bytes() > 0) {
    absl::StrAppend(&text, " (seen by its worker, ",
                    FormatBytes(memory.looks().rbegin()->seen_bytes()), ")");
  }
  return text;
}

std::string StepTimeText(const v1::StepTime& time) {
  if (time.predicted_seconds() <= 0) return "";
  std::string text = absl::StrFormat("predicted %.3g s a step", time.predicted_seconds());
  if (time.corrected_seconds() > 0)
    absl::StrAppend(&text, absl::StrFormat(", by its own steps %.3g s", time.corrected_seconds()));
  if (time.alone_seconds() > 0)
    absl::StrAppend(&text, absl::StrFormat(", alone %.3g s", time.alone_seconds()));
  if (time.slowdown() > 0)
    absl::StrAppend(&text, absl::StrFormat("; beside others %.3g times its fair share of time",
                                           time.slowdown()));
  return text;
}

std::string DisplacementText(const v1::Displacement& displacement) {
  if (displacement.count() == 0) return "";
  return absl::StrCat(displacement.count(), displacement.count() == 1 ? " time" : " times",
                      ", at last because it ", displacement.reason());
}

// "int8 62%, keep 38%: approximate"
std::string KindsText(const v1::JobMemory& memory) {
  const std::map<std::string, double> kinds(memory.kinds().begin(), memory.kinds().end());
  if (kinds.empty()) return "";
  const std::string shares = absl::StrJoin(kinds, ", ", [](std::string* out, const auto& kind) {
    absl::StrAppend(out, absl::StrFormat("%s %.0f%%", kind.first, 100.0 * kind.second));
  });
  return absl::StrCat(shares, ": ", memory.fidelity());
}

// "int8 cosine 0.9998, relative error 0.019 (step 2, 512 tokens)"
std::string DriftText(const v1::Job& job) {
  const std::map<std::string, v1::Drift> kinds(job.drift().begin(), job.drift().end());
  std::string text = absl::StrJoin(kinds, "; ", [](std::string* out, const auto& kind) {
    const v1::Drift& drift = kind.second;
    absl::StrAppend(out, absl::StrFormat("%s cosine %.4f, relative error %.2g (step %d, %d tokens)",
                                         kind.first, drift.cosine(), drift.relative_error(),
                                         drift.global_step(), drift.tokens()));
  });
  if (!job.drift_not_measured().empty())
    absl::StrAppend(&text, text.empty() ? "" : "; ", "not measured: ", job.drift_not_measured());
  return text;
}

std::string DatasetText(const v1::Job& job) {
  std::string text = job.spec().dataset();
  for (const v1::DatasetSource& source : job.spec().datasets())
    absl::StrAppend(&text, text.empty() ? "" : ", ", source.path());
  const std::string facts = DatasetFacts(job.dataset());
  return facts.empty() ? text : absl::StrCat(text, ": ", facts);
}

std::string DeviceText(const v1::Job& job) {
  if (job.device().empty()) return "";
  std::string text = absl::StrCat(job.device(), ", attempt ", job.epoch());
  if (job.worker_pid() > 0) absl::StrAppend(&text, ", process ", job.worker_pid());
  return text;
}

}  // namespace

const std::string& NameOf(const v1::Job& job) { return job.name().empty() ? job.id() : job.name(); }

std::string StateName(v1::Job::State state) { return EnumWord(state); }

bool HasEnded(v1::Job::State state) {
  return state == v1::Job::STATE_SUCCEEDED || state == v1::Job::STATE_FAILED ||
         state == v1::Job::STATE_CANCELLED;
}

std::string DurationText(absl::Duration duration) {
  const int64_t seconds = absl::ToInt64Seconds(duration + absl::Milliseconds(500));
  if (seconds < 60) return absl::StrFormat("%ds", seconds);
  if (seconds < 3600) return absl::StrFormat("%dm%02ds", seconds / 60, seconds % 60);
  if (seconds < 86400) return absl::StrFormat("%dh%02dm", seconds / 3600, seconds / 60 % 60);
  return absl::StrFormat("%dd%02dh", seconds / 86400, seconds / 3600 % 24);
}

std::string EvaluationText(const v1::Progress& progress) {
  const std::map<std::string, double> sorted(progress.eval_metrics().begin(),
                                             progress.eval_metrics().end());
  return absl::StrJoin(sorted, ", ", [](std::string* out, const auto& metric) {
    absl::StrAppend(out, absl::StripPrefix(metric.first, "eval_"),
                    absl::StrFormat(" %.4f", metric.second));
  });
}

std::string MemoryText(const v1::JobMemory& memory) {
  if (memory.budget_bytes() == 0) return "";
  if (memory.measured_peak_bytes() == 0) return FormatBytes(memory.budget_bytes());
  return absl::StrCat(FormatBytes(memory.measured_peak_bytes()), " of ",
                      FormatBytes(memory.budget_bytes()));
}

std::string ErrorText(const v1::Error& error) {
  std::string text = error.reason();
  if (!error.message().empty()) absl::StrAppend(&text, text.empty() ? "" : ": ", error.message());
  if (!error.field().empty()) absl::StrAppend(&text, " (", FilePath(error.field()), ")");
  return text;
}

void PrintJob(const v1::Job& job, absl::TimeZone zone, std::ostream& out) {
  const auto line = [&](absl::string_view subject, absl::string_view text) {
    if (!text.empty()) out << absl::StrFormat("%-9s  %s\n", subject, PrintableLines(text));
  };
  line("job", job.id());
  line("name", job.display_name());
  line("state",
       absl::StrCat(StateName(job.state()), job.reason().empty() ? "" : ": ", job.reason()));
  line("error", ErrorText(job.error()));
  line("try", WhatToTry(job));
  line("progress", ProgressText(job.progress()));
  line("output", OutputText(job.output()));
  for (const v1::ReaderReport& report : job.output().readers())
    line("loads in", ReaderText(report));
  for (const Serving& serving : ServingOf(job, "DIR"))
    line("serve", absl::StrCat(serving.reader, ": ", InOneLine(serving)));
  line("memory", MemoryInFull(job.memory()));
  line("warning", job.memory().warning());
  line("kinds", KindsText(job.memory()));
  line("drift", DriftText(job));
  line("time", StepTimeText(job.step_time()));
  line("put back", DisplacementText(job.displacement()));
  line("device", DeviceText(job));
  line("model", job.spec().model());
  line("method", job.spec().method() == v1::JobSpec::METHOD_UNSPECIFIED
                     ? ""
                     : LowerEnumWord(job.spec().method()));
  line("dataset", DatasetText(job));
  line("format", DatasetForm(job.dataset()));
  for (const std::string& warning : job.dataset().warnings()) line("warning", warning);
  if (job.has_create_time()) line("created", TimeText(job.create_time(), zone));
  if (job.has_start_time()) line("started", TimeText(job.start_time(), zone));
  if (job.has_end_time()) line("ended", TimeText(job.end_time(), zone));
}

}  // namespace snug::client
