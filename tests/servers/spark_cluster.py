"""A Spark standalone cluster on this machine: one master and some workers, each a separate process."""

from __future__ import annotations

import os
import re
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pyspark

from tests.servers.process import free_ports, running

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Iterator

_HOST = "127.0.0.1"
_MASTER, _WORKER = "org.apache.spark.deploy.master.Master", "org.apache.spark.deploy.worker.Worker"


class Cluster:
    """A master's address, and workers that can be started and killed."""

    def __init__(self, master: str, folder: Path, stack: ExitStack) -> None:
        self.master = master
        self._folder = folder
        self._stack = stack
        self._started = 0

    def start_worker(self) -> int:
        """Start one more worker; give its process id."""
        self._started += 1
        name = f"worker-{self._started}"
        own = ["-c", "1", "-m", "1g", "--host", _HOST, "-d", str(self._folder / name), self.master]
        log = self._folder / f"{name}.log"
        return self._stack.enter_context(_process(_WORKER, own, log, sign="Successfully registered")).pid

    def settings(self) -> dict[str, object]:
        """Return the ``spark:`` block of a configuration that runs on this cluster."""
        conf = {
            "spark.driver.host": _HOST,
            "spark.driver.bindAddress": _HOST,
            "spark.driver.memory": "1g",
            "spark.executor.memory": "600m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": os.environ["SPARK_SUBMIT_OPTS"],
            "spark.sql.shuffle.partitions": "2",
            "spark.pyspark.python": sys.executable,
            # A killed worker shall be missed soon, and the tasks it had go to the other one; one that is only starved
            # shall not.
            "spark.network.timeout": "60s",
            "spark.network.timeoutInterval": "5s",
            "spark.executor.heartbeatInterval": "2s",
        }
        return {"master": self.master, "conf": conf}


@contextmanager
def spark_cluster(folder: Path) -> Iterator[Cluster]:
    """Run a master for the time of a ``with`` block, and the workers that are started in it."""
    port, page = free_ports(2)
    address = f"spark://{_HOST}:{port}"
    master = ["--host", _HOST, "--port", str(port), "--webui-port", str(page)]
    with ExitStack() as stack:
        log = folder / "master.log"
        stack.enter_context(_process(_MASTER, master, log, sign="I have been elected leader"))
        yield Cluster(address, folder, stack)


@contextmanager
def _process(name: str, arguments: list[str], log: Path, *, sign: str) -> Iterator[subprocess.Popen[bytes]]:
    home = Path(pyspark.__file__).parent

    def works() -> None:
        if not re.search(sign, log.read_text(errors="replace")):
            msg = f"{name} has not printed: {sign}"
            raise AssertionError(msg)

    command = [str(home / "bin" / "spark-class"), name, *arguments]
    environment = {**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": _HOST, "PYSPARK_PYTHON": sys.executable}
    with running(command, log, works=works, env=environment) as process:
        try:
            yield process
        finally:
            kill_tree(process.pid)


def kill_tree(pid: int) -> None:
    """Kill a worker and its executors as a lost machine loses them: without a word."""
    try:
        process = psutil.Process(pid)
        processes = [process, *process.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for found in processes:
        try:
            found.kill()
        except psutil.NoSuchProcess:
            continue
