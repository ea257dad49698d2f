# SPDX-License-Identifier: MIT
"""Requests made from the server's own OpenAPI schema, right and wrong ones: no answer is an error of the server, and
each is of a kind that the schema names. ``SCHEMA_EXAMPLES`` sets how many requests each address gets."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from scoring.serve.api.app import create_app
from scoring.serve.api.service import Service
from scoring.serve.storage.database import Database
from tests.scoring.serve import conftest

EXAMPLES = int(os.environ.get("SCHEMA_EXAMPLES", "2"))


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.filterwarnings("ignore")
def test_no_request_of_the_schema_is_an_error_of_the_server(local: Database):
    schemathesis = pytest.importorskip("schemathesis", reason="the package schemathesis is not installed")
    from schemathesis import checks

    conftest.add_board(local, "a-board-that-no-request-guesses")
    _, token = conftest.add_account(local, "ann")
    service = Service(local, conftest.settings(requests_per_second=1e6, accounts_per_hour=10**6), conftest.ADMIN)
    schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(service))
    headers = {"X-Popcorn-Cli-Id": token, "Authorization": f"Bearer {conftest.ADMIN}"}
    wanted = [checks.not_a_server_error, *(check for check in checks.CHECKS.get_all() if check.__name__ in (
        "status_code_conformance", "content_type_conformance", "response_schema_conformance"))]
    seen: list[str] = []

    def exercise(operation: object) -> None:
        @given(case=operation.as_strategy())      # type: ignore[attr-defined]
        @settings(max_examples=EXAMPLES, deadline=None, database=None, derandomize=True, phases=[Phase.generate],
                  suppress_health_check=list(HealthCheck))
        def run(case: object) -> None:
            case.call_and_validate(headers=headers, checks=wanted)      # type: ignore[attr-defined]
            seen.append(case.operation.label)                           # type: ignore[attr-defined]

        run()

    for found in schema.get_all_operations():
        exercise(found.ok())
    assert len(set(seen)) > 35, "every address of the schema"
