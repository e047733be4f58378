-- Set operations over what DistinctSketch shows: hashes in order, and behind them the number below which none was left out,
-- 2^60 where none was at all. Null is a sketch of nothing.

CREATE OR REPLACE FUNCTION report.distinct_count(sketch bigint[]) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT COALESCE(div((cardinality(sketch) - 1) * 1152921504606846976::numeric, sketch[cardinality(sketch)])::bigint, 0) $$;

CREATE OR REPLACE FUNCTION report.distinct_union(one bigint[], other bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN other IS NULL THEN one WHEN one IS NULL THEN other
                 ELSE ARRAY(SELECT DISTINCT x FROM unnest(one || other) x
                             WHERE x <= LEAST(one[cardinality(one)], other[cardinality(other)]) ORDER BY x LIMIT 16384) END $$;

CREATE OR REPLACE AGGREGATE report.distinct_union(bigint[])
    (SFUNC = report.distinct_union, STYPE = bigint[], PARALLEL = SAFE);

CREATE OR REPLACE FUNCTION report.distinct_intersection(one bigint[], other bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT ARRAY(SELECT x FROM (SELECT unnest(one) INTERSECT SELECT unnest(other)) i (x)
                        WHERE x < LEAST(one[cardinality(one)], other[cardinality(other)]) ORDER BY x)
                 || LEAST(one[cardinality(one)], other[cardinality(other)], 1152921504606846976) $$;

CREATE OR REPLACE FUNCTION report.distinct_difference(one bigint[], other bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT ARRAY(SELECT x FROM (SELECT unnest(one) EXCEPT SELECT unnest(other)) d (x)
                        WHERE x < LEAST(one[cardinality(one)], other[cardinality(other)]) ORDER BY x)
                 || LEAST(one[cardinality(one)], other[cardinality(other)], 1152921504606846976) $$;

COMMENT ON FUNCTION report.distinct_count(bigint[]) IS 'DistinctSketch: how many different values it is of; of nothing, 0';
COMMENT ON FUNCTION report.distinct_union(bigint[], bigint[]) IS 'DistinctSketch: that of the values that one or the other has';
COMMENT ON AGGREGATE report.distinct_union(bigint[]) IS 'The same of those of many rows';
COMMENT ON FUNCTION report.distinct_intersection(bigint[], bigint[]) IS 'DistinctSketch: that of the values that both have';
COMMENT ON FUNCTION report.distinct_difference(bigint[], bigint[]) IS 'DistinctSketch: that of the values that one has and the other has not';
