"""Which statements of SQL read the lake and nothing else, and which are refused before they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakeward.errors import ConfigurationError
from lakeward.iceberg.define import mirror_of
from lakeward.model import TableId
from tests.spark.scene import TABLE, Scene

if TYPE_CHECKING:
    from pathlib import Path

READING = (
    "SELECT 1",
    "VALUES (1)",
    "WITH a AS (SELECT 1 AS one) SELECT * FROM a",
    "SHOW NAMESPACES IN lake",
    "DESCRIBE TABLE sales.product",
    "EXPLAIN DROP TABLE sales.product",
    "SHOW CREATE TABLE sales.product",
    "SELECT * FROM lake.sales.product.snapshots",
    "FROM sales.product SELECT name",
    "TABLE sales.product",
    "SHOW TABLES IN sales",
    "DESCRIBE QUERY SELECT 1",
    "SHOW COLUMNS IN lake.sales.product",
    "SHOW TBLPROPERTIES sales.product",
    "SHOW FUNCTIONS",
    "USE lake.sales",
    "USE lake",
    "EXPLAIN SELECT * FROM sales.product",
    "SELECT * FROM range(3) WHERE id IN (SELECT id FROM sales.product)",
    "SELECT explode(array(1, 2))",
    "SELECT dept, price, count(*) FROM sales.product GROUP BY GROUPING SETS ((dept, price), ())",
    "SELECT max(price) OVER (PARTITION BY dept) FROM sales.product",
    "SELECT * FROM (SELECT dept, price FROM sales.product) PIVOT (sum(price) FOR dept IN ('x', 'y'))",
    "SELECT a.name, b.x FROM sales.product a, LATERAL (SELECT a.price + 1 AS x) b ORDER BY 1 LIMIT 1 OFFSET 0",
    "SELECT id FROM sales.product UNION SELECT 2 EXCEPT SELECT 3 INTERSECT SELECT 4",
    "SELECT from_json('{}', 'a int'), xpath('<a/>', 'a'), url_decode('a'), aes_encrypt('a', '0000000000000000')",
    "SELECT /*+ BROADCAST(b) */ * FROM sales.product a LEFT JOIN sales.product b USING (id)",
    "SELECT current_date()",
    "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 3) SELECT * FROM r",
    "SELECT from_xml('<a/>', 'a int'), input_file_name() FROM sales.product TABLESAMPLE (5 ROWS)",
    "FROM sales.product |> WHERE id > 0 |> SELECT id",
    "SELECT lake.system.bucket(4, id) FROM sales.product",
    "SELECT stack(2, 1, 2)",
    "SELECT * FROM sales.product LATERAL VIEW explode(array(1)) t AS x",
    "SELECT '$' || '{env:HOME}'",
)
WRITING = (
    "INSERT INTO sales.product VALUES (9, 'x', 'x', 1)",
    "DELETE FROM sales.product",
    "TRUNCATE TABLE sales.product",
    "UPDATE sales.product SET name = 'x'",
    "DROP TABLE sales.product",
    "DROP NAMESPACE sales CASCADE",
    "MERGE INTO sales.product t USING (SELECT 1 AS id) s ON t.id = s.id WHEN MATCHED THEN DELETE",
    "CREATE TABLE sales.other USING iceberg AS SELECT 1 AS one",
    "CREATE NAMESPACE other",
    "ALTER TABLE sales.product ADD COLUMN other int",
    "ALTER TABLE sales.product CREATE BRANCH other",
    "ALTER TABLE sales.product ADD PARTITION FIELD dept",
    "ALTER TABLE sales.product WRITE ORDERED BY id",
    "CALL lake.system.rollback_to_snapshot('sales.product', 1)",
    "FROM sales.product INSERT INTO sales.product SELECT *",
    "WITH a AS (SELECT * FROM sales.product) INSERT INTO sales.product SELECT * FROM a",
    "INSERT OVERWRITE DIRECTORY '/nowhere' USING parquet SELECT 1",
    "CREATE TEMPORARY VIEW one AS SELECT 1",
    "FROM sales.product INSERT INTO sales.product SELECT * INSERT INTO sales.product SELECT *",
    "CACHE TABLE sales.product",
    "BEGIN DROP TABLE sales.product; END",
    "EXECUTE IMMEDIATE 'DROP TABLE sales.product'",
    "EXPLAIN EXECUTE IMMEDIATE 'DROP TABLE sales.product'",
    "EXPLAIN CALL lake.system.rollback_to_snapshot('sales.product', 1)",
    "SET",
    "SET spark.sql.ansi.enabled=false",
    "RESET",
    "ADD JAR '/nowhere.jar'",
    "ADD FILE '/nowhere'",
    "LIST JARS",
    "CREATE TEMPORARY VIEW a USING csv OPTIONS (path '/nowhere')",
    "CREATE TEMPORARY FUNCTION f AS 'a.B'",
    "DECLARE VARIABLE v = 1",
)
# Files, the environment, programs, other catalogs: at any place of a query. {0} is a file, {1} a call of a method.
BEYOND = (
    "SELECT {1}",
    "SELECT java_method('java.lang.System', 'lineSeparator')",
    "SELECT * FROM text.`{0}`",
    "SELECT try_reflect('java.lang.System', 'lineSeparator')",
    "SELECT * FROM csv.`{0}`",
    "SELECT * FROM json.`{0}`",
    "SELECT * FROM binaryFile.`{0}`",
    "TABLE text.`{0}`",
    "FROM text.`{0}` SELECT value",
    "FROM text.`{0}` |> SELECT value",
    "SELECT (SELECT max(value) FROM text.`{0}`)",
    "SELECT 1 WHERE EXISTS (SELECT * FROM text.`{0}`)",
    "SELECT 1 WHERE 'x' IN (SELECT value FROM text.`{0}`)",
    "WITH a AS (SELECT * FROM text.`{0}`) SELECT 1 FROM a",
    "SELECT * FROM sales.product UNION SELECT 1, value, 'x', 1 FROM text.`{0}`",
    "SELECT * FROM sales.product ORDER BY {1}",
    "SELECT * FROM sales.product a, LATERAL (SELECT a.id, value FROM text.`{0}`)",
    "SELECT upper(concat('a', {1}))",
    "SELECT explode(array({1}))",
    "SELECT sum(id) OVER (PARTITION BY {1}) FROM sales.product",
    "SELECT * FROM sales.product WHERE name = {1}",
    "SELECT TRANSFORM(name) USING 'cat' AS (name) FROM sales.product",
    "EXPLAIN SELECT * FROM text.`{0}`",
    "EXPLAIN INSERT INTO sales.product SELECT 1, value, 'x', 1 FROM text.`{0}`",
    "DESCRIBE QUERY SELECT * FROM csv.`{0}`",
    "SHOW TABLES IN spark_catalog.default",
    "DESCRIBE TABLE spark_catalog.default.x",
    "USE spark_catalog",
    "SELECT from_xml('<a/>', 'a int', map('rowValidationXSDPath', '{0}'))",
    "SHOW TABLES IN IDENTIFIER('spark_catalog.default')",
)
VARIABLES = ("env:HOME", "system:user.home", "spark.app.name", "hiveconf:spark.app.name")


def refusal(scene: Scene, query: str) -> str:
    """Why a query is refused, or what else became of it."""
    try:
        found = scene.lakeward.sql(query).collect()
    except ConfigurationError as refused:
        return f"{refused.message} {refused.hint}"
    except Exception as error:
        return f"failed: {str(error)[:300]}"
    return f"ran: {found}"


def test_statements_that_do_more_than_read_the_lake_are_refused_before_they_run(scene: Scene, tmp_path: Path) -> None:
    scene.land("LOAD00000001.csv", "1,a,x,1.00")
    scene.run()
    head = mirror_of(scene.lakeward.spark, TableId.parse(TABLE)).require_head().id
    secret = tmp_path / "secret.txt"
    secret.write_text("hush")
    found = {query: refusal(scene, query) for query in READING}
    assert {query: text for query, text in found.items() if not text.startswith("ran")} == {}
    found = {query: refusal(scene, query) for query in WRITING}
    wrong = {q: text for q, text in found.items() if "does more than read" not in text or "--allow-writes" not in text}
    assert wrong == {}
    filled = [query.format(secret, "reflect('java.lang.System', 'lineSeparator')") for query in BEYOND]
    found = {query: refusal(scene, query) for query in filled}
    assert {query: text for query, text in found.items() if "reaches beyond the lake" not in text} == {}
    found = {name: refusal(scene, f"SELECT '${{{name}}}'") for name in VARIABLES}
    assert {name: text for name, text in found.items() if "an environment variable" not in text} == {}
    assert mirror_of(scene.lakeward.spark, TableId.parse(TABLE)).require_head().id == head
    scene.lakeward.sql("DELETE FROM sales.product", allow_writes=True)
    assert scene.rows() == []
