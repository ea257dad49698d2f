# SPDX-License-Identifier: MIT
"""``scoring.config.load``: flag > environment > file > default, each setting with its origin; every error at once."""

from __future__ import annotations

import datetime
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scoring import cli
from scoring.config import load as config
from scoring.config import schema
from scoring.config.load import ConfigError
from scoring.config.schema import Settings
from scoring.popcorn.yaml import YamlError
from scoring.popcorn.yaml import parse as parse_yaml

ROOT = Path(__file__).resolve().parents[3]


def load(tmp_path: Path, text: str = "", flags: dict[str, object] | None = None, **environment: str) -> config.Config:
    path = tmp_path / "settings.yaml"
    path.write_text(text, encoding="utf-8")
    return config.load_config(flags, str(path), environment)


def error(tmp_path: Path, text: str, flags: dict[str, object] | None = None) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, flags)
    return [line.removeprefix(f"{tmp_path / 'settings.yaml'}: ") for line in str(caught.value).splitlines()]


# Precedence ----------------------------------------------------------------------------------------------------------

def test_flag_before_environment_before_file_before_default(tmp_path):
    text, environment, flags = "backends: [rocm]", {"WARPWAVE_BACKEND": "cuda, cpu"}, {"backends": ["cpu"]}
    path = str(tmp_path / "settings.yaml")
    for loaded, value, origin in (
        (load(tmp_path), ["cpu", "cuda", "rocm"], "default"),
        (load(tmp_path, text), ["rocm"], path),
        (load(tmp_path, text, **environment), ["cuda", "cpu"], "$WARPWAVE_BACKEND"),
        (load(tmp_path, text, flags, **environment), ["cpu"], "flag"),
    ):
        assert loaded.settings.backends == value
        assert loaded.origins["backends"] == origin


def test_a_flag_changes_one_setting_of_a_section(tmp_path):
    loaded = load(tmp_path, "timing: {min_rounds: 3, seconds: 5}", {"timing.seconds": 2.5, "timing.precision": None})
    timing = loaded.settings.timing
    assert (timing.min_rounds, timing.seconds, timing.precision) == (3, 2.5, 0.01)
    assert loaded.origins["timing.seconds"] == "flag"
    assert loaded.origins["timing.min_rounds"] == str(tmp_path / "settings.yaml")
    assert loaded.origins["timing.precision"] == "default"


def test_an_empty_variable_is_none(tmp_path):
    assert load(tmp_path, "backends: [rocm]", WARPWAVE_BACKEND="").settings.backends == ["rocm"]


def test_every_leaf_has_an_origin(tmp_path):
    loaded = load(tmp_path, "gpus: {cuda: [H200]}")
    leaves = {"problems", "kernels", "backends", "gpus", "mode", "seed", "peers", "emulate", "checks",
              "schedule", "competitions", "first_look"}
    for section in ("timing", "limits", "sandbox", "paths", "serve"):
        leaves |= {f"{section}.{name}" for name in getattr(loaded.settings, section).model_dump()}
    assert set(loaded.origins) == leaves
    assert loaded.origins["gpus"] == str(tmp_path / "settings.yaml")


# Where the file and what it names are found --------------------------------------------------------------------------

def test_the_files_looked_for_in_order(tmp_path, monkeypatch):
    names = ("flag", "variable", "here", "user")
    files = {}
    for name in names:
        folder = tmp_path / name / "warpwave" if name == "user" else tmp_path / name
        folder.mkdir(parents=True)
        files[name] = folder / "config.yaml"
        files[name].write_text("")
    monkeypatch.chdir(tmp_path / "here")
    environment = {"WARPWAVE_CONFIG": str(files["variable"]), "XDG_CONFIG_HOME": str(tmp_path / "user")}
    assert config.find_config(str(files["flag"]), environment) == files["flag"]
    assert config.find_config(None, environment) == files["variable"]
    del environment["WARPWAVE_CONFIG"]
    assert config.find_config(None, environment) == files["here"]
    files["here"].unlink()
    assert config.find_config(None, environment) == files["user"]
    files["user"].unlink()
    assert config.find_config(None, environment) == ROOT / "config.yaml"


@pytest.mark.parametrize(("flag", "environment", "origin"), [
    ("/no/such/file", {}, "--config"), (None, {"WARPWAVE_CONFIG": "/no/such/file"}, "WARPWAVE_CONFIG"),
    ("/", {}, "--config"), ("~nobody-has-this-name/x", {}, "--config"),
])
def test_a_file_that_was_asked_for_must_be_there(flag, environment, origin):
    with pytest.raises(ConfigError, match=f"^{origin}: no file "):
        config.load_config(file=flag, environment=environment)


def test_no_home_is_no_error(tmp_path, monkeypatch):
    monkeypatch.setattr(Path, "expanduser", lambda self: (_ for _ in ()).throw(RuntimeError("no home")))
    monkeypatch.chdir(tmp_path)
    assert config.find_config(None, {}) == ROOT / "config.yaml"


def test_paths_are_relative_to_what_names_them(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    text = "paths: {kernels: k/kernels, report: /abs/r.html}"
    loaded = load(tmp_path, text, WARPWAVE_DB="b.db", WARPWAVE_CACHE_DIR="c")
    assert loaded.path("kernels") == tmp_path / "k" / "kernels"
    assert loaded.path("report") == Path("/abs/r.html")
    assert loaded.path("problems") == ROOT / "problems"
    assert loaded.database == tmp_path / "here" / "b.db"
    assert loaded.cache == tmp_path / "here" / "c"
    monkeypatch.setattr(config, "find_config", lambda flag, environment: None)
    alone = config.load_config(environment={"WARPWAVE_DB": "b.db"})
    assert alone.database == tmp_path / "here" / "b.db", "without any file as well"


def test_problems_may_lie_in_several_folders(tmp_path):
    loaded = load(tmp_path, "paths: {problems: [mine, /abs]}")
    assert loaded.problems == (tmp_path / "mine", Path("/abs"))
    assert loaded.path("problems") == tmp_path / "mine"
    assert load(tmp_path, "mode: test").problems == (ROOT / "problems",)
    assert "paths.problems" in error(tmp_path, "paths: {problems: []}")[0]
    assert "paths.problems" in error(tmp_path, "paths: {problems: [a, 3]}")[0]


def test_the_file_of_the_repository_is_valid():
    loaded = config.load_config(file=str(ROOT / "config.yaml"), environment={})
    assert loaded.path("problems").is_dir()
    assert loaded.path("kernels").is_dir()
    assert set(loaded.settings.gpus) == {"cpu", "cuda", "rocm"}


# Errors --------------------------------------------------------------------------------------------------------------

def test_every_error_is_reported_at_once_with_its_path(tmp_path):
    lines = error(tmp_path, """
mode: fast
seed: x
timing: {min_rounds: 0, speed: 1}
limits: 3
problems: fp8_gemm
competitions: [{leaderboard: 1, gpus: []}]
colour: red
""")
    assert {line.split(":")[0] for line in lines} == {
        "mode", "seed", "timing.min_rounds", "timing.speed", "limits", "problems", "competitions.0.leaderboard",
        "competitions.0.problem", "colour"}
    assert "colour: unknown setting; there are: problems, kernels, " in "\n".join(lines)
    assert "timing.speed: unknown setting; there are: protocol, processes" in "\n".join(lines)


@pytest.mark.parametrize(("text", "path"), [
    ("timing: {seconds: 0}", "timing.seconds"), ("timing: {seconds: .nan}", "timing.seconds"),
    ("timing: {precision: -1}", "timing.precision"), ("limits: {call_seconds: .inf}", "limits.call_seconds"),
    ("limits: {job_seconds: 1.0e+12}", "limits.job_seconds"), ("limits: {case_gflop: {cpu: -1}}", "limits.case_gflop"),
    ("limits: {case_gflop: {cpu: .nan}}", "limits.case_gflop"), ("limits: {case_gflop: {gpu: 1}}", "limits.case_gflop"),
    ("gpus: {cud: [H100]}", "gpus.cud"), ("gpus: {cuda: H100}", "gpus.cuda"), ("gpus: []", "gpus"),
    ('paths: {problems: "\\0"}', "paths.problems"), ('paths: {database: "\\ud800"}', ""),
    ("paths: {report: ''}", "paths.report"), ("timing: {protocol: graph}", "timing.protocol"), ("timing: 5", "timing"),
    ("competitions: [3]", "competitions.0"), ("timing: {1: 2}", "timing.1"),
    ("timing: {min_rounds: 30, max_rounds: 2}", "timing: min_rounds 30 is more than max_rounds 2"),
    ("timing: {min_rounds: 25}", "timing: min_rounds 25"), ("seed: yes", "seed: "), ("seed: 1.0", "seed: "),
    ("competitions: [{leaderboard: l, problem: p, gpus: [FOO]}]", "competitions.0.gpus.0: no leaderboard has"),
    ("competitions: [{leaderboard: l, problem: p, gpus: [], deadline: notadate}]", "competitions.0.deadline"),
    ("competitions: [{leaderboard: l, problem: p, gpus: [], deadline: 2025-02-30}]", "not YAML"),
])
def test_wrong_values(tmp_path, text, path):
    (line,) = error(tmp_path, text)
    assert line.startswith(path)


@pytest.mark.parametrize("day", ["2025-05-27", '"2025-05-27"'])
def test_a_deadline_is_a_day(tmp_path, day):
    loaded = load(tmp_path, f"competitions: [{{leaderboard: l, problem: p, gpus: [MI300], deadline: {day}}}]")
    assert loaded.settings.competitions[0].deadline == datetime.date(2025, 5, 27)


@pytest.mark.parametrize("text", [
    "- " * 40_000, "? " * 40_000, "[" * 40_000 + "]" * 40_000, "{a: " * 40_000 + "}" * 40_000,
    "".join(f"{' ' * depth}a:\n" for depth in range(1500)),
], ids=["markers", "keys", "lists", "mappings", "indentation"])
def test_deep_nesting_is_an_error_and_no_crash(text):
    """libyaml would overrun its stack, which no ``except`` catches."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(1000)         # Python's own; libraries that other tests import raise it
    try:
        with pytest.raises(YamlError):
            parse_yaml(text)
    finally:
        sys.setrecursionlimit(limit)


def test_ordinary_text_is_read_by_libyaml(monkeypatch):
    import yaml

    if not hasattr(yaml, "CSafeLoader"):
        pytest.skip("this PyYAML has no libyaml")
    monkeypatch.setattr(yaml.SafeLoader, "__init__", lambda self, text: pytest.fail("the slow loader was used"))
    text = (ROOT / "problems" / "fp8_gemm" / "task.yml").read_text()
    assert "tests" in parse_yaml(text)
    assert parse_yaml((ROOT / "config.yaml").read_text())


def test_locating_agrees_with_loading(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "settings.yaml"
    for text in ("", "mode: test", "paths: {kernels: k/kernels, report: /abs/r.html, cache: null}",
                 "paths: {database: d.db}"):
        path.write_text(text)
        for environment in ({}, {"WARPWAVE_DB": "b.db", "WARPWAVE_CACHE_DIR": "c"}):
            found = config.locate_files(str(path), environment)
            loaded = config.load_config(file=str(path), environment=environment)
            for name in ("problems", "kernels", "peers", "report"):
                assert found.path(name) == loaded.path(name)
            assert (found.database, found.cache) == (loaded.database, loaded.cache)


@pytest.mark.parametrize("text", [
    "paths: 3", "paths: {kernels: 3}", "paths: {kernels: k}", "paths: {kernels: null}", "paths: {speed: x}",
    "paths: {report: ''}", 'paths: {problems: "\\0"}', "mode: [",
])
def test_locating_refuses_wrong_paths_as_loading_does(tmp_path, text):
    path = tmp_path / "settings.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as whole:
        config.load_config(file=str(path), environment={})
    with pytest.raises(ConfigError) as part:
        config.locate_files(str(path), {})
    assert str(part.value) == str(whole.value)


def test_a_flag_does_not_hide_an_error_of_the_file(tmp_path):
    (line,) = error(tmp_path, "timing: 5", {"timing.seconds": 1.0})
    assert line.startswith("timing: ")


def test_a_wrong_flag_is_the_flags_fault(tmp_path):
    with pytest.raises(ConfigError, match=r"^--seconds: "):
        load(tmp_path, "timing: {seconds: 1}", {"timing.seconds": -1.0})


@pytest.mark.parametrize("text", [
    "mode: [", "\tmode: test", "!!int ''", "seed: !!timestamp ''", "seed: 2001-99-99", "!!python/object:os.system {}",
    "a: 1\n---\nb: 2", "- 1", "just words", "? [a]\n: b", "<<: 3", "yes: 1", "1: 2", "problems: !!binary 'x'",
    "seed: " + "9" * 5000, "[" * 1200, "{a: " * 1200, "&a {timing: *a}", '"\\ud800": 1', "null: {}",
], ids=lambda text: text[:24])
def test_what_is_no_mapping_of_settings(tmp_path, text):
    assert all(error(tmp_path, text))


def test_a_file_that_is_no_text(tmp_path):
    path = tmp_path / "settings.yaml"
    path.write_bytes(b"mode: \xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        config.load_config(file=str(path), environment={})


@pytest.mark.timeout(20)
def test_references_to_references_do_not_explode(tmp_path):
    text = "a0: &a0 {x: 1}\n" + "".join(
        f"a{i}: &a{i} {{{', '.join(f'k{j}: *a{i - 1}' for j in range(9))}}}\n" for i in range(1, 12))
    assert len(error(tmp_path, text)) == 12


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=80) | st.text(alphabet="ab: [],{}-&*!?|>'\"\n#%@`~0.", max_size=80))
def test_any_text_gives_settings_or_a_config_error(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_text(text, encoding="utf-8", errors="replace")
    try:
        loaded = config.load_config(file=str(path), environment={})
    except ConfigError:
        return
    assert isinstance(loaded.settings, Settings)


NAMES = st.sampled_from([
    "problems", "kernels", "backends", "gpus", "mode", "seed", "peers", "timing", "limits", "paths", "competitions",
    "min_rounds", "seconds", "case_gflop", "database", "cpu", "leaderboard", "nonsense", "", "é"])
SCALARS = (st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.dates()
           | st.sampled_from(["test", "cpu", "*", "1", "yes"]))
NESTED = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(NAMES | st.integers(), inner, max_size=4),
    max_leaves=12)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(NAMES, NESTED, max_size=6))
def test_any_structure_gives_settings_or_a_config_error(tmp_path_factory, values):
    import yaml

    path = tmp_path_factory.getbasetemp() / "fuzz.yaml"
    path.write_text(yaml.safe_dump(values, allow_unicode=True), encoding="utf-8", errors="backslashreplace")
    try:
        loaded = config.load_config(file=str(path), environment={})
    except ConfigError:
        return
    for name in ("problems", "kernels", "peers", "report"):
        assert isinstance(loaded.path(name), Path)
    assert isinstance(loaded.database, Path)
    assert isinstance(loaded.cache, Path)


def test_the_checkouts_file_shows_every_default_as_it_is():
    """Defaults stand in the code alone; the file repeats them in comments, and may not say others."""
    text = (ROOT / "config.yaml").read_text()
    set_here = parse_yaml(text)
    shown = parse_yaml("\n".join(line.removeprefix("#: ") for line in text.splitlines() if line.startswith("#: ")))
    defaults = Settings().model_dump()
    assert set(set_here) == {"competitions"}, "a default that is set is a second place for it"
    assert set(shown) == set(defaults) - {"paths", "competitions"}
    for name, value in shown.items():
        assert value == defaults[name], name


def test_the_names_that_are_known_without_pydantic_are_those_of_the_schema():
    assert set(config.KNOWN[""]) == set(schema.Settings.model_fields)
    sections = {name: tuple(section.model_fields) for name, section in schema.SECTIONS.items()}
    assert {name: set(fields) for name, fields in sections.items()} == {
        name: set(fields) for name, fields in config.KNOWN.items() if name}


@pytest.mark.parametrize("verb", ["list", "leaderboard", "report", "doctor", "run", "build"])
@pytest.mark.parametrize("text", ["proglems: [x]\n", "timing: {second: 1}\n", "competitions: [{leaderbord: x}]\n"])
def test_every_verb_refuses_a_setting_that_does_not_exist(tmp_path, capsys, verb, text):
    (tmp_path / "config.yaml").write_text(text)
    assert cli.main(["--config", str(tmp_path / "config.yaml"), verb]) == 2
    assert "unknown setting; there are:" in capsys.readouterr().err
