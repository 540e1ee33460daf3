"""The paper's figure of features: t-SNE of what the classifier reads, for ten symbols, of several networks.

The decoder is given the true symbols so far; the features are those that its last layer turns into a decision.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ink2tex.data.batches import BatchMaker, BatchSettings
from ink2tex.data.sample import Sample
from ink2tex.errors import Ink2TexError
from ink2tex.model.network import Network
from ink2tex.training.evaluation import to_tensors
from ink2tex.training.system import sequences
from ink2tex.vocabulary import Direction


@torch.inference_mode()
def collect(network: Network, samples: Sequence[Sample], symbols: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Features (N, ·) of the left-to-right branch at every occurrence of `symbols`, and which of them (N,) it is."""
    network.eval()
    words = network.vocabulary
    wanted = torch.tensor([words.encode([symbol])[0] for symbol in symbols])
    branch: Any = network.branches[network.directions.index(Direction.L2R)]
    found, which = [], []
    settings = BatchSettings(size=16, pixels=1_000_000)
    maker = BatchMaker(samples, words, settings, input_scale=network.config.input_scale)
    plan = maker.plan(0)
    for step in range(len(plan)):
        batch = maker.draw(plan, step)
        features, mask = network.encode(*to_tensors(batch))
        tokens, lengths = torch.from_numpy(batch.tokens), torch.from_numpy(batch.lengths)
        inputs, targets = sequences(tokens, lengths, Direction.L2R)
        hidden = branch(features, mask, inputs).hidden  # (B, T + 1, ·)
        hit = targets.unsqueeze(-1) == wanted  # (B, T + 1, symbols)
        place = hit.any(-1)
        found.append(hidden[place].numpy())
        which.append(hit[place].int().argmax(-1).numpy())
    return np.concatenate(found), np.concatenate(which)


def frequent(samples: Sequence[Sample], count: int = 10) -> list[str]:
    """The most frequent symbols that have ink."""
    unseen = {"{", "}", "^", "_", "\\limits"}
    counts = Counter(token for sample in samples for token in sample.tokens if token not in unseen)
    return [token for token, _ in counts.most_common(count)]


def separation(features: np.ndarray, which: np.ndarray) -> float:
    """Mean silhouette: 1 if every symbol keeps to itself, 0 if they lie in each other."""
    from sklearn.metrics import silhouette_score

    return float(silhouette_score(features, which))


def draw(named: Sequence[tuple[str, Network]], samples: Sequence[Sample], path: Path, most: int = 2000) -> list[str]:
    """Draw the figure into `path`; for each network a line with how well its symbols are separated."""
    try:
        from matplotlib.figure import Figure
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise Ink2TexError(f"the figure needs {error.name}; install the extra 'experiments'") from None
    symbols = frequent(samples)
    figure = Figure(figsize=(6 * len(named), 5.5), layout="constrained")
    lines = []
    for k, (name, network) in enumerate(named):
        features, which = collect(network, samples, symbols)
        chosen = np.random.default_rng(0).permutation(len(which))[:most]
        features, which = features[chosen], which[chosen]
        lines.append(
            f"{name}: {len(which)} features of {len(symbols)} symbols, silhouette {separation(features, which):.3f}"
        )
        points = TSNE(perplexity=min(30.0, (len(which) - 1) / 3), init="pca", random_state=0).fit_transform(features)
        axes = figure.add_subplot(1, len(named), k + 1)
        for i, symbol in enumerate(symbols):
            x, y = points[which == i].T
            axes.scatter(x, y, s=6, label=symbol)
        axes.set_title(name)
        axes.set_axis_off()
        axes.legend(markerscale=3, fontsize=8)
    figure.savefig(path)
    return lines
