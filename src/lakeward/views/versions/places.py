"""What readers of a table's current state open: one place that stays, whichever version is behind it.

Below the folder ``to`` of a publication::

    sales.product/_current.json                 the pointer: which version is current, written last
    sales.product/current                       on a local disk: a link to that version
    sales.product/_symlink_format_manifest/     elsewhere: the URIs of its files, for Athena, Trino and Hive
    sales.product/final.csv                     with ``single_file``, instead of the link and the manifests: the file
    _lakeward_versions/sales.product/version=…  the versions

Versions are not below the folder that readers scan: not every reader passes over names that begin with ``_``.
"""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from lakeward.documents import Record
from lakeward.errors import ConfigurationError
from lakeward.logs import event
from lakeward.storage.publish import not_as_written
from lakeward.views.versions.folders import VERSION_PREFIX, VersionPlace

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    from lakeward.storage.filesystem import FileSystem
    from lakeward.views.versions.layouts import FileShape
    from lakeward.views.versions.manifest import Manifest

logger = logging.getLogger(__name__)
POINTER, LINK, SYMLINKS = "_current.json", "current", "_symlink_format_manifest"
VERSIONS = "_lakeward_versions"
_SYMLINK_FILE = "manifest"


@dataclass(frozen=True)
class Pointer(
    Record,
    if_set=("location", "file", "digest", "registered", "symlinks", "mirror_uuid"),
    ignores_unknown=True,
):
    """The document that names the current version: ``path`` from the table's folder, ``location`` as an address.

    ``file`` is the single file and ``digest`` its content, ``registered`` the external table, ``symlinks`` whether
    there are symlink manifests. ``mirror_uuid`` is the permanent id of the table's mirror, which former ones lack.
    """

    table: str
    version: str
    path: str = ""
    location: str | None = None
    file: str | None = None
    digest: str | None = None
    registered: str | None = None
    symlinks: bool | None = None
    op: int = 0
    rows: int = 0
    content_hash: str = ""
    created: str = ""
    mirror_uuid: str | None = None


@dataclass(frozen=True)
class CopyPlace:
    """The places of the copy of one table's current state below the folder ``to``.

    ``mirror_uuid`` is the permanent id of the table's mirror: it proves whose the copy is, if it is given.
    """

    store: FileSystem
    to: str
    table: str
    mirror_uuid: str = ""

    @classmethod
    def of(cls, store: FileSystem, location: str, mirror_uuid: str = "") -> CopyPlace:
        """Return the place of a copy by the folder of one of its versions, also one of the former layout."""
        parent = location.rpartition("/")[0]
        to, _, table = parent.rpartition("/")
        return cls(store, to.removesuffix(f"/{VERSIONS}"), table, mirror_uuid)

    @property
    def root(self) -> str:
        """The folder that readers are given."""
        return f"{self.to}/{self.table}"

    @property
    def versions(self) -> str:
        """The folder of the versions."""
        return f"{self.to}/{VERSIONS}/{self.table}"

    @property
    def examples(self) -> tuple[str, str]:
        """Folders as those of versions are, of the present layout and the former one."""
        return f"{self.versions}/{VERSION_PREFIX}", f"{self.root}/{VERSION_PREFIX}"

    def version(self, name: str) -> VersionPlace:
        """Return the place of a version."""
        return VersionPlace(self.store, self.versions, name)

    def path_of(self, place: VersionPlace) -> str:
        """Return the path from the folder of readers to a version."""
        return f"../{VERSIONS}/{self.table}/{place.name}"

    def holds(self, location: str) -> bool:
        """Whether a version is one of this copy, of the present layout or the former one."""
        return location.rpartition("/")[0] in (self.root, self.versions)

    def is_former_layout(self, location: str) -> bool:
        """Whether a version lies in the folder that readers scan, as all did formerly."""
        return location.rpartition("/")[0] == self.root

    def pointer(self) -> Pointer | None:
        """Return the pointer, None where there is none or it cannot be read."""
        try:
            return self.own_pointer()
        except ConfigurationError:
            return None

    def own_pointer(self) -> Pointer | None:
        """Return the pointer, None where there is none.

        Raises:
            ConfigurationError: something else has its name, or it is that of another lake's table.
        """
        path = f"{self.root}/{POINTER}"
        text = self.store.read_text(path)
        if text is None:
            return None
        try:
            found = Pointer.from_dict(json.loads(text))
        except (ValueError, RecursionError):
            found = None
        owner = self._owner_of(found) if found is not None and self.mirror_uuid else None
        if found is None or (found.table != self.table and owner is None):
            msg = f"{path} exists and does not point to a version of {self.table}: it is not replaced"
            raise ConfigurationError(msg, hint="inspect it, and move it elsewhere, or publish to another folder")
        if owner is not None and owner != self.mirror_uuid:
            msg = (
                f"{path} points to a version of another table of the name {found.table}, made from {owner}; "
                f"expected one made from {self.mirror_uuid}: it is not replaced"
            )
            raise ConfigurationError(msg, hint="publish to another folder: two lakes cannot share one (publish: to:)")
        return found

    def _owner_of(self, pointer: Pointer) -> str | None:
        """Return the id of the mirror whose version a pointer names; None where neither it nor the version has one."""
        if pointer.mirror_uuid is not None:
            return pointer.mirror_uuid
        root = self.versions if pointer.path.startswith("..") else self.root
        manifest = VersionPlace(self.store, root, pointer.version).manifest()
        return manifest.lineage.mirror_uuid if manifest is not None else None

    def write_pointer(self, pointer: Pointer) -> None:
        """Write the pointer."""
        text = json.dumps(pointer.to_dict(), ensure_ascii=False, indent=2) + "\n"
        self.store.write_text(f"{self.root}/{POINTER}", text)


def require_free_names(copy: CopyPlace, shape: FileShape, pointer: Pointer | None, digests: Collection[str]) -> None:
    """Refuse to replace what Lakeward did not write: the single file, or symlink manifests.

    ``digests`` are the contents that Lakeward gave the single file. The link is looked at when it is switched.

    Raises:
        ConfigurationError: a name is taken.
    """
    store = copy.store
    if shape.single_file:
        path = f"{copy.root}/{shape.single_file}"
        found = store.digest(path)
        if found is not None and found not in digests:
            msg = f"{path} exists, and its content is not what Lakeward wrote there: it is not replaced"
            raise ConfigurationError(msg, hint="inspect it, and move it elsewhere or choose another single_file:")
    elif not store.can_point and not (pointer and pointer.symlinks):
        for path in store.files(f"{copy.root}/{SYMLINKS}"):
            if not _is_own_list(copy, store.read_text(f"{copy.root}/{SYMLINKS}/{path}")):
                msg = f"{copy.root}/{SYMLINKS}/{path} exists and lists no version of {copy.table}: it is not replaced"
                raise ConfigurationError(msg, hint="move it elsewhere, or publish to another folder")


def retire_unpointed(
    copy: CopyPlace, manifests: Iterable[Manifest], pointer: Pointer | None, *, wanted: str = ""
) -> None:
    """Remove the single files, except that of the ``wanted`` name, that a crash left before the pointer was written.

    Only the manifest of their version shows that they are Lakeward's: the caller replaces or removes it afterwards.
    """
    for manifest in manifests:
        file, digest = manifest.single_file, manifest.digest
        is_pointed = pointer is not None and (pointer.file, pointer.digest) == (file, digest)
        if not file or digest is None or file == wanted or is_pointed:
            continue
        if copy.store.digest(f"{copy.root}/{file}") == digest:
            copy.store.remove(copy.root, [file])


def place_version(
    copy: CopyPlace, place: VersionPlace, manifest: Manifest, pointer: Pointer | None, known: Collection[str] = ()
) -> None:
    """Make a version visible to readers: by the link, by symlink manifests, or as the single file.

    ``known`` are the locations of recorded versions. The names of a former kind go first: for a moment there is
    nothing, but never the same rows twice.
    """
    file = manifest.single_file or ""
    if pointer is not None and pointer.file and pointer.file != file:
        _retire_file(copy, pointer)
    if file:
        _retire_link(copy, pointer, known)
        (written,) = manifest.files
        copy.store.put(f"{place.folder}/{written}", f"{copy.root}/{file}")
    elif copy.store.can_point:
        copy.store.point(copy.root, LINK, copy.path_of(place), partial(_is_own_link, copy, pointer, known))
    else:
        _write_symlinks(
            copy, symlink_manifests(place.folder, manifest.files, partitioned=bool(manifest.folder_columns))
        )


def misplaced(copy: CopyPlace, place: VersionPlace, manifest: Manifest) -> str | None:
    """Return why readers do not find the newest version at its place; None where they do."""
    if manifest.single_file:
        path = f"{copy.root}/{manifest.single_file}"
        found = copy.store.files(path).get("")
        is_there = [found] == list(manifest.files.values())
        return None if is_there else f"{path} is missing or not as it was written"
    if copy.store.can_point and copy.store.pointed(copy.root, LINK) not in (copy.path_of(place), place.name):
        return f"{copy.root}/{LINK} does not lead to it"
    return None


def is_as_written(place: VersionPlace, manifest: Manifest) -> bool:
    """Whether a version's files have their sizes, and a single file its content.

    On a disk the single file and that of its version are links to one file: whoever edits one edits both.
    """
    if not_as_written(manifest.files, place.store.files(place.folder)) is not None:
        return False
    return not manifest.single_file or all(
        place.store.digest(f"{place.folder}/{path}") == manifest.digest for path in manifest.files
    )


def symlink_manifests(folder: str, files: Iterable[str], *, partitioned: bool) -> dict[str, str]:
    """Return the symlink manifests of a version: path to text, one for each folder with rows, or a single one."""
    base = f"s3://{folder.removeprefix('s3a://')}" if folder.startswith("s3a://") else folder
    listed: dict[str, list[str]] = {} if partitioned else {_SYMLINK_FILE: []}
    for path in sorted(files):
        inner = f"{path.rpartition('/')[0]}/" if partitioned else ""
        listed.setdefault(f"{inner}{_SYMLINK_FILE}", []).append(f"{base}/{path}")
    return {path: "".join(f"{uri}\n" for uri in uris) for path, uris in listed.items()}


def _write_symlinks(copy: CopyPlace, wanted: Mapping[str, str]) -> None:
    """Replace the symlink manifests one after the other, then remove those of folders that are gone."""
    folder = f"{copy.root}/{SYMLINKS}"
    former = copy.store.files(folder)
    for path, text in wanted.items():
        copy.store.write_text(f"{folder}/{path}", text)
    gone = [path for path in former if path not in wanted and path.rpartition("/")[2] == _SYMLINK_FILE]
    copy.store.remove(folder, gone)


def _is_own_list(copy: CopyPlace, text: str | None) -> bool:
    """Whether a symlink manifest lists versions of this copy only; what it lists may be gone."""
    begins = tuple(symlink_manifests(copy.versions, [VERSION_PREFIX], partitioned=False)[_SYMLINK_FILE].splitlines())
    return all(line.startswith(begins) for line in (text or "").splitlines())


def withdraw(copy: CopyPlace, pointer: Pointer | None, known: Collection[str] = ()) -> None:
    """Remove what readers open: the single file, the link or the symlink manifests, and at last the pointer.

    ``known`` are the locations of recorded versions.
    """
    if pointer is not None and pointer.file:
        _retire_file(copy, pointer)
    _retire_link(copy, pointer, known)
    if pointer is not None:
        copy.store.remove(copy.root, [POINTER])


def _retire_file(copy: CopyPlace, pointer: Pointer) -> None:
    """Remove the single file of former settings; one that was replaced since stays."""
    path = f"{copy.root}/{pointer.file}"
    found = copy.store.digest(path)
    if found is not None and found != pointer.digest:
        text = "%s is no longer published, and its content is not what Lakeward wrote there: it was left"
        logger.warning(text, path, extra=event("publish.left"))
        return
    copy.store.remove(copy.root, [str(pointer.file)])


def _is_own_link(copy: CopyPlace, pointer: Pointer | None, known: Collection[str], target: str) -> bool:
    """Whether a link leads to a version of this copy, in the former layout to one that is recorded."""
    begin = f"../{VERSIONS}/{copy.table}/{VERSION_PREFIX}"
    if target.startswith(begin):
        return "/" not in target.removeprefix(begin)
    is_pointed = pointer is not None and pointer.path == target and target.startswith(VERSION_PREFIX)
    return is_pointed or f"{copy.root}/{target}" in known


def _retire_link(copy: CopyPlace, pointer: Pointer | None, known: Collection[str]) -> None:
    """Remove the link or the symlink manifests of former settings."""
    target = copy.store.pointed(copy.root, LINK)
    if target is not None and _is_own_link(copy, pointer, known, target):
        copy.store.remove(copy.root, [LINK])
    if pointer is not None and pointer.symlinks:
        _write_symlinks(copy, {})
