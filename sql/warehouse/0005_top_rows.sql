-- What reports show of the rows that TopNBy keeps: each is its fields as texts in the order of the values, chr(1) between two, so
-- that the greatest are found as those of any text; the first character says what a value is, null is empty.

CREATE OR REPLACE FUNCTION report.ordered_number(ordered text) RETURNS numeric
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT CASE WHEN left(ordered, 1) = '1' THEN substr(ordered, 4)::numeric
                 ELSE -rtrim(translate(substr(ordered, 4), '0123456789', '9876543210'), '~')::numeric END $$;

CREATE OR REPLACE FUNCTION report.ordered_double(ordered text) RETURNS double precision
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

CREATE OR REPLACE FUNCTION report.ordered_value(ordered text) RETURNS jsonb
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

CREATE OR REPLACE FUNCTION report.top_rows(texts text[], fields text[]) RETURNS jsonb
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$ SELECT jsonb_agg((SELECT jsonb_object_agg(f.name, report.ordered_value(f.ordered))
                              FROM unnest(fields, string_to_array(r.ordered, chr(1))) f (name, ordered)
                             WHERE f.name IS NOT NULL) ORDER BY r.place)
            FROM unnest(texts) WITH ORDINALITY r (ordered, place) $$;

COMMENT ON FUNCTION report.ordered_number(text) IS 'TopNBy: the number that a text in the order of numbers stands for';
COMMENT ON FUNCTION report.ordered_double(text) IS 'TopNBy: the double that a text in the order of doubles stands for';
COMMENT ON FUNCTION report.ordered_value(text) IS 'TopNBy: the value that a text in the order of its type stands for; null: the empty one';
COMMENT ON FUNCTION report.top_rows(text[], text[]) IS
    'TopNBy: rows as objects of these fields, greatest first; a field that is null here is not shown';
