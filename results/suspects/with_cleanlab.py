"""How suspect cleanlab holds each label, from the cross-validated probabilities: python with_cleanlab.py OUT.

In an environment of its own, with cleanlab and numpy (measured with cleanlab 2.9.0). Samples that ``find_label_issues``
names come first, then all others, both by ``get_label_quality_scores``.
"""

import sys
from pathlib import Path

import numpy as np
from cleanlab.filter import find_label_issues
from cleanlab.rank import get_label_quality_scores

for path in sorted(Path(sys.argv[1]).glob("*-cross-validated.npz")):
    with np.load(path) as record:
        labels, probabilities = record["labels"], record["probabilities"].astype(np.float64)
    probabilities /= probabilities.sum(1, keepdims=True)
    flagged = find_label_issues(labels, probabilities, n_jobs=1)
    quality = get_label_quality_scores(labels, probabilities)
    suspicion = flagged + (1 - quality)
    np.savez_compressed(
        path.with_name(path.name.replace("cross-validated", "cleanlab")), suspicion=suspicion, flagged=flagged
    )
    print(path.name, int(flagged.sum()), "flagged")
