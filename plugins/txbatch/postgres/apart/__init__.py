"""States in another database (R21).

`apart`, then `warehouses`.
"""
