"""Writes the pages of docs/reference/ that the code itself holds: `make docs-generate`. A test says when a page is stale.

`markdown` has the parts of a page. `python_names` reads docstrings, `signatures` how each name is called, `commands` the
command line, `sql` the views and functions of a ledger with the states of `samples`, `settings` variables and limits.
`written` has all pages by their names.
"""
