# SPDX-License-Identifier: MIT
"""Alembic's entry: runs the migrations on the connection that ``Database.migrate`` hands over."""

from alembic import context

from scoring.serve.storage.models import Base

context.configure(
    connection=context.config.attributes["connection"], target_metadata=Base.metadata, render_as_batch=True,
    transactional_ddl=True,
)
context.run_migrations()
