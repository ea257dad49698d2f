# SPDX-License-Identifier: MIT
"""``serve``: a contest on this machine, for popcorn-cli and for browsers."""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from pathlib import Path

import backends
from scoring.config.load import Config, load_config
from scoring.record import ExitCode
from scoring.run.select import SelectionError

_PACKAGES = ("fastapi", "uvicorn", "sqlalchemy", "alembic", "multipart")


def run(options: argparse.Namespace) -> int:
    missing = _missing()
    if missing:
        raise SelectionError(f"serve needs the packages {', '.join(missing)}, which this Python does not have\n"
                             "  pip install 'warpwave[server]', or in the checkout: make setup", ExitCode.UNAVAILABLE)
    config = load_config({"emulate": options.emulate}, options.config)
    backends.use_cache(config.cache)
    backends.use_emulator(config.settings.emulate)
    from scoring.serve.storage.database import Database, DatabaseError

    try:
        database = Database(options.database or str(config.database.parent / "contest.db"))
        database.migrate()
    except DatabaseError as error:
        raise SelectionError(str(error), ExitCode.USAGE) from None
    try:
        if options.export_season or options.import_season:
            return _season(options, database)
        return _serve(options, config, database)
    finally:
        database.close()


def _missing() -> list[str]:
    import importlib.util

    return [name for name in _PACKAGES if importlib.util.find_spec(name) is None]


def _season(options: argparse.Namespace, database: object) -> int:
    from scoring.serve import season
    from scoring.serve.storage.database import Database

    assert isinstance(database, Database)
    if options.export_season:
        counts = season.export(database, Path(options.export_season))
    else:
        counts = season.load(database, Path(options.import_season))
    if options.json:
        print(json.dumps({"schema": 1, "tables": counts}))
    else:
        print(", ".join(f"{name}: {count}" for name, count in counts.items()))
    return ExitCode.OK


def _serve(options: argparse.Namespace, config: Config, database: object) -> int:
    from scoring.serve import server
    from scoring.serve.storage.database import Database

    assert isinstance(database, Database)
    def tell(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    asked = server.Asked(
        host=options.host, port=options.port, config=options.config, secure=options.https, ray=options.ray,
        token_file=Path(options.token_file) if options.token_file else config.database.parent / "organiser-token")
    if options.ray:
        from scoring.serve import on_ray

        asked = replace(asked, config=str(Path(options.config).absolute()) if options.config else None)
        devices = on_ray.find_devices(config, asked.config, options.ray)
    else:
        devices = server.find_devices(config, tell)
    return server.serve(config, database, asked, devices, tell)
