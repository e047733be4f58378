SET check_function_bodies = false;
SELECT pg_catalog.set_config('search_path', '', false);
CREATE SCHEMA contribution;
CREATE SCHEMA contribution_base;
CREATE SCHEMA contribution_partition;
CREATE SCHEMA report;
CREATE SCHEMA state;
CREATE SCHEMA txbatch;
CREATE TABLE state.sentences (
    word text NOT NULL COLLATE pg_catalog."C",
    count bigint,
    last text COLLATE pg_catalog."C",
    top text[] COLLATE pg_catalog."C",
    quantile text[] COLLATE pg_catalog."C",
    prev_count bigint,
    prev_last text COLLATE pg_catalog."C",
    prev_top text[] COLLATE pg_catalog."C",
    prev_quantile text[] COLLATE pg_catalog."C",
    prev_txid bigint,
    txid bigint NOT NULL
)
WITH (fillfactor='85', autovacuum_vacuum_scale_factor='0.05', autovacuum_analyze_scale_factor='0.05');
CREATE VIEW report.sentences AS
 SELECT word,
    count,
    last,
    top,
        CASE
            WHEN (cardinality(quantile) > 3) THEN array_append(quantile[1:3], NULL::text)
            ELSE quantile
        END AS quantile,
    txid
   FROM state.sentences c;
CREATE FUNCTION report.as_of_sentences(txid bigint) RETURNS SETOF report.sentences
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $_$SELECT r."word", r."count", r."last", r."top", r."quantile", r."txid" FROM report."sentences" r WHERE r.txid <= $1 AND report.known_at('sentences', $1) AND NOT report.far_back('sentences', $1) UNION ALL SELECT c.k0, c.p0_0, c.p0_1, c.p0_2, CASE WHEN cardinality(c.p0_3) > 3 THEN array_append(c.p0_3[1:3], NULL) ELSE c.p0_3 END, c.txid FROM (SELECT k.*, f.* FROM (SELECT DISTINCT t."word" AS k0 FROM (SELECT t."word" FROM report."sentences@versions" t WHERE t.position > 0 AND t.txid > $1 UNION ALL SELECT t."word" FROM report."sentences@versions" t WHERE t.position > 0 AND t.txid = ANY (ARRAY(SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by > $1))) t ORDER BY k0) k CROSS JOIN LATERAL (SELECT bool_or(r.c0) AS s0, CAST(sum((CASE WHEN r.c0 THEN r.p0 END)) AS bigint) AS p0_0, CAST((array_agg((CASE WHEN r.c0 THEN r.p1 END) ORDER BY (CASE WHEN r.c0 THEN r.p1 END) DESC) FILTER (WHERE (CASE WHEN r.c0 THEN r.p1 END) IS NOT NULL))[1] AS text) AS p0_1, CAST(report.fold_top((CASE WHEN r.c0 THEN r.p2 END), 2) AS text[]) AS p0_2, CAST(report.fold_smallest((CASE WHEN r.c0 THEN r.p3 END), 4) AS text[]) AS p0_3, max(r.changed) AS txid FROM (SELECT v."word" AS k0, v."count" AS p0, v."last" AS p1, v."top" AS p2, v."quantile" AS p3, (v.position = 0 OR v.txid <> ALL (ARRAY(SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= $1))) AS c0, v.position, v.txid, CASE WHEN v.position > 0 AND v.txid = ANY (ARRAY(SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= $1)) THEN (SELECT b.replaced_by FROM report.batches b WHERE b.topology = 'sentences' AND b.txid = v.txid) ELSE v.txid END AS changed FROM report."sentences@versions" v WHERE v."word" = k.k0 AND v.txid <= $1) r) f) c WHERE c.s0 AND report.known_at('sentences', $1) AND NOT report.far_back('sentences', $1) UNION ALL SELECT c.k0, c.p0_0, c.p0_1, c.p0_2, CASE WHEN cardinality(c.p0_3) > 3 THEN array_append(c.p0_3[1:3], NULL) ELSE c.p0_3 END, c.txid FROM (SELECT f.k0, f.s0, f.p0_0, f.p0_1, f.p0_2, f.p0_3, GREATEST(f.txid, d.txid) AS txid FROM (SELECT v."word" AS k0, true AS s0, CAST(sum(v."count") AS bigint) AS p0_0, CAST(max(v."last") AS text) AS p0_1, CAST(report.fold_top(v."top", 2) AS text[]) AS p0_2, CAST(report.fold_smallest(v."quantile", 4) AS text[]) AS p0_3, max(v.txid) AS txid FROM report."sentences@versions" v WHERE (v.txid <= $1 AND (v.position = 0 OR v.txid NOT IN (SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= $1))) GROUP BY v."word") f LEFT JOIN (SELECT v."word" AS k0, max(b.replaced_by) AS txid FROM report."sentences@versions" v JOIN (SELECT b.txid, b.replaced_by FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= $1) b ON b.txid = v.txid WHERE v.position > 0 AND v.txid <= $1 GROUP BY v."word") d ON d.k0 = f.k0) c WHERE c.s0 AND report.known_at('sentences', $1) AND report.far_back('sentences', $1)$_$;
CREATE FUNCTION report.by_its_job(state text) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
        MESSAGE = format('state %L merges values by Python of its job, which SQL cannot run: what it was is told with that alone', state),
        HINT = format('Ask `txbatch as-of %s TXID` in the project''s folder, or Reports.as_of in Python; report.%I has what each batch contributed.',
                      state, state || '_changes');
END
$$;
CREATE FUNCTION report.changes_sentences(from_txid bigint, to_txid bigint) RETURNS TABLE(word text, change text, count_before bigint, count_after bigint, last_before text, last_after text, top_before text[], top_after text[], quantile_before text[], quantile_after text[], txid bigint)
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $_$SELECT c.k0, CASE WHEN NOT c.s0 THEN 'added' WHEN NOT c.s1 THEN 'removed' ELSE 'changed' END, CASE WHEN c.s0 THEN c.p0_0 END, CASE WHEN c.s1 THEN c.p1_0 END, CASE WHEN c.s0 THEN c.p0_1 END, CASE WHEN c.s1 THEN c.p1_1 END, CASE WHEN c.s0 THEN c.p0_2 END, CASE WHEN c.s1 THEN c.p1_2 END, CASE WHEN c.s0 THEN CASE WHEN cardinality(c.p0_3) > 3 THEN array_append(c.p0_3[1:3], NULL) ELSE c.p0_3 END END, CASE WHEN c.s1 THEN CASE WHEN cardinality(c.p1_3) > 3 THEN array_append(c.p1_3[1:3], NULL) ELSE c.p1_3 END END, c.txid FROM (SELECT k.*, f.* FROM (SELECT DISTINCT t."word" AS k0 FROM (SELECT t."word" FROM report."sentences@versions" t WHERE t.position > 0 AND t.txid > LEAST($1, $2) AND t.txid <= GREATEST($1, $2) UNION ALL SELECT t."word" FROM report."sentences@versions" t WHERE t.position > 0 AND t.txid = ANY (ARRAY(SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by > LEAST($1, $2) AND b.replaced_by <= GREATEST($1, $2)))) t ORDER BY k0) k CROSS JOIN LATERAL (SELECT bool_or(r.c0) AS s0, CAST(sum((CASE WHEN r.c0 THEN r.p0 END)) AS bigint) AS p0_0, CAST((array_agg((CASE WHEN r.c0 THEN r.p1 END) ORDER BY (CASE WHEN r.c0 THEN r.p1 END) DESC) FILTER (WHERE (CASE WHEN r.c0 THEN r.p1 END) IS NOT NULL))[1] AS text) AS p0_1, CAST(report.fold_top((CASE WHEN r.c0 THEN r.p2 END), 2) AS text[]) AS p0_2, CAST(report.fold_smallest((CASE WHEN r.c0 THEN r.p3 END), 4) AS text[]) AS p0_3, bool_or(r.c1) AS s1, CAST(sum((CASE WHEN r.c1 THEN r.p0 END)) AS bigint) AS p1_0, CAST((array_agg((CASE WHEN r.c1 THEN r.p1 END) ORDER BY (CASE WHEN r.c1 THEN r.p1 END) DESC) FILTER (WHERE (CASE WHEN r.c1 THEN r.p1 END) IS NOT NULL))[1] AS text) AS p1_1, CAST(report.fold_top((CASE WHEN r.c1 THEN r.p2 END), 2) AS text[]) AS p1_2, CAST(report.fold_smallest((CASE WHEN r.c1 THEN r.p3 END), 4) AS text[]) AS p1_3, max(r.changed) AS txid FROM (SELECT v."word" AS k0, v."count" AS p0, v."last" AS p1, v."top" AS p2, v."quantile" AS p3, (v.txid <= $1 AND (v.position = 0 OR v.txid <> ALL (ARRAY(SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= $1)))) AS c0, (v.txid <= $2 AND (v.position = 0 OR v.txid <> ALL (ARRAY(SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= $2)))) AS c1, v.position, v.txid, CASE WHEN v.position > 0 AND v.txid = ANY (ARRAY(SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= GREATEST($1, $2))) THEN (SELECT b.replaced_by FROM report.batches b WHERE b.topology = 'sentences' AND b.txid = v.txid) ELSE v.txid END AS changed FROM report."sentences@versions" v WHERE v."word" = k.k0 AND v.txid <= GREATEST($1, $2)) r) f) c WHERE (c.s0, CASE WHEN c.s0 THEN c.p0_0 END, CASE WHEN c.s0 THEN c.p0_1 END, CASE WHEN c.s0 THEN c.p0_2 END, CASE WHEN c.s0 THEN CASE WHEN cardinality(c.p0_3) > 3 THEN array_append(c.p0_3[1:3], NULL) ELSE c.p0_3 END END) IS DISTINCT FROM (c.s1, CASE WHEN c.s1 THEN c.p1_0 END, CASE WHEN c.s1 THEN c.p1_1 END, CASE WHEN c.s1 THEN c.p1_2 END, CASE WHEN c.s1 THEN CASE WHEN cardinality(c.p1_3) > 3 THEN array_append(c.p1_3[1:3], NULL) ELSE c.p1_3 END END) AND report.known_at('sentences', $1) AND report.known_at('sentences', $2) AND NOT report.far_back('sentences', LEAST($1, $2), GREATEST($1, $2)) UNION ALL SELECT c.k0, CASE WHEN NOT c.s0 THEN 'added' WHEN NOT c.s1 THEN 'removed' ELSE 'changed' END, CASE WHEN c.s0 THEN c.p0_0 END, CASE WHEN c.s1 THEN c.p1_0 END, CASE WHEN c.s0 THEN c.p0_1 END, CASE WHEN c.s1 THEN c.p1_1 END, CASE WHEN c.s0 THEN c.p0_2 END, CASE WHEN c.s1 THEN c.p1_2 END, CASE WHEN c.s0 THEN CASE WHEN cardinality(c.p0_3) > 3 THEN array_append(c.p0_3[1:3], NULL) ELSE c.p0_3 END END, CASE WHEN c.s1 THEN CASE WHEN cardinality(c.p1_3) > 3 THEN array_append(c.p1_3[1:3], NULL) ELSE c.p1_3 END END, c.txid FROM (SELECT f.k0, f.s0, f.p0_0, f.p0_1, f.p0_2, f.p0_3, f.s1, f.p1_0, f.p1_1, f.p1_2, f.p1_3, GREATEST(f.txid, d.txid) AS txid FROM (SELECT v."word" AS k0, bool_or(((v.txid <= $1 AND (v.position = 0 OR v.txid NOT IN (SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= $1))))) AS s0, CAST(sum((CASE WHEN ((v.txid <= $1 AND (v.position = 0 OR v.txid NOT IN (SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= $1)))) THEN v."count" END)) AS bigint) AS p0_0, CAST(max((CASE WHEN ((v.txid <= $1 AND (v.position = 0 OR v.txid NOT IN (SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= $1)))) THEN v."last" END)) AS text) AS p0_1, CAST(report.fold_top((CASE WHEN ((v.txid <= $1 AND (v.position = 0 OR v.txid NOT IN (SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= $1)))) THEN v."top" END), 2) AS text[]) AS p0_2, CAST(report.fold_smallest((CASE WHEN ((v.txid <= $1 AND (v.position = 0 OR v.txid NOT IN (SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= $1)))) THEN v."quantile" END), 4) AS text[]) AS p0_3, bool_or(((v.txid <= $2 AND (v.position = 0 OR v.txid NOT IN (SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= $2))))) AS s1, CAST(sum((CASE WHEN ((v.txid <= $2 AND (v.position = 0 OR v.txid NOT IN (SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= $2)))) THEN v."count" END)) AS bigint) AS p1_0, CAST(max((CASE WHEN ((v.txid <= $2 AND (v.position = 0 OR v.txid NOT IN (SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= $2)))) THEN v."last" END)) AS text) AS p1_1, CAST(report.fold_top((CASE WHEN ((v.txid <= $2 AND (v.position = 0 OR v.txid NOT IN (SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= $2)))) THEN v."top" END), 2) AS text[]) AS p1_2, CAST(report.fold_smallest((CASE WHEN ((v.txid <= $2 AND (v.position = 0 OR v.txid NOT IN (SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= $2)))) THEN v."quantile" END), 4) AS text[]) AS p1_3, max(v.txid) AS txid FROM report."sentences@versions" v WHERE v.txid <= GREATEST($1, $2) GROUP BY v."word") f LEFT JOIN (SELECT v."word" AS k0, max(b.replaced_by) AS txid FROM report."sentences@versions" v JOIN (SELECT b.txid, b.replaced_by FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by <= GREATEST($1, $2)) b ON b.txid = v.txid WHERE v.position > 0 AND v.txid <= GREATEST($1, $2) GROUP BY v."word") d ON d.k0 = f.k0) c WHERE (c.s0, CASE WHEN c.s0 THEN c.p0_0 END, CASE WHEN c.s0 THEN c.p0_1 END, CASE WHEN c.s0 THEN c.p0_2 END, CASE WHEN c.s0 THEN CASE WHEN cardinality(c.p0_3) > 3 THEN array_append(c.p0_3[1:3], NULL) ELSE c.p0_3 END END) IS DISTINCT FROM (c.s1, CASE WHEN c.s1 THEN c.p1_0 END, CASE WHEN c.s1 THEN c.p1_1 END, CASE WHEN c.s1 THEN c.p1_2 END, CASE WHEN c.s1 THEN CASE WHEN cardinality(c.p1_3) > 3 THEN array_append(c.p1_3[1:3], NULL) ELSE c.p1_3 END END) AND report.known_at('sentences', $1) AND report.known_at('sentences', $2) AND report.far_back('sentences', LEAST($1, $2), GREATEST($1, $2))$_$;
CREATE FUNCTION report.corrected_sentences(txid bigint) RETURNS SETOF report.sentences
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $_$SELECT r."word", r."count", r."last", r."top", r."quantile", r."txid" FROM report."sentences" r WHERE NOT EXISTS (SELECT FROM report."sentences@versions" t WHERE t.position > $1 AND t.txid > $1 AND t."word" = r."word") AND report.known_at('sentences', $1) AND NOT report.far_back('sentences', $1) UNION ALL SELECT c.k0, c.p0_0, c.p0_1, c.p0_2, CASE WHEN cardinality(c.p0_3) > 3 THEN array_append(c.p0_3[1:3], NULL) ELSE c.p0_3 END, c.txid FROM (SELECT k.*, f.* FROM (SELECT DISTINCT t."word" AS k0 FROM (SELECT t."word" FROM report."sentences@versions" t WHERE t.position > $1 AND t.txid > $1) t ORDER BY k0) k CROSS JOIN LATERAL (SELECT bool_or(r.c0) AS s0, CAST(sum((CASE WHEN r.c0 THEN r.p0 END)) AS bigint) AS p0_0, CAST((array_agg((CASE WHEN r.c0 THEN r.p1 END) ORDER BY (CASE WHEN r.c0 THEN r.p1 END) DESC) FILTER (WHERE (CASE WHEN r.c0 THEN r.p1 END) IS NOT NULL))[1] AS text) AS p0_1, CAST(report.fold_top((CASE WHEN r.c0 THEN r.p2 END), 2) AS text[]) AS p0_2, CAST(report.fold_smallest((CASE WHEN r.c0 THEN r.p3 END), 4) AS text[]) AS p0_3, max(r.changed) AS txid FROM (SELECT v."word" AS k0, v."count" AS p0, v."last" AS p1, v."top" AS p2, v."quantile" AS p3, (v.position = 0 OR v.txid <> ALL (ARRAY(SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by IS NOT NULL))) AS c0, v.position, v.txid, CASE WHEN v.position > 0 AND v.txid = ANY (ARRAY(SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by IS NOT NULL)) THEN (SELECT b.replaced_by FROM report.batches b WHERE b.topology = 'sentences' AND b.txid = v.txid) ELSE v.txid END AS changed FROM report."sentences@versions" v WHERE v."word" = k.k0 AND v.position <= $1) r) f) c WHERE c.s0 AND report.known_at('sentences', $1) AND NOT report.far_back('sentences', $1) UNION ALL SELECT c.k0, c.p0_0, c.p0_1, c.p0_2, CASE WHEN cardinality(c.p0_3) > 3 THEN array_append(c.p0_3[1:3], NULL) ELSE c.p0_3 END, c.txid FROM (SELECT f.k0, f.s0, f.p0_0, f.p0_1, f.p0_2, f.p0_3, GREATEST(f.txid, d.txid) AS txid FROM (SELECT v."word" AS k0, true AS s0, CAST(sum(v."count") AS bigint) AS p0_0, CAST(max(v."last") AS text) AS p0_1, CAST(report.fold_top(v."top", 2) AS text[]) AS p0_2, CAST(report.fold_smallest(v."quantile", 4) AS text[]) AS p0_3, max(v.txid) AS txid FROM report."sentences@versions" v WHERE (v.position <= $1 AND (v.position = 0 OR v.txid NOT IN (SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by IS NOT NULL))) GROUP BY v."word") f LEFT JOIN (SELECT v."word" AS k0, max(b.replaced_by) AS txid FROM report."sentences@versions" v JOIN (SELECT b.txid, b.replaced_by FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by IS NOT NULL) b ON b.txid = v.txid WHERE v.position > 0 AND v.position <= $1 GROUP BY v."word") d ON d.k0 = f.k0) c WHERE c.s0 AND report.known_at('sentences', $1) AND report.far_back('sentences', $1)$_$;
CREATE FUNCTION report.distinct_count(sketch bigint[]) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT COALESCE(div((cardinality(sketch) - 1) * 1152921504606846976::numeric, sketch[cardinality(sketch)])::bigint, 0) $$;
CREATE FUNCTION report.distinct_difference(one bigint[], other bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT ARRAY(SELECT x FROM (SELECT unnest(one) EXCEPT SELECT unnest(other)) d (x)
                        WHERE x < LEAST(one[cardinality(one)], other[cardinality(other)]) ORDER BY x)
                 || LEAST(one[cardinality(one)], other[cardinality(other)], 1152921504606846976) $$;
CREATE FUNCTION report.distinct_intersection(one bigint[], other bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT ARRAY(SELECT x FROM (SELECT unnest(one) INTERSECT SELECT unnest(other)) i (x)
                        WHERE x < LEAST(one[cardinality(one)], other[cardinality(other)]) ORDER BY x)
                 || LEAST(one[cardinality(one)], other[cardinality(other)], 1152921504606846976) $$;
CREATE FUNCTION report.distinct_union(one bigint[], other bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN other IS NULL THEN one WHEN one IS NULL THEN other
                 ELSE ARRAY(SELECT DISTINCT x FROM unnest(one || other) x
                             WHERE x <= LEAST(one[cardinality(one)], other[cardinality(other)]) ORDER BY x LIMIT 16384) END $$;
CREATE FUNCTION report.far_back(state text, low bigint, high bigint DEFAULT NULL::bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    asked text := COALESCE(NULLIF(current_setting('txbatch.far_back', true), ''), 'auto');
    counted_by text;
    last bigint;
    changed double precision;
    rows double precision;
    contributed double precision;
BEGIN
    IF asked IN ('on', 'off') THEN
        RETURN asked = 'on';
    ELSIF asked <> 'auto' THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('txbatch.far_back is %L', asked),
            HINT = 'Set it to on, off or auto.';
    END IF;
    counted_by := (SELECT s.topology FROM txbatch.state s WHERE s.state = far_back.state);
    last := COALESCE(high, (SELECT max(b.txid) FROM txbatch.batch b WHERE b.topology = counted_by));
    changed := (SELECT sum(f.keys) FROM (
                    SELECT (b.keys ->> far_back.state)::bigint AS keys FROM txbatch.batch b
                     WHERE b.topology = counted_by AND b.txid > low AND b.txid <= last AND b.status = 'committed'
                     ORDER BY b.txid LIMIT 100) f) * GREATEST(last - low, 100) / 100;
    IF changed > 0 THEN
        SELECT sum(n) FILTER (WHERE counts), sum(n) FILTER (WHERE NOT counts) INTO rows, contributed
          FROM (SELECT r.counts, pg_relation_size(c.oid) * COALESCE(c.reltuples / NULLIF(c.relpages, 0) / 8192, 0.01) AS n
                  FROM (SELECT true AS counts, to_regclass(format('state.%I', far_back.state)) AS relation
                         UNION ALL
                        SELECT false, t.relid FROM pg_partition_tree(to_regclass(format('contribution.%I', far_back.state))) t
                         WHERE t.isleaf) r
                  JOIN pg_class c ON c.oid = r.relation) sizes;
        -- A search is 20 times the work of folding a row in the pass, and each row that it finds 3 times.
        contributed := GREATEST(contributed - changed, 0);
        RETURN changed * (20 * rows + 3 * contributed) > GREATEST(rows, changed) * (2 * rows + contributed);
    END IF;
    RETURN false;
END
$$;
CREATE FUNCTION report.far_before(rebuild bigint, state text, low bigint) RETURNS boolean
    LANGUAGE sql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$ SELECT report.far_back(state, low, (SELECT r.swapped_txid FROM txbatch.rebuild r WHERE r.rebuild = far_before.rebuild)) $$;
CREATE FUNCTION report.get_sentences(word text) RETURNS SETOF report.sentences
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $_$SELECT r."word", r."count", r."last", r."top", r."quantile", r."txid" FROM report."sentences" r WHERE r."word" = $1 COLLATE "C"$_$;
CREATE FUNCTION report.known_at(state text, txid bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    horizon bigint;
    newest bigint;
    swapped record;
    gone record;
BEGIN
    SELECT s.horizon, COALESCE((SELECT max(b.txid) FROM txbatch.batch b WHERE b.topology = s.topology AND b.status = 'committed'), 0)
      INTO horizon, newest FROM txbatch.state s WHERE s.state = known_at.state;
    IF horizon IS NULL THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('no state %L is known', known_at.state),
            HINT = 'SELECT state FROM report.state_coverage has them all.';
    ELSIF known_at.txid IS NULL OR known_at.txid NOT BETWEEN 0 AND newest THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L cannot be asked as of txid %s: the newest committed one is %s', known_at.state,
                             COALESCE(known_at.txid::text, 'null'), newest),
            HINT = format('Ask for one of %s to %s.', horizon, newest);
    ELSIF known_at.txid < horizon THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L cannot be asked as of txid %s: retention has folded what it was before txid %s',
                             known_at.state, known_at.txid, horizon),
            HINT = format('Ask for one of %s to %s.', horizon, newest);
    END IF;
    SELECT r.* INTO swapped FROM txbatch.rebuild r JOIN txbatch.state s ON s.topology = r.topology
     WHERE s.state = known_at.state AND r.swapped_txid >= known_at.txid ORDER BY r.swapped_txid, r.rebuild LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L cannot be asked as of txid %s: rebuild %s counted all anew after txid %s, and has what is later',
                             known_at.state, known_at.txid, swapped.rebuild, swapped.swapped_txid),
            HINT = CASE WHEN swapped.dropped_at IS NULL
                        THEN format('Ask report_past_%s.%I(%s) for what was shown then.', swapped.rebuild,
                                    'as_of_' || known_at.state, known_at.txid)
                        ELSE 'What was shown then was dropped.' END;
    END IF;
    SELECT l.* INTO gone FROM txbatch.windows_left l WHERE l.state = known_at.state AND l.txid > known_at.txid;
    IF FOUND THEN
        RAISE WARNING 'state % as of txid % is told without what retention has let go of since: windows that begin, or sessions that end, before %',
            quote_literal(known_at.state), known_at.txid, timestamptz 'epoch' + gone.left_before * interval '1 microsecond'
            USING HINT = 'SELECT * FROM report.windows_left has how many.';
    END IF;
    RETURN true;
END
$$;
CREATE FUNCTION report.known_before(rebuild bigint, state text, txid bigint) RETURNS boolean
    LANGUAGE plpgsql STABLE SECURITY DEFINER PARALLEL SAFE
    SET search_path TO 'pg_catalog', 'pg_temp'
    AS $$
DECLARE
    first bigint;
    last bigint;
    gone json;
BEGIN
    SELECT r.swapped_txid, GREATEST((r.past -> known_before.state ->> 'horizon')::bigint,
           (SELECT max(p.swapped_txid) + 1 FROM txbatch.rebuild p WHERE p.topology = r.topology AND p.rebuild < r.rebuild)),
           r.past -> known_before.state -> 'left'
      INTO last, first, gone FROM txbatch.rebuild r WHERE r.rebuild = known_before.rebuild;
    IF known_before.txid IS NULL OR known_before.txid NOT BETWEEN first AND last THEN
        RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value',
            MESSAGE = format('state %L before rebuild %s cannot be asked as of txid %s', known_before.state, known_before.rebuild,
                             COALESCE(known_before.txid::text, 'null')),
            HINT = CASE WHEN first > last
                        THEN 'No batch was committed between the rebuild before it and this one: no txid stands for what was shown then.'
                        ELSE format('Ask for one of %s to %s.', first, last) END;
    END IF;
    IF (gone ->> 'txid')::bigint > known_before.txid THEN
        RAISE WARNING 'state % before rebuild % as of txid % is told without what retention had let go of: windows that begin, or sessions that end, before %',
            quote_literal(known_before.state), rebuild, known_before.txid,
            timestamptz 'epoch' + (gone ->> 'before')::bigint * interval '1 microsecond';
    END IF;
    RETURN true;
END
$$;
CREATE FUNCTION report.merge_bins(kept bigint[], more bigint[]) RETURNS bigint[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN more IS NULL THEN kept WHEN kept IS NULL THEN more
                 ELSE ARRAY(SELECT unnest(ARRAY[b.bin, b.number])
                              FROM (SELECT a.bins[i] AS bin, sum(a.bins[i + 1])::bigint AS number
                                      FROM (SELECT kept || more AS bins OFFSET 0) a, generate_series(1, cardinality(a.bins), 2) i
                                     GROUP BY 1 ORDER BY 1) b) END $$;
CREATE FUNCTION report.merge_smallest(kept anyarray, more anyarray, size integer) RETURNS anyarray
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN more IS NULL OR more[1] >= kept[size] THEN kept
                 ELSE ARRAY(SELECT DISTINCT x FROM unnest(kept || more) x ORDER BY x LIMIT size) END $$;
CREATE FUNCTION report.merge_top(kept anyarray, more anyarray, size integer) RETURNS anyarray
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN more IS NULL THEN kept
                 ELSE ARRAY(SELECT x FROM unnest(kept || more) x ORDER BY x DESC LIMIT size) END $$;
CREATE FUNCTION report.ordered_double(ordered text) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN b.bits > 9218868437227405312 THEN 'NaN'
                      WHEN b.bits = 9218868437227405312 THEN b.sign * 'Infinity'::double precision
                      ELSE b.sign * ((b.bits & 4503599627370495) + CASE WHEN b.bits >> 52 > 0 THEN 4503599627370496 ELSE 0 END)
                                  * power(2::double precision, b.exponent / 2)
                                  * power(2::double precision, b.exponent - b.exponent / 2) END
            FROM (SELECT a.sign, a.bits, (GREATEST(a.bits >> 52, 1) - 1075)::integer AS exponent
                    FROM (SELECT CASE WHEN left(ordered, 1) = '1' THEN 1 ELSE -1 END AS sign,
                                 ('x' || CASE WHEN left(ordered, 1) = '1' THEN substr(ordered, 2)
                                              ELSE translate(substr(ordered, 2), '0123456789abcdef', 'fedcba9876543210')
                                         END)::bit(64)::bigint AS bits) a) b $$;
CREATE FUNCTION report.ordered_number(ordered text) RETURNS numeric
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN left(ordered, 1) = '1' THEN substr(ordered, 4)::numeric
                 ELSE -rtrim(translate(substr(ordered, 4), '0123456789', '9876543210'), '~')::numeric END $$;
CREATE FUNCTION report.ordered_value(ordered text) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE left(ordered, 1)
                 WHEN 'n' THEN to_jsonb(report.ordered_number(substr(ordered, 2)))
                 WHEN 's' THEN to_jsonb(replace(replace(substr(ordered, 2), chr(2) || chr(3), chr(1)), chr(2) || chr(4), chr(2)))
                 WHEN 'f' THEN to_jsonb(report.ordered_double(substr(ordered, 2)))
                 WHEN 'b' THEN to_jsonb(substr(ordered, 2) = '1')
                 WHEN 'x' THEN to_jsonb(chr(92) || ordered)
                 WHEN 'd' THEN to_jsonb(to_char((date '1970-01-01' + report.ordered_number(substr(ordered, 2))::integer)::timestamp,
                                                'YYYY-MM-DD'))
                 WHEN 't' THEN (SELECT to_jsonb(to_char(timestamp '1970-01-01'
                                                        + div(t.micros, 86400000000)::double precision * interval '1 day'
                                                        + mod(t.micros, 86400000000)::double precision * interval '1 microsecond',
                                                        'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"'))
                                  FROM (SELECT report.ordered_number(substr(ordered, 2)) AS micros) t) END $$;
CREATE FUNCTION report.quantile(bins bigint[], quantile double precision, error double precision) RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN b.bin = 0 THEN 0 WHEN b.bin > 4611686018427387904 THEN 'NaN'
                      WHEN abs(b.bin) = 4611686018427387904 THEN sign(b.bin) * 'Infinity'::double precision
                      ELSE sign(b.bin) * exp(LEAST(GREATEST((abs(b.bin) - 1099511627776) * ln((1 + error) / (1 - error))
                                                            + ln(1 - error), -744.4), 709.78)) END
            FROM (SELECT bins[i] AS bin, sum(bins[i + 1]) OVER (ORDER BY i) AS upto, sum(bins[i + 1]) OVER () AS total
                    FROM generate_series(1, cardinality(bins), 2) i) b
           WHERE b.upto::double precision >= quantile * b.total::double precision
           ORDER BY b.upto LIMIT 1 $$;
CREATE FUNCTION report.top_rows(texts text[], fields text[]) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT jsonb_agg((SELECT jsonb_object_agg(f.name, report.ordered_value(f.ordered))
                              FROM unnest(fields, string_to_array(r.ordered, chr(1))) f (name, ordered)
                             WHERE f.name IS NOT NULL) ORDER BY r.place)
            FROM unnest(texts) WITH ORDINALITY r (ordered, place) $$;
CREATE FUNCTION report.why_sentences(word text) RETURNS TABLE("position" bigint, txid bigint, replaced_by bigint, count bigint, last text, top text[], quantile text[], counts boolean, attempt text, dag_id text, run_id text, run text, interval_start timestamp with time zone, interval_end timestamp with time zone, committed_at timestamp with time zone, reason text, requested_by text, reads text[])
    LANGUAGE sql STABLE PARALLEL SAFE
    AS $_$SELECT NULLIF(r.position, 0), r.txid, b.replaced_by, r.p0, r.p1, r.p2, CASE WHEN cardinality(r.p3) > 3 THEN array_append(r.p3[1:3], NULL) ELSE r.p3 END, r.c0, b.txid || ':' || b.attempts, b.dag_id, b.run_id, b.run, b.interval_start, b.interval_end, b.committed_at, b.reason, b.requested_by, ARRAY(SELECT concat_ws(' ', s.source, CASE WHEN count(s.stream) OVER (PARTITION BY s.source) > 1 THEN '(stream ' || s.stream || ')' END, s.start_offset || '-' || s.end_offset) FROM report.batch_reads s WHERE s.topology = 'sentences' AND s.txid = r.txid AND r.position > 0 ORDER BY 1) FROM (SELECT v."word" AS k0, v."count" AS p0, v."last" AS p1, v."top" AS p2, v."quantile" AS p3, (v.position = 0 OR v.txid <> ALL (ARRAY(SELECT b.txid FROM report.batches b WHERE b.topology = 'sentences' AND b.replaced_by IS NOT NULL))) AS c0, v.position, v.txid, v.txid AS changed FROM report."sentences@versions" v WHERE v."word" = $1) r LEFT JOIN LATERAL (SELECT * FROM report.batches b WHERE b.topology = 'sentences' AND b.txid = r.txid AND r.position > 0 OFFSET 0) b ON true ORDER BY r.position, r.txid$_$;
CREATE AGGREGATE report.distinct_union(bigint[]) (
    SFUNC = report.distinct_union,
    STYPE = bigint[],
    PARALLEL = safe
);
CREATE AGGREGATE report.fold_bins(bigint[]) (
    SFUNC = report.merge_bins,
    STYPE = bigint[],
    PARALLEL = safe
);
CREATE AGGREGATE report.fold_smallest(anyarray, integer) (
    SFUNC = report.merge_smallest,
    STYPE = anyarray,
    PARALLEL = safe
);
CREATE AGGREGATE report.fold_top(anyarray, integer) (
    SFUNC = report.merge_top,
    STYPE = anyarray,
    PARALLEL = safe
);
CREATE TABLE contribution.sentences (
    word text NOT NULL COLLATE pg_catalog."C",
    "position" bigint NOT NULL,
    txid bigint NOT NULL,
    count bigint,
    last text COLLATE pg_catalog."C",
    top text[] COLLATE pg_catalog."C",
    quantile text[] COLLATE pg_catalog."C"
)
PARTITION BY RANGE (txid);
CREATE TABLE contribution_base.sentences (
    word text NOT NULL COLLATE pg_catalog."C",
    count bigint,
    last text COLLATE pg_catalog."C",
    top text[] COLLATE pg_catalog."C",
    quantile text[] COLLATE pg_catalog."C",
    txid bigint NOT NULL
);
CREATE TABLE contribution_partition."sentences@1" (
    word text CONSTRAINT sentences_word_not_null NOT NULL COLLATE pg_catalog."C",
    "position" bigint CONSTRAINT sentences_position_not_null NOT NULL,
    txid bigint CONSTRAINT sentences_txid_not_null NOT NULL,
    count bigint,
    last text COLLATE pg_catalog."C",
    top text[] COLLATE pg_catalog."C",
    quantile text[] COLLATE pg_catalog."C",
    CONSTRAINT "sentences@1_txid_check" CHECK (((txid >= 1) AND (txid < 1001)))
);
CREATE TABLE txbatch.attempt (
    topology text NOT NULL COLLATE pg_catalog."C",
    txid bigint NOT NULL,
    attempt_id integer NOT NULL,
    token text NOT NULL,
    status text DEFAULT 'emitting'::text NOT NULL,
    run text NOT NULL,
    code text NOT NULL,
    manifest json,
    error text,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    CONSTRAINT attempt_attempt_id_check CHECK ((attempt_id >= 1)),
    CONSTRAINT attempt_check CHECK (((status = ANY (ARRAY['emitted'::text, 'committed'::text])) <= (manifest IS NOT NULL))),
    CONSTRAINT attempt_check1 CHECK (((status = 'failed'::text) = (error IS NOT NULL))),
    CONSTRAINT attempt_status_check CHECK ((status = ANY (ARRAY['emitting'::text, 'emitted'::text, 'failed'::text, 'superseded'::text, 'committed'::text])))
);
CREATE VIEW report.attempts AS
 SELECT topology,
    txid,
    attempt_id,
    ((txid || ':'::text) || attempt_id) AS attempt,
    status,
    run,
    error,
    started_at,
    finished_at,
    (finished_at - started_at) AS duration,
    "left"(code, 12) AS code
   FROM txbatch.attempt a;
CREATE TABLE txbatch.batch (
    topology text NOT NULL COLLATE pg_catalog."C",
    txid bigint NOT NULL,
    "position" bigint NOT NULL,
    kind text DEFAULT 'ordinary'::text NOT NULL,
    status text DEFAULT 'planned'::text NOT NULL,
    key text NOT NULL,
    data_interval tstzrange,
    metadata json NOT NULL,
    prev_txid bigint,
    fence integer DEFAULT 0 NOT NULL,
    token text,
    lease_run text,
    lease_until timestamp with time zone NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    committed_at timestamp with time zone,
    committed_fence integer,
    records bigint,
    keys json,
    succeeded_at timestamp with time zone,
    aborted_at timestamp with time zone,
    reason text,
    kept json,
    replaced_by bigint,
    requested_by text,
    watermark json,
    late json,
    closed_to json,
    closed json,
    ahead bigint,
    ahead_to bigint,
    CONSTRAINT batch_check CHECK ((("position" >= 1) AND ("position" <= txid))),
    CONSTRAINT batch_check1 CHECK (((kind = 'restate'::text) OR ("position" = txid))),
    CONSTRAINT batch_check2 CHECK (((status = 'committed'::text) = (committed_at IS NOT NULL))),
    CONSTRAINT batch_check3 CHECK ((((status = 'committed'::text) AND (kind <> 'skip'::text)) = (committed_fence IS NOT NULL))),
    CONSTRAINT batch_check4 CHECK ((committed_fence = fence)),
    CONSTRAINT batch_check5 CHECK (((status = 'aborted'::text) = (aborted_at IS NOT NULL))),
    CONSTRAINT batch_check6 CHECK (((status <> 'aborted'::text) OR (reason IS NOT NULL))),
    CONSTRAINT batch_check7 CHECK (((status <> ALL (ARRAY['emitted'::text, 'committed'::text])) OR (kind = 'skip'::text) OR (fence > 0))),
    CONSTRAINT batch_check8 CHECK (((fence = 0) = (token IS NULL))),
    CONSTRAINT batch_check9 CHECK (((succeeded_at IS NULL) OR (status = 'committed'::text))),
    CONSTRAINT batch_data_interval_check CHECK (((data_interval IS NULL) OR ((NOT isempty(data_interval)) AND lower_inc(data_interval) AND (NOT upper_inc(data_interval))))),
    CONSTRAINT batch_fence_check CHECK ((fence >= 0)),
    CONSTRAINT batch_kind_check CHECK ((kind = ANY (ARRAY['ordinary'::text, 'restate'::text, 'skip'::text]))),
    CONSTRAINT batch_replaced_check CHECK (((replaced_by IS NULL) OR ((replaced_by > txid) AND (status = 'committed'::text)))),
    CONSTRAINT batch_status_check CHECK ((status = ANY (ARRAY['planned'::text, 'emitted'::text, 'committed'::text, 'aborted'::text]))),
    CONSTRAINT batch_txid_check CHECK ((txid >= 1))
);
CREATE TABLE txbatch.partition (
    topology text NOT NULL COLLATE pg_catalog."C",
    stream text NOT NULL COLLATE pg_catalog."C",
    partition text NOT NULL COLLATE pg_catalog."C",
    txid bigint NOT NULL,
    status text NOT NULL,
    metadata json NOT NULL,
    records bigint,
    fingerprint numeric(38,0),
    reason text,
    CONSTRAINT partition_check CHECK (((status = 'read'::text) = ((records IS NOT NULL) AND (fingerprint IS NOT NULL)))),
    CONSTRAINT partition_status_check CHECK ((status = ANY (ARRAY['read'::text, 'unreadable'::text, 'skipped'::text])))
);
CREATE VIEW report.batch_reads AS
 SELECT partition.topology,
    partition.txid,
    partition.stream,
    partition.partition AS source,
    (partition.metadata ->> 'start'::text) AS start_offset,
    (partition.metadata ->> 'end'::text) AS end_offset
   FROM txbatch.partition
  WHERE ((partition.status = 'read'::text) AND (partition.partition <> ''::text))
UNION ALL
 SELECT b.topology,
    b.txid,
    s.key AS stream,
    f.key AS source,
    NULL::text AS start_offset,
    NULL::text AS end_offset
   FROM (((txbatch.batch b
     CROSS JOIN LATERAL json_each(
        CASE
            WHEN (json_typeof((b.metadata -> 'streams'::text)) = 'object'::text) THEN (b.metadata -> 'streams'::text)
            ELSE NULL::json
        END) s(key, value))
     CROSS JOIN LATERAL ( SELECT COALESCE(((s.value -> 'plan'::text) -> 'files'::text), (s.value -> 'files'::text)) AS files) p)
     CROSS JOIN LATERAL json_each(
        CASE
            WHEN (json_typeof(p.files) = 'object'::text) THEN p.files
            ELSE NULL::json
        END) f(key, value))
  WHERE ((b.status = 'committed'::text) AND (b.kind <> 'skip'::text) AND (b.data_interval IS NOT NULL))
UNION ALL
 SELECT b.topology,
    b.txid,
    NULL::text AS stream,
    format('%s as of txid %s'::text, a.key, (a.value ->> 'txid'::text)) AS source,
    NULL::text AS start_offset,
    NULL::text AS end_offset
   FROM (txbatch.batch b
     CROSS JOIN LATERAL json_each(
        CASE
            WHEN (json_typeof((b.metadata -> 'as_of'::text)) = 'object'::text) THEN (b.metadata -> 'as_of'::text)
            ELSE NULL::json
        END) a(key, value))
  WHERE ((b.status = 'committed'::text) AND (b.kind <> 'skip'::text));
CREATE TABLE txbatch.batch_key (
    topology text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL COLLATE pg_catalog."C",
    ordinal integer NOT NULL,
    txid bigint NOT NULL,
    dag_id text,
    run_id text,
    CONSTRAINT batch_key_ordinal_check CHECK ((ordinal >= 1))
);
CREATE VIEW report.batches AS
 SELECT b.topology,
    b.txid,
    b.kind,
    b.status,
    ((b.status = 'committed'::text) AND (NOT (EXISTS ( SELECT
           FROM txbatch.batch o
          WHERE ((o.topology = b.topology) AND (o.txid < b.txid) AND (o.status = ANY (ARRAY['planned'::text, 'emitted'::text]))))))) AS final,
    lower(b.data_interval) AS interval_start,
    upper(b.data_interval) AS interval_end,
    b.fence AS attempts,
    b.records,
    b.keys,
    k.dag_id,
    k.run_id,
    b.created_at,
    b.committed_at,
    (b.committed_at - b.created_at) AS duration,
    b.reason,
    b.lease_run AS run,
    ((b.status = ANY (ARRAY['planned'::text, 'emitted'::text])) AND (b.lease_until > clock_timestamp())) AS lease_live,
    b.kept,
    (a.finished_at - a.started_at) AS emit_duration,
    b."position",
    b.replaced_by,
    b.requested_by,
    b.late,
    w.watermark,
    s.closed_to,
    b.ahead,
    ('1970-01-01 00:00:00+00'::timestamp with time zone + ((b.ahead_to)::double precision * '00:00:00.000001'::interval)) AS ahead_to
   FROM ((((txbatch.batch b
     LEFT JOIN txbatch.attempt a ON (((a.topology = b.topology) AND (a.txid = b.txid) AND (a.attempt_id = b.fence))))
     LEFT JOIN LATERAL ( SELECT k_1.dag_id,
            k_1.run_id
           FROM txbatch.batch_key k_1
          WHERE ((k_1.topology = b.topology) AND (k_1.txid = b.txid))
          ORDER BY k_1.key, k_1.ordinal
         LIMIT 1) k ON (true))
     LEFT JOIN LATERAL ( SELECT ('1970-01-01 00:00:00+00'::timestamp with time zone + ((min((json_each_text.value)::bigint))::double precision * '00:00:00.000001'::interval)) AS watermark
           FROM json_each_text(b.watermark) json_each_text(key, value)) w ON (true))
     LEFT JOIN LATERAL ( SELECT ('1970-01-01 00:00:00+00'::timestamp with time zone + ((min((json_each_text.value)::bigint))::double precision * '00:00:00.000001'::interval)) AS closed_to
           FROM json_each_text(b.closed_to) json_each_text(key, value)) s ON (true));
CREATE TABLE txbatch.change (
    change bigint NOT NULL,
    topology text NOT NULL COLLATE pg_catalog."C",
    txid bigint NOT NULL,
    job text NOT NULL,
    what json NOT NULL,
    why text NOT NULL,
    requested_by text,
    changed_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
CREATE VIEW report.changes_of_definition AS
 SELECT c.topology,
    c.change,
    c.txid,
    (e.value ->> 'what'::text) AS what,
    (e.value ->> 'how'::text) AS how,
    c.why,
    c.requested_by,
    c.changed_at,
    c.job
   FROM txbatch.change c,
    LATERAL json_array_elements(c.what) e(value);
CREATE VIEW report.closings AS
 SELECT b.topology,
    b.txid,
    c.key AS state,
    (c.value ->> 0) AS window_key,
    ('1970-01-01 00:00:00+00'::timestamp with time zone + ((((c.value ->> 1))::bigint)::double precision * '00:00:00.000001'::interval)) AS first_start,
    ('1970-01-01 00:00:00+00'::timestamp with time zone + ((((c.value ->> 2))::bigint)::double precision * '00:00:00.000001'::interval)) AS before_start,
    ('1970-01-01 00:00:00+00'::timestamp with time zone + ((((b.closed_to ->> c.key))::bigint)::double precision * '00:00:00.000001'::interval)) AS closed_to,
    b.committed_at
   FROM (txbatch.batch b
     CROSS JOIN LATERAL json_each(b.closed) c(key, value))
  WHERE (b.status = 'committed'::text);
CREATE TABLE txbatch.consumed (
    topology text NOT NULL COLLATE pg_catalog."C",
    stream text NOT NULL COLLATE pg_catalog."C",
    partition text NOT NULL COLLATE pg_catalog."C",
    txid bigint NOT NULL,
    metadata json NOT NULL,
    latest bigint
)
WITH (fillfactor='85');
CREATE VIEW report.completeness AS
 SELECT p.topology,
    p.stream,
    p.partition,
    (c.metadata ->> 'end'::text) AS consumed_to,
    c.txid AS current_to_txid,
    b.committed_at AS current_to,
    h.txid AS unreadable_since_txid
   FROM (((( SELECT consumed.topology,
            consumed.stream,
            consumed.partition
           FROM txbatch.consumed
        UNION
         SELECT u.topology,
            u.stream,
            u.partition
           FROM txbatch.partition u
          WHERE ((u.status = 'unreadable'::text) AND (NOT (EXISTS ( SELECT
                   FROM txbatch.batch r
                  WHERE ((r.topology = u.topology) AND (r.txid = u.txid) AND (r.kind = 'restate'::text))))))) p
     LEFT JOIN txbatch.consumed c USING (topology, stream, partition))
     LEFT JOIN txbatch.batch b ON (((b.topology = c.topology) AND (b.txid = c.txid))))
     LEFT JOIN LATERAL ( SELECT min(u.txid) AS txid
           FROM txbatch.partition u
          WHERE ((u.topology = p.topology) AND (u.stream = p.stream) AND (u.partition = p.partition) AND (u.status = 'unreadable'::text) AND (u.txid > COALESCE(c.txid, (0)::bigint)) AND (NOT (EXISTS ( SELECT
                   FROM txbatch.batch r
                  WHERE ((r.topology = u.topology) AND (r.txid = u.txid) AND (r.kind = 'restate'::text))))))) h ON (true))
UNION ALL
 SELECT i.topology,
    s.stream,
    ''::text AS partition,
    to_char((i.whole_to AT TIME ZONE 'UTC'::text), 'YYYY-MM-DD"T"HH24:MI:SS"Z"'::text) AS consumed_to,
    b.txid AS current_to_txid,
    b.committed_at AS current_to,
    NULL::bigint AS unreadable_since_txid
   FROM ((( SELECT batch.topology,
            upper(( SELECT r.r
                   FROM unnest(range_agg(batch.data_interval)) r(r)
                  ORDER BY r.r
                 LIMIT 1)) AS whole_to
           FROM txbatch.batch
          WHERE ((batch.data_interval IS NOT NULL) AND (batch.status = 'committed'::text) AND (batch.kind <> 'restate'::text))
          GROUP BY batch.topology) i
     JOIN txbatch.batch b ON (((b.topology = i.topology) AND (upper(b.data_interval) = i.whole_to) AND (b.status = 'committed'::text) AND (b.kind <> 'restate'::text))))
     JOIN txbatch.partition s ON (((s.topology = b.topology) AND (s.txid = b.txid) AND (s.partition = ''::text))));
CREATE VIEW report.gaps AS
 WITH counted AS (
         SELECT batch.topology,
            range_agg(batch.data_interval) AS intervals
           FROM txbatch.batch
          WHERE ((batch.data_interval IS NOT NULL) AND (batch.status = 'committed'::text) AND (batch.kind <> 'restate'::text))
          GROUP BY batch.topology
        ), held AS (
         SELECT b.topology,
            b.data_interval,
            b.txid,
            b.status,
            a.status AS attempt_status,
            b.lease_run AS run,
            (b.lease_until > clock_timestamp()) AS lease_live
           FROM ((txbatch.batch b
             JOIN counted c ON (((c.topology = b.topology) AND (range_merge(c.intervals) @> b.data_interval))))
             LEFT JOIN txbatch.attempt a ON (((a.topology = b.topology) AND (a.txid = b.txid) AND (a.attempt_id = b.fence))))
          WHERE ((b.status = ANY (ARRAY['planned'::text, 'emitted'::text])) AND (b.kind <> 'restate'::text))
        ), free AS (
         SELECT c.topology,
            ((multirange(range_merge(c.intervals)) - c.intervals) - COALESCE(( SELECT range_agg(h.data_interval) AS range_agg
                   FROM held h
                  WHERE (h.topology = c.topology)), '{}'::tstzmultirange)) AS intervals
           FROM counted c
        )
 SELECT free.topology,
    lower(i.i) AS gap_start,
    upper(i.i) AS gap_end,
    NULL::bigint AS txid,
    NULL::text AS status,
    NULL::text AS attempt_status,
    NULL::text AS run,
    NULL::boolean AS lease_live
   FROM free,
    LATERAL unnest(free.intervals) i(i)
UNION ALL
 SELECT held.topology,
    lower(held.data_interval) AS gap_start,
    upper(held.data_interval) AS gap_end,
    held.txid,
    held.status,
    held.attempt_status,
    held.run,
    held.lease_live
   FROM held;
CREATE VIEW report.partitions AS
 SELECT topology,
    stream,
    partition,
    txid,
    status,
    (metadata ->> 'start'::text) AS start_offset,
    (metadata ->> 'end'::text) AS end_offset,
    records,
    fingerprint,
    reason
   FROM txbatch.partition;
CREATE TABLE txbatch.rebuild (
    rebuild bigint NOT NULL,
    topology text NOT NULL COLLATE pg_catalog."C",
    status text DEFAULT 'running'::text NOT NULL,
    why text NOT NULL,
    requested_by text,
    job text NOT NULL,
    code text NOT NULL,
    definition json NOT NULL,
    started_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    ended_at timestamp with time zone,
    swapped_txid bigint,
    past json,
    dropped_at timestamp with time zone,
    CONSTRAINT rebuild_check CHECK (((status = 'swapped'::text) = (ended_at IS NOT NULL))),
    CONSTRAINT rebuild_check1 CHECK (((status = 'swapped'::text) = ((swapped_txid IS NOT NULL) AND (past IS NOT NULL)))),
    CONSTRAINT rebuild_check2 CHECK (((dropped_at IS NULL) OR (status = 'swapped'::text))),
    CONSTRAINT rebuild_status_check CHECK ((status = ANY (ARRAY['running'::text, 'swapped'::text])))
);
CREATE TABLE txbatch.rebuilt (
    rebuild bigint NOT NULL,
    txid bigint NOT NULL,
    "position" bigint NOT NULL,
    keys json NOT NULL,
    kept json,
    records bigint NOT NULL,
    counted_at timestamp with time zone DEFAULT clock_timestamp() NOT NULL,
    counted_in xid8 DEFAULT pg_current_xact_id() NOT NULL,
    metadata json,
    streams json,
    late json
);
CREATE VIEW report.rebuilds AS
 SELECT r.topology,
    r.rebuild,
    r.status,
    r.why,
    r.requested_by,
    r.job,
    r.started_at,
    r.ended_at,
    r.swapped_txid,
    d.counted,
    d.records,
        CASE
            WHEN (r.status = 'running'::text) THEN ( SELECT count(*) AS count
               FROM txbatch.batch b
              WHERE ((b.topology = r.topology) AND (b.status = 'committed'::text) AND (b.kind <> 'skip'::text) AND (b.replaced_by IS NULL) AND (b.txid > d.last_txid)))
            ELSE NULL::bigint
        END AS to_count,
    ((r.status = 'swapped'::text) AND (r.dropped_at IS NULL)) AS past_kept
   FROM (txbatch.rebuild r
     CROSS JOIN LATERAL ( SELECT count(*) FILTER (WHERE n.stands) AS counted,
            (COALESCE(sum(n.records) FILTER (WHERE n.stands), (0)::numeric))::bigint AS records,
            COALESCE(max(n.txid), (0)::bigint) AS last_txid
           FROM ( SELECT DISTINCT ON (v."position") v.txid,
                    v.records,
                    ((r.status = 'swapped'::text) OR (NOT (EXISTS ( SELECT
                           FROM txbatch.batch b
                          WHERE ((b.topology = r.topology) AND (b.txid = v.txid) AND (b.replaced_by IS NOT NULL)))))) AS stands
                   FROM txbatch.rebuilt v
                  WHERE (v.rebuild = r.rebuild)
                  ORDER BY v."position", v.txid DESC) n) d);
CREATE VIEW report.restatements AS
 SELECT r.topology,
    r."position",
    r.txid,
    o.txid AS replaced_txid,
    r.status,
    r.reason,
    r.requested_by,
    k.dag_id,
    k.run_id,
    r.lease_run AS run,
    r.created_at,
    r.committed_at,
        CASE
            WHEN (o.records IS NOT NULL) THEN ( SELECT (COALESCE(sum(p.records), (0)::numeric))::bigint AS "coalesce"
               FROM txbatch.partition p
              WHERE ((p.topology = o.topology) AND (p.txid = o.txid)))
            ELSE NULL::bigint
        END AS records_before,
        CASE
            WHEN (r.records IS NOT NULL) THEN ( SELECT (COALESCE(sum(p.records), (0)::numeric))::bigint AS "coalesce"
               FROM txbatch.partition p
              WHERE ((p.topology = r.topology) AND (p.txid = r.txid)))
            ELSE NULL::bigint
        END AS records,
    r.keys,
    r.replaced_by
   FROM ((txbatch.batch r
     LEFT JOIN txbatch.batch o ON (((o.topology = r.topology) AND (o.replaced_by = r.txid))))
     LEFT JOIN LATERAL ( SELECT k_1.dag_id,
            k_1.run_id
           FROM txbatch.batch_key k_1
          WHERE ((k_1.topology = r.topology) AND (k_1.txid = r.txid))
          ORDER BY k_1.key, k_1.ordinal
         LIMIT 1) k ON (true))
  WHERE (r.kind = 'restate'::text);
CREATE TABLE txbatch.state (
    state text NOT NULL COLLATE pg_catalog."C",
    topology text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL,
    contributions boolean NOT NULL,
    columns json NOT NULL,
    database text,
    applied_txid bigint,
    streams json,
    horizon bigint DEFAULT 0 NOT NULL,
    values_since json,
    joined bigint DEFAULT 1 NOT NULL,
    left_in text,
    CONSTRAINT state_check CHECK (((database IS NULL) OR (NOT contributions))),
    CONSTRAINT state_check1 CHECK (((applied_txid IS NULL) OR (database IS NOT NULL))),
    CONSTRAINT state_check2 CHECK ((left_in <> database)),
    CONSTRAINT state_horizon_check CHECK ((horizon >= 0)),
    CONSTRAINT state_joined_check CHECK ((joined >= 1)),
    CONSTRAINT state_kind_check CHECK ((kind = ANY (ARRAY['non_transactional'::text, 'transactional'::text, 'opaque'::text])))
);
CREATE TABLE txbatch.topology (
    topology text NOT NULL COLLATE pg_catalog."C",
    job text NOT NULL,
    by_interval boolean NOT NULL,
    source json,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    streams json,
    keep json,
    watermarks json
);
CREATE VIEW report.retention AS
 SELECT t.topology,
    ((t.keep ->> 'txids'::text))::bigint AS keep_txids,
    ((t.keep ->> 'days'::text))::double precision AS keep_days,
    s.horizon,
    h.committed_at AS horizon_at,
    ( SELECT count(*) AS count
           FROM txbatch.batch b
          WHERE ((b.topology = t.topology) AND (b.status = 'committed'::text) AND (b.txid > s.horizon))) AS batches_kept
   FROM ((txbatch.topology t
     LEFT JOIN ( SELECT state.topology,
            min(state.horizon) AS horizon
           FROM txbatch.state
          WHERE state.contributions
          GROUP BY state.topology) s USING (topology))
     LEFT JOIN txbatch.batch h ON (((h.topology = t.topology) AND (h.txid = s.horizon))));
CREATE VIEW report."sentences@versions" AS
 SELECT sentences.word,
    sentences.count,
    sentences.last,
    sentences.top,
    sentences.quantile,
    (0)::bigint AS "position",
    sentences.txid
   FROM contribution_base.sentences
UNION ALL
 SELECT sentences.word,
    sentences.count,
    sentences.last,
    sentences.top,
    sentences.quantile,
    sentences."position",
    sentences.txid
   FROM contribution.sentences;
CREATE VIEW report.sentences_changes AS
 SELECT c.word,
    c.count,
    c.last,
    c.top,
        CASE
            WHEN (cardinality(c.quantile) > 3) THEN array_append(c.quantile[1:3], NULL::text)
            ELSE c.quantile
        END AS quantile,
    c.txid,
    b.committed_at,
    lower(b.data_interval) AS interval_start,
    upper(b.data_interval) AS interval_end,
    c."position",
    b.replaced_by
   FROM (contribution.sentences c
     JOIN txbatch.batch b ON (((b.topology = 'sentences'::text) AND (b.txid = c.txid))));
CREATE VIEW report.state_coverage AS
 SELECT s.topology,
    s.state,
    c.since_txid,
    c.counts_to_txid,
    COALESCE(c.missed, (0)::bigint) AS missed,
    c.missed_txids
   FROM (txbatch.state s
     LEFT JOIN LATERAL ( SELECT min(together.first_txid) FILTER (WHERE together.counted) AS since_txid,
            max(together.last_txid) FILTER (WHERE together.counted) AS counts_to_txid,
            (sum(together.txids) FILTER (WHERE (NOT together.counted)))::bigint AS missed,
            string_agg(
                CASE
                    WHEN (together.first_txid = together.last_txid) THEN (together.first_txid)::text
                    ELSE ((together.first_txid || '-'::text) || together.last_txid)
                END, ', '::text ORDER BY together.first_txid) FILTER (WHERE (NOT together.counted)) AS missed_txids
           FROM ( SELECT numbered.counted,
                    min(numbered.txid) AS first_txid,
                    max(numbered.txid) AS last_txid,
                    count(*) AS txids
                   FROM ( SELECT each.txid,
                            each.counted,
                            (row_number() OVER (ORDER BY each.txid) - row_number() OVER (PARTITION BY each.counted ORDER BY each.txid)) AS series
                           FROM ( SELECT b.txid,
                                    ((b.keys -> s.state) IS NOT NULL) AS counted
                                   FROM txbatch.batch b
                                  WHERE ((b.topology = s.topology) AND (b.status = 'committed'::text) AND (b.kind = 'ordinary'::text))) each) numbered
                  GROUP BY numbered.counted, numbered.series) together) c ON (true));
CREATE VIEW report.values_since AS
 SELECT s.topology,
    s.state,
    e.key AS value,
    ((e.value)::text)::bigint AS since_txid
   FROM txbatch.state s,
    LATERAL json_each(s.values_since) e(key, value);
CREATE TABLE txbatch.waiting (
    topology text NOT NULL COLLATE pg_catalog."C",
    run text NOT NULL COLLATE pg_catalog."C",
    txid bigint NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
CREATE VIEW report.waiting AS
 SELECT w.topology,
    w.txid,
    w.run,
    w.status,
    h.txid AS waits_for_txid,
    h.lease_run AS waits_for_run,
    h.status AS waits_for_status,
    (h.lease_until > clock_timestamp()) AS lease_live,
    w.since,
    (clock_timestamp() - w.since) AS waited,
    h.lease_until
   FROM (( SELECT b.topology,
            b.txid,
            b.lease_run AS run,
            b.status,
            a.finished_at AS since,
            ( SELECT min(o.txid) AS min
                   FROM txbatch.batch o
                  WHERE ((o.topology = b.topology) AND (o.txid < b.txid) AND (o.status = ANY (ARRAY['planned'::text, 'emitted'::text])))) AS waits_for
           FROM (txbatch.batch b
             JOIN txbatch.attempt a ON (((a.topology = b.topology) AND (a.txid = b.txid) AND (a.attempt_id = b.fence))))
          WHERE (b.status = 'emitted'::text)
        UNION ALL
         SELECT waiting.topology,
            NULL::bigint,
            waiting.run,
            'waiting'::text,
            waiting.since,
            waiting.txid
           FROM txbatch.waiting) w
     JOIN txbatch.batch h ON ((((h.topology = w.topology) AND (h.txid = w.waits_for)) AND (h.status = ANY (ARRAY['planned'::text, 'emitted'::text])))));
CREATE TABLE txbatch.windows_left (
    state text NOT NULL COLLATE pg_catalog."C",
    kept json NOT NULL,
    left_before bigint NOT NULL,
    txid bigint NOT NULL,
    windows bigint NOT NULL,
    records bigint,
    left_at timestamp with time zone NOT NULL
);
CREATE VIEW report.windows_left AS
 SELECT s.topology,
    state,
    ((((p.kept ->> 'keep'::text))::bigint)::double precision * '00:00:00.000001'::interval) AS keep,
    (((COALESCE(l.kept, p.kept) -> 'window'::text) ->> 'gap'::text) IS NOT NULL) AS sessions,
    ('1970-01-01 00:00:00+00'::timestamp with time zone + ((l.left_before)::double precision * '00:00:00.000001'::interval)) AS left_before,
    COALESCE(l.windows, (0)::bigint) AS windows,
    l.records,
    l.txid,
    l.left_at
   FROM ((( SELECT w.key AS state,
            w.value AS kept
           FROM (txbatch.topology t
             CROSS JOIN LATERAL json_each((t.keep -> 'windows'::text)) w(key, value))) p
     FULL JOIN txbatch.windows_left l USING (state))
     JOIN txbatch.state s USING (state));
CREATE TABLE txbatch.behind (
    topology text NOT NULL COLLATE pg_catalog."C",
    stream text NOT NULL COLLATE pg_catalog."C",
    partition text NOT NULL COLLATE pg_catalog."C",
    txid bigint NOT NULL
);
ALTER TABLE txbatch.change ALTER COLUMN change ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME txbatch.change_change_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE txbatch.ledger (
    single boolean DEFAULT true NOT NULL,
    uuid uuid DEFAULT gen_random_uuid() NOT NULL,
    CONSTRAINT ledger_single_check CHECK (single)
);
CREATE TABLE txbatch.migration (
    number integer NOT NULL,
    name text NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL
);
ALTER TABLE txbatch.rebuild ALTER COLUMN rebuild ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME txbatch.rebuild_rebuild_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE txbatch.running (
    topology text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL COLLATE pg_catalog."C",
    key bigint NOT NULL,
    role oid NOT NULL,
    since timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);
ALTER TABLE ONLY contribution.sentences ATTACH PARTITION contribution_partition."sentences@1" FOR VALUES FROM ('1') TO ('1001');
INSERT INTO txbatch.attempt VALUES ('sentences', 1, 1, '2e1fb52d-7846-4505-907f-d9ce8ae94c6f', 'emitted', 'cli:31e7995cba75', 'b8d6334767061e1ca485fe590038ed2adc1c5060e7cd8371d95682f49f6fe7f9', '{"attempt":{"attempt_id":1,"txid":1},"code":"b8d6334767061e1ca485fe590038ed2adc1c5060e7cd8371d95682f49f6fe7f9","format":1,"metadata_digest":"08fde9cb6b793ce7c4a1ac8547133a29b1541204d9558766abc8f2a976ce904d","states":{"sentences":{"files":[{"bytes":2187,"name":"partials/0/part-00000-f65041f0-2b1a-4291-a89a-32f4d46597e9-c000.snappy.parquet","rows":6,"sha256":"1b0c5d73423ae7be15351035c2f12d22b80167d96d2737a85597aec25b784997"}],"kept":7,"rows":6,"totals":{"count":"7","last":"6","quantile":"6","top":"7"}}},"streams":{"in":{"":{"fingerprint":"7427410607135474439","records":2}}},"token":"2e1fb52d-7846-4505-907f-d9ce8ae94c6f","topology":"sentences","unreadable":{}}', NULL, '2026-11-27 05:53:49.10206+00', '2026-11-27 05:54:25.644539+00');
INSERT INTO txbatch.batch VALUES ('sentences', 1, 1, 'ordinary', 'emitted', 'run:cli:31e7995cba75', NULL, '{"format":2,"streams":{"in":{"plan":{"end":2,"start":0}}}}', NULL, 1, '2e1fb52d-7846-4505-907f-d9ce8ae94c6f', 'cli:31e7995cba75', '2026-11-27 05:56:25.645519+00', '2026-11-27 05:53:49.07003+00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
INSERT INTO txbatch.batch_key VALUES ('sentences', 'run:cli:31e7995cba75', 1, 1, NULL, NULL);
INSERT INTO txbatch.ledger VALUES (true, '548d6172-8f69-40f6-a068-5ccc08740538');
INSERT INTO txbatch.migration VALUES (1, 'ledger', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (2, 'reports', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (3, 'running', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (4, 'definitions', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (5, 'waits', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (6, 'reads', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (7, 'corrections', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (8, 'restate', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (9, 'past', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (10, 'changes', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (11, 'rebuild', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (12, 'rebuilt_reads', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (13, 'batch_reads', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (14, 'past_generations', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (15, 'renamed', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (16, 'rebuilt_positions', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (17, 'retention', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (18, 'aggregates', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (19, 'moved_states', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (20, 'far_back', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (21, 'looked_up', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (22, 'distinct', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (23, 'as_of_before_a_swap', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (24, 'watermarks', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (25, 'by_its_job', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (26, 'records_as_rebuilt', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (27, 'top_rows', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (28, 'closed_to', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (29, 'closed_sessions', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (30, 'smallest_at_once', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (31, 'swapped_together', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (32, 'ahead', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.migration VALUES (33, 'windows_left', '2026-11-27 05:53:48.257864+00');
INSERT INTO txbatch.running VALUES ('sentences', 'cli:31e7995cba75', 8177234135236226005, 10, '2026-11-27 05:53:49.004397+00');
INSERT INTO txbatch.state VALUES ('sentences', 'sentences', 'opaque', true, '{"aggregates":{"count":"Count","last":"Max of word","quantile":"CollectSet of word, at most 3, and null behind them if there are more","top":"TopN of word, the 2 greatest"},"keys":[["word","string"]],"values":[["count","bigint","add"],["last","string","greatest"],["top","array<string>","top(2)"],["quantile","array<string>","smallest(4)"]]}', NULL, NULL, '["in"]', 0, NULL, 1, NULL);
INSERT INTO txbatch.topology VALUES ('sentences', 'jobs/sentences.py', false, '{"in":{"kind":"transactional","reads":"whole","records":"f33bee02a70d3faa1d399d5054abcab2ec96569cf8023743609b760eee601202","spout":"FixedBatchSpout"}}', '2026-11-27 05:53:48.890273+00', '{"in":{"sentence":"string"}}', NULL, NULL);
SELECT pg_catalog.setval('txbatch.change_change_seq', 1, false);
SELECT pg_catalog.setval('txbatch.rebuild_rebuild_seq', 1, false);
ALTER TABLE ONLY contribution.sentences
    ADD CONSTRAINT sentences_pkey PRIMARY KEY (word, "position", txid);
ALTER TABLE ONLY contribution_base.sentences
    ADD CONSTRAINT sentences_pkey PRIMARY KEY (word);
ALTER TABLE ONLY contribution_partition."sentences@1"
    ADD CONSTRAINT "sentences@1_pkey" PRIMARY KEY (word, "position", txid);
ALTER TABLE ONLY state.sentences
    ADD CONSTRAINT sentences_pkey PRIMARY KEY (word);
ALTER TABLE ONLY txbatch.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (topology, txid, attempt_id);
ALTER TABLE ONLY txbatch.attempt
    ADD CONSTRAINT attempt_token_key UNIQUE (token);
ALTER TABLE ONLY txbatch.batch_key
    ADD CONSTRAINT batch_key_pkey PRIMARY KEY (topology, key, ordinal);
ALTER TABLE ONLY txbatch.batch
    ADD CONSTRAINT batch_pkey PRIMARY KEY (topology, txid);
ALTER TABLE ONLY txbatch.behind
    ADD CONSTRAINT behind_pkey PRIMARY KEY (topology, stream, partition);
ALTER TABLE ONLY txbatch.change
    ADD CONSTRAINT change_pkey PRIMARY KEY (change);
ALTER TABLE ONLY txbatch.consumed
    ADD CONSTRAINT consumed_pkey PRIMARY KEY (topology, stream, partition);
ALTER TABLE ONLY txbatch.ledger
    ADD CONSTRAINT ledger_pkey PRIMARY KEY (single);
ALTER TABLE ONLY txbatch.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (number);
ALTER TABLE ONLY txbatch.partition
    ADD CONSTRAINT partition_pkey PRIMARY KEY (topology, stream, partition, txid);
ALTER TABLE ONLY txbatch.rebuild
    ADD CONSTRAINT rebuild_pkey PRIMARY KEY (rebuild);
ALTER TABLE ONLY txbatch.rebuilt
    ADD CONSTRAINT rebuilt_pkey PRIMARY KEY (rebuild, txid);
ALTER TABLE ONLY txbatch.running
    ADD CONSTRAINT running_pkey PRIMARY KEY (topology, name);
ALTER TABLE ONLY txbatch.state
    ADD CONSTRAINT state_pkey PRIMARY KEY (state);
ALTER TABLE ONLY txbatch.topology
    ADD CONSTRAINT topology_pkey PRIMARY KEY (topology);
ALTER TABLE ONLY txbatch.waiting
    ADD CONSTRAINT waiting_pkey PRIMARY KEY (topology, run);
ALTER TABLE ONLY txbatch.windows_left
    ADD CONSTRAINT windows_left_pkey PRIMARY KEY (state);
CREATE INDEX "sentences@txid" ON ONLY contribution.sentences USING brin (txid) WITH (pages_per_range='16', autosummarize='on');
CREATE INDEX "sentences@1_txid_idx" ON contribution_partition."sentences@1" USING brin (txid) WITH (pages_per_range='16', autosummarize='on');
CREATE INDEX batch_interval ON txbatch.batch USING btree (topology, lower(data_interval)) WHERE ((data_interval IS NOT NULL) AND (status <> 'aborted'::text) AND (kind <> 'restate'::text));
CREATE INDEX batch_key_txid ON txbatch.batch_key USING btree (topology, txid);
CREATE INDEX batch_open ON txbatch.batch USING btree (topology, txid) WHERE (status = ANY (ARRAY['planned'::text, 'emitted'::text]));
CREATE INDEX batch_ordinary ON txbatch.batch USING btree (topology, txid) WHERE ((status <> 'aborted'::text) AND (kind <> 'restate'::text));
CREATE INDEX batch_replaced ON txbatch.batch USING btree (topology, txid, replaced_by) WHERE (replaced_by IS NOT NULL);
CREATE INDEX batch_restate ON txbatch.batch USING btree (topology, "position", txid) WHERE (kind = 'restate'::text);
CREATE INDEX change_topology ON txbatch.change USING btree (topology, change);
CREATE INDEX partition_txid ON txbatch.partition USING btree (topology, txid);
CREATE UNIQUE INDEX rebuild_running ON txbatch.rebuild USING btree (topology) WHERE (status = 'running'::text);
CREATE INDEX rebuild_topology ON txbatch.rebuild USING btree (topology, rebuild);
ALTER INDEX contribution.sentences_pkey ATTACH PARTITION contribution_partition."sentences@1_pkey";
ALTER INDEX contribution."sentences@txid" ATTACH PARTITION contribution_partition."sentences@1_txid_idx";
ALTER TABLE ONLY txbatch.attempt
    ADD CONSTRAINT attempt_topology_txid_fkey FOREIGN KEY (topology, txid) REFERENCES txbatch.batch(topology, txid) ON UPDATE CASCADE;
ALTER TABLE ONLY txbatch.batch_key
    ADD CONSTRAINT batch_key_topology_txid_fkey FOREIGN KEY (topology, txid) REFERENCES txbatch.batch(topology, txid) ON UPDATE CASCADE;
ALTER TABLE ONLY txbatch.batch
    ADD CONSTRAINT batch_topology_fkey FOREIGN KEY (topology) REFERENCES txbatch.topology(topology) ON UPDATE CASCADE;
ALTER TABLE ONLY txbatch.behind
    ADD CONSTRAINT behind_topology_fkey FOREIGN KEY (topology) REFERENCES txbatch.topology(topology) ON UPDATE CASCADE;
ALTER TABLE ONLY txbatch.change
    ADD CONSTRAINT change_topology_fkey FOREIGN KEY (topology) REFERENCES txbatch.topology(topology) ON UPDATE CASCADE;
ALTER TABLE ONLY txbatch.consumed
    ADD CONSTRAINT consumed_topology_fkey FOREIGN KEY (topology) REFERENCES txbatch.topology(topology) ON UPDATE CASCADE;
ALTER TABLE ONLY txbatch.partition
    ADD CONSTRAINT partition_topology_txid_fkey FOREIGN KEY (topology, txid) REFERENCES txbatch.batch(topology, txid) ON UPDATE CASCADE;
ALTER TABLE ONLY txbatch.rebuild
    ADD CONSTRAINT rebuild_topology_fkey FOREIGN KEY (topology) REFERENCES txbatch.topology(topology) ON UPDATE CASCADE;
ALTER TABLE ONLY txbatch.rebuilt
    ADD CONSTRAINT rebuilt_rebuild_fkey FOREIGN KEY (rebuild) REFERENCES txbatch.rebuild(rebuild) ON DELETE CASCADE;
ALTER TABLE ONLY txbatch.state
    ADD CONSTRAINT state_topology_fkey FOREIGN KEY (topology) REFERENCES txbatch.topology(topology) ON UPDATE CASCADE;
ALTER TABLE ONLY txbatch.waiting
    ADD CONSTRAINT waiting_topology_fkey FOREIGN KEY (topology) REFERENCES txbatch.topology(topology) ON UPDATE CASCADE;
ALTER TABLE ONLY txbatch.windows_left
    ADD CONSTRAINT windows_left_state_fkey FOREIGN KEY (state) REFERENCES txbatch.state(state) ON UPDATE CASCADE ON DELETE CASCADE;
