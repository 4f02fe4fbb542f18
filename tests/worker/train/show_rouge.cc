// show_rouge < pairs of texts, a JSON array [answer, wanted] per line: its exact match, ROUGE-1,
// ROUGE-2 and ROUGE-L, a line per pair, as hexadecimal floats (no digit is lost). A tool of
// rouge_with_rouge_score_test.py.
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "worker/train/answer_scores.h"

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const auto pair = nlohmann::json::parse(line).get<std::vector<std::string>>();
    snug::train::AnswerScores scores;
    scores.Add(pair.at(0), pair.at(1));
    const snug::train::Figures means = scores.Means();
    for (const char* name : {"exact_match", "rouge1", "rouge2", "rougeL"})
      std::printf("%a ", means.at(name));
    std::printf("\n");
  }
  return 0;
}
