# SPDX-License-Identifier: MIT
"""The contest's database: tables, connections and migrations, on SQLite or PostgreSQL."""
