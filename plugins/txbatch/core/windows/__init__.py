"""Spans of time by which records are counted together.

`window`, then `session_window`; `watermark` decides when a window has ended.
"""
