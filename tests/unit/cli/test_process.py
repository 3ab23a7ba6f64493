"""Standard output holds results alone, and signals end the command cleanly."""

import os
import signal
import subprocess
import sys

NOISY = """
import os, subprocess, sys
from lakeward.cli.process import reserve_stdout
reserve_stdout()
subprocess.run([sys.executable, "-c", "print('noise of a child')"], check=True)
os.write(1, b"noise of a library\\n")
print("the result")
"""
WAITING = """
import signal, sys, time
# Tests may run where Ctrl-C is ignored, as behind nohup.
signal.signal(signal.SIGINT, signal.default_int_handler)
from lakeward import Lakeward
from lakeward.cli import main
def wait(self, *arguments):
    print("waiting", file=sys.stderr, flush=True)
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        {reaction}
Lakeward.status = wait
sys.argv = ["lakeward", "status"]
main.main()
"""


def test_only_results_reach_standard_output():
    done = subprocess.run([sys.executable, "-c", NOISY], capture_output=True, text=True, check=True)
    assert done.stdout == "the result\n"
    assert "noise of a child" in done.stderr
    assert "noise of a library" in done.stderr


def test_a_closed_reader_is_not_an_error(project):
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run(
        [sys.executable, "-m", "lakeward.cli.main", "tables", "list"], stdout=write, stderr=subprocess.PIPE, text=True,
        check=False,
    )  # fmt: skip
    os.close(write)
    assert (done.returncode, done.stderr) == (0, "")


def _interrupted(number: int, reaction: str) -> subprocess.CompletedProcess[str]:
    script = WAITING.format(reaction=reaction)
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == "waiting\n"
        process.send_signal(number)
        out, err = process.communicate(timeout=300)
    return subprocess.CompletedProcess([], process.returncode, out, err)


def test_sigterm_and_ctrl_c_end_with_130(project):
    for number in (signal.SIGTERM, signal.SIGINT):
        done = _interrupted(number, "raise")
        assert done.returncode == 130
        assert done.stderr.strip().startswith("error: interrupted")
        assert "Traceback" not in done.stderr


def test_an_interrupt_that_surfaces_as_another_error_is_still_an_interrupt(project):
    done = _interrupted(signal.SIGTERM, "raise ConnectionError('answer from Java side is empty')")
    assert done.returncode == 130
    assert "bug" not in done.stderr
