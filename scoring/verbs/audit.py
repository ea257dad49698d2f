# SPDX-License-Identifier: MIT
"""``audit``: prove that wrong answers are refused, case by case; a tolerance that checks nothing fails here."""

from __future__ import annotations

import argparse
import dataclasses
import json

from scoring import config, jobs
from scoring.audit import audit
from scoring.model import ExitCode
from scoring.progress import Progress
