"""From the score of an answer to the probability that it is right.

A network that was trained to certainty is surer of its answers than it should be. Three numbers, fitted on labelled
expressions that it was not trained on, correct that: the log-odds of being right are linear in log p and log(1 - p), p
being the answer's probability (beta calibration, Kull et al. 2017). A line over log p alone cannot rise to certainty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

#: The least 1 - p that is told apart from certainty.
_CERTAIN: Final = 1e-3


@dataclass(frozen=True)
class Calibration:
    """P(right) = 1 / (1 + exp(-(intercept + slope · log p - doubt · log(1 - p)))); slope and doubt are not negative."""

    slope: float
    intercept: float
    doubt: float = 0.0
    #: Expressions that it was fitted on, and its expected calibration error on them (cross-validated).
    samples: int = 0
    error: float = 0.0

    def __call__(self, logprob: float) -> float:
        """The probability that an answer of this log-probability is right."""
        p, q = _terms(np.array([logprob]))[0]
        return _logistic(self.intercept + self.slope * p + self.doubt * q)


def confidence(calibration: Calibration | None, logprob: float) -> float:
    """What `calibration` says, or the network's own opinion without one."""
    return math.exp(min(0.0, logprob)) if calibration is None else calibration(logprob)


def fit(logprobs: np.ndarray, right: np.ndarray) -> Calibration:
    """The most likely calibration by answers (N,) that were right or not; Newton's method, with a light prior.

    The prior (Platt's: targets a little inside 0 and 1) keeps it finite where answers separate completely. Where the
    answers would have a surer one be less often right, the term that says so is left out.
    """
    logprobs = np.asarray(logprobs, dtype=np.float64)
    right = np.asarray(right, dtype=bool)
    if not len(right):
        raise ValueError("a calibration needs answers to be fitted on")
    yes, no = int(right.sum()), int((~right).sum())
    target = np.where(right, (yes + 1) / (yes + 2), 1 / (no + 2))
    terms = _terms(logprobs)  # (N, 2)
    start = math.log((yes + 1) / (no + 1))
    intercept, slope, doubt = _newton(np.column_stack([np.ones(len(terms)), terms]), target, start)
    if min(slope, doubt) < 0:
        intercept, slope = _newton(np.column_stack([np.ones(len(terms)), terms[:, 0]]), target, start)
        doubt = 0.0
    return Calibration(slope=max(0.0, slope), intercept=intercept, doubt=doubt, samples=len(right))


def _terms(logprobs: np.ndarray) -> np.ndarray:
    """log p and -log(1 - p) of answers: (N, 2)."""
    logprobs = np.minimum(logprobs, 0.0)
    return np.column_stack([logprobs, -np.log(np.maximum(-np.expm1(logprobs), _CERTAIN))])


def _newton(design: np.ndarray, target: np.ndarray, start: float) -> list[float]:
    """The weights (columns of `design`) of a logistic regression on soft targets; the first begins at `start`."""
    weights = np.zeros(design.shape[1])
    weights[0] = start

    def loss(w: np.ndarray) -> float:
        odds = design @ w
        return float((np.logaddexp(0, odds) - target * odds).sum()) + 1e-6 * float(w @ w)

    for _ in range(100):
        p = 1 / (1 + np.exp(-np.clip(design @ weights, -500, 500)))
        slope = design.T @ (p - target) + 2e-6 * weights
        curve = (design * (p * (1 - p))[:, None]).T @ design + 2e-6 * np.eye(len(weights))
        step = np.linalg.solve(curve, slope)
        size = 1.0
        while size > 1e-8 and loss(weights - size * step) > loss(weights):
            size /= 2
        weights = weights - size * step
        if float(np.abs(size * step).max()) < 1e-9:
            break
    return [float(value) for value in weights]


def fit_with_error(logprobs: np.ndarray, right: np.ndarray, folds: int = 5) -> Calibration:
    """`fit` on everything, with the calibration error that it has on answers it was not fitted on."""
    logprobs, right = np.asarray(logprobs, dtype=np.float64), np.asarray(right, dtype=bool)
    whole = fit(logprobs, right)
    if len(right) < 2 * folds:
        return whole
    part = np.random.default_rng(0).permutation(len(right)) % folds
    said = np.zeros(len(right))
    for i in range(folds):
        line = fit(logprobs[part != i], right[part != i])
        said[part == i] = [line(value) for value in logprobs[part == i]]
    error = calibration_error(said, right)
    return replace(whole, error=error)


def calibration_error(said: np.ndarray, right: np.ndarray, bins: int = 10) -> float:
    """Expected calibration error: the mean distance of confidence and accuracy over equal bins of confidence."""
    said, right = np.asarray(said, dtype=np.float64), np.asarray(right, dtype=np.float64)
    which = np.minimum((said * bins).astype(int), bins - 1)
    gaps = [abs(float((said - right)[which == i].sum())) for i in range(bins)]
    return sum(gaps) / max(1, len(said))


def _logistic(odds: float) -> float:
    return 1 / (1 + math.exp(-odds)) if odds >= 0 else math.exp(odds) / (1 + math.exp(odds))
