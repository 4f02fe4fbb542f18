#include "client/dataset_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/table.h"

namespace snug::client {
namespace {

// SGR: green for what is trained, dim for what is not; both readable on dark and on light.
constexpr const char* kTrained = "\x1b[32m";
constexpr const char* kNotTrained = "\x1b[2m";
constexpr const char* kReset = "\x1b[0m";

std::string WeightMark(float weight) {
  return weight == 1.0f ? "" : absl::StrFormat("%g|", weight);
}

// Control characters cannot act on the terminal; a line's end is one, and is also seen as "↵".
std::string Shown(const std::string& text, const std::string& before, const std::string& after) {
  std::vector<std::string> lines = absl::StrSplit(text, '\n');
  std::string shown;
  for (size_t i = 0; i < lines.size(); ++i) {
    const std::string end = i + 1 < lines.size() ? "↵" : "";
    const std::string line = Printable(absl::StrReplaceAll(lines[i], {{"\t", "    "}})) + end;
    if (!line.empty()) absl::StrAppend(&shown, before, line, after);
    if (!end.empty()) absl::StrAppend(&shown, "\n    ");
  }
  return shown;
}

std::string SegmentText(const v1::PreviewSegment& segment, bool colour) {
  const bool trained = segment.weight() != 0.0f;
  const std::string mark = trained ? WeightMark(segment.weight()) : "";
  if (colour) return Shown(segment.text(), (trained ? kTrained : kNotTrained) + mark, kReset);
  return trained ? Shown(segment.text(), "«" + mark, "»") : Shown(segment.text(), "", "");
}

void PrintRow(const v1::PreviewRow& row, bool colour, std::ostream& out) {
  out << absl::StrFormat("line %d: %d tokens, %d trained", row.line(), row.tokens(),
                         row.trained_tokens());
  if (row.cut_tokens() > 0) out << absl::StrFormat(", %d more cut off", row.cut_tokens());
  std::string text = "\n    ";
  for (const v1::PreviewSegment& segment : row.segments())
    absl::StrAppend(&text, SegmentText(segment, colour));
  absl::StripTrailingAsciiWhitespace(&text);  // Of a text that ends with a line's end.
  out << text;
  if (row.left_out_tokens() > 0)
    out << absl::StrFormat(" ... %d more tokens", row.left_out_tokens());
  out << "\n\n";
}

}  // namespace

std::string DatasetFacts(const v1::DatasetSummary& summary) {
  if (summary.rows() == 0) return "";
  const double share =
      summary.tokens() > 0 ? 100.0 * summary.trained_tokens() / summary.tokens() : 0;
  std::string text =
      absl::StrFormat("%d rows, %d tokens (%.1f %% trained), longest row %d", summary.rows(),
                      summary.tokens(), share, summary.longest_row_tokens());
  if (summary.truncated_rows() > 0)
    absl::StrAppend(&text, ", ", summary.truncated_rows(), " cut off");
  if (summary.duplicate_rows() > 0)
    absl::StrAppend(&text, ", ", summary.duplicate_rows(), " duplicates");
  if (summary.untrained_rows() > 0)
    absl::StrAppend(&text, ", ", summary.untrained_rows(), " left out");
  if (summary.eval_rows() > 0)
    absl::StrAppend(&text, ", ", summary.eval_rows(), " more to evaluate on");
  return text;
}

std::string DatasetForm(const v1::DatasetSummary& summary) {
  std::string text = summary.format();
  if (!summary.chat_template().empty())
    absl::StrAppend(&text, ", chat template ", summary.chat_template());
  if (!summary.end_of_turn().empty())
    absl::StrAppend(&text, ", answers end with ", summary.end_of_turn());
  return text;
}

void PrintPreview(const v1::PreviewDatasetResponse& reply, bool colour, std::ostream& out) {
  for (const v1::PreviewRow& row : reply.rows()) PrintRow(row, colour, out);
  const v1::DatasetSummary& summary = reply.summary();
  const auto line = [&](const char* subject, const std::string& text) {
    if (!text.empty()) out << absl::StrFormat("%-9s  %s\n", subject, Printable(text));
  };
  const std::string part =
      reply.whole() ? "" : absl::StrCat(" (of the first ", summary.source_rows(), ")");
  const std::string facts = DatasetFacts(summary);
  line("format", DatasetForm(summary));
  line("dataset", facts.empty() ? "no row has a trained token" : facts + part);
  for (const std::string& warning : summary.warnings()) line("warning", warning);
  out << (colour ? absl::StrCat("trained is what is ", kTrained, "green", kReset)
                 : std::string("trained is what stands between « and »"))
      << "\n";
}

}  // namespace snug::client
