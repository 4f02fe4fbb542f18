// The figures of an evaluation beside its loss.
#ifndef WORKER_TRAIN_FIGURES_H_
#define WORKER_TRAIN_FIGURES_H_

#include <functional>
#include <map>
#include <string>

namespace snug::train {

// By name, without "eval_". One that is undefined, as a correlation of predictions that are all the
// same, is left out.
using Figures = std::map<std::string, double, std::less<>>;

inline constexpr char kTokenAccuracy[] = "mean_token_accuracy", kAccuracy[] = "accuracy";

}  // namespace snug::train

#endif  // WORKER_TRAIN_FIGURES_H_
