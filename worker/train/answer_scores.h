// How near generated answers come to the texts that are wanted: the share that is the same, and
// ROUGE-1, ROUGE-2 and ROUGE-L (Lin 2004) as the rouge_score package defines them without a
// stemmer: words are runs of a-z and 0-9 in the lower-cased text, a score is the F1 of what two
// texts share (words, pairs of neighbours, the longest common subsequence of words), 0 where they
// share nothing. Figures are means over the texts. Pure.
#ifndef WORKER_TRAIN_ANSWER_SCORES_H_
#define WORKER_TRAIN_ANSWER_SCORES_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "worker/train/figures.h"

namespace snug::train {

// As Python lower-cases what becomes ASCII by that: the letters A to Z, and two characters beyond.
std::vector<std::string> RougeWords(std::string_view text);

double RougeN(const std::vector<std::string>& answer, const std::vector<std::string>& wanted,
              size_t n);
double RougeL(const std::vector<std::string>& answer, const std::vector<std::string>& wanted);

class AnswerScores {
 public:
  void Add(std::string_view answer, std::string_view wanted);

  // exact_match, rouge1, rouge2, rougeL, in [0, 1]; none before the first text.
  Figures Means() const;

 private:
  int64_t texts_ = 0;
  double same_ = 0.0, rouge1_ = 0.0, rouge2_ = 0.0, rouge_l_ = 0.0;  // Sums.
};

}  // namespace snug::train

#endif  // WORKER_TRAIN_ANSWER_SCORES_H_
