"""The Spark application whose classes go into the archive: a small batch of the kind txbatch runs.

Started by spark-submit in an empty folder, which it fills.
"""

from pathlib import Path


def main() -> None:
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    spark = SparkSession.builder.getOrCreate()
    Path("sentences.txt").write_text("how are you\nnice to meet you\n")
    sentences = spark.read.text("sentences.txt").select("value", F.input_file_name().alias("file"))
    words = sentences.select("file", F.explode(F.split(F.lower("value"), " ")).alias("word"))
    fingerprint = F.sum(F.xxhash64("word").cast("decimal(38,0)"))
    words.groupBy("file").agg(F.count("*"), fingerprint).collect()
    counts = words.filter(F.col("word") != "").groupBy("word").agg(F.count("*").alias("count"))
    counts.mapInArrow(lambda batches: batches, counts.schema).write.parquet("partials")
    spark.read.parquet("partials").toArrow()
    spark.sparkContext.parallelize([1, 2], 2).map(str).collect()
    spark.stop()


if __name__ == "__main__":
    main()
