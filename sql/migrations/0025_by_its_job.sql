-- An error that says how the past of a state is asked which merges by Python of its job.
CREATE FUNCTION report.by_its_job(state text) RETURNS boolean
    LANGUAGE plpgsql STABLE PARALLEL SAFE SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'feature_not_supported',
        MESSAGE = format('state %L merges values by Python of its job, which SQL cannot run: what it was is told with that alone', state),
        HINT = format('Ask `txbatch as-of %s TXID` in the project''s folder, or Reports.as_of in Python; report.%I has what each batch contributed.',
                      state, state || '_changes');
END
$$;

COMMENT ON FUNCTION report.by_its_job(text) IS 'An error that says how the past of a state is asked which merges by Python of its job.';
