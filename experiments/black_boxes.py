"""Models that people really use, on raw tables: audited as they are, and for shuffled groups, which mean nothing.

--only names parts.
"""

from __future__ import annotations

import sys

import black_box_audits
import black_box_shuffles
from runner import Experiment

PARTS = {"audits": black_box_audits, "shuffled": black_box_shuffles}
EXPERIMENT = Experiment.of_parts(sys.modules[__name__])


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
