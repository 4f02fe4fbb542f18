"""What an evaluation reports, by scikit-learn and scipy: by the names of metrics.jsonl."""

from scipy.stats import pearsonr, spearmanr
from sklearn import metrics


def of_classes(labels, predicted):
    """One class each."""
    scores = {
        "eval_accuracy": metrics.accuracy_score(labels, predicted),
        "eval_f1_macro": metrics.f1_score(labels, predicted, average="macro", zero_division=0),
        "eval_matthews_correlation": metrics.matthews_corrcoef(labels, predicted),
    }
    if max(labels) < 2:
        scores["eval_f1"] = metrics.f1_score(labels, predicted, zero_division=0)
    return scores


def of_several(labels, predicted):
    """Rows of 0 and 1, one of each label."""
    scores = {"eval_accuracy": metrics.accuracy_score(labels, predicted)}
    for average in ("micro", "macro"):
        scores[f"eval_f1_{average}"] = metrics.f1_score(
            labels, predicted, average=average, zero_division=0
        )
    return scores


def of_numbers(targets, predicted):
    """One number each."""
    return {
        "eval_mse": metrics.mean_squared_error(targets, predicted),
        "eval_pearson": pearsonr(predicted, targets).statistic,
        "eval_spearman": spearmanr(predicted, targets).statistic,
    }


def assert_reported(test, line, scores, delta=1e-12):
    """The line of an evaluation has these figures, and no others of their kind."""
    others = {"eval_loss", "eval_entropy", "eval_runtime"}
    reported = {name: line[name] for name in line if name.startswith("eval_")}
    reported = {name: figure for name, figure in reported.items() if name not in others}
    test.assertEqual(set(reported), set(scores))
    for name, score in scores.items():
        test.assertAlmostEqual(reported[name], score, delta=delta, msg=name)
