"""Reads files strictly: a value is right, or the file is refused (R24).

Read `contents`, `scan`, `listing`, `folders`, `options`, `reading`; of CSV and JSON `text_lines`, `csv_lines`, `json_lines`,
`json_misfit`, `cells`, `times`, `time_formats`, `misfit`, `passed_over`; of Parquet `parquet_files`, `parquet_schema`,
`old_calendar`; `changes` of files a batch has read, `late_counts` of late records.
"""
