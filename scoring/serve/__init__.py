# SPDX-License-Identifier: MIT
"""A contest server: popcorn-cli's API, a durable queue, workers that run the judge, and pages of the leaderboards."""
