#include "client/plan_text.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "client/dataset_text.h"
#include "client/table.h"
#include "proto/snug/bytes.h"
#include "proto/snug/enum_words.h"

namespace snug::client {
namespace {

bool HasChoice(const v1::PlanJobResponse& reply) {
  return reply.chosen() >= 0 && reply.chosen() < reply.plans_size();
}

// Those that no faster plan beats in bytes, and the choice; the fastest first.
std::vector<int> UnbeatenPlans(const v1::PlanJobResponse& reply) {
  std::vector<int> unbeaten;
  for (int i = 0; i < reply.plans_size(); ++i) {
    const bool beaten = !unbeaten.empty() &&
                        reply.plans(i).peak_bytes() >= reply.plans(unbeaten.back()).peak_bytes();
    if (!beaten || i == reply.chosen()) unbeaten.push_back(i);
  }
  return unbeaten;
}

// What a little more or less memory would give; -1: there is no such plan.
struct Neighbours {
  int larger = -1;
  int smaller = -1;
};

Neighbours NeighboursOf(const v1::PlanJobResponse& reply) {
  const std::vector<int> unbeaten = UnbeatenPlans(reply);
  const auto chosen = std::find(unbeaten.begin(), unbeaten.end(), reply.chosen());
  if (chosen == unbeaten.end()) return {};
  Neighbours neighbours;
  if (chosen != unbeaten.begin()) neighbours.larger = *(chosen - 1);
  if (chosen + 1 != unbeaten.end()) neighbours.smaller = *(chosen + 1);
  return neighbours;
}

// One unit for the whole table keeps it narrow and its columns comparable.
struct Unit {
  const char* name;
  double bytes;
  int decimals;
};
constexpr Unit kMebibytes = {"MiB", 1 << 20, 1};
constexpr Unit kGibibytes = {"GiB", 1 << 30, 2};
constexpr size_t kMostRows = 12;  // Without the choice and its neighbours.
constexpr int64_t kLargePeakBytes = int64_t{10} << 30;

Unit UnitFor(const v1::PlanJobResponse& reply) {
  for (const v1::Plan& plan : reply.plans()) {
    if (plan.peak_bytes() >= kLargePeakBytes) return kGibibytes;
  }
  return kMebibytes;
}

// "0" is nothing at all; what rounds to nothing is not.
std::string InUnit(int64_t bytes, const Unit& unit) {
  if (bytes == 0) return "0";
  return absl::StrFormat("%.*f", unit.decimals, static_cast<double>(bytes) / unit.bytes);
}

// Where the sizes come from that all plans are laid out for.
void PrintLengths(const v1::PlanJobResponse& reply, std::ostream& out) {
  out << "lengths  from " << Printable(reply.length_source());
  if (reply.length_source() == "max_seq_length") {
    out << ": the dataset is not prepared yet; every row counts in full, data as 0";
  }
  out << "\n";
  const std::string facts = DatasetFacts(reply.dataset());
  if (!facts.empty()) out << "dataset  " << facts << "\n";
  for (const std::string& warning : reply.dataset().warnings())
    out << "warning  " << Printable(warning) << "\n";
  if (reply.plans_size() == 0) return;
  const v1::TapeKey& key = reply.plans(HasChoice(reply) ? reply.chosen() : 0).key();
  out << absl::StrFormat("batch    at most %d tokens in %d rows, the longest of %d tokens\n",
                         key.tokens(), key.documents(), key.longest_document());
  if (key.source_tokens() > 0)
    out << absl::StrFormat("sources  at most %d tokens, the longest of %d tokens\n",
                           key.source_tokens(), key.longest_source());
}

std::string SecondsText(const v1::Plan& plan) {
  return absl::StrFormat("%.3g", plan.step_seconds());
}

std::string OptionsText(const v1::StashOptions& options) {
  if (options.has_rho())
    return absl::StrFormat("rho %g, estimator %s", options.rho(), Printable(options.estimator()));
  if (options.has_ahead())
    return options.ahead() ? "recovered ahead" : "recovered where backward needs it";
  return absl::StrFormat("%d rows at a time", options.rows());
}

// What the plan next to the choice costs, or gives back.
void PrintNeighbour(const char* which, int index, const v1::PlanJobResponse& reply,
                    std::ostream& out) {
  if (index < 0) return;
  const v1::Plan& plan = reply.plans(index);
  const v1::Plan& choice = reply.plans(reply.chosen());
  const int64_t more = plan.peak_bytes() - choice.peak_bytes();
  const double longer = 100.0 * (plan.step_seconds() / choice.step_seconds() - 1.0);
  out << absl::StrFormat("%-7s  %s: %s %s, a step is %.2f %% %s\n", which, Printable(plan.name()),
                         FormatBytes(std::abs(more)), more > 0 ? "more" : "less", std::abs(longer),
                         longer > 0.0 ? "longer" : "shorter");
}

// What the job leaves open, where it is not as usual.
void PrintMemory(const v1::PlanJobResponse& reply, std::ostream& out) {
  if (reply.gradients() == v1::MemorySpec::GRADIENTS_RELEASED)
    out << "memory   gradients: released, each as soon as its weight has been updated\n";
  if (reply.optimizer() == v1::MemorySpec::OPTIMIZER_STATE_HOST)
    out << "memory   optimizer: host, fetched for each weight's update and written back\n";
}

void PrintChoice(const v1::PlanJobResponse& reply, std::ostream& out) {
  if (!HasChoice(reply)) {
    const std::string why =
        reply.refusal().empty() ? "no plan fits in the budget" : Printable(reply.refusal());
    out << "choice   none: " << why << "\n";
    return PrintMemory(reply, out);
  }
  const v1::Plan& plan = reply.plans(reply.chosen());
  out << absl::StrFormat(
      "choice   %s: %d bytes (%s) at its peak, %.3f times the work of keep, %s s a step, %.0f "
      "tokens/s\n",
      Printable(plan.name()), plan.peak_bytes(), FormatBytes(plan.peak_bytes()),
      plan.relative_work(), SecondsText(plan), plan.tokens_per_second());
  for (const v1::SitesOfKind& kind : KindsWithOptions(plan))
    out << absl::StrFormat("%-7s  %s\n", Printable(kind.kind()), OptionsText(kind.options()));
  PrintMemory(reply, out);
  const Neighbours neighbours = NeighboursOf(reply);
  PrintNeighbour("larger", neighbours.larger, reply, out);
  PrintNeighbour("smaller", neighbours.smaller, reply, out);
}

struct Setting {
  const char* name;
  int64_t (v1::LargestSettings::*largest)() const;
};
constexpr Setting kSettings[] = {
    {"per_device_train_batch_size", &v1::LargestSettings::per_device_train_batch_size},
    {"max_seq_length", &v1::LargestSettings::max_seq_length},
    {"gradient_accumulation_steps", &v1::LargestSettings::gradient_accumulation_steps}};

// How far single settings can go, and what another fidelity would give.
void PrintMax(const v1::PlanJobResponse& reply, std::ostream& out) {
  if (!reply.has_max()) return;
  std::vector<std::string> header = {"SETTING"};
  for (const v1::LargestSettings& each : reply.max_by_fidelity())
    header.push_back(absl::StrCat(">", each.fidelity() == reply.max().fidelity() ? "*" : "",
                                  EnumWord(each.fidelity())));
  Table table(std::move(header));
  for (const Setting& setting : kSettings) {
    std::vector<std::string> row = {setting.name};
    for (const v1::LargestSettings& each : reply.max_by_fidelity())
      row.push_back(absl::StrCat((each.*setting.largest)()));
    table.AddRow(std::move(row));
  }
  out << "max      each at the job's other settings, by memory.fidelity; * is the job's\n";
  table.Print(out);
}

// Of a large model's plans a screen shows but some: those that no faster plan beats in bytes,
// evenly from the fastest to the smallest, and around the choice.
std::vector<int> ShownPlans(const v1::PlanJobResponse& reply) {
  const std::vector<int> unbeaten = UnbeatenPlans(reply);
  const size_t step = (unbeaten.size() + kMostRows - 1) / kMostRows;
  std::vector<int> shown;
  for (size_t n = 0; n < unbeaten.size(); ++n) {
    const bool near = (n > 0 && unbeaten[n - 1] == reply.chosen()) ||
                      (n + 1 < unbeaten.size() && unbeaten[n + 1] == reply.chosen());
    const bool last = n + 1 == unbeaten.size();
    if (n % step == 0 || last || near || unbeaten[n] == reply.chosen())
      shown.push_back(unbeaten[n]);
  }
  return shown;
}

const char* MarkOf(int plan, const v1::PlanJobResponse& reply, const Neighbours& neighbours) {
  if (plan == reply.chosen()) return "*";
  if (plan == neighbours.larger) return "+";
  return plan == neighbours.smaller ? "-" : " ";
}

struct Component {
  const char* name;
  int64_t (v1::MemoryComponents::*bytes)() const;
};
constexpr Component kComponents[] = {{"context", &v1::MemoryComponents::context_bytes},
                                     {"weights", &v1::MemoryComponents::weights_bytes},
                                     {"adapter", &v1::MemoryComponents::adapter_bytes},
                                     {"gradients", &v1::MemoryComponents::gradients_bytes},
                                     {"optimizer", &v1::MemoryComponents::optimizer_bytes},
                                     {"inputs", &v1::MemoryComponents::inputs_bytes},
                                     {"data", &v1::MemoryComponents::data_bytes},
                                     {"stash", &v1::MemoryComponents::stash_bytes},
                                     {"scratch", &v1::MemoryComponents::scratch_bytes},
                                     {"workspace", &v1::MemoryComponents::workspace_bytes}};

// Whether these plans have as many bytes of it as each other. They are at least one.
bool IsCommon(const Component& component, const std::vector<int>& plans,
              const v1::PlanJobResponse& reply) {
  const auto bytes_of = [&](int i) { return (reply.plans(i).memory().*component.bytes)(); };
  return std::all_of(plans.begin(), plans.end(),
                     [&](int i) { return bytes_of(i) == bytes_of(plans[0]); });
}

// Prints what all of these plans have alike, which a column each would make the table too wide for
// a terminal; returns the other components.
std::vector<Component> PrintCommon(const std::vector<int>& plans, const v1::PlanJobResponse& reply,
                                   const Unit& unit, std::ostream& out) {
  std::vector<Component> others;
  std::vector<std::string> common;
  for (const Component& component : kComponents) {
    if (!IsCommon(component, plans, reply)) {
      others.push_back(component);
      continue;
    }
    const int64_t bytes = (reply.plans(plans[0]).memory().*component.bytes)();
    if (bytes > 0) common.push_back(absl::StrCat(component.name, " ", InUnit(bytes, unit)));
  }
  if (!common.empty()) out << "each     " << absl::StrJoin(common, ", ") << "\n";
  return others;
}

void PrintTable(const v1::PlanJobResponse& reply, const Unit& unit, std::ostream& out) {
  const std::vector<int> shown = ShownPlans(reply);
  if (shown.empty()) return;
  const std::vector<Component> components = PrintCommon(shown, reply, unit, out);
  std::vector<std::string> header = {"", "PLAN", ">PEAK", ">WORK", ">S/STEP", ">TOKENS/S"};
  for (const Component& component : components)
    header.push_back(absl::StrCat(">", absl::AsciiStrToUpper(component.name)));
  header.push_back("FITS");
  Table table(std::move(header));
  const Neighbours neighbours = NeighboursOf(reply);
  for (int i : shown) {
    const v1::Plan& plan = reply.plans(i);
    std::vector<std::string> row = {MarkOf(i, reply, neighbours),
                                    plan.name(),
                                    InUnit(plan.peak_bytes(), unit),
                                    absl::StrFormat("%.3f", plan.relative_work()),
                                    SecondsText(plan),
                                    absl::StrFormat("%.0f", plan.tokens_per_second())};
    for (const Component& component : components)
      row.push_back(InUnit((plan.memory().*component.bytes)(), unit));
    row.push_back(plan.peak_bytes() <= reply.budget_bytes() ? "yes" : "no");
    table.AddRow(std::move(row));
  }
  out << "\n";
  table.Print(out);
  const int more = reply.plans_size() - static_cast<int>(shown.size());
  if (more > 0) out << "   and " << more << " more; --output json has all\n";
}

// By what rates seconds are reckoned, where they are not the device's own.
void PrintRates(const v1::PlanJobResponse& reply, std::ostream& out) {
  if (reply.rates() == "kind") out << "seconds  by the data sheet of such a device\n";
  if (reply.rates() == "nominal")
    out << "seconds  of no machine in particular: compare them, and do not believe them\n";
}

// What the job would be given on each device, where there is more than one.
void PrintDevices(const v1::PlanJobResponse& reply, std::ostream& out) {
  if (reply.devices_size() < 2) return;
  Table table({"", "DEVICE", ">CAPACITY", "PLAN", ">PEAK", "FITS"});
  for (const v1::DeviceChoice& choice : reply.devices())
    table.AddRow({choice.device() == reply.device() ? "*" : " ", choice.device(),
                  FormatBytes(choice.capacity_bytes()), choice.plan(),
                  FormatBytes(choice.peak_bytes()), choice.fits() ? "yes" : "no"});
  out << "\n";
  table.Print(out);
}

}  // namespace

std::vector<v1::SitesOfKind> KindsWithOptions(const v1::Plan& plan) {
  std::vector<v1::SitesOfKind> kinds;
  for (const v1::Recipe& recipe : plan.recipes()) {
    for (v1::SitesOfKind kind : recipe.kinds()) {
      kind.clear_sites();
      const std::string bytes = kind.SerializeAsString();
      const bool known = std::any_of(kinds.begin(), kinds.end(), [&](const auto& other) {
        return other.SerializeAsString() == bytes;
      });
      if (kind.has_options() && !known) kinds.push_back(std::move(kind));
    }
  }
  return kinds;
}

int PlanShown(const v1::PlanJobResponse& reply) {
  if (HasChoice(reply)) return reply.chosen();
  const auto smallest = std::min_element(
      reply.plans().begin(), reply.plans().end(),
      [](const v1::Plan& a, const v1::Plan& b) { return a.peak_bytes() < b.peak_bytes(); });
  return static_cast<int>(smallest - reply.plans().begin());
}

void PrintPlans(const v1::PlanJobResponse& reply, std::ostream& out) {
  out << absl::StrFormat("device   %s, capacity %s\n", Printable(reply.device()),
                         FormatBytes(reply.device_capacity_bytes()));
  out << absl::StrFormat("budget   %s (%d bytes)\n", FormatBytes(reply.budget_bytes()),
                         reply.budget_bytes());
  PrintLengths(reply, out);
  PrintRates(reply, out);
  const Unit unit = UnitFor(reply);
  out << "bytes    in " << unit.name << "\n";
  PrintTable(reply, unit, out);
  out << "\n";
  PrintChoice(reply, out);
  PrintMax(reply, out);
  PrintDevices(reply, out);
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
