-- What merges and folds the arrays that aggregates keep (TopN, CollectSet, ApproxQuantile), and what reports show of them:
-- merge and fold are one text. In `report`, as its functions call them with the rights of whoever asks.

CREATE OR REPLACE FUNCTION report.merge_top(kept anyarray, more anyarray, size integer) RETURNS anyarray
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN more IS NULL THEN kept
                 ELSE ARRAY(SELECT x FROM unnest(kept || more) x ORDER BY x DESC LIMIT size) END $$;
CREATE OR REPLACE AGGREGATE report.fold_top(anyarray, integer)
    (SFUNC = report.merge_top, STYPE = anyarray, PARALLEL = SAFE);

CREATE OR REPLACE FUNCTION report.merge_smallest(kept anyarray, more anyarray, size integer) RETURNS anyarray
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN more IS NULL THEN kept
                 ELSE ARRAY(SELECT DISTINCT x FROM unnest(kept || more) x ORDER BY x LIMIT size) END $$;
CREATE OR REPLACE AGGREGATE report.fold_smallest(anyarray, integer)
    (SFUNC = report.merge_smallest, STYPE = anyarray, PARALLEL = SAFE);

CREATE OR REPLACE FUNCTION report.merge_bins(kept bigint[], more bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN more IS NULL THEN kept WHEN kept IS NULL THEN more
                 ELSE ARRAY(SELECT unnest(ARRAY[b.bin, b.number])
                              FROM (SELECT a.bins[i] AS bin, sum(a.bins[i + 1])::bigint AS number
                                      FROM (SELECT kept || more AS bins OFFSET 0) a, generate_series(1, cardinality(a.bins), 2) i
                                     GROUP BY 1 ORDER BY 1) b) END $$;
CREATE OR REPLACE AGGREGATE report.fold_bins(bigint[])
    (SFUNC = report.merge_bins, STYPE = bigint[], PARALLEL = SAFE);

CREATE OR REPLACE FUNCTION report.quantile(bins bigint[], quantile double precision, error double precision)
    RETURNS double precision LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN b.bin = 0 THEN 0 WHEN b.bin > 4611686018427387904 THEN 'NaN'
                      WHEN abs(b.bin) = 4611686018427387904 THEN sign(b.bin) * 'Infinity'::double precision
                      ELSE sign(b.bin) * exp(LEAST(GREATEST((abs(b.bin) - 1099511627776) * ln((1 + error) / (1 - error))
                                                            + ln(1 - error), -744.4), 709.78)) END
            FROM (SELECT bins[i] AS bin, sum(bins[i + 1]) OVER (ORDER BY i) AS upto, sum(bins[i + 1]) OVER () AS total
                    FROM generate_series(1, cardinality(bins), 2) i) b
           WHERE b.upto::double precision >= quantile * b.total::double precision
           ORDER BY b.upto LIMIT 1 $$;

COMMENT ON FUNCTION report.merge_top(anyarray, anyarray, integer) IS 'TopN: the greatest values of two arrays, greatest first';
COMMENT ON AGGREGATE report.fold_top(anyarray, integer) IS 'The same of the arrays of many rows';
COMMENT ON FUNCTION report.merge_smallest(anyarray, anyarray, integer) IS 'CollectSet: the smallest different values of two arrays';
COMMENT ON AGGREGATE report.fold_smallest(anyarray, integer) IS 'The same of the arrays of many rows';
COMMENT ON FUNCTION report.merge_bins(bigint[], bigint[]) IS 'ApproxQuantile: bins of two arrays, each with its count behind it';
COMMENT ON AGGREGATE report.fold_bins(bigint[]) IS 'The same of the arrays of many rows';
COMMENT ON FUNCTION report.quantile(bigint[], double precision, double precision) IS
    'ApproxQuantile: the middle of the bin in which a quantile lies; null: of nothing';
