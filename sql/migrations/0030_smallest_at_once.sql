-- Where as many are kept as may be, and none of the others is smaller, what is kept is returned at once: both are in order.

CREATE OR REPLACE FUNCTION report.merge_smallest(kept anyarray, more anyarray, size integer) RETURNS anyarray
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN more IS NULL OR more[1] >= kept[size] THEN kept
                 ELSE ARRAY(SELECT DISTINCT x FROM unnest(kept || more) x ORDER BY x LIMIT size) END $$;
