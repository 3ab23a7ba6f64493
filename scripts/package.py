"""`make package`: what Glue, EMR, spark-submit and Lambda are given, in dist/.

    lakeward-VERSION-py3-none-any.whl   the package; Glue installs it with its dependencies
    lakeward_job.py                     the entry script of Glue, EMR and spark-submit
    lakeward_deps.tar.gz                the package with all dependencies but pyspark, for --archives
    lakeward_lambda.zip                 the package alone, for the Lambda function

    python scripts/package.py [--output DIR] [--only wheel lambda deps]

The dependencies are those of uv.lock, each held against its hash there, for this machine's platform and Python:
build on the kind of machine that the job runs on.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PARTS = ("wheel", "lambda", "deps")
# The cluster has its own; another one beside it breaks both.
_FROM_CLUSTER = ("pyspark", "py4j")
_EXTRAS = ("aws", "diff", "keyspaces", "postgres")
# Fast, and within a few percent of the smallest: the archive is mostly shared libraries.
_COMPRESSION = 1


def main() -> None:
    options, uv = _arguments(), find_uv()
    options.output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        wheel = build_wheel(uv, Path(scratch))
        if "wheel" in options.only:
            shutil.copy(wheel, options.output)
            shutil.copy(ROOT / "scripts/lakeward_job.py", options.output)
        if "lambda" in options.only:
            write_lambda(wheel, options.output / "lakeward_lambda.zip")
        if "deps" in options.only:
            write_dependencies(uv, wheel, Path(scratch), options.output / "lakeward_deps.tar.gz")
    for file in sorted(options.output.iterdir()):
        print(f"{file.stat().st_size / 1e6:8.1f} MB  {file}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=ROOT / "dist")
    parser.add_argument("--only", nargs="+", choices=PARTS, default=PARTS)
    return parser.parse_args()


def find_uv() -> str:
    """Return the uv that setting up uses: this clone's own, else the one on the PATH."""
    own = ROOT / ".cache/uv/bin/uv"
    return str(own) if own.exists() else "uv"


def build_wheel(uv: str, folder: Path) -> Path:
    subprocess.run([uv, "build", "--quiet", "--wheel", "--out-dir", str(folder), str(ROOT)], check=True)
    [wheel] = folder.glob("*.whl")
    return wheel


def write_lambda(wheel: Path, archive: Path) -> None:
    """Put the package's own files into an archive: the handler needs nothing that Lambda does not have."""
    with zipfile.ZipFile(wheel) as source, zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            if name.startswith("lakeward/"):
                target.writestr(name, source.read(name))


def write_dependencies(uv: str, wheel: Path, scratch: Path, archive: Path) -> None:
    """Install what the lock file names, then the wheel, into a folder, and pack the folder."""
    folder, locked = scratch / "deps", scratch / "locked.txt"
    locked.write_text(locked_requirements(uv), encoding="utf-8")
    install = [uv, "pip", "install", "--quiet", "--target", str(folder), "--python", sys.executable, "--no-deps"]
    subprocess.run([*install, "--require-hashes", "--requirement", str(locked)], check=True)
    subprocess.run([*install, str(wheel)], check=True)
    with tarfile.open(archive, "w:gz", compresslevel=_COMPRESSION) as packed:
        for entry in sorted(folder.iterdir()):
            packed.add(entry, arcname=entry.name, filter=_if_needed)


def locked_requirements(uv: str) -> str:
    """Return the pinned dependencies with their hashes; fails where uv.lock does not fit pyproject.toml."""
    command = [uv, "export", "--quiet", "--locked", "--no-dev", "--no-emit-project", "--no-header", "--no-annotate"]
    command += [part for extra in _EXTRAS for part in ("--extra", extra)]
    command += [part for name in _FROM_CLUSTER for part in ("--no-emit-package", name)]
    done = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def _if_needed(entry: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out caches, programs, and the tests that libraries bring along."""
    parts = entry.name.split("/")
    return None if parts[0] == "bin" or not {"__pycache__", "tests"}.isdisjoint(parts) else entry


if __name__ == "__main__":
    main()
