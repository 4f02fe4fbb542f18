#include "worker/train/answer_scores.h"

#include <algorithm>
#include <map>

#include "worker/program/eval_metrics.h"

namespace snug::train {
namespace {

using Words = std::vector<std::string>;

// Characters beyond ASCII whose lower case begins with a letter of it: U+0130 and U+212A. The first
// has a mark behind its i, which ends a word as every character beyond ASCII does.
constexpr std::string_view kDottedI = "\xC4\xB0", kKelvin = "\xE2\x84\xAA";

double F1(double shared, size_t answer, size_t wanted) {
  if (shared == 0.0) return 0.0;
  const double precision = shared / static_cast<double>(answer);
  const double recall = shared / static_cast<double>(wanted);
  return 2.0 * precision * recall / (precision + recall);
}

// Each run of n words, and how often it stands there.
std::map<Words, int64_t> RunsOf(const Words& words, size_t n) {
  std::map<Words, int64_t> runs;
  for (size_t i = 0; i + n <= words.size(); ++i)
    ++runs[Words(words.begin() + static_cast<std::ptrdiff_t>(i),
                 words.begin() + static_cast<std::ptrdiff_t>(i + n))];
  return runs;
}

}  // namespace

Words RougeWords(std::string_view text) {
  Words words;
  std::string word;
  const auto end = [&] {
    if (!word.empty()) words.push_back(std::move(word));
    word.clear();
  };
  while (!text.empty()) {
    const char c = text.front();
    const bool upper = c >= 'A' && c <= 'Z';
    if (upper || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9')) {
      word += upper ? static_cast<char>(c - 'A' + 'a') : c;
      text.remove_prefix(1);
    } else if (text.starts_with(kKelvin)) {
      word += 'k';
      text.remove_prefix(kKelvin.size());
    } else {
      if (text.starts_with(kDottedI)) word += 'i';
      end();
      text.remove_prefix(1);
    }
  }
  end();
  return words;
}

double RougeN(const Words& answer, const Words& wanted, size_t n) {
  const std::map<Words, int64_t> said = RunsOf(answer, n), right = RunsOf(wanted, n);
  int64_t shared = 0;
  for (const auto& [run, count] : right) {
    const auto found = said.find(run);
    if (found != said.end()) shared += std::min(count, found->second);
  }
  return shared == 0
             ? 0.0
             : F1(static_cast<double>(shared), answer.size() + 1 - n, wanted.size() + 1 - n);
}

double RougeL(const Words& answer, const Words& wanted) {
  // [j]: of the answer's words so far and the first j wanted ones.
  std::vector<int64_t> longest(wanted.size() + 1, 0);
  for (const std::string& word : answer) {
    int64_t diagonal = 0;  // [j - 1] without this word.
    for (size_t j = 1; j <= wanted.size(); ++j) {
      const int64_t above = longest[j];
      longest[j] = word == wanted[j - 1] ? diagonal + 1 : std::max(above, longest[j - 1]);
      diagonal = above;
    }
  }
  return F1(static_cast<double>(longest.back()), answer.size(), wanted.size());
}

void AnswerScores::Add(std::string_view answer, std::string_view wanted) {
  const Words said = RougeWords(answer), right = RougeWords(wanted);
  ++texts_;
  same_ += answer == wanted ? 1.0 : 0.0;
  rouge1_ += RougeN(said, right, 1);
  rouge2_ += RougeN(said, right, 2);
  rouge_l_ += RougeL(said, right);
}

Figures AnswerScores::Means() const {
  if (texts_ == 0) return {};
  const auto mean = [this](double sum) { return sum / static_cast<double>(texts_); };
  return {{std::string(program::kExactMatchMetric), mean(same_)},
          {std::string(program::kRouge1Metric), mean(rouge1_)},
          {std::string(program::kRouge2Metric), mean(rouge2_)},
          {std::string(program::kRougeLMetric), mean(rouge_l_)}};
}

}  // namespace snug::train
