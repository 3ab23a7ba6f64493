"""Entry script for Glue, EMR and spark-submit; everything is in the package."""

from lakeward.aws.job import main

main()
