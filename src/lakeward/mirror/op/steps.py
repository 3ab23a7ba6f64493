"""The named steps of work on a table: shown as progress, and the points at which tests inject crashes.

The value of a step is passed to ``on_step`` callbacks and appears in the log.
"""

from __future__ import annotations

from enum import StrEnum


class Step(StrEnum):
    """A step that was just completed, named after the work it belongs to and what has been done."""

    CHOOSE_PROGRESS = "choose.progress"
    CHOOSE_FILES = "choose.files"

    CHECK_READ = "check.read"
    CHECK_FOLD = "check.fold"

    LOG_TABLES = "log.tables"
    LOG_BRANCH = "log.branch"
    LOG_APPEND = "log.append"
    LOG_PUBLISH = "log.publish"
    LOG_DROP = "log.drop"
    LOG_LEDGER = "log.ledger"

    LOAD_BRANCH = "load.branch"
    LOAD_DELETE = "load.delete"
    LOAD_APPEND = "load.append"
    LOAD_PUBLISH = "load.publish"

    APPLY_BRANCH = "apply.branch"
    APPLY_DELETE = "apply.delete"
    APPLY_APPEND = "apply.append"
    APPLY_PUBLISH = "apply.publish"
    APPLY_DROP = "apply.drop"
    APPLY_DONE = "apply.done"

    UNDO_DECIDED = "undo.decided"
    UNDO_LOADS = "undo.loads"

    RESET_BEGUN = "reset.begun"
    RESET_READ = "reset.read"
    RESET_LOGGED = "reset.logged"
    RESET_PUBLISHED = "reset.published"

    ERASE_BEGUN = "erase.begun"
    ERASE_RULED = "erase.ruled"
    ERASE_NOTED = "erase.noted"
    ERASE_CHANGELOG = "erase.changelog"
    ERASE_REWRITTEN = "erase.rewritten"
    ERASE_REFERENCES = "erase.references"
    ERASE_MAIN = "erase.main"
    ERASE_EXPIRED = "erase.expired"
    ERASE_HISTORY = "erase.history"
    ERASE_REBUILT = "erase.rebuilt"
    ERASE_PUBLICATIONS = "erase.publications"
    ERASE_TIDIED = "erase.tidied"
    ERASE_ANNOUNCED = "erase.announced"
    ERASE_REPLACED = "erase.replaced"
    ERASE_LANDING = "erase.landing"
    ERASE_DONE = "erase.done"

    REPAIR_COMPARED = "repair.compared"
    REPAIR_LOGGED = "repair.logged"
    REPAIR_APPLIED = "repair.applied"

    REMOVE_MARKED = "remove.marked"
    REMOVE_UNREGISTERED = "remove.unregistered"
    REMOVE_VERSIONS = "remove.versions"
    REMOVE_EMPTIED = "remove.emptied"
    REMOVE_DROPPED = "remove.dropped"

    RENAME_MARKED = "rename.marked"
    RENAME_MOVED = "rename.moved"
    RENAME_REGISTERED = "rename.registered"

    MAINTAIN_PLAN = "maintain.plan"
    MAINTAIN_BRANCH = "maintain.branch"
    MAINTAIN_WRITE = "maintain.write"
    MAINTAIN_COMMIT = "maintain.commit"
    MAINTAIN_VERIFY = "maintain.verify"
    MAINTAIN_PUBLISH = "maintain.publish"
    MAINTAIN_LEDGER = "maintain.ledger"
    MAINTAIN_TAGS = "maintain.tags"
    MAINTAIN_STAMP = "maintain.stamp"
    MAINTAIN_EXPIRE = "maintain.expire"
    MAINTAIN_ORPHANS = "maintain.orphans"
    MAINTAIN_RECORD = "maintain.record"

    PUBLISH_ROWS = "publish.rows"
    PUBLISH_WRITTEN = "publish.written"
    PUBLISH_STAGED = "publish.staged"
    PUBLISH_RECORDED = "publish.recorded"
    PUBLISH_ASIDE = "publish.aside"
    PUBLISH_MOVED = "publish.moved"
    PUBLISH_REGISTERED = "publish.registered"
    PUBLISH_BRANCH = "publish.branch"
    PUBLISH_TAGGED = "publish.tagged"
    PUBLISH_UNTAGGED = "publish.untagged"
    PUBLISH_REMOVED = "publish.removed"
    PUBLISH_FORGOTTEN = "publish.forgotten"
    PUBLISH_DATES = "publish.dates"
    PUBLISH_PLACED = "publish.placed"
    PUBLISH_FLIPPED = "publish.flipped"
    PUBLISH_NOTED = "publish.noted"
    PUBLISH_LISTED = "publish.listed"
    PUBLISH_UNLISTED = "publish.unlisted"

    POINT_MARKED = "point.marked"

    SCD2_TABLES = "scd2.tables"
    SCD2_BRANCH = "scd2.branch"
    SCD2_DELETE = "scd2.delete"
    SCD2_APPEND = "scd2.append"
    SCD2_PUBLISH = "scd2.publish"

    @property
    def family(self) -> str:
        """The work that the step belongs to, such as ``log`` or ``erase``."""
        return self.value.partition(".")[0]

    @property
    def work_after(self) -> str | None:
        """The work that follows, for the Spark UI and for progress; None where the same work continues."""
        return _WORK_AFTER.get(self)

    @property
    def is_logged(self) -> bool:
        """Whether the log shows the step: a line for every step would bury the rest."""
        return self in _LOGGED


_WORK_AFTER = {
    Step.CHOOSE_PROGRESS: "listing files",
    Step.CHOOSE_FILES: "reading files",
    Step.CHECK_READ: "folding changes",
    Step.CHECK_FOLD: "writing changelog",
    Step.LOG_TABLES: "writing changelog",
    Step.LOG_PUBLISH: "logged, writing mirror",
    Step.LOG_LEDGER: "writing mirror",
    Step.APPLY_PUBLISH: "published",
    Step.LOAD_PUBLISH: "writing mirror",
    Step.UNDO_DECIDED: "writing changelog",
    Step.UNDO_LOADS: "writing mirror",
    Step.RESET_BEGUN: "reading files again",
    Step.RESET_READ: "publishing",
    Step.RESET_PUBLISHED: "published",
    Step.MAINTAIN_BRANCH: "rewriting files",
    Step.MAINTAIN_WRITE: "comparing rewritten files",
    Step.MAINTAIN_PUBLISH: "rewritten",
    Step.MAINTAIN_TAGS: "removing old snapshots",
    Step.MAINTAIN_EXPIRE: "removed old snapshots",
    Step.PUBLISH_ROWS: "writing files",
    Step.PUBLISH_MOVED: "published",
    Step.SCD2_TABLES: "computing versions",
    Step.SCD2_BRANCH: "writing versions",
    Step.SCD2_PUBLISH: "published",
}
_LOGGED = frozenset({Step.CHECK_READ, Step.LOG_PUBLISH, Step.PUBLISH_ROWS, Step.MAINTAIN_BRANCH, Step.MAINTAIN_TAGS})
