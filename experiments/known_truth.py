"""What fairfox says where the truth is known: its scores, intervals, verdicts, and effects with legitimate columns.

People come from causal models, from fused tables as in Table 1, or from the demo. --only names parts.
"""

from __future__ import annotations

import sys

import known_intervals
import known_legitimate
import known_scores
import known_verdicts
from runner import Experiment

PARTS = {
    "scores": known_scores,
    "intervals": known_intervals,
    "verdicts": known_verdicts,
    "legitimate": known_legitimate,
}
CHARTS = {"": lambda found: known_intervals.chart(found["intervals"]) if "intervals" in found else None}
EXPERIMENT = Experiment.of_parts(sys.modules[__name__])


if __name__ == "__main__":
    sys.exit(EXPERIMENT.run())
