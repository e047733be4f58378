"""The protocol: plain Python that decides and never does. The rules (R1 ...) are in docs/rules.md.

The rooms, from the ground up: `text`, `garbage`, `errors`; `naming`, `stored_json`, `records`; `aggregates`, `windows`;
`state`, `batch`, `sources`; `topology`, `definition`, `upstream`; `protocol`, `corrections`. A room imports only lower
rooms.
"""
