#include "client/plan_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/table.h"
#include "proto/snug/bytes.h"

namespace snug::client {
namespace {

bool HasChoice(const v1::PlanJobResponse& reply) {
  return reply.chosen() >= 0 && reply.chosen() < reply.plans_size();
}

// Where the sizes come from that all plans are laid out for.
void PrintLengths(const v1::PlanJobResponse& reply, std::ostream& out) {
  out << "lengths  from " << Printable(reply.length_source());
  if (reply.length_source() == "max_seq_length") {
    out << ": this dataset is not prepared yet, so every row counts as the longest one allowed";
  }
  out << "\n";
  if (reply.plans_size() == 0) return;
  const v1::TapeKey& key = reply.plans(HasChoice(reply) ? reply.chosen() : 0).key();
  out << absl::StrFormat("batch    at most %d tokens in %d rows, the longest of %d tokens\n",
                         key.tokens(), key.documents(), key.longest_document());
}

void PrintChoice(const v1::PlanJobResponse& reply, std::ostream& out) {
  if (!HasChoice(reply)) {
    const std::string why =
        reply.refusal().empty() ? "no plan fits in the budget" : Printable(reply.refusal());
    out << "choice   none: " << why << "\n";
    return;
  }
  const v1::Plan& plan = reply.plans(reply.chosen());
  out << absl::StrFormat(
      "choice   %s: a peak of %d bytes (%s), %.3f times the work of keeping everything\n",
      Printable(plan.name()), plan.peak_bytes(), FormatBytes(plan.peak_bytes()),
      plan.relative_work());
}

}  // namespace

void PrintPlans(const v1::PlanJobResponse& reply, std::ostream& out) {
  out << absl::StrFormat("device   %s, capacity %s\n", Printable(reply.device()),
                         FormatBytes(reply.device_capacity_bytes()));
  out << absl::StrFormat("budget   %s (%d bytes)\n", FormatBytes(reply.budget_bytes()),
                         reply.budget_bytes());
  PrintLengths(reply, out);
  out << "\n";
  Table table({"", "PLAN", ">PEAK", ">WORK", ">CONTEXT", ">WEIGHTS", ">ADAPTER", ">GRADIENTS",
               ">OPTIMIZER", ">INPUTS", ">STASH", ">SCRATCH", ">WORKSPACE", "FITS"});
  for (int i = 0; i < reply.plans_size(); ++i) {
    const v1::Plan& plan = reply.plans(i);
    const v1::MemoryComponents& memory = plan.memory();
    table.AddRow({i == reply.chosen() ? "*" : " ", plan.name(), FormatBytes(plan.peak_bytes()),
                  absl::StrFormat("%.3f", plan.relative_work()),
                  FormatBytes(memory.context_bytes()), FormatBytes(memory.weights_bytes()),
                  FormatBytes(memory.adapter_bytes()), FormatBytes(memory.gradients_bytes()),
                  FormatBytes(memory.optimizer_bytes()), FormatBytes(memory.inputs_bytes()),
                  FormatBytes(memory.stash_bytes()), FormatBytes(memory.scratch_bytes()),
                  FormatBytes(memory.workspace_bytes()),
                  plan.peak_bytes() <= reply.budget_bytes() ? "yes" : "no"});
  }
  table.Print(out);
  out << "\n";
  PrintChoice(reply, out);
}

void PrintSites(const v1::PlanJobResponse& reply, std::ostream& out) {
  Table table({"SITE", ">BYTES", ">", "NOTE"});
  for (const v1::Site& site : reply.sites()) {
    table.AddRow({site.name(), absl::StrCat(site.bytes()), FormatBytes(site.bytes()),
                  site.companion() ? "kept whenever its op is not run again" : ""});
  }
  table.Print(out);
}

}  // namespace snug::client
