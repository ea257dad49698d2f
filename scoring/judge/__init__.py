# SPDX-License-Identifier: MIT
"""The judge's process: inputs, references, verdict and clock."""
