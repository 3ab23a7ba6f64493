"""Jars: pinned, verified, fetched once; and the messages when that fails."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from lakeward.config import parse_config
from lakeward.errors import ConfigurationError
from lakeward.session import jars
from lakeward.session.jars import Jar, iceberg_runtime, required_jars, resolve_jars, s3_jars

CONTENT = b"the content of a jar"
CONFIG = parse_config({}, base=Path())
JAR = Jar("org.example:thing_2.13:1.0", len(CONTENT), hashlib.sha256(CONTENT).hexdigest())


class Resolver:
    """Replaces Spark's resolver: writes configured files, and counts."""

    def __init__(self, content: bytes | None = CONTENT) -> None:
        self.content = content
        self.calls = 0

    def __call__(self, coordinates: list[str], work: Path, *, exclude: tuple[str, ...]) -> list[Path]:
        self.calls += 1
        if self.content is None:
            return []
        other, file = work / f"org.example_a-{JAR.file_name}", work / f"org.example_{JAR.file_name}"
        other.write_bytes(b"a jar whose name ends like the requested one")
        file.write_bytes(self.content)
        return [other, file]


@pytest.fixture
def cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("LAKEWARD_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("LAKEWARD_JARS", raising=False)
    monkeypatch.setattr(jars, "required_jars", lambda config: (JAR,))
    return tmp_path / "cache"


@pytest.fixture
def resolver(cache, monkeypatch) -> Resolver:
    stand_in = Resolver()
    monkeypatch.setattr(jars, "fetch", stand_in)
    return stand_in


def test_a_jar_is_fetched_once(cache, resolver):
    assert resolve_jars(CONFIG) == resolve_jars(CONFIG) == [cache / "jars" / JAR.file_name]
    assert (cache / "jars" / JAR.file_name).read_bytes() == CONTENT
    assert resolver.calls == 1
    assert not list(cache.glob("fetch-*"))


@pytest.mark.parametrize("damaged", [CONTENT[:-1], CONTENT.upper(), b""])
def test_a_damaged_jar_in_the_cache_is_fetched_again(cache, resolver, damaged):
    (path,) = resolve_jars(CONFIG)
    path.write_bytes(damaged)
    os.utime(path, ns=(1, 1))
    assert resolve_jars(CONFIG)[0].read_bytes() == CONTENT
    assert resolver.calls == 2


def test_a_verified_jar_is_not_hashed_again(cache, resolver, monkeypatch):
    resolve_jars(CONFIG)
    monkeypatch.setattr(jars, "_defect", lambda jar, path: pytest.fail("hashed again"))
    resolve_jars(CONFIG)


@pytest.mark.parametrize(
    ("content", "problem"),
    [(CONTENT[:5], "incomplete or foreign file of 5 bytes"), (CONTENT.upper(), "checksum"), (None, "missing")],
)
def test_a_wrong_download_is_refused_and_not_kept(cache, resolver, content, problem):
    resolver.content = content
    with pytest.raises(ConfigurationError, match=problem) as refused:
        resolve_jars(CONFIG)
    assert JAR.coordinate in refused.value.message
    assert "LAKEWARD_JARS" in str(refused.value)
    assert not (cache / "jars" / JAR.file_name).exists()


def test_a_configured_folder_is_used_in_place(cache, resolver, tmp_path, monkeypatch):
    given = tmp_path / "given"
    given.mkdir()
    (given / JAR.file_name).write_bytes(CONTENT)
    monkeypatch.setenv("LAKEWARD_JARS", str(given))
    assert resolve_jars(CONFIG) == [given / JAR.file_name]
    assert resolver.calls == 0


@pytest.mark.parametrize(
    ("content", "problem"), [(None, "is missing"), (CONTENT[:5], "is an incomplete or foreign file")]
)
def test_a_configured_folder_without_the_jar_is_refused_with_file_and_coordinate(
    cache, resolver, tmp_path, monkeypatch, content, problem
):
    if content is not None:
        (tmp_path / JAR.file_name).write_bytes(content)
    monkeypatch.setenv("LAKEWARD_JARS", str(tmp_path))
    with pytest.raises(ConfigurationError, match=problem) as refused:
        resolve_jars(CONFIG)
    assert JAR.file_name in refused.value.message
    assert JAR.coordinate in refused.value.message
    assert resolver.calls == 0


def test_a_cache_that_cannot_be_written_is_named(tmp_path, cache, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("LAKEWARD_CACHE", str(tmp_path / "file"))
    with pytest.raises(ConfigurationError, match="cannot write") as refused:
        resolve_jars(CONFIG)
    assert "LAKEWARD_CACHE" in str(refused.value)


def test_the_cache_follows_the_desktop_convention(tmp_path, monkeypatch):
    monkeypatch.delenv("LAKEWARD_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert jars.cache_folder() == tmp_path / "lakeward"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert jars.cache_folder() == tmp_path / ".cache" / "lakeward"


def test_the_installed_pyspark_chooses_the_runtime():
    assert iceberg_runtime("4.1.4").file_name == "iceberg-spark-runtime-4.1_2.13-1.12.0.jar"
    assert iceberg_runtime("3.5.6").file_name == "iceberg-spark-runtime-3.5_2.12-1.12.0.jar"
    with pytest.raises(ConfigurationError, match=r"pyspark 4\.2\.0 is installed"):
        iceberg_runtime("4.2.0")


def jar_names(**settings) -> list[str]:
    return [jar.file_name.split("-")[0] for jar in required_jars(parse_config(settings, base=Path()))]


def test_only_the_sqlite_catalog_needs_the_sqlite_driver():
    assert jar_names() == ["iceberg", "sqlite"]
    assert jar_names(lake={"catalog": "hadoop://"}) == jar_names(lake={"catalog": "rest+http://host"}) == ["iceberg"]


@pytest.mark.parametrize(
    "settings",
    [
        {"lake": {"warehouse": "s3://bucket/lake"}},
        {"lake": {"catalog": "hadoop://s3a://bucket/lake"}},
        {"lake": {"catalog": "rest+http://host", "warehouse": "s3://bucket"}},
        {"lake": {"catalog": "rest+http://host", "warehouse": "prod"}, "s3": {}},
        {"lake": {"catalog": "glue://", "warehouse": "s3://bucket/lake"}},
    ],
)
def test_only_a_lake_on_s3_needs_amazons_jars(settings):
    assert {"s3", "glue", "sts", "hadoop"} <= set(jar_names(**settings))
    assert jar_names(landing="s3://bucket/landing") == ["iceberg", "sqlite"]


def test_pins_of_the_s3_jars_are_whole_and_hadoops_follows_spark():
    pinned = s3_jars("4.1.4")
    assert len({jar.file_name for jar in pinned}) == len(pinned)
    assert all(len(jar.sha256) == 64 and jar.size > 0 and jar.coordinate.count(":") == 2 for jar in pinned)
    assert {jar.coordinate for jar in pinned} - {jar.coordinate for jar in s3_jars("3.5.6")} == {
        "org.apache.hadoop:hadoop-aws:3.4.2"
    }


def test_the_set_up_fetches_what_every_kind_of_lake_needs(monkeypatch, capsys):
    requested = []
    monkeypatch.setattr(jars, "_resolve", lambda wanted: requested.extend(wanted) or [Path("/jars/a.jar")])
    jars.main()
    assert capsys.readouterr().out == "/jars/a.jar\n"
    assert {jars.SQLITE_JDBC, *s3_jars("4.1")} <= set(requested)
    monkeypatch.setattr(jars, "_resolve", lambda wanted: (_ for _ in ()).throw(ConfigurationError("no network")))
    with pytest.raises(SystemExit, match="no network"):
        jars.main()


@pytest.mark.parametrize(
    ("output", "explanation"),
    [
        (
            "Server access error at url https://x (java.net.ConnectException: Connection refused)\nException: [b]",
            "offline? (java.net.ConnectException: Connection refused)",
        ),
        ("java.net.UnknownHostException: somewhere", "offline? (unknown host somewhere)"),
        ("[FAILED     ] org.example#thing;1.0!thing.jar: (0ms)", "was incomplete ([FAILED     ] org.example#thing"),
        (
            'Exception in thread "main" java.lang.RuntimeException: [unresolved dependency: a#b;1: not found]',
            "[unresolved dependency: a#b;1: not found]",
        ),
        ("", "gave no reason"),
    ],
)
def test_the_resolvers_output_is_explained(output, explanation):
    assert explanation in jars.explain(output)


def test_the_resolver_runs_apart_from_the_users_own_spark_and_maven(tmp_path, monkeypatch):
    calls = []

    def run(command, **options):
        calls.append((command, options["env"]))
        return subprocess.CompletedProcess(command, 1, stdout="java.net.UnknownHostException: somewhere")

    monkeypatch.setenv("SPARK_HOME", "/somebody/elses/spark")
    monkeypatch.setenv("PYSPARK_SUBMIT_ARGS", "--packages other")
    monkeypatch.setattr(jars, "require_java", lambda: 17)
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ConfigurationError, match=r"cannot fetch a:b:1: .*offline"):
        jars.fetch(["a:b:1"], tmp_path, exclude=("c:d", "e:*"))
    ((command, environment),) = calls
    assert command[command.index("--exclude-packages") + 1] == "c:d,e:*"
    assert any(f"-Duser.home={tmp_path}" in argument for argument in command)
    assert f"spark.jars.ivy={tmp_path / 'ivy'}" in command
    assert environment["SPARK_HOME"].endswith("pyspark")
    assert "PYSPARK_SUBMIT_ARGS" not in environment


def test_a_resolver_that_never_answers_is_stopped(tmp_path, monkeypatch):
    def run(command, **options):
        raise subprocess.TimeoutExpired(command, options["timeout"])

    monkeypatch.setattr(jars, "require_java", lambda: 17)
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(ConfigurationError, match="no answer within"):
        jars.fetch(["a:b:1"], tmp_path)
