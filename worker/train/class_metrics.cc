#include "worker/train/class_metrics.h"

#include <cmath>

namespace snug::train {
namespace {

double Share(double part, double whole) { return whole == 0.0 ? 0.0 : part / whole; }

ClassCounts SumOf(const std::vector<ClassCounts>& classes) {
  ClassCounts sum;
  for (const ClassCounts& one : classes) {
    sum.labelled += one.labelled;
    sum.predicted += one.predicted;
    sum.right += one.right;
  }
  return sum;
}

}  // namespace

double Accuracy(const std::vector<ClassCounts>& classes) {
  const ClassCounts sum = SumOf(classes);
  return Share(static_cast<double>(sum.right), static_cast<double>(sum.labelled));
}

double F1(const ClassCounts& one) {
  return Share(2.0 * static_cast<double>(one.right),
               static_cast<double>(one.labelled + one.predicted));
}

double MacroF1(const std::vector<ClassCounts>& classes, Averaged averaged) {
  double sum = 0.0, counted = 0.0;
  for (const ClassCounts& one : classes) {
    if (averaged == Averaged::kOccurring && one.labelled + one.predicted == 0) continue;
    sum += F1(one);
    counted += 1.0;
  }
  return Share(sum, counted);
}

double MicroF1(const std::vector<ClassCounts>& classes) { return F1(SumOf(classes)); }

double MatthewsCorrelation(const std::vector<ClassCounts>& classes) {
  const auto rows = static_cast<double>(SumOf(classes).labelled);
  double both = 0.0, labelled = 0.0, predicted = 0.0, right = 0.0;
  for (const ClassCounts& one : classes) {
    const auto t = static_cast<double>(one.labelled), p = static_cast<double>(one.predicted);
    both += t * p;
    labelled += t * t;
    predicted += p * p;
    right += static_cast<double>(one.right);
  }
  const double spread = (rows * rows - predicted) * (rows * rows - labelled);
  return Share(right * rows - both, std::sqrt(spread));
}

}  // namespace snug::train
