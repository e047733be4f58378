"""Bad inputs by the hundred: names, values of options, URLs, job files, staged files.

Each list is data, which `cli/test_bad_by_the_thousand.py` tries.
"""

# fmt: off
# ruff: noqa: RUF001

from __future__ import annotations

# What a shell, a script with a mistake in it, or an attacker puts where a name is meant.
TEXTS = [
    *("", " ", "\t", "\n", ".", "..", "...", "/", "//", "../..", "../words", "/etc/passwd", "~", "~root", "C:\\words", "-"),
    "--",
    *("'", '"', "`", "\\", "$$", "$(id)", "`id`", "${HOME}", "%", "%s", "%(x)s", "%d%n", "{}", "{0}", "{x!r}", ":topology"),
    "?",
    *("'; DROP SCHEMA txbatch CASCADE; --", '"; DROP TABLE state.words; --', "words' OR '1'='1", "words;", "words--", "/*"),
    *("WORDS", "Words", "word", "words ", " words", "words\n", "word_", "word%", "w*", "[w]ords", "words,words", "words\\"),
    *("a\rb", "a\nb", "\x1b[2J", "\x1b]0;pwned\x07", "\x9b31m", "\x7f", "\b\b", "\u202ewords", "\u200bwords", "wörds"),
    "ｗords",
    *("世界", "🎉", "e\u0301", "\ufeffwords", "\u2028", "\ud800", "\udcff", "words\udc80", "words\0", "\0", "NULL", "null"),
    "None",
    *("true", "NaN", "0", "-1", "1e999", "[]", "{", "<script>", "&amp;", "=", "=cmd|' /C calc'!A0", "@x", "#", "|", "&", ">"),
    "\\N",
    *("x" * 64, "x" * 5_000, "ü" * 40, "A" * 100_000, "x.y.z" * 30, "public.words", "txbatch.batch", "pg_catalog", "select"),
]
NUMBERS = [
    *("", " ", "x", "1.5", "1e3", "-1", "0", "+", "0x10", "1_0", "१२", "9" * 19, "9" * 30, "9" * 5_000, "1 2", "1,2", "NaN"),
    "inf",
    *("\0", "\udcff", "1;", "'1'", "--", "-0", "9223372036854775808", "18446744073709551616"),
]
MOMENTS = [
    *("", " ", "x", "yesterday", "now", "0", "1700000000", "2013", "2013-01", "2013-13-01T00:00:00Z", "2013-02-30T00:00:00Z"),
    *("2013-01-01", "2013-01-01T00:00:00", "2013-01-01T25:00:00Z", "2013-01-01T00:00:60Z", "2013-01-01T00:00:00+25:00"),
    *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "0000-01-01T00:00:00Z", "10000-01-01T00:00:00Z", "-1-01-01"),
    *("2013-01-01T00:00:00Zz", "2013-01-01T00:00:00 UTC", "\udcff", "2013-01-01T00:00:00Z\0", "x" * 10_000),
    "２０１３-01-01T00:00:00Z",
    *("2013-W01-1", "20130101T000000", "2013-01-01T00:00:00+00:00:00.000001x", "\x1b[2J"),
]
CRONS = [
    *("", " ", "x", "* * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 9", "*/0 * * * *"),
    "a b c d e",
    *("* * * * * * * *", "0 0 31 2 *", "@reboot", "@hourlyy", "H H * * *", "0 0 * * mon#9", "1,,2 * * * *", "-1 * * * *"),
    *("\udcff * * * *", "\0", "9" * 5_000 + " * * * *", "* * * * * *", "0 0 * * L", "%s", "0 5 * * *"),
    "\x1b[2J",
]
ZONES = [
    "",
    " ",
    "x",
    "../../etc/passwd",
    "/etc/passwd",
    "\0",
    "utc+1",
    "America",
    "Mars/Olympus",
    "x" * 5_000,
    "\udcff",
    "-05:00",
]
MASTERS = [
    *("", " ", "x", "nonsense", "local[", "local[]", "local[0]", "local[x]", "local[*", "local[-1]", "spark", "spark://"),
    "spark://:7077",
    *("spark://a:b", "spark://a:123456", "spark://a b", "http://a:7077", "yarn-client", "mesos://x", "k8s://", "k8s"),
    *("--conf", "\udcff"),
    *("local[*];id", "local[1,x]", "LOCAL", "\0", "x" * 5_000, "spark://a:7077,", "local-cluster[1]", "\x1b[2J"),
]
PARAMETERS = [
    *("", " ", "x", "=", "=x", "top", "top=", "top= ", "nosuch=1", "TOP=1", "top=" + "[" * 20_000, 'top={"a":' * 20_000),
    "top=NaN",
    *("top=\udcff", "top=\0", "\udcff=1", "top =1", " top=1", "'=1", "top:1", "top=1e999", "top=Infinity", "\x1b[2J=1"),
]
UUIDS = ["", " ", "x", "0" * 31, "0" * 33, "\0", "\udcff", "../x", "%s", "'", "x" * 5_000]
PATHS = [
    *("", " ", ".", "..", "/", "/nosuch.py", "nosuch.py", "nosuch/job.py", "jobs", "/dev/null", "/dev/full"),
    *("/proc/self/mem", "job.txt"),
    *("x" * 300, "/" + "x/" * 3_000, "\0", "job.py\0", "\udcff.py", "a\nb.py", "\x1b[2J.py", "~/job.py", "file:///job.py"),
    *("-", "%s"),
    *("s3://bucket/job.py", "http://127.0.0.1:1/job.py", "job.py;id", "$(id).py", "README.md", "Makefile", "sql/schema.sql"),
    "docs",
]
# After `postgresql://`; the password is always geheim, and nothing listens at port 1.
URLS = [
    *("u:geheim@127.0.0.1:1/db", "u:x@geheim@127.0.0.1:1/db", "u:geheim@h@127.0.0.1:1/db", "u:geheim@127.0.0.1:99999/db"),
    *("u:geheim@127.0.0.1:0/db", "u:geheim@127.0.0.1:-1/db", "u:geheim@127.0.0.1:port/db", "u:geheim@[::1/db"),
    "u:geheim@[::1]:1/db",
    *("u:geheim@127.0.0.1:1/db?nosuch=1", "u:geheim@127.0.0.1:1/db?sslmode=x", "u:geheim@127.0.0.1:1/db?sslrootcert=/nosuch"),
    *("u:geheim@127.0.0.1:1/db?connect_timeout=x", "u:geheim@127.0.0.1:1/db?service=nosuch", "u:geheim@127.0.0.1:1/db?dsn=x"),
    *("u:geheim@127.0.0.1:1/db?host=a@geheim", "u:geheim@127.0.0.1:1/db?hostaddr=x", "u:geheim@127.0.0.1:1/db?port=x"),
    *("u@127.0.0.1:1/db?password=geheim", "u@127.0.0.1:1/db?sslpassword=geheim"),
    "u@127.0.0.1:1/db?options=-cpassword%3Dgeheim",
    *("u:geheim@127.0.0.1:1/db?sslmode=require&sslmode=disable", "u:geheim@127.0.0.1:1/db?gssencmode=x"),
    "u:geheim@127.0.0.1:1/db?=",
    *("u:geheim@127.0.0.1:1/db?target_session_attrs=x", "u:geheim@127.0.0.1:1/db?channel_binding=x"),
    "u:geheim@127.0.0.1:1/db?%00=x",
    *("u:gehe%00im@127.0.0.1:1/db", "u:geheim%@127.0.0.1:1/db", "u:geheim%zz@127.0.0.1:1/db", "u:geheim/@127.0.0.1:1/db"),
    *("u:geheim#@127.0.0.1:1/db", "u:geheim?@127.0.0.1:1/db", "u:geheim:@127.0.0.1:1/db", "u:geheim @127.0.0.1:1/db"),
    *("u:geheim@127.0.0.1:1/d b", "u:geheim@127.0.0.1:1/%", "u:geheim@127.0.0.1:1/db#x", "u:geheim@127.0.0.1:1//"),
    "u:geheim@/x?host=/nosuch",
    *("u:geheim@127.0.0.1,127.0.0.1:1/db", "u:geheim@/db?host=127.0.0.1:99999"),
    "u:geheim@/db?host=127.0.0.1:1&host=b@geheim",
    *("u:geheim@127.0.0.1:1/" + "x" * 5_000, "u" * 5_000 + ":geheim@127.0.0.1:1/db", "u:geheim\x1b[2J@127.0.0.1:1/db\x1b[2J"),
    *("ü:geheimü@127.0.0.1:1/ü", "u:geheim\udcff@127.0.0.1:1/db", "\u202eu:geheim@127.0.0.1:1/db"),
    "u:geheim@127.0.0.1:1/db\nx",
]
SCHEMES = [
    *("", "postgres://", "postgresql+asyncpg://", "postgresql+psycopg://", "mysql://", "sqlite:///", "oracle://", "file:///"),
    "http://",
    *("jdbc:postgresql://", "POSTGRESQL://", "postgresql:/", "postgresql:", "//", "://", "nosuch+psycopg2://", "\x1b[2J://"),
    "host=",
]
EMPTY = ["", " ", "\t", "\n", "   \n"]
HOMES = ["a,b", "a[b]", "a{b}", "a*", "a?", "a\\b", "a\nb", "a\x1b[2Jb", "a\x7fb", "\udcff"]
# Expressions that are to define the topology of a job; `Topology`, `spout` and `words` are there.
DEFINITIONS = [
    *("None", "7", "Topology()", "Topology(None)", "Topology(7)", "Topology(b'x')", "Topology(['x'])", "Topology('')"),
    "Topology(' ')",
    *(f"Topology({name!r})" for name in (".", "..", "....", "-x", "--conf", "a/b")),
    *(f"Topology({name!r})" for name in ("../a", "a b", "ü", "\0", "a\n", "\ud800", "x" * 64)),
    *(f"Topology('t', {pending})" for pending in ("0", "-1", "None", "'3'", "1.5", "float('nan')", "True", "[]")),
    *(f"words(stream={name})" for name in ("''", "None", "7", "'\\0'", "'x' * 64", "'\\ud800'")),
    *(f"words(fields={fields})" for fields in ("None", "7", "''", "' '", "'word'")),
    *(f"words(fields={fields})" for fields in ("'word nosuch'", "', '", "'a int a int'")),
    *(f"words(fields={fields})" for fields in ("'word string, word string'", "'word string, WORD int'")),
    *(f"words(fields={fields})" for fields in ("'`word string'", "'word decimal(99,1)'")),
    *(f"words(fields={fields})" for fields in ("'word decimal(1,2)'", "'word decimal'")),
    *(f"words(fields={fields})" for fields in ("'word decimal(x,y)'", "'word array<int>'", "b'word string'")),
    *(f"words(key={key})" for key in ("''", "'nosuch'", "None", "7", "'WORD '", "'word', 'word'", "[]", "'\\0'")),
    *(f"words(state={state})" for state in ("7", "'words'")),
    *(f"words(state={state})" for state in ("OpaqueState", "OpaqueState('')", "OpaqueState(None)", "OpaqueState(7)")),
    *(f"words(state=OpaqueState({name!r}))" for name in ("\0", "ü" * 40, "x" * 64, "\ud800")),
    *("words(state=NonTransactionalState('s'))", "words(state=OpaqueState('s', database=''))"),
    "words(state=OpaqueState('s', database='\\0'))",
    *(f"words(count={value})" for value in ("None", "7", "Count", "Sum()")),
    *(f"words(count={value})" for value in ("Sum('nosuch')", "Sum('word')", "Avg('word')", "Max()", "'x'")),
    *(f"words(guarantee={value})" for value in ("''", "'maybe'", "None", "7")),
    *("words().nosuch", "words", "Topology", "[words()]", "spout", "words() and words(name='other') and 1 / 0"),
]
# Whole files, below the line that imports everything.
JOBS = [
    *("1 +\n", "import nosuch\n", "raise SystemExit\n", "raise SystemExit(0)\n", "raise SystemExit('x')\n"),
    "raise GeneratorExit\n",
    *("class Own(BaseException): pass\nraise Own('x')\n", "class Own(Exception):\n  def __str__(self): 1 / 0\nraise Own\n"),
    "exit()\n",
    *("raise Exception('\\x1b[2J\\rtxbatch: all is well')\n", "raise Exception('x' * 10_000_000)\n"),
    "raise Exception('\\ud800')\n",
    *("def f(): f()\nf()\n", "assert False\n", "1 / 0\n", "'\\0'.nosuch\n", "open('/nosuch')\n", "raise MemoryError\n"),
    "raise OSError(28, 'x')\n",
    *("raise StopIteration\n", "raise DefinitionError('x\\ny')\n", "raise UnicodeDecodeError('utf-8', b'', 0, 1, 'x')\n"),
    *("\0", "\ud800"),
    *("import sys\nsys.exit(3)\n", "# coding: nosuch\n", "\tx\n y\n", "topology = Topology('a')\n"),
    "a = Topology('a')\nb = Topology('b')\n",
    *("raise SystemExit(emit(Topology('a')))\n", "(" * 300 + ")" * 300, "x = " + "-" * 5_000 + "1"),
    "raise BaseExceptionGroup('x', [ValueError()])\n",
]
WORDS = """
def words(name="t", stream="in", fields="word string", key="word", state=None, **values):
    topology = Topology(name)
    spout = FixedBatchSpout(fields, 1, "a")
    grouped = topology.new_stream(stream, spout).group_by(*(key if isinstance(key, (tuple, list)) else (key,)))
    grouped.persistent_aggregate(OpaqueState("s") if state is None else state, **(values or {"count": Count()}))
    return topology
spout = FixedBatchSpout("word string", 1, "a")
"""
KEY_TYPES = ["string", "bigint", "smallint", "date", "timestamp", "decimal(10,2)", "boolean", "double", "binary"]
# What stands in a file of the staging area that somebody else has written, or that was cut off.
STAGED = [
    *(b"", b" ", b"\0", b"\xff", b"null", b"[]", b"{}", b"7", b'"x"', b"true", b"{", b"[" * 100_000, b"NaN", b'{"a": 1'),
    b"{}{}",
    *(b'{"format": 99}', b'{"format": null}', b'{"format": 1}', b'{"format": 1, "states": 7, "streams": 7}'),
    b'{"states": {"s": null}}',
    b'{"format": 1, "states": {}, "streams": {"in": 7}, "attempt": {}}',
    b'{"format": 1, "states": {}, "streams": {}, "attempt": 7}',
    *(b'{"kind": 7, "message": []}', b'{"kind": "terminal"}', b'{"message": "x"}', b'{"lease_until": 7}'),
    b'{"superseded": []}',
    *(b"\xef\xbb\xbf{}", "{}".encode("utf-16"), b'"\\ud800"', b"1" * 5_000),
    b"-" * 5_000,
]
