-- Sessions close, too, and are told by their last times (R26, R27).

COMMENT ON VIEW report.closings IS 'Windows or sessions of a state that a batch closed: no ordinary batch after it counts records in time in them.';
COMMENT ON COLUMN report.closings.window_key IS 'The column of the state that has the starts of its windows, or the last times of its sessions';
COMMENT ON COLUMN report.closings.first_start IS 'They start then or later; of sessions the last time is then or later';
COMMENT ON COLUMN report.closings.before_start IS 'They start before then; of sessions the last time is before then';
COMMENT ON COLUMN report.closings.closed_to IS 'Up to when windows of the state are closed since the commit: they end then or earlier, sessions and the gap earlier';
