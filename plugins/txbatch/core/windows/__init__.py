"""Spans of time by which records are counted together.

`timed`, what all kinds have; `window`, then `session_window`; `watermark` is what a job says of late records.
`core.protocol.window_closing` decides when a window is closed.
"""
