"""What a client's connections complain of: why a login or TLS fails, in words of an allow-list, which hold no credentials."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from txbatch.core.errors import InvalidSetting, LoginRefused
from txbatch.spouts.topics import listener

if TYPE_CHECKING:
    from confluent_kafka import Consumer, KafkaError
    from confluent_kafka.admin import AdminClient

# A request waits so many seconds before the reason is looked for: brokers that come and go take less.
GRACE_SECONDS = 2.0
_LOOK_AGAIN_SECONDS = 0.2
# Names of errors of the client: a person has to mend the login.
_LOGIN = {"_AUTHENTICATION", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM", "ILLEGAL_SASL_STATE"}
_ALL_DOWN = "_ALL_BROKERS_DOWN"
# Alerts of TLS about the certificate of the client, and the one of a handshake that is refused.
_ALERT = re.compile(r"SSL alert number (?:40|4[2-6]|48|116)\b")
# What a client says of an option that it refuses, and the option. The rest of its text may hold a value.
_OPTIONS = {
    **{f"ssl.{of}": f"ssl.{of}" for of in ("ca.location", "ca.pem", "certificate.location", "certificate.pem")},
    **{f"ssl.{of}": f"ssl.{of}" for of in ("key.location", "key.pem", "keystore.location")},
    **{of: of for of in ("sasl.username", "sasl.password", "sasl.mechanism", "security.protocol")},
    "SASL mechanism": "sasl.mechanism",
    "Private key check": "ssl.certificate.location or ssl.certificate.pem",
}


class Said:
    """What a client's connections complain of, kept to name the reason of a request that is never answered."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.client: AdminClient | Consumer | None = None
        self.refusal: str | None = None
        self._options, self._names, self._asked = options, set[str](), False

    def __call__(self, error: KafkaError) -> None:
        self._names.add(error.name())
        self.refusal = self.refusal or refusal_of(error.name(), error.str())

    def names(self) -> set[str]:
        """Return the names of all complaints until now."""
        if self.client is not None:
            self.client.poll(0)
        return self._names

    def answer(self, asked: Future[Any], of: str) -> Any:
        """Return the answer to a request. Raise the reason as soon as no broker is left and a reason is found."""
        began = time.monotonic()
        while True:
            try:
                return asked.result(_LOOK_AGAIN_SECONDS)
            except TimeoutError:
                if time.monotonic() - began > GRACE_SECONDS:
                    self.check(of)

    def check(self, of: str) -> None:
        """Raise LoginRefused if no broker is left and one has refused; raise InvalidSetting for the wrong protocol."""
        if _ALL_DOWN not in self.names():
            return
        if self.refusal:
            raise LoginRefused(f"{of} {self.refusal}")
        if not self._asked:
            self._asked = True
            if wrong := listener.wrong_protocol(self._options):
                raise InvalidSetting(f"{of} {wrong}")


def refusal_of(name: str, told: str) -> str | None:
    """Return why a login or TLS fails, and what to mend, from an error's name and text; None for other errors.

    >>> refusal_of("_TRANSPORT", "Receive failed: tlsv13 alert certificate required: SSL alert number 116")
    'asks for a client certificate that its brokers trust; mend its ssl.certificate and ssl.key options'
    """
    if "certificate verify failed" in told:
        return (
            f"has brokers with a certificate that is not trusted ({name}): by no CA of ssl.ca.location or ssl.ca.pem, over, or "
            "of another host; mend these options, or the names in bootstrap.servers"
        )
    if _ALERT.search(told):
        return "asks for a client certificate that its brokers trust; mend its ssl.certificate and ssl.key options"
    if name in _LOGIN:
        return f"refuses the login ({name}); mend sasl.username, sasl.password and sasl.mechanism"
    return f"refuses the login ({name}); mend its options of TLS" if name == "_SSL" else None


def refused_option(told: str) -> str:
    """Return which option a client refuses, as a part of a sentence; "" if the client does not say.

    >>> refused_option("ssl.ca.location failed: error:05880020")
    ' (ssl.ca.location: a file stands on each machine that reads the topic)'
    """
    found = next((option for words, option in _OPTIONS.items() if words in told), "")
    file = ": a file stands on each machine that reads the topic" if found.endswith(".location") else ""
    return f" ({found}{file})" if found else ""
