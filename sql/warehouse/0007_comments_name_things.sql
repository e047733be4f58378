-- Comments of the functions of aggregates name things again instead of pointing at them.
COMMENT ON AGGREGATE report.fold_top(anyarray, integer) IS 'TopN: the greatest values of the arrays of many rows, greatest first';
COMMENT ON AGGREGATE report.fold_smallest(anyarray, integer) IS 'CollectSet: the smallest different values of the arrays of many rows';
COMMENT ON FUNCTION report.merge_bins(bigint[], bigint[]) IS 'ApproxQuantile: bins of two arrays, each bin with its count behind';
COMMENT ON AGGREGATE report.fold_bins(bigint[]) IS 'ApproxQuantile: bins of the arrays of many rows';
COMMENT ON FUNCTION report.quantile(bigint[], double precision, double precision) IS 'ApproxQuantile: the middle of the bin in which a quantile lies; null for no values';
COMMENT ON FUNCTION report.distinct_count(bigint[]) IS 'DistinctSketch: the number of different values; 0 for no values';
COMMENT ON FUNCTION report.distinct_union(bigint[], bigint[]) IS 'DistinctSketch: the sketch of values in either sketch';
COMMENT ON AGGREGATE report.distinct_union(bigint[]) IS 'DistinctSketch: the sketch of values in any of the sketches of many rows';
COMMENT ON FUNCTION report.distinct_intersection(bigint[], bigint[]) IS 'DistinctSketch: the sketch of values in both sketches';
COMMENT ON FUNCTION report.distinct_difference(bigint[], bigint[]) IS 'DistinctSketch: the sketch of values in the first sketch and not in the second';
COMMENT ON FUNCTION report.ordered_value(text) IS 'TopNBy: the value that a text in the order of its type stands for; null for the empty text';
COMMENT ON FUNCTION report.top_rows(text[], text[]) IS 'TopNBy: rows as objects of the named fields, greatest first; fields named null are left out';
