"""`make package`: what it makes is whole, and its content imports where nothing else is installed."""

import importlib.util
import re
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EVERYTHING = """
import sys
sys.path[:0] = sys.argv[1:]
import importlib, pkgutil, lakeward
for module in pkgutil.walk_packages(lakeward.__path__, "lakeward."):
    if not module.name.startswith("lakeward.testing") and not module.name.endswith("__main__"):
        importlib.import_module(module.name)
import boto3, psycopg
print(lakeward.__file__)
"""


def package(folder: Path, *parts: str) -> None:
    command = [sys.executable, "scripts/package.py", "--output", str(folder), "--only", *parts]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode and "Failed to fetch" in done.stderr:
        pytest.skip("the package index is out of reach")
    assert done.returncode == 0, done.stderr


def bare_python(script: str, *arguments: str) -> str:
    """Run a script by the interpreter without its environment's packages."""
    command = [sys._base_executable, "-I", "-S", "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_wheel_the_script_and_the_function(tmp_path):
    package(tmp_path, "wheel", "lambda")
    [wheel] = tmp_path.glob("lakeward-*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as content:
        [points] = [name for name in content.namelist() if name.endswith("entry_points.txt")]
        assert "lakeward-job = lakeward.aws.job:main" in content.read(points).decode()
    assert "lakeward.aws.job" in (tmp_path / "lakeward_job.py").read_text()
    # From the archive alone, as Lambda has nothing else but boto3.
    script = (
        "import sys; sys.path.insert(0, sys.argv[1]); import lakeward.aws.lambda_handler as one; print(one.handler)"
    )
    assert "function handler" in bare_python(script, str(tmp_path / "lakeward_lambda.zip"))


def test_dependencies_are_those_of_the_lock_file_each_with_its_hash():
    spec = importlib.util.spec_from_file_location("package_script", ROOT / "scripts/package.py")
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    entries = script.locked_requirements(script.find_uv()).replace("\\\n", " ").splitlines()
    assert all(re.match(r"[\w.-]+(\[\w,]+\])?==\S+.*--hash=sha256:", entry) for entry in entries), entries
    found = {re.split(r"[=\[]", entry)[0] for entry in entries}
    assert found >= {"pyarrow", "boto3", "psycopg", "duckdb"} and found.isdisjoint(
        {"pyspark", "py4j", "lakeward", "pytest"}
    )


@pytest.mark.slow
def test_the_dependencies_archive_imports_beside_a_clusters_spark(tmp_path):
    package(tmp_path, "deps")
    with tarfile.open(tmp_path / "lakeward_deps.tar.gz") as archive:
        # The archive was built above, so that its names need no filter; Debian 12's Python has no argument for it.
        archive.extractall(tmp_path / "deps", **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    assert not (tmp_path / "deps/pyspark").exists()
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    for name in ("pyspark", "py4j"):
        found = importlib.util.find_spec(name)
        assert found is not None and found.origin is not None
        (cluster / name).symlink_to(Path(found.origin).parent)
    assert bare_python(EVERYTHING, str(tmp_path / "deps"), str(cluster)).startswith(str(tmp_path))
