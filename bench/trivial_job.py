"""The smallest job worth the name: one shuffle of a few rows."""

from pyspark.sql import SparkSession

with SparkSession.builder.getOrCreate() as spark:
    assert spark.range(1000).selectExpr("id % 7 AS key").groupBy("key").count().count() == 7
