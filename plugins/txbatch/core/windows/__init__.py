"""By which span of time records are counted together.

`window`, then `session_window`; `watermark` says when a window has ended.
"""
