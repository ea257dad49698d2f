# SPDX-License-Identifier: MIT
"""toy: SystemExit while imported."""
import sys

sys.exit("not today")
