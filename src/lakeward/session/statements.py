"""Running statements that only read the lake, and refusing all others, by the plan that Spark makes of them.

A query is analysed, which runs nothing, and its plan is checked node by node: it may read only tables of the lake and
call only Spark's own functions. ``text.`/etc/passwd` `` is a file, ``reflect(…)`` calls any method of the JVM,
``TRANSFORM`` starts a program, and each may be hidden in a subquery, a view or an option. Unknown nodes are refused,
since a new version of Spark may add new ways to leave the lake.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from pyspark.errors import ParseException

from lakeward.errors import ConfigurationError
from lakeward.session.catalog import CATALOG_NAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

# Commands that only show something, or change only the session.
_HARMLESS = re.compile(r"Show\w+|Describe\w+|SetCatalogAndNamespace")
_WITH_STATEMENT = {"ExplainCommand": "logicalPlan", "DescribeQueryCommand": "plan"}
# These run during their analysis, and so even when they are only explained.
_RUN_AT_ONCE = re.compile(r"Call|\w*ExecuteImmediate\w*|Compound\w+")
# Spark replaces ${env:NAME}, ${system:name} and ${spark.setting} before it parses a statement.
_VARIABLE = re.compile(r"\$\{(?:\w+?:)?\S+?\}")

# The attributes of a parsed command's nodes that hold the names of objects.
_NAMES = {
    "UnresolvedFunctionName": "multipartIdentifier", "UnresolvedIdentifier": "nameParts",
    "UnresolvedNamespace": "multipartIdentifier", "UnresolvedTable": "multipartIdentifier",
    "UnresolvedTableOrView": "multipartIdentifier", "UnresolvedView": "multipartIdentifier",
}  # fmt: skip
_RELATION = "DataSourceV2Relation"
_PLANS = {
    "Aggregate", "AsOfJoin", "CTERelationDef", "CTERelationRef", "Deduplicate", "Distinct", "EmptyRelation", "Except",
    "Expand", "Filter", "Generate", "GlobalLimit", "Intersect", "Join", "LateralJoin", "LimitAll", "LocalLimit",
    "LocalRelation", "Offset", "OneRowRelation", "PipeOperator", "Pivot", "Project", "Range", "RebalancePartitions",
    "Repartition", "RepartitionByExpression", "ResolvedHint", "Sample", "Sort", "Subquery", "SubqueryAlias", "Tail",
    "Transpose", "Union", "UnionLoop", "UnionLoopRef", "Unpivot", "View", "Window", "WithCTE", "WithWindowDefinition",
    _RELATION,
}  # fmt: skip
_FUNCTIONS = "org.apache.spark.sql.catalyst.expressions."
_LEAVES = {"AttributeReference", "Literal", "OuterReference"}
# Functions that call methods, run code of users, or read a file that one of their arguments names.
_UNSAFE = re.compile(r"\w*(?:Reflect|Python|Pandas|UDF|UDAF|UDTF|Scala|Hive|Avro|Protobuf)\w*")
_FILE_OPTION = re.compile(r"(?i)rowValidationXSDPath|\w*SchemaUrl|\w*DescFilePath")
_HINT = 'lakeward sql --allow-writes "…"   (with it nothing is checked)'


def read_only(spark: SparkSession, query: str) -> DataFrame:
    """Run a statement that only reads the lake: a foreign row in a mirror would never be removed.

    Spark runs commands immediately, some even during their analysis; so they are checked as parsed, not as analysed.

    Raises:
        ConfigurationError: it is neither a query nor a command that only shows something, or it reads or calls
            anything but tables of the lake and Spark's own functions.
    """
    _refuse_variables(spark, query)
    if not _is_query(spark, query):
        _require_harmless(spark, query)
        return spark.sql(query)
    frame = spark.sql(query)
    _require_lake(frame._jdf.queryExecution().analyzed())
    return frame


def _refuse_variables(spark: SparkSession, query: str) -> None:
    if spark.conf.get("spark.sql.variable.substitute", "true") == "true" and _VARIABLE.search(query):
        msg = "the query contains ${…}, which Spark replaces by a setting or an environment variable"
        raise ConfigurationError(msg, hint="write '$' || '{…}' for the text")


def _is_query(spark: SparkSession, query: str) -> bool:
    """Whether Spark's own parser accepts a query; Iceberg's parser accepts any statement as one."""
    jvm: Any = spark._jvm
    try:
        jvm.org.apache.spark.sql.execution.SparkSqlParser().parseQuery(query)
    except ParseException:
        return False
    return True


def _require_harmless(spark: SparkSession, query: str) -> None:
    """Refuse commands that do more than show something, or that show something other than the lake."""
    java: Any = spark._jsparkSession
    plan = java.sessionState().sqlParser().parsePlan(query)
    kind = _kind(plan)
    if kind in _WITH_STATEMENT:
        inner = getattr(plan, _WITH_STATEMENT[kind])()
        if _RUN_AT_ONCE.fullmatch(_kind(inner)):
            raise _more_than_reading(kind)
        jvm: Any = spark._jvm
        skipping = jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP()
        _require_lake(java.sessionState().executePlan(inner, skipping).analyzed(), is_explained=True)
    elif not _HARMLESS.fullmatch(kind):
        raise _more_than_reading(kind)
    else:
        _require_lake_names(spark, plan)


def _more_than_reading(kind: str) -> ConfigurationError:
    msg = f"the statement does more than read ({kind}): only queries, SHOW, DESCRIBE and EXPLAIN run here"
    return ConfigurationError(msg, hint=_HINT)


def _require_lake_names(spark: SparkSession, command: Any) -> None:
    """Refuse a parsed command about an object of another catalog."""
    java: Any = spark._jsparkSession
    for node in _items(command.children()):
        kind = _kind(node)
        if kind == "CurrentNamespace":
            continue
        if kind not in _NAMES:
            raise _outside(_named(node, kind))
        parts = [str(part) for part in _items(getattr(node, _NAMES[kind])())]
        if parts and parts[0] != CATALOG_NAME and java.sessionState().catalogManager().isCatalogRegistered(parts[0]):
            raise _outside("the catalog " + parts[0])


def _require_lake(analyzed: Any, *, is_explained: bool = False) -> None:
    """Refuse an analysed plan that reads anything but the lake, or calls anything but Spark's own functions.

    A plan that is only explained is not run: its root may be a command, and its leaves the objects that it names.
    """
    for plan in _nodes(analyzed):
        kind = _kind(plan)
        if kind == _RELATION:
            _require_lake_table(plan)
        elif kind in _PLANS:
            for expression in _items(plan.expressions()):
                _require_safe(expression)
        elif not is_explained or (plan.children().isEmpty() and not kind.startswith("Resolved")):
            raise _outside(_named(plan, kind))


def _require_lake_table(relation: Any) -> None:
    catalog, identifier = relation.catalog(), relation.identifier()
    if not (catalog.isDefined() and catalog.get().name() == CATALOG_NAME and identifier.isDefined()):
        raise _outside(_named(relation, _RELATION))
    name = identifier.get()
    parts = [*(str(part) for part in name.namespace()), str(name.name())]
    if any("/" in part or part in (".", "..") for part in parts):
        # A catalog of folders would treat it as a path.
        raise _outside(".".join(parts))


def _require_safe(expression: Any) -> None:
    if (what := unsafe_part(expression)) is not None:
        raise _outside(what)


def unsafe_part(expression: Any) -> str | None:
    """Return what an analysed expression of the JVM calls besides Spark's own functions; None if nothing."""
    waiting = [expression]
    while waiting:
        found = waiting.pop()
        name = str(found.getClass().getName())
        kind = name.rpartition(".")[2].removesuffix("$")
        if not name.startswith(_FUNCTIONS) or _UNSAFE.fullmatch(kind):
            return f"the function {found.prettyName()}"
        if kind in _LEAVES:
            continue
        if "Xml" in kind and _FILE_OPTION.search(str(found)):
            return f"a file that is named by an option of {found.prettyName()}"
        waiting += _items(found.children())
    return None


def _nodes(plan: Any) -> Iterator[Any]:
    """Yield the nodes of a plan and of the subqueries in its expressions."""
    waiting = [plan]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += _items(found.children())
        waiting += _items(found.subqueries())


def _items(sequence: Any) -> Iterator[Any]:
    found = sequence.iterator()
    while found.hasNext():
        yield found.next()


def _kind(plan: Any) -> str:
    return str(plan.getClass().getSimpleName()).removesuffix("$")


def _named(plan: Any, kind: str) -> str:
    """Return a short description of a plan's node."""
    text = str(plan.simpleString(5)).strip()
    return f"{kind}: {text[:100]}" if text else kind


def _outside(what: str) -> ConfigurationError:
    msg = f"the statement reaches beyond the lake: {what}; only tables of the lake and Spark's own functions are read"
    return ConfigurationError(msg, hint=_HINT)
