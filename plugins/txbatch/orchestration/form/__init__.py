"""The form of a run: `fields` has the order of the fields, and what a filled form asks for.

Rare acts: `planning_first` shows what counting again would change, `giving_up` aborts a batch.
"""
