"""Files of a file system by URI, on a Hadoop that is only played."""

from types import SimpleNamespace
from typing import Any

from lakeward.storage.filesystem import StoredFile
from lakeward.storage.hadoop import HadoopFileSystem


class _Path:
    def __init__(self, text: str) -> None:
        # As Hadoop writes a path without a host.
        self._text = text.replace(":///", ":/")

    def toString(self) -> str:  # noqa: N802
        return self._text

    def getFileSystem(self, _: Any) -> Any:  # noqa: N802
        return _System()


class _System:
    """One that lists files by the whole address, host and all."""

    def exists(self, _: _Path) -> bool:
        return True

    def makeQualified(self, path: _Path) -> _Path:  # noqa: N802
        return _Path(path.toString().replace("hdfs:/data", "hdfs://name:8020/data"))

    def listFiles(self, root: _Path, _: bool) -> Any:  # noqa: N802
        whole = self.makeQualified(root).toString()
        file = SimpleNamespace(
            getPath=lambda: _Path(f"{whole}/dept=1/a.parquet"), getLen=lambda: 7, getModificationTime=lambda: 5
        )
        files = [file]
        return SimpleNamespace(hasNext=lambda: bool(files), next=files.pop)


def test_files_of_a_path_without_a_host_are_named_from_its_folder() -> None:
    store = object.__new__(HadoopFileSystem)
    store._conf = None
    store._jvm = SimpleNamespace(
        org=SimpleNamespace(apache=SimpleNamespace(hadoop=SimpleNamespace(fs=SimpleNamespace(Path=_Path))))
    )
    for folder in ("hdfs:///data/x", "hdfs://name:8020/data/x"):
        assert store.files(folder) == {"dept=1/a.parquet": 7}
        assert list(store.walk(folder)) == [StoredFile("dept=1/a.parquet", 7, 5000)]
