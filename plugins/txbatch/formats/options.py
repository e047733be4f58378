"""The options of each format: an allow-list with txbatch's defaults. Any other option is refused, with the way out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from txbatch.core.errors import InvalidOption
from txbatch.core.records.fields import INTEGER_TYPES, Field
from txbatch.core.records.time_buckets import zone_named
from txbatch.formats import time_formats

Options = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Option:
    """`check` returns the value to use for a given value, or raises ValueError with the accepted values."""

    default: Any
    check: Callable[[Any], Any]
    changes: str


def yes_or_no(value: Any) -> bool:
    """Return True or False, also from Spark's texts."""
    if isinstance(value, bool) or (isinstance(value, str) and value.lower() in ("true", "false")):
        return value if isinstance(value, bool) else value.lower() == "true"
    raise ValueError("must be True or False")


def character(value: Any) -> str:
    """Return a single ASCII character that ends no line."""
    if value == "\\t":
        return "\t"
    if isinstance(value, str) and len(value) == 1 and value.isascii() and value not in "\r\n\0":
        return value
    raise ValueError("must be one ASCII character")


def texts(value: Any) -> tuple[str, ...]:
    """A text or several."""
    values = (value,) if isinstance(value, str) else value
    if isinstance(values, list | tuple) and all(isinstance(each, str) for each in values):
        return tuple(values)
    raise ValueError("must be a text, or a list of texts")


def one_of(*values: str) -> Callable[[Any], str]:
    """Return a check for one of the given texts."""

    def check(value: Any) -> str:
        if value in values:
            return str(value)
        raise ValueError(f"must be {' or '.join(map(repr, values))}")

    return check


def _name(value: Any) -> str:
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z0-9_.-]+", value):
        return value
    raise ValueError("must be the name of folders, such as 'day' of `day=2026-11-01/`, in ASCII letters and digits")


def _timestamp_format(value: Any) -> str:
    time_formats.pattern(str(value))
    return str(value)


def _date_format(value: Any) -> str:
    time_formats.pattern(str(value), clock=False)
    return str(value)


def _quote(value: Any) -> str:
    return "" if value in ("", "\0") else character(value)


def _point(value: Any) -> str:
    if value in (".", ","):
        return str(value)
    raise ValueError("must be '.' or ','")


def _thousands(value: Any) -> str:
    if value in (".", ",", " ", "'", "_", "\u00a0", "\u202f"):
        return str(value)
    raise ValueError("must be '.', ',', \"'\", '_' or a blank")


def _encoding(value: Any) -> str:
    try:
        same = isinstance(value, str) and _SAMPLE.encode(value) == _SAMPLE.encode("ascii")
    except (LookupError, UnicodeError):
        same = False
    if same:
        return str(value)
    if isinstance(value, str) and re.sub("[^a-z0-9]", "", value.lower()) == "utf8sig":
        raise ValueError("is UTF-8 with a mark of byte order, which is passed over anyway; leave the option out")
    raise ValueError("must be a character set in which ASCII keeps its bytes; make UTF-8 of the files first (iconv)")


def _doubled(value: Any) -> str:
    if value == '"':
        return '"'
    raise ValueError("must be '\"': a quote within quotes is doubled; let the writer double them (Spark: escape='\"')")


_SAMPLE = "".join(map(chr, range(0x20, 0x7F))) + "\t\r\n"

# What says which moment a time is.
MOMENTS: dict[str, Option] = {
    "timezone": Option("UTC", zone_named, "the zone of times that are written without one"),
    "ambiguous": Option(
        None, one_of("earliest", "latest"), "which one a time means that was twice on the zone's clocks"
    ),
    "unit": Option(None, one_of("s", "ms", "us"), "timestamps are numbers of this unit since 1970, in UTC"),
    "timestamp_format": Option(None, _timestamp_format, "how timestamps are written: strptime's words, with %Y"),
}
# What both text formats have for times.
TIMES: dict[str, Option] = MOMENTS | {
    "date_format": Option(None, _date_format, "how dates are written: strptime's words, with %Y"),
}

# What every format has: a JSON record may lack the fields, a file of the other formats.
LACKING: dict[str, Option] = {
    "optional": Option(
        (), texts, "fields that a file, or a record of JSON, may lack, one or several: they are null then"
    ),
    "folders": Option(
        (),
        texts,
        "fields, one or several, that the names of folders have, such as `day=2026-11-01/`, and files may lack",
    ),
    "folder_time": Option(
        None, _name, "the folders' name of a year, month, day or hour in which all times of their files lie"
    ),
}

# What formats have besides whose values have types of their own.
TYPED: dict[str, Option] = {
    **LACKING,
    "numbers_as_text": Option(
        (), texts, "string fields, one or several, that also take numbers: by their digits, as they are written"
    ),
}

JSON: dict[str, Option] = {
    **TYPED,
    "quoted_numbers": Option(
        False, yes_or_no, "numbers may also stand in quotes, as producers of exact decimals write them"
    ),
    **TIMES,
}

CSV: dict[str, Option] = {
    "header": Option(False, yes_or_no, "the first line of each file names the columns, which may stand in any order"),
    "sep": Option(",", character, "what stands between two cells"),
    "quote": Option('"', _quote, "what a cell with separators is enclosed in; '' for none"),
    "escape": Option('"', _doubled, "nothing: within quotes a quote is doubled"),
    "encoding": Option("UTF-8", _encoding, "the character set of the files; bytes that it lacks are refused"),
    "null_value": Option((), texts, "cells that stand for null, one text or several; '' takes empty cells for null"),
    "decimal": Option(".", _point, "the decimal point of numbers"),
    "thousands": Option(None, _thousands, "what may stand between groups of three digits of a number"),
    "trim": Option(False, yes_or_no, "blanks around numbers, booleans and times are no part of them"),
    "nul": Option(
        False, yes_or_no, "texts may hold U+0000, which is refused else: UTF-16 that is taken for UTF-8 is full of it"
    ),
    "multiline": Option(False, yes_or_no, "cells in quotes may hold line ends; such a file is read by one task"),
    "extra": Option(
        "refuse",
        one_of("refuse", "ignore"),
        "'ignore' passes over columns that are no fields, and reads none of their cells",
    ),
    **LACKING,
} | TIMES

PARQUET: dict[str, Option] = TYPED

FORMATS: Mapping[str, Mapping[str, Option]] = {"csv": CSV, "json": JSON, "parquet": PARQUET}

# What Spark, or who comes from elsewhere, calls one of ours.
_OURS = {"delimiter": "sep", "separator": "sep", "charset": "encoding"}
_ELSEWHERE = {
    "mode": "the first record that does not fit always fails the attempt",
    "columnnameofcorruptrecord": "the first record that does not fit always fails the attempt",
    "comment": "it would leave records out; take such lines out of the files",
    "enforceschema": "a header is always held against the fields, by name",
    "inferschema": "`fields` says the types",
    "samplingratio": "`fields` says the types",
    "prefersdate": "`fields` says the types",
    "unescapedquotehandling": "a stray quote is always refused; quote='' takes quotes for characters like others",
    "chartoescapequoteescaping": "within quotes a quote is doubled",
    "ignoreleadingwhitespace": "say trim=True, or trim() in the job",
    "ignoretrailingwhitespace": "say trim=True, or trim() in the job",
    "emptyvalue": "an empty cell is an empty text; null_value='' makes it null",
    "nanvalue": "say null_value, or mend the files",
    "positiveinf": "mend the files",
    "negativeinf": "mend the files",
    "locale": "say decimal=',' and thousands='.'",
    "linesep": "lines end with \\n or \\r\\n",
    "compression": "it is seen by a file's content",
    "pathglobfilter": "say pattern= of the spout",
    "recursivefilelookup": "folders are always entered",
    "modifiedafter": "it would leave records out",
    "modifiedbefore": "it would leave records out",
    "ignorecorruptfiles": "it would leave records out",
    "ignoremissingfiles": "it would leave records out",
    "maxcolumns": "the number of cells is the number of fields",
    "maxcharspercolumn": "a cell may be as long as a record",
}


def mapping(given: object) -> dict[str, Any]:
    """Return options given by name. Raise DefinitionError if the options are no mapping."""
    if given is None or (isinstance(given, Mapping) and all(isinstance(name, str) for name in given)):
        return dict(given or {})
    raise InvalidOption(f"IntervalSpout: options={given!r} is no mapping; write it as {{'header': True}}")


def check_options(format_: str, given: Mapping[str, Any]) -> Options:
    """Return all options of a format by txbatch's names: given values or defaults. Raise DefinitionError for an unknown
    option.

    Capitals and underscores make no difference: `nullValue` is `null_value`.
    """
    known = FORMATS[format_]
    names = {_plain(name): name for name in known}
    options = {name: option.default for name, option in known.items()}
    said: dict[str, str] = {}
    for spelled, value in given.items():
        plain = _plain(spelled)
        name = names.get(plain)
        if name is None:
            raise InvalidOption(f"IntervalSpout: option {spelled!r} {_refusal(format_, plain)}")
        if name in said:
            raise InvalidOption(f"IntervalSpout: options {said[name]!r} and {spelled!r} are the same; give one")
        said[name] = spelled
        try:
            options[name] = known[name].check(value)
        except ValueError as error:
            raise InvalidOption(f"IntervalSpout: option {spelled}={value!r} {error}") from None
    _check_apart(options)
    return options


def check_names(format_: str, options: Options, fields: Sequence[Field], time: str) -> None:
    """Refuse options that name no field, or that go by the names of columns where files have no header: DefinitionError."""
    types = {field.name: field.type for field in fields}
    optional, as_text = options["optional"], options.get("numbers_as_text", ())
    named_fields = {"optional": optional, "folders": options["folders"], "numbers_as_text": as_text}
    for option, named in named_fields.items():
        if unknown := [name for name in named if name not in types]:
            raise InvalidOption(f"IntervalSpout: {option}={unknown[0]!r} is not among the fields {', '.join(types)}")
    if others := [name for name in as_text if types[name] != "string"]:
        raise InvalidOption(
            f"IntervalSpout: numbers_as_text={others[0]!r} is a {types[others[0]]}; declare it a string"
        )
    for name in options["folders"]:
        if types[name] not in INTEGER_TYPES | {"string", "date"}:
            raise InvalidOption(
                f"IntervalSpout: folders={name!r} is a {types[name]}; names of folders are read as string, an integer or a date"
            )
    if time in optional and format_ != "json":
        raise InvalidOption(f"IntervalSpout: optional={time!r} is the time, by which each record is in an interval")
    for name in ("optional", "extra") if not options.get("header", True) else ():
        if options[name] != CSV[name].default:
            raise InvalidOption(
                f"IntervalSpout: {name}={options[name]!r} goes by the names of columns; say header=True, or leave it out"
            )


def _check_apart(options: Options) -> None:
    """Refuse two equal signs of CSV with different meanings."""
    for one, other in (("sep", "quote"), ("decimal", "thousands")):
        if one in options and options[one] == options[other]:
            raise InvalidOption(f"IntervalSpout: options {one} and {other} are both {options[one]!r}; they must differ")


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _refusal(format_: str, plain: str) -> str:
    if (ours := _OURS.get(plain)) in FORMATS[format_]:
        return f"is not taken: here it is {ours!r}; say {ours}="
    if plain in _ELSEWHERE:
        return f"is not taken: {_ELSEWHERE[plain]}; remove it"
    return f"is none of {format_}: it has {', '.join(FORMATS[format_])}"
