// Metrics of classes, from counts alone: as scikit-learn's accuracy_score, f1_score and
// matthews_corrcoef give them. Where one divides by 0, it is 0, as there. Pure.
#ifndef WORKER_TRAIN_CLASS_METRICS_H_
#define WORKER_TRAIN_CLASS_METRICS_H_

#include <cstdint>
#include <vector>

namespace snug::train {

// How often a class was the label, was predicted, and was both. These are the margins and the
// diagonal of the confusion matrix: none of the metrics below asks for more of it.
struct ClassCounts {
  int64_t labelled = 0;
  int64_t predicted = 0;
  int64_t right = 0;
};

// Of predictions that name one class each: the share that is right.
double Accuracy(const std::vector<ClassCounts>& classes);

// 2 right / (labelled + predicted): the harmonic mean of precision and recall.
double F1(const ClassCounts& one);

// The mean over classes that occur, as labels or predictions; or over all of them, which is what
// labels are scored by that are there or not.
enum class Averaged : uint8_t { kOccurring, kAll };
double MacroF1(const std::vector<ClassCounts>& classes, Averaged averaged);

// Of the sums over all classes.
double MicroF1(const std::vector<ClassCounts>& classes);

// Of any number of classes: Gorodkin 2004, eq. 8; for two Matthews 1975.
double MatthewsCorrelation(const std::vector<ClassCounts>& classes);

}  // namespace snug::train

#endif  // WORKER_TRAIN_CLASS_METRICS_H_
