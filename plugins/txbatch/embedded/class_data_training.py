"""The Spark application whose classes go into the archive: a small batch of the kind txbatch runs.

Started by spark-submit in an empty folder, and fills the folder.
"""

from pathlib import Path


def main() -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    spark = SparkSession.builder.getOrCreate()
    Path("sentences.txt").write_text("how are you\nnice to meet you\n")
    sentences = spark.read.text("sentences.txt").select("value", F.input_file_name().alias("file"))
    words = sentences.select("file", F.explode(F.split(F.lower("value"), " ")).alias("word"))
    part = F.sum(F.expr("shiftright(xxhash64(word), 21) & 2097151")).cast("decimal(20,0)")
    fingerprint = (part * F.lit(1 << 21) + part).cast("decimal(38,0)")
    words.groupBy("file").agg(F.count("*"), fingerprint).collect()
    counts = words.filter(F.col("word") != "").groupBy("word").agg(F.count("*").alias("count"))
    Path("sales.csv").write_text("2026-01-01T12:00:00Z,7\n")
    sales = spark.read.schema("at timestamp, price int").option("mode", "FAILFAST").csv("sales.csv")
    sales.filter(F.col("at") > F.lit("2026-01-01").cast("timestamp")).persist().agg(F.sum("price")).collect()
    counts.mapInArrow(lambda batches: batches, counts.schema).write.parquet("partials")
    spark.read.parquet("partials").toArrow()
    spark.sparkContext.parallelize([1, 2], 2).map(str).collect()
    spark.stop()


if __name__ == "__main__":
    main()
