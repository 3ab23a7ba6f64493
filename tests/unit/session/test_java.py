"""Java is found as Spark finds it, and refused with the name of the package."""

import pytest

from lakeward.errors import ConfigurationError
from lakeward.session.launching import JAVA_PACKAGE, major_version, require_java


def install_java(folder, text):
    program = folder / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\necho '{text}' >&2\n")
    program.chmod(0o755)


@pytest.mark.parametrize(
    ("output", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('java version "1.8.0_292"', 8),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=1\nopenjdk version "21" 2023-09-19', 21),
        ("sh: java: not found", None),
    ],
)
def test_major_version(output, version):
    assert major_version(output) == version


def test_java_home_comes_before_the_path(tmp_path, monkeypatch):
    install_java(tmp_path / "home", 'openjdk version "21.0.1"')
    install_java(tmp_path / "path", 'openjdk version "17.0.1"')
    monkeypatch.setenv("PATH", f"{tmp_path}/path/bin:/usr/bin:/bin")
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert require_java() == 21
    monkeypatch.delenv("JAVA_HOME")
    assert require_java() == 17


@pytest.mark.parametrize(
    ("text", "problem"), [('java version "1.8.0"', "is Java 8"), ("nonsense", "does not report its version")]
)
def test_java_that_is_too_old_is_refused(tmp_path, monkeypatch, text, problem):
    install_java(tmp_path, text)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=problem) as refused:
        require_java()
    assert JAVA_PACKAGE in str(refused.value)


def test_no_java_is_refused_with_the_package(tmp_path, monkeypatch):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError, match="no java on the PATH") as refused:
        require_java()
    assert JAVA_PACKAGE in str(refused.value)


def test_a_java_home_without_java_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match="cannot be started"):
        require_java()
