# SPDX-License-Identifier: MIT
"""The first schema of a contest."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    now = sa.Double
    op.create_table(
        "account", sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(64), nullable=False), sa.Column("created", now, nullable=False),
        sa.Column("active", sa.Boolean, nullable=False), sa.Column("banned", sa.Boolean, nullable=False),
        sa.UniqueConstraint("name"), sqlite_autoincrement=True)
    op.create_table(
        "board", sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.String(64), nullable=False),
        sa.Column("problem", sa.JSON, nullable=False), sa.Column("description", sa.Text, nullable=False),
        sa.Column("gpus", sa.JSON, nullable=False), sa.Column("task", sa.JSON, nullable=False),
        sa.Column("deadline", now), sa.Column("visibility", sa.String(8), nullable=False),
        sa.Column("active", sa.Boolean, nullable=False), sa.Column("secret", sa.String(64), nullable=False),
        sa.Column("created", now, nullable=False), sa.UniqueConstraint("name"))
    op.create_table(
        "source", sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("content", sa.LargeBinary, nullable=False))
    op.create_table(
        "token", sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("account_id", sa.Integer, sa.ForeignKey("account.id", ondelete="CASCADE")),
        sa.Column("kind", sa.String(8), nullable=False), sa.Column("created", now, nullable=False),
        sa.Column("expires", now))
    op.create_index("ix_token_account_id", "token", ["account_id"])
    op.create_table(
        "member",
        sa.Column("account_id", sa.Integer, sa.ForeignKey("account.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("board_id", sa.Integer, sa.ForeignKey("board.id", ondelete="CASCADE"), primary_key=True))
    op.create_table(
        "invite", sa.Column("code", sa.String(64), primary_key=True), sa.Column("boards", sa.JSON, nullable=False),
        sa.Column("created", now, nullable=False),
        sa.Column("used_by", sa.Integer, sa.ForeignKey("account.id", ondelete="SET NULL")),
        sa.Column("used_at", now))
    op.create_table(
        "rate_limit",
        sa.Column("board_id", sa.Integer, sa.ForeignKey("board.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("category", sa.String(16), primary_key=True), sa.Column("per_hour", sa.Integer, nullable=False))
    op.create_table(
        "submission", sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("board_id", sa.Integer, sa.ForeignKey("board.id", ondelete="CASCADE"), nullable=False),
        sa.Column("account_id", sa.Integer, sa.ForeignKey("account.id", ondelete="CASCADE"), nullable=False),
        sa.Column("gpu", sa.String(32), nullable=False), sa.Column("mode", sa.String(16), nullable=False),
        sa.Column("file_name", sa.String(128), nullable=False),
        sa.Column("source_digest", sa.String(64), sa.ForeignKey("source.digest"), nullable=False),
        sa.Column("created", now, nullable=False), sa.Column("status", sa.String(16), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False), sa.Column("started", now),
        sa.Column("progress", sa.Text, nullable=False), sqlite_autoincrement=True)
    op.create_index("ix_submission_queue", "submission", ["status", "gpu", "id"])
    op.create_index("ix_submission_account", "submission", ["account_id", "created"])
    op.create_index("ix_submission_board", "submission", ["board_id", "gpu"])
    op.create_index("ix_submission_source_digest", "submission", ["source_digest"])
    op.create_table(
        "lease",
        sa.Column("submission_id", sa.Integer, sa.ForeignKey("submission.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("worker", sa.String(128), nullable=False), sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("expires", now, nullable=False))
    op.create_index("ix_lease_worker", "lease", ["worker"])
    op.create_index("ix_lease_expires", "lease", ["expires"])
    op.create_table(
        "result",
        sa.Column("submission_id", sa.Integer, sa.ForeignKey("submission.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("finished", now, nullable=False), sa.Column("verdict", sa.String(24), nullable=False),
        sa.Column("error", sa.Text, nullable=False), sa.Column("score", now), sa.Column("low", now),
        sa.Column("high", now), sa.Column("evidence", sa.String(16), nullable=False),
        sa.Column("emulated", sa.Boolean, nullable=False), sa.Column("protocol", sa.String(32), nullable=False),
        sa.Column("workload", sa.String(16), nullable=False), sa.Column("record", sa.Text, nullable=False))
    op.create_table(
        "worker", sa.Column("name", sa.String(128), primary_key=True), sa.Column("gpu", sa.String(32), nullable=False),
        sa.Column("device", sa.Text, nullable=False), sa.Column("host", sa.Text, nullable=False),
        sa.Column("seen", now, nullable=False))
    op.create_index("ix_worker_gpu", "worker", ["gpu"])
    op.create_table(
        "audit", sa.Column("id", sa.Integer, primary_key=True), sa.Column("at", now, nullable=False),
        sa.Column("actor", sa.Text, nullable=False), sa.Column("action", sa.String(64), nullable=False),
        sa.Column("detail", sa.Text, nullable=False))
    op.create_index("ix_audit_at", "audit", ["at"])
    op.create_table(
        "setting", sa.Column("name", sa.String(32), primary_key=True), sa.Column("value", sa.Text, nullable=False))
